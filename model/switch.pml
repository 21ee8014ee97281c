/* The switch: each slot has two halves, and `phase & 1` selects one. */

#include "decision.pml"
#include "chunk.pml"

#ifdef TREE
#define HALF(slot, phase) HALF_AT(here, slot, phase)
#elif defined(ONE_HALF)  /* a broken variant that shows why there is a second half */
#define HALF(slot, phase) (2 * (slot))
#else
#define HALF(slot, phase) (2 * (slot) + ((phase) & 1))
#endif

byte stored_epoch[HALVES];  /* the index of the epoch plus 1; 0: never used */
byte stored_phase[HALVES];
byte stored_bitmap[HALVES];

hidden byte half;
hidden byte bitmap;

#ifndef TREE  /* there, a packet may be that of a switch */
#define BROUGHT_VALUES(epoch, slot, sender, phase) HAS_VALUES(epoch, slot, sender, phase)
#define BROUGHT_CHUNK(epoch, slot, sender, phase) NAMED(epoch, slot, sender, phase)
#endif

/* The first values of a phase overwrite, whichever worker sends them; later ones are added. */
inline take_values(half, epoch, slot, sender, phase) {
    if
    :: phase_predicate == PHASE_NEWER -> filled[half] = false
    :: else
    fi;
    if
    :: !BROUGHT_VALUES(epoch, slot, sender, phase)
#ifdef VALUES_ADD  /* a broken variant: only the first packet of a phase overwrites, even if it has no values */
    :: BROUGHT_VALUES(epoch, slot, sender, phase) && phase_predicate == PHASE_NEWER ->
        overwrite_sum(half, epoch, sender, phase)
    :: BROUGHT_VALUES(epoch, slot, sender, phase) && phase_predicate != PHASE_NEWER ->
        filled[half] = true;
        add_to_sum(half, epoch, sender, phase)
#else
    :: BROUGHT_VALUES(epoch, slot, sender, phase) && !filled[half] -> overwrite_sum(half, epoch, sender, phase)
    :: BROUGHT_VALUES(epoch, slot, sender, phase) && filled[half] -> add_to_sum(half, epoch, sender, phase)
#endif
    fi
}

#ifdef KIND_OF_TRIGGER  /* a broken variant: a RESULT has values if and only if the packet that it answers has */
#define RESULT_HAS_VALUES(half, epoch, slot, worker, phase) HAS_VALUES(epoch, slot, worker, phase)
#else
#define RESULT_HAS_VALUES(half, epoch, slot, worker, phase) filled[half]
#endif

/* Admission (worker table, then the epoch), the half's state, the decision, the chunk, the sums. */
inline aggregate(epoch, slot, sender, phase) {
    half = HALF(slot, phase);
    if
    :: ENTRY_EPOCH(sender) != (epoch) + 1 -> verdict = VERDICT_WRONG_EPOCH
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
        seen = (phase_predicate == PHASE_SAME) && ((bitmap >> (sender)) & 1);
        if
        :: phase_predicate != PHASE_STALE ->
            bitmap = bitmap | (1 << (sender));
            stored_bitmap[half] = bitmap
        :: else
        fi;
        complete = (phase_predicate != PHASE_STALE) && bitmap == ENTRY_MASK(sender);
        decide();
        take_chunk(half, BROUGHT_CHUNK(epoch, slot, sender, phase));
        if
        :: phase_predicate != PHASE_STALE && !seen -> take_values(half, epoch, slot, sender, phase)
        :: else
        fi
    fi;
#ifdef NO_RESEND  /* a broken variant that shows why RESULTs are resent */
    if
    :: verdict == VERDICT_RESENT -> verdict = VERDICT_DUPLICATE
    :: else
    fi;
#endif
    printf("@deliver epoch=%d slot=%d worker=%d phase=%d verdict=%d\n", epoch, slot, sender, phase, verdict)
}
