/* The workers and the network.
 *
 * In each slot a worker has one position: it has sent the contributions of the phases below `sent` and holds the RESULTs
 * of those below `held`; if the two differ it waits and retransmits. Epoch, slot and rank index both arrays.
 *
 * The network keeps every packet that was ever sent and delivers any of them at any time, in any order, any number of
 * times: reordering and duplication without bound. A lost packet is one that it never delivers. Since packets are never
 * removed, they need not be stored: the contributions in the network are those below `sent`, because a retransmission
 * equals the original. For a RESULT, only the receiver, the phase and whether its sum is right are stored. */

#define PLACE(epoch, slot, worker) (((epoch) * SLOTS + (slot)) * WORKERS + (worker))

byte sent[EPOCHS * SLOTS * WORKERS];
byte held[EPOCHS * SLOTS * WORKERS];
byte right_results[EPOCHS * SLOTS * WORKERS];  /* one bit for each phase */
byte wrong_results[EPOCHS * SLOTS * WORKERS];

#define WAITS(epoch, slot, worker) (sent[PLACE(epoch, slot, worker)] != held[PLACE(epoch, slot, worker)])
#define IS_SENT(epoch, slot, worker, phase) ((phase) < sent[PLACE(epoch, slot, worker)])

/* Position s of the stream uses slot s mod SLOTS. A worker's window is a range of at most SLOTS positions from the lowest
 * unfinished one. A smaller window only delays a worker, which the model allows anyway. */
#define NEXT_POSITION(epoch, slot, worker) (held[PLACE(epoch, slot, worker)] * SLOTS + (slot))
#define IN_WINDOW(epoch, slot, worker) \
    (NEXT_POSITION(epoch, slot, worker) < NEXT_POSITION(epoch, 0, worker) + SLOTS && \
     NEXT_POSITION(epoch, slot, worker) < NEXT_POSITION(epoch, SLOTS - 1, worker) + SLOTS)
#define MAY_BEGIN(epoch, slot, worker) \
    (!WAITS(epoch, slot, worker) && held[PLACE(epoch, slot, worker)] < PHASES && IN_WINDOW(epoch, slot, worker))

mtype = { wrong_sum, overwritten, stuck, disagreement, mixed, wrong_sum_at_lost, witness };

/* With ONLY, no other property is checked. */
inline violation(what) {
#ifdef ONLY
    if
    :: what == ONLY -> printf("@violation what=%e\n", what); assert(false)
    :: else
    fi
#else
    printf("@violation what=%e\n", what);
    assert(false)
#endif
}

inline begin(epoch, slot, worker) {
    printf("@begin epoch=%d slot=%d worker=%d phase=%d\n", epoch, slot, worker, sent[PLACE(epoch, slot, worker)]);
    sent[PLACE(epoch, slot, worker)]++
}

inline accept(epoch, slot, worker, right) {
    printf("@accept epoch=%d slot=%d worker=%d phase=%d right=%d\n", epoch, slot, worker,
           held[PLACE(epoch, slot, worker)], right);
    if
    :: right
    :: !(right) && !FENCED(epoch, worker) -> violation(wrong_sum)
    :: !(right) && FENCED(epoch, worker) -> violation(wrong_sum_at_lost)
    fi;
    held[PLACE(epoch, slot, worker)]++
}

/* A worker ignores RESULTs of phases that it does not wait for. That changes no state, so the model omits it. */
#define RIGHT_RESULT_WAITS(epoch, slot, worker) \
    (WAITS(epoch, slot, worker) && (right_results[PLACE(epoch, slot, worker)] >> held[PLACE(epoch, slot, worker)]) & 1)
#define WRONG_RESULT_WAITS(epoch, slot, worker) \
    (WAITS(epoch, slot, worker) && (wrong_results[PLACE(epoch, slot, worker)] >> held[PLACE(epoch, slot, worker)]) & 1)
