/* One epoch: every worker sends at most PHASES contributions in each of SLOTS slots over a network that loses, duplicates
 * and reorders packets without bound. With ONE_BIT the switch is the published one. The properties:
 *
 *   wrong_kind  a worker accepts a RESULT with values of a phase in which no worker has any, or the reverse
 *   wrong_sum   a worker accepts a RESULT that does not contain each worker's values of that phase exactly once
 *   wrong_chunk a worker accepts a RESULT that does not name the right chunk: the position's number, or in a sparse call
 *               the next block that any worker owns, or none
 *   overwritten a half is overwritten while some worker still waits for its RESULT
 *   stuck       from some state the workers do not finish even if no more packets are lost
 */

#define EPOCHS 1
#define MEMBER(epoch, worker) ((worker) < WORKERS)
#define ENTRY_EPOCH(worker) 1
#ifndef TREE
#define ENTRY_MASK(worker) ((1 << WORKERS) - 1)
#endif
#define FENCED(epoch, worker) false
#define ACCEPTS(epoch, slot, worker, phase) (WAITS(epoch, slot, worker) && held[PLACE(epoch, slot, worker)] == (phase))

#ifdef FIFO
/* The published program's assumption: packets of a worker never arrive out of order. */
byte newest[SLOTS * WORKERS];
#define MAY_ARRIVE(slot, worker, phase) ((phase) >= newest[(slot) * WORKERS + (worker)])
#define ARRIVES(slot, worker, phase) newest[(slot) * WORKERS + (worker)] = phase
#else
#define MAY_ARRIVE(slot, worker, phase) true
#define ARRIVES(slot, worker, phase) skip
#endif

#include "worker.pml"
#ifdef TREE
#define PARENT_EPOCH(switch) 1
#include "tree.pml"
#else
#include "one_switch.pml"
#endif

#ifndef ONE_BIT
inline check_overwritten(epoch, slot) {
    for (each : 0 .. WORKERS - 1) {
        if
        :: stored_epoch[half] != 0 && held[PLACE(epoch, slot, each)] <= stored_phase[half] -> violation(overwritten)
        :: else
        fi
    }
}
#endif

#ifdef WITNESS
/* An example run, not a property: a duplicate arrives after the switch has its sender's next contribution, which is then
 * retransmitted, and all workers finish. SPIN searches for the run as if it were a violation. */
bool late;
bool retransmission_seen;

inline watch(slot, worker, phase) {
    retransmission_seen = retransmission_seen || late && verdict == VERDICT_DUPLICATE;
    late = late || (phase) + 1 < sent[PLACE(0, slot, worker)] && ((stored_bitmap[half ^ 1] >> worker) & 1)
}
#else
#define watch(slot, worker, phase) skip
#endif

#ifdef TREE
#include "links.pml"
#endif

#define DELIVER(phase) \
    :: d_step { IS_SENT(0, slot, worker, phase) && MAY_ARRIVE(slot, worker, phase) -> \
                ARRIVES(slot, worker, phase); \
                arrive(0, slot, worker, phase); \
                watch(slot, worker, phase); \
                answer(0, slot, worker, phase) }

#define ACCEPT(fault) \
    :: d_step { RESULT_WAITS(fault, 0, slot, worker) -> accept(0, slot, worker, fault) }

/* Delivers the contributions of one worker in one slot, and the RESULTs to it. */
proctype worker_in_slot(byte slot; byte worker) {
end:
    do
    :: d_step { MAY_BEGIN(0, slot, worker) -> begin(0, slot, worker) }
    ACCEPT(RIGHT)
    ACCEPT(WRONG_KIND)
    ACCEPT(WRONG_SUM)
    ACCEPT(WRONG_CHUNK)
#ifdef WITNESS
    :: d_step { late && retransmission_seen && held[0] == PHASES && held[1] == PHASES -> violation(witness) }
#endif
    DELIVER(0)
    DELIVER(1)
#if PHASES > 2
    DELIVER(2)
#endif
#if PHASES > 3
    DELIVER(3)
#endif
#if PHASES > 4
    DELIVER(4)
#endif
    od
}

#define FINISHED(epoch, slot, worker) AT_END(epoch, slot, worker)
#define BEGINS(epoch, slot, worker) MAY_BEGIN(epoch, slot, worker)
#include "progress.pml"

init {
    byte slot;
    byte worker;
    atomic {
#ifdef BLOCKS
        choose_owned(slot, worker);
#endif
        for (slot : 0 .. SLOTS - 1) {
#ifdef TREE
            run_links(0, slot, worker);
#endif
            for (worker : 0 .. WORKERS - 1) {
                run worker_in_slot(slot, worker);
#ifdef RECIRCULATION
                run recirculated(0, slot, worker)
#endif
            }
        };
        slot = 0;
        worker = 0;
#ifndef NO_PROGRESS_CHECK
        run network_recovers()
#endif
    }
}
