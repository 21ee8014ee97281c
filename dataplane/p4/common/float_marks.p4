// Marks of values that are not finite, because their sum follows from no mantissa. Those of several values are
// combined with a bitwise or.
#ifndef SWITCHML_FLOAT_MARKS_P4
#define SWITCHML_FLOAT_MARKS_P4

typedef bit<8> marks_t;
const marks_t MARKS_NONE = 0;
const marks_t MARK_NEGATIVE_INFINITY = 1;
const marks_t MARK_POSITIVE_INFINITY = 2;
const marks_t MARK_NAN = 4;

#endif
