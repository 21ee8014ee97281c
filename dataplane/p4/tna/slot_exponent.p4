// SlotExponent holds the largest exponent that the workers have announced for the slot's next chunk.
#ifndef SWITCHML_SLOT_EXPONENT_P4
#define SWITCHML_SLOT_EXPONENT_P4

#include "slot_register.p4"

SLOT_REGISTER(SlotExponent, slot_exponent, bit<16>, packet.exponent,
              stored = packet.exponent, stored = max(stored, packet.exponent))

#endif
