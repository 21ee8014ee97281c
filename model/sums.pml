/* What a half's values really are: for each worker the contribution that they contain. The switch does not know this;
 * it is here to tell a right sum from a wrong one. */

#define NOTHING 0
#define SEVERAL 255
#define CONTRIBUTION(epoch, phase) (1 + (epoch) * PHASES + (phase))

byte contained[2 * SLOTS * WORKERS];

hidden byte each;
hidden byte right;

inline overwrite_sum(half, epoch, worker, phase) {
    for (each : 0 .. WORKERS - 1) {
        contained[(half) * WORKERS + each] = NOTHING
    }
    contained[(half) * WORKERS + (worker)] = CONTRIBUTION(epoch, phase)
}

inline add_to_sum(half, epoch, worker, phase) {
    if
    :: contained[(half) * WORKERS + (worker)] == NOTHING ->
        contained[(half) * WORKERS + (worker)] = CONTRIBUTION(epoch, phase)
    :: else ->
        contained[(half) * WORKERS + (worker)] = SEVERAL
    fi
}

/* `right`: each member's contribution of this phase once, and nothing else. */
inline judge_sum(half, epoch, phase) {
    right = true;
    for (each : 0 .. WORKERS - 1) {
        if
        :: MEMBER(epoch, each) -> right = right && contained[(half) * WORKERS + each] == CONTRIBUTION(epoch, phase)
        :: else -> right = right && contained[(half) * WORKERS + each] == NOTHING
        fi
    }
}
