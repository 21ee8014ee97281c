// SlotCheck holds the sum of the workers' checks, modulo 2^32.
#ifndef SWITCHML_SLOT_CHECK_P4
#define SWITCHML_SLOT_CHECK_P4

#include "slot_register.p4"

SLOT_REGISTER(SlotCheck, slot_check, bit<32>, packet.check,
              stored = packet.check, stored = stored + packet.check)

#endif
