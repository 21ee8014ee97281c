// FOR_EACH_LANE(M) expands to M(0) M(1) ... M(VALUES - 1), so that headers, registers and additions are written once.
// FOR_EACH_PAIR(M) expands to M(0, 1) M(2, 3) ... M(VALUES - 2, VALUES - 1).
#ifndef SWITCHML_LANES_P4
#define SWITCHML_LANES_P4

#include "types.p4"

// The ten lanes whose numbers begin with the digits T (empty for 0 to 9), and the hundred that begin with H.
#define LANES_10(M, T) M(T##0) M(T##1) M(T##2) M(T##3) M(T##4) M(T##5) M(T##6) M(T##7) M(T##8) M(T##9)
#define LANES_100(M, H)                                                                   \
    LANES_10(M, H##0) LANES_10(M, H##1) LANES_10(M, H##2) LANES_10(M, H##3)               \
    LANES_10(M, H##4) LANES_10(M, H##5) LANES_10(M, H##6) LANES_10(M, H##7)               \
    LANES_10(M, H##8) LANES_10(M, H##9)

#define LANES_0_TO_59(M)                                                                  \
    LANES_10(M, ) LANES_10(M, 1) LANES_10(M, 2) LANES_10(M, 3) LANES_10(M, 4) LANES_10(M, 5)

#define PAIRS_10(M, T) M(T##0, T##1) M(T##2, T##3) M(T##4, T##5) M(T##6, T##7) M(T##8, T##9)
#define PAIRS_0_TO_59(M)                                                                  \
    PAIRS_10(M, ) PAIRS_10(M, 1) PAIRS_10(M, 2) PAIRS_10(M, 3) PAIRS_10(M, 4) PAIRS_10(M, 5)

#if VALUES == 6
#define FOR_EACH_LANE(M) M(0) M(1) M(2) M(3) M(4) M(5)
#elif VALUES == 60
#define FOR_EACH_LANE(M) LANES_0_TO_59(M)
#define FOR_EACH_PAIR(M) PAIRS_0_TO_59(M)
#elif VALUES == 64
#define FOR_EACH_LANE(M) LANES_0_TO_59(M) M(60) M(61) M(62) M(63)
#define FOR_EACH_PAIR(M) PAIRS_0_TO_59(M) M(60, 61) M(62, 63)
#elif VALUES == 256
#define FOR_EACH_LANE(M)                                                                  \
    LANES_0_TO_59(M) LANES_10(M, 6) LANES_10(M, 7) LANES_10(M, 8) LANES_10(M, 9)          \
    LANES_100(M, 1)                                                                       \
    LANES_10(M, 20) LANES_10(M, 21) LANES_10(M, 22) LANES_10(M, 23) LANES_10(M, 24)       \
    M(250) M(251) M(252) M(253) M(254) M(255)
#else
#error "VALUES (values per packet) must be 6, 60, 64 or 256"
#endif

#endif
