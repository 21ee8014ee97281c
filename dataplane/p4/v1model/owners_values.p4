// In egress, removes the values from a copy of a RESULT that goes to no rank that reads them.
#ifndef SWITCHML_OWNERS_VALUES_P4
#define SWITCHML_OWNERS_VALUES_P4

#include "arch.p4"
#include "../common/headers.p4"

control OwnersValues(inout headers_t hdr, in bitmap_t listeners) {
    bitmap_t readers;

    apply {
        readers = (bitmap_t)1 << ((bit<8>)hdr.switchml.owner[6:0] - OWNER_FIRST);
        if (hdr.switchml.owner[7:7] == 1) {  // all but one rank
            readers = ~readers;
        }
        if (hdr.values.isValid() && hdr.switchml.owner != OWNER_EVERYONE && (listeners & readers) == 0) {
            hdr.values.setInvalid();
            hdr.udp.length = UDP_LENGTH_EMPTY;
            hdr.ipv4.total_length = IPV4_LENGTH_EMPTY;
            hdr.switchml.count = 0;
            hdr.switchml.flags = hdr.switchml.flags | FLAG_WITHOUT_VALUES;
        }
    }
}

#endif
