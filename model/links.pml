/* The packets between the switches of a tree. */

#define BETWEEN(phase) \
    :: d_step { HOLDS_PHASE(contributions_up[LINK(epoch, slot, lower)], phase) -> \
                arrive(epoch, slot, SENDER(lower), phase); answer(epoch, slot, SENDER(lower), phase) } \
    :: d_step { HOLDS_PHASE(results_down[LINK(epoch, slot, lower)], phase) -> \
                replace_sum(epoch, slot, lower, phase); answer(epoch, slot, 0, phase) }

/* Delivers the packets between a switch and its parent. */
proctype link(byte epoch; byte slot; byte lower) {
end:
    do
    BETWEEN(0)
    BETWEEN(1)
#if PHASES > 2
    BETWEEN(2)
#endif
#if PHASES > 3
    BETWEEN(3)
#endif
#if PHASES > 4
    BETWEEN(4)
#endif
    od
}

inline run_links(epoch, slot, each) {
    for (each : 0 .. SWITCHES - 2) {
        run link(epoch, slot, each)
    }
}
