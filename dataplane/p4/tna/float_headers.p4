// What belongs to the sums of floats of a packet between ingress and egress.
#ifndef SWITCHML_FLOAT_HEADERS_P4
#define SWITCHML_FLOAT_HEADERS_P4

#include "arch.p4"
#include "../common/lanes.p4"

typedef bit<8> marks_t;
const marks_t MARKS_NONE = 0;
const marks_t MARK_NEGATIVE_INFINITY = 1;
const marks_t MARK_POSITIVE_INFINITY = 2;
const marks_t MARK_NAN = 4;

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
