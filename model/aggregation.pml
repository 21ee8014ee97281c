/* One epoch: every worker sends PHASES contributions in each of SLOTS slots over a network that loses, duplicates and
 * reorders packets without bound. With ONE_BIT the switch is the published one. The properties:
 *
 *   wrong_sum   a worker accepts a RESULT that does not contain each worker's contribution to that phase exactly once
 *   overwritten a half is overwritten while some worker still waits for its RESULT
 *   stuck       from some state the workers do not finish even if no more packets are lost
 */

#define EPOCHS 1
#define MEMBER(epoch, worker) ((worker) < WORKERS)
#define ENTRY_EPOCH(worker) 1
#define ENTRY_MASK(worker) ((1 << WORKERS) - 1)
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
#include "sums.pml"
#ifdef ONE_BIT
#include "one_bit_switch.pml"
#else
#include "switch.pml"
#endif
#include "results.pml"

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

#define DELIVER(phase) \
    :: d_step { IS_SENT(0, slot, worker, phase) && MAY_ARRIVE(slot, worker, phase) -> \
                ARRIVES(slot, worker, phase); \
                aggregate(0, slot, worker, phase); \
                watch(slot, worker, phase); \
                answer(0, slot, worker, phase) }

/* Delivers the contributions of one worker in one slot, and the RESULTs to it. */
proctype worker_in_slot(byte slot; byte worker) {
end:
    do
    :: d_step { MAY_BEGIN(0, slot, worker) -> begin(0, slot, worker) }
    :: d_step { RIGHT_RESULT_WAITS(0, slot, worker) -> accept(0, slot, worker, true) }
    :: d_step { WRONG_RESULT_WAITS(0, slot, worker) -> accept(0, slot, worker, false) }
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

#define FINISHED(epoch, slot, worker) (held[PLACE(epoch, slot, worker)] == PHASES)
#define BEGINS(epoch, slot, worker) MAY_BEGIN(epoch, slot, worker)
#include "progress.pml"

init {
    byte slot;
    byte worker;
    atomic {
        for (slot : 0 .. SLOTS - 1) {
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
