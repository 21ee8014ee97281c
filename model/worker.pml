/* The workers and the network.
 *
 * A worker is at one place of its stream in each slot: it has sent the contributions of the phases below `sent` and
 * holds the RESULTs of those below `held`; where the two differ it waits, and retransmits. Epoch, slot and rank index
 * both.
 *
 * The network keeps every packet that was ever sent and delivers any of them at any time, in any order, again and
 * again: reordering and duplication without bound. A packet that is lost is one that it never delivers. So nothing is
 * ever taken out of it, and it need not be stored: the contributions in it are those below `sent`, since a
 * retransmission is equal to what was sent first. A RESULT is kept as what matters of it: for whom, of which phase,
 * and whether its sum is right. */

#define PLACE(epoch, slot, worker) (((epoch) * SLOTS + (slot)) * WORKERS + (worker))

byte sent[EPOCHS * SLOTS * WORKERS];
byte held[EPOCHS * SLOTS * WORKERS];
byte right_results[EPOCHS * SLOTS * WORKERS];  /* one bit for each phase */
byte wrong_results[EPOCHS * SLOTS * WORKERS];

#define WAITS(epoch, slot, worker) (sent[PLACE(epoch, slot, worker)] != held[PLACE(epoch, slot, worker)])
#define IS_SENT(epoch, slot, worker, phase) ((phase) < sent[PLACE(epoch, slot, worker)])

/* Position s of the stream uses slot s mod SLOTS. A worker's window is a stretch of at most SLOTS positions from the
 * lowest that is unfinished; a smaller window only means that it begins later, which it may at any time. */
#define NEXT_POSITION(epoch, slot, worker) (held[PLACE(epoch, slot, worker)] * SLOTS + (slot))
#define IN_WINDOW(epoch, slot, worker) \
    (NEXT_POSITION(epoch, slot, worker) < NEXT_POSITION(epoch, 0, worker) + SLOTS && \
     NEXT_POSITION(epoch, slot, worker) < NEXT_POSITION(epoch, SLOTS - 1, worker) + SLOTS)
#define MAY_BEGIN(epoch, slot, worker) \
    (!WAITS(epoch, slot, worker) && held[PLACE(epoch, slot, worker)] < PHASES && IN_WINDOW(epoch, slot, worker))

mtype = { wrong_sum, overwritten, stuck, disagreement, mixed, wrong_sum_at_lost, witness };

/* With ONLY, one property is checked and not the others. */
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

/* RESULTs of a phase that the worker does not wait for are ignored, which changes nothing and is left out. */
#define RIGHT_RESULT_WAITS(epoch, slot, worker) \
    (WAITS(epoch, slot, worker) && (right_results[PLACE(epoch, slot, worker)] >> held[PLACE(epoch, slot, worker)]) & 1)
#define WRONG_RESULT_WAITS(epoch, slot, worker) \
    (WAITS(epoch, slot, worker) && (wrong_results[PLACE(epoch, slot, worker)] >> held[PLACE(epoch, slot, worker)]) & 1)
