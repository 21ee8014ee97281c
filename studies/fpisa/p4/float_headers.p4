// The header with which ingress sends the sums of floats of a packet to egress.
#ifndef SWITCHML_FLOAT_HEADERS_P4
#define SWITCHML_FLOAT_HEADERS_P4

#include "../../../dataplane/p4/tna/arch.p4"
#include "../../../dataplane/p4/common/lanes.p4"
#include "../../../dataplane/p4/common/float_marks.p4"

// One of each for a lane (slot_floats.p4).
#define PLACE_FIELD(i) bit<32> place_##i;
#define MARKS_FIELD(i) marks_t marks_##i;
header floats_t {
    FOR_EACH_LANE(PLACE_FIELD)
    FOR_EACH_LANE(MARKS_FIELD)
}
#undef PLACE_FIELD
#undef MARKS_FIELD

#endif
