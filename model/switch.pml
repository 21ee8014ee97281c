/* The switch: each slot has two halves, and `phase & 1` selects one. */

#include "decision.pml"

#ifdef ONE_HALF  /* a broken variant that shows why there is a second half */
#define HALF(slot, phase) (2 * (slot))
#else
#define HALF(slot, phase) (2 * (slot) + ((phase) & 1))
#endif

byte stored_epoch[2 * SLOTS];  /* the index of the epoch plus 1; 0: never used */
byte stored_phase[2 * SLOTS];
byte stored_bitmap[2 * SLOTS];

hidden byte half;
hidden byte bitmap;

/* The first values of a phase overwrite, whichever worker sends them; later ones are added. */
inline take_values(half, epoch, worker, phase) {
    if
    :: phase_predicate == PHASE_NEWER -> filled[half] = false
    :: else
    fi;
    if
    :: !OWNS(worker, phase)
#ifdef VALUES_ADD  /* a broken variant: only the first packet of a phase overwrites, even if it has no values */
    :: OWNS(worker, phase) && phase_predicate == PHASE_NEWER -> overwrite_sum(half, epoch, worker, phase)
    :: OWNS(worker, phase) && phase_predicate != PHASE_NEWER -> filled[half] = true; add_to_sum(half, epoch, worker, phase)
#else
    :: OWNS(worker, phase) && !filled[half] -> overwrite_sum(half, epoch, worker, phase)
    :: OWNS(worker, phase) && filled[half] -> add_to_sum(half, epoch, worker, phase)
#endif
    fi
}

/* Admission (worker table, then the epoch), the half's state, the decision, the sums. */
inline aggregate(epoch, slot, worker, phase) {
    half = HALF(slot, phase);
    if
    :: ENTRY_EPOCH(worker) != (epoch) + 1 -> verdict = VERDICT_WRONG_EPOCH
    :: else ->
        if
        :: stored_epoch[half] != (epoch) + 1 || (phase) > stored_phase[half] ->
            phase_predicate = PHASE_NEWER;
            check_overwritten(epoch, slot);
            stored_epoch[half] = (epoch) + 1;
            stored_phase[half] = phase;
            bitmap = 0
        :: stored_epoch[half] == (epoch) + 1 && (phase) == stored_phase[half] ->
            phase_predicate = PHASE_SAME;
            bitmap = stored_bitmap[half]
        :: stored_epoch[half] == (epoch) + 1 && (phase) < stored_phase[half] ->
            phase_predicate = PHASE_STALE
        fi;
        seen = (phase_predicate == PHASE_SAME) && ((bitmap >> (worker)) & 1);
        if
        :: phase_predicate != PHASE_STALE ->
            bitmap = bitmap | (1 << (worker));
            stored_bitmap[half] = bitmap
        :: else
        fi;
        complete = (phase_predicate != PHASE_STALE) && bitmap == ENTRY_MASK(worker);
        decide();
        if
        :: phase_predicate != PHASE_STALE && !seen -> take_values(half, epoch, worker, phase)
        :: else
        fi
    fi;
#ifdef NO_RESEND  /* a broken variant that shows why RESULTs are resent */
    if
    :: verdict == VERDICT_RESENT -> verdict = VERDICT_DUPLICATE
    :: else
    fi;
#endif
    printf("@deliver epoch=%d slot=%d worker=%d phase=%d verdict=%d\n", epoch, slot, worker, phase, verdict)
}
