/* The workers and the network.
 *
 * In each slot a worker has one position: it has sent the contributions of the phases below `sent` and holds the RESULTs
 * of those below `held`; if the two differ it waits and retransmits. Epoch, slot and rank index both arrays.
 *
 * The network keeps every packet that was ever sent and delivers any of them at any time, in any order, any number of
 * times: reordering and duplication without bound. A lost packet is one that it never delivers. Since packets are never
 * removed, they need not be stored: the contributions in the network are those below `sent`, because a retransmission
 * equals the original. For a RESULT, only the receiver, the phase and what is wrong with it are stored. */

#define PLACE(epoch, slot, worker) (((epoch) * SLOTS + (slot)) * WORKERS + (worker))

byte sent[EPOCHS * SLOTS * WORKERS];
byte held[EPOCHS * SLOTS * WORKERS];

/* The RESULTs in the network, by receiver and fault. */
#define RIGHT 0
#define WRONG_KIND 1   /* it has values although no rank had any, or the reverse */
#define WRONG_SUM 2    /* it does not contain each rank's values of its phase exactly once */
#define WRONG_CHUNK 3  /* it does not name the next chunk of all ranks together */
#define FAULTS 4
#define RESULTS(fault, epoch, slot, worker) results[FAULTS * PLACE(epoch, slot, worker) + (fault)]
byte results[FAULTS * EPOCHS * SLOTS * WORKERS];  /* one bit for each phase */

#define HOLDS_PHASE(phases, phase) (((phases) >> (phase)) & 1)
#define ADD_PHASE(phases, phase) phases = phases | (1 << (phase))
#define REMOVE_PHASE(phases, phase) phases = phases & ~(1 << (phase))

#define WAITS(epoch, slot, worker) (sent[PLACE(epoch, slot, worker)] != held[PLACE(epoch, slot, worker)])
#define IS_SENT(epoch, slot, worker, phase) ((phase) < sent[PLACE(epoch, slot, worker)])

/* The calls, which determine the contributions. */
#ifdef BLOCKS
#include "sparse.pml"
#else
#include "dense.pml"
#endif

/* Position s of the stream uses slot s mod SLOTS. A worker's window is a range of at most SLOTS positions from the lowest
 * unfinished one. A smaller window only delays a worker, which the model allows anyway. */
#define IN_WINDOW(epoch, slot, worker) \
    (POSITION(epoch, slot, worker) < POSITION(epoch, 0, worker) + SLOTS && \
     POSITION(epoch, slot, worker) < POSITION(epoch, SLOTS - 1, worker) + SLOTS)
#define MAY_BEGIN(epoch, slot, worker) \
    (!WAITS(epoch, slot, worker) && !AT_END(epoch, slot, worker) && IN_WINDOW(epoch, slot, worker))

mtype = { wrong_kind, wrong_sum, wrong_chunk, overwritten, stuck, disagreement, mixed, wrong_sum_at_lost, witness };

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
    prepare(epoch, slot, worker);
    sent[PLACE(epoch, slot, worker)]++
}

inline accept(epoch, slot, worker, fault) {
    printf("@accept epoch=%d slot=%d worker=%d phase=%d right=%d\n", epoch, slot, worker,
           held[PLACE(epoch, slot, worker)], (fault) == RIGHT);
    if
    :: (fault) == RIGHT
    :: (fault) == WRONG_KIND -> violation(wrong_kind)
    :: (fault) == WRONG_SUM && !FENCED(epoch, worker) -> violation(wrong_sum)
    :: (fault) == WRONG_SUM && FENCED(epoch, worker) -> violation(wrong_sum_at_lost)
    :: (fault) == WRONG_CHUNK -> violation(wrong_chunk)
    fi;
    follow(epoch, slot, worker);
    held[PLACE(epoch, slot, worker)]++
}

/* A worker ignores RESULTs of phases that it does not wait for. That changes no state, so the model omits it. */
#define RESULT_WAITS(fault, epoch, slot, worker) \
    (WAITS(epoch, slot, worker) && HOLDS_PHASE(RESULTS(fault, epoch, slot, worker), held[PLACE(epoch, slot, worker)]))
