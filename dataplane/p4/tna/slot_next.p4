// SlotNext holds the smallest `chunk` that the workers have named, which in a sparse call is the next block.
#ifndef SWITCHML_SLOT_NEXT_P4
#define SWITCHML_SLOT_NEXT_P4

#include "slot_register.p4"

SLOT_REGISTER(SlotNext, slot_next, bit<32>, packet.chunk,
              stored = packet.chunk, stored = min(stored, packet.chunk))

#endif
