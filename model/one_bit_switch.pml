/* The published switch (p4lang/p4app-switchML: bitmap_checker.p4, workers_counter.p4 and others; Sapio et al.,
 * NSDI 2021, algorithm 3). A version bit in a packet names its half; nothing names its phase or epoch. A contribution to
 * one half clears the sender's bit in the other, which is how a half becomes free again. */

#include "decision.pml"

#define HALF(slot, phase) (2 * (slot) + ((phase) & 1))

byte stored_bitmap[HALVES];
byte missing[HALVES];  /* number of missing contributions; 0: complete, or never used */

/* A packet is sent back as it came, apart from its sums. */
#define RESULT_HAS_VALUES(half, epoch, slot, worker, phase) HAS_VALUES(epoch, slot, worker, phase)
#define RESULT_CHUNK(half, epoch, slot, worker, phase) NAMED(epoch, slot, worker, phase)

hidden byte half;
hidden byte bitmap_before;

inline aggregate(epoch, slot, worker, phase) {
    half = HALF(slot, phase);
    bitmap_before = stored_bitmap[half];
    seen = (bitmap_before >> (worker)) & 1;
    stored_bitmap[half] = bitmap_before | (1 << (worker));
    stored_bitmap[half ^ 1] = stored_bitmap[half ^ 1] & ~(1 << (worker));
    if
    :: seen && missing[half] == 0 -> verdict = VERDICT_RESENT
    :: seen && missing[half] != 0 -> verdict = VERDICT_DUPLICATE
    :: !seen && missing[half] == 0 -> verdict = VERDICT_AGGREGATED; missing[half] = WORKERS - 1
    :: !seen && missing[half] == 1 -> verdict = VERDICT_COMPLETED; missing[half] = 0
    :: !seen && missing[half] > 1 -> verdict = VERDICT_AGGREGATED; missing[half]--
    fi;
    if
    :: bitmap_before == 0 -> overwrite_sum(half, epoch, worker, phase)
    :: bitmap_before != 0 && !seen -> add_to_sum(half, epoch, worker, phase)
    :: else
    fi;
    printf("@deliver epoch=%d slot=%d worker=%d phase=%d verdict=%d\n", epoch, slot, worker, phase, verdict)
}
