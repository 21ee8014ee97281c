/* On Tofino a pass through the pipeline reads one word of each pair of lanes, so a RESULT with values is recirculated
 * (dataplane/p4/tna/recirculation.p4), and other packets may pass in between. */

/* The packets under recirculation, as sets of phases: those that completed a half, and, by worker, those that ask for a
 * resend. Packets are never removed: they return at any time and any number of times, which a real switch cannot do. */
byte completing[EPOCHS * SLOTS];
byte asking[EPOCHS * SLOTS * WORKERS];

inline answer(epoch, slot, worker, phase) {
    if
    :: verdict == VERDICT_COMPLETED || verdict == VERDICT_RESENT ->
        judge_result(half, epoch, slot, worker, phase);
        assert(fault == RIGHT);
        if
        :: filled[half] && verdict == VERDICT_COMPLETED -> ADD_PHASE(completing[(epoch) * SLOTS + (slot)], phase)
        :: filled[half] && verdict == VERDICT_RESENT -> ADD_PHASE(asking[PLACE(epoch, slot, worker)], phase)
        :: !filled[half] && verdict == VERDICT_COMPLETED -> multicast_result(epoch, slot, phase)
        :: !filled[half] && verdict == VERDICT_RESENT -> send_result(epoch, slot, worker, phase)
        fi
    :: else
    fi
}

/* The RESULT's chunk and the words that were read before the recirculation were right. The recirculated packet reads what
 * the half holds now. */
inline read_second_word(epoch, slot, worker, phase) {
    judge_sum(HALF(slot, phase), epoch, slot, phase);
    fault = (right -> RIGHT : WRONG_SUM);
    printf("@recirculated epoch=%d slot=%d worker=%d phase=%d right=%d\n", epoch, slot, worker, phase, right)
}

/* A mixed RESULT has words of two phases. Mixed RESULTs do occur, so they are a violation only in the case that searches
 * for one; what must not happen is that a worker accepts one. */
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

/* The `skip` is there because a d_step must not end with a loop. */
#define RECIRCULATED(phase) \
    :: d_step { HOLDS_PHASE(completing[epoch * SLOTS + slot], phase) -> \
                read_second_word(epoch, slot, worker, phase); multicast_result(epoch, slot, phase); skip } \
    :: d_step { HOLDS_PHASE(asking[PLACE(epoch, slot, worker)], phase) -> \
                read_second_word(epoch, slot, worker, phase); look_for_mixed(); \
                send_result(epoch, slot, worker, phase); skip }

proctype recirculated(byte epoch; byte slot; byte worker) {
end:
    do
    RECIRCULATED(0)
    RECIRCULATED(1)
#if PHASES > 2
    RECIRCULATED(2)
#endif
#if PHASES > 3
    RECIRCULATED(3)
#endif
#if PHASES > 4
    RECIRCULATED(4)
#endif
    od
}
