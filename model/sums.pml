/* The true contents of a half: for each worker, the contribution that the sum contains. The switch does not know this;
 * the model uses it to tell a right sum from a wrong one. */

#define NOTHING 0
#define SEVERAL 255
#define CONTRIBUTION(epoch, phase) (1 + (epoch) * PHASES + (phase))

byte contained[2 * SLOTS * WORKERS];
bit filled[2 * SLOTS];  /* the register slot_filled: the half's phase has values */

#ifdef OWNERS  /* bit WORKERS * phase + worker is set if the worker's contribution to that phase has values */
#define OWNS(worker, phase) ((OWNERS >> (WORKERS * (phase) + (worker))) & 1)
#else
#define OWNS(worker, phase) true
#endif

hidden byte each;
hidden byte right;

inline overwrite_sum(half, epoch, worker, phase) {
    for (each : 0 .. WORKERS - 1) {
        contained[(half) * WORKERS + each] = NOTHING
    }
    contained[(half) * WORKERS + (worker)] = CONTRIBUTION(epoch, phase);
    filled[half] = true
}

inline add_to_sum(half, epoch, worker, phase) {
    if
    :: contained[(half) * WORKERS + (worker)] == NOTHING ->
        contained[(half) * WORKERS + (worker)] = CONTRIBUTION(epoch, phase)
    :: else ->
        contained[(half) * WORKERS + (worker)] = SEVERAL
    fi
}

#ifdef KIND_OF_TRIGGER  /* a broken variant: a RESULT has values if and only if the packet that it answers has */
#define RESULT_HAS_VALUES(half, worker, phase) OWNS(worker, phase)
#else
#define RESULT_HAS_VALUES(half, worker, phase) filled[half]
#endif

/* Sets `right` if the RESULT that answers `worker` contains each member's values of this phase once, and nothing else. */
inline judge_sum(half, epoch, worker, phase) {
    right = true;
    for (each : 0 .. WORKERS - 1) {
        if
        :: MEMBER(epoch, each) && OWNS(each, phase) ->
            right = right && RESULT_HAS_VALUES(half, worker, phase) &&
                    contained[(half) * WORKERS + each] == CONTRIBUTION(epoch, phase)
        :: else ->
            right = right && (!RESULT_HAS_VALUES(half, worker, phase) || contained[(half) * WORKERS + each] == NOTHING)
        fi
    }
}
