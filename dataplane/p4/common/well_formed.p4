// Column groups that match a well-formed SwitchML packet, for the two tables that check it.
#ifndef SWITCHML_WELL_FORMED_P4
#define SWITCHML_WELL_FORMED_P4

#include "headers.p4"

// UDP length, IPv4 total length
#define LENGTHS_EMPTY UDP_LENGTH_EMPTY, IPV4_LENGTH_EMPTY
#define LENGTHS_WITH_VALUES UDP_LENGTH_VALUES, IPV4_LENGTH_VALUES
// version, kind, format; RESULTs are malformed unless they are the parent's, which are admitted
#define OURS PROTOCOL_VERSION, KIND_CONTRIBUTION, FORMAT_OF_WORDS
// The same for packets of the other formats that a pipeline may take: codes, which are of two formats, or floats.
#if CAN_EXPAND_CODES
#define LENGTHS_WITH_OTHERS UDP_LENGTH_CODES, IPV4_LENGTH_CODES
#define OTHERS FORMAT_NATURAL8 &&& ~(FORMAT_NATURAL8 ^ FORMAT_DYNAMIC8)
#elif CAN_ADD_FLOATS
#define LENGTHS_WITH_OTHERS LENGTHS_WITH_VALUES
#define OTHERS FORMAT_FLOAT32
#endif
#define TAKES_OTHERS (CAN_EXPAND_CODES || CAN_ADD_FLOATS)
#define OURS_IN_OTHERS PROTOCOL_VERSION, KIND_CONTRIBUTION, OTHERS
// version, format; in a pipeline that expands codes also the kind, because only contributions have codes
#if CAN_EXPAND_CODES
#define OF_THIS_VERSION PROTOCOL_VERSION, _, FORMAT_OF_WORDS
#define OF_THIS_VERSION_IN_OTHERS OURS_IN_OTHERS
#else
#define OF_THIS_VERSION PROTOCOL_VERSION, FORMAT_OF_WORDS
#define OF_THIS_VERSION_IN_OTHERS PROTOCOL_VERSION, OTHERS
#endif
// exponent
#define ANY_EXPONENT 0 .. EXPONENT_UNKNOWN
// the flag FLAG_WITHOUT_VALUES, count
#define EMPTY 1, 0 .. 0
#define WITH_VALUES 0, 1 .. VALUES
// the half in slot, the half in phase
#define HALF_0 0, 0
#define HALF_1 1, 1

#endif
