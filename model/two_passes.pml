/* On Tofino a pass through the pipeline reads one word of each lane, and a RESULT holds two: its packet goes through
 * twice (dataplane/p4/tna/second_pass.p4), and other packets may pass between the two. */

/* The packets that have been through once, as sets of phases: those that completed a half, and those that ask for a
 * resend by worker. Nothing is taken out: they come back at any time, even again, which is more than a switch can do.
 */
byte completing[EPOCHS * SLOTS];
byte asking[EPOCHS * SLOTS * WORKERS];

#define HOLDS_PHASE(set, place, phase) ((set[place] >> (phase)) & 1)

inline answer(epoch, slot, worker, phase) {
    if
    :: verdict == VERDICT_COMPLETED ->
        judge_sum(half, epoch, worker, phase);
        assert(right);
        ADD_PHASE(completing, (epoch) * SLOTS + (slot), phase)
    :: verdict == VERDICT_RESENT ->
        judge_sum(half, epoch, worker, phase);
        assert(right);
        ADD_PHASE(asking, PLACE(epoch, slot, worker), phase)
    :: else
    fi
}

/* What the first pass read was right. The second one reads whatever the half holds by now. */
inline read_second_word(epoch, slot, worker, phase) {
    judge_sum(HALF(slot, phase), epoch, worker, phase);
    printf("@second_pass epoch=%d slot=%d worker=%d phase=%d right=%d\n", epoch, slot, worker, phase, right)
}

/* Half of it read from one phase and half from another. It does happen, so that it is no violation except where such
 * a run is looked for; what must not happen is that somebody accepts it. */
inline look_for_mixed() {
#ifdef ONLY
    if
    :: right
    :: else -> violation(mixed)
    fi
#else
    skip
#endif
}

/* `skip`: a loop must not be the last in a d_step. */
#define SECOND_PASS(phase) \
    :: d_step { HOLDS_PHASE(completing, epoch * SLOTS + slot, phase) -> \
                read_second_word(epoch, slot, worker, phase); multicast_result(epoch, slot, phase); skip } \
    :: d_step { HOLDS_PHASE(asking, PLACE(epoch, slot, worker), phase) -> \
                read_second_word(epoch, slot, worker, phase); look_for_mixed(); \
                send_result(epoch, slot, worker, phase); skip }

proctype second_pass(byte epoch; byte slot; byte worker) {
end:
    do
    SECOND_PASS(0)
    SECOND_PASS(1)
#if PHASES > 2
    SECOND_PASS(2)
#endif
#if PHASES > 3
    SECOND_PASS(3)
#endif
#if PHASES > 4
    SECOND_PASS(4)
#endif
    od
}
