// Sums of floats on Tofino, for study: the program of switchml.p4 that adds six floats of a packet as FPISA-A does, and
// nothing else. ../../README.md tells what fits and what it is good for.
#define FPISA_A 1
#define VALUES 6
#include "slot_floats.p4"
#include "float_results.p4"
#include "switchml.p4"
