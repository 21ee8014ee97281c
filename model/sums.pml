/* The true contents of a half: for each worker, the contribution that the sum contains. The switch does not know this;
 * the model uses it to tell a right sum from a wrong one. */

#define NOTHING 0
#define SEVERAL 255
#define CONTRIBUTION(epoch, phase) (1 + (epoch) * PHASES + (phase))

#ifndef HALVES
#define HALVES (2 * SLOTS)
#endif

byte contained[HALVES * WORKERS];
bit filled[HALVES];  /* the register slot_filled: the half's phase has values */

/* The workers whose values a packet brings: in a tree those of several, otherwise those of its sender. */
#ifndef BRINGS
#define BRINGS(each, sender) (each == (sender))
#endif

hidden byte each;
hidden byte right;

inline overwrite_sum(half, epoch, sender, phase) {
    for (each : 0 .. WORKERS - 1) {
        contained[(half) * WORKERS + each] = (BRINGS(each, sender) -> CONTRIBUTION(epoch, phase) : NOTHING)
    }
    filled[half] = true
}

inline add_to_sum(half, epoch, sender, phase) {
    for (each : 0 .. WORKERS - 1) {
        if
        :: BRINGS(each, sender) ->
            contained[(half) * WORKERS + each] =
                (contained[(half) * WORKERS + each] == NOTHING -> CONTRIBUTION(epoch, phase) : SEVERAL)
        :: else
        fi
    }
}

/* Sets `right` if the half contains each member's values of this phase once, and nothing else. */
inline judge_sum(half, epoch, slot, phase) {
    specify(epoch, slot, phase);
    right = true;
    for (each : 0 .. WORKERS - 1) {
        if
        :: MEMBER(epoch, each) && OWNS(epoch, slot, each, phase) ->
            right = right && contained[(half) * WORKERS + each] == CONTRIBUTION(epoch, phase)
        :: else ->
            right = right && contained[(half) * WORKERS + each] == NOTHING
        fi
    }
}
