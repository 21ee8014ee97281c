/* One epoch over a network that loses packets, and the temporal property: if from some moment on it loses none, every
 * worker finishes. Checked under weak fairness: a process that can always act does act at some time.
 *
 * Until that arbitrary moment the network loses, duplicates and reorders packets arbitrarily; duplicates may still
 * arrive later. For NO_RESEND see switch.pml. */

#define EPOCHS 1
#define MEMBER(epoch, worker) ((worker) < WORKERS)
#define ENTRY_EPOCH(worker) 1
#define ENTRY_MASK(worker) ((1 << WORKERS) - 1)
#define FENCED(epoch, worker) false
#define ACCEPTS(epoch, slot, worker, phase) (WAITS(epoch, slot, worker) && held[PLACE(epoch, slot, worker)] == (phase))
#define ARRIVES(slot, worker, phase) skip

#include "worker.pml"
#include "one_switch.pml"

inline check_overwritten(epoch, slot) { skip }

byte contributions[SLOTS * WORKERS];  /* in flight, one bit for each phase; RESULTs are in `results` */
bool recovered;

/* Sends, and retransmits when its timer expires, which may be at any time. */
proctype sender(byte slot; byte worker) {
end:
    do
    :: d_step { MAY_BEGIN(0, slot, worker) ->
                begin(0, slot, worker); ADD_PHASE(contributions[PLACE(0, slot, worker)], held[PLACE(0, slot, worker)]) }
    :: d_step { WAITS(0, slot, worker) ->
                ADD_PHASE(contributions[PLACE(0, slot, worker)], held[PLACE(0, slot, worker)]) }
    od
}

#define FATES(phases, phase, arrival) \
    :: d_step { HOLDS_PHASE(phases, phase) -> REMOVE_PHASE(phases, phase); arrival(phase) } \
    :: d_step { HOLDS_PHASE(phases, phase) && !recovered -> arrival(phase) } \
    :: d_step { HOLDS_PHASE(phases, phase) && !recovered -> REMOVE_PHASE(phases, phase) }

inline at_switch(phase) {
    aggregate(0, slot, worker, phase);
    answer(0, slot, worker, phase);
    skip
}

inline at_worker(phase) {
    if
    :: ACCEPTS(0, slot, worker, phase) -> accept(0, slot, worker, RIGHT)
    :: else
    fi
}

proctype path_to_switch(byte slot; byte worker) {
end:
    do
    FATES(contributions[PLACE(0, slot, worker)], 0, at_switch)
    FATES(contributions[PLACE(0, slot, worker)], 1, at_switch)
#if PHASES > 2
    FATES(contributions[PLACE(0, slot, worker)], 2, at_switch)
#endif
    od
}

proctype path_to_worker(byte slot; byte worker) {
end:
    do
    FATES(RESULTS(RIGHT, 0, slot, worker), 0, at_worker)
    FATES(RESULTS(RIGHT, 0, slot, worker), 1, at_worker)
#if PHASES > 2
    FATES(RESULTS(RIGHT, 0, slot, worker), 2, at_worker)
#endif
    od
}

proctype recovery() {
    recovered = true
}

#define FINISHED_IN(slot, worker) AT_END(0, slot, worker)
#if WORKERS > 2
#define FINISHED(slot) (FINISHED_IN(slot, 0) && FINISHED_IN(slot, 1) && FINISHED_IN(slot, 2))
#else
#define FINISHED(slot) (FINISHED_IN(slot, 0) && FINISHED_IN(slot, 1))
#endif

ltl everyone_finishes { <> (FINISHED(0) && FINISHED(SLOTS - 1)) }

init {
    byte slot;
    byte worker;
    atomic {
#ifdef BLOCKS
        choose_owned(slot, worker);
#endif
        for (slot : 0 .. SLOTS - 1) {
            for (worker : 0 .. WORKERS - 1) {
                run sender(slot, worker);
                run path_to_switch(slot, worker);
                run path_to_worker(slot, worker)
            }
        };
        slot = 0;
        worker = 0;
        run recovery()
    }
}
