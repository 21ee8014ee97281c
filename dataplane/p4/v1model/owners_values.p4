// In egress, removes the values from a copy of a RESULT that does not go to the owner of its chunk.
#ifndef SWITCHML_OWNERS_VALUES_P4
#define SWITCHML_OWNERS_VALUES_P4

#include "arch.p4"
#include "../common/headers.p4"

control OwnersValues(inout headers_t hdr, in bitmap_t listeners) {
    bitmap_t from_owner;

    apply {
        from_owner = listeners >> (hdr.switchml.owner - OWNER_FIRST);
        if (hdr.values.isValid() && hdr.switchml.owner != OWNER_EVERYONE && from_owner[0:0] == 0) {
            hdr.values.setInvalid();
            hdr.udp.length = UDP_LENGTH_EMPTY;
            hdr.ipv4.total_length = IPV4_LENGTH_EMPTY;
            hdr.switchml.count = 0;
            hdr.switchml.flags = hdr.switchml.flags | FLAG_WITHOUT_VALUES;
        }
    }
}

#endif
