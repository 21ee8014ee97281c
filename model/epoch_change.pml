/* Two epochs: at any moment the controller declares a worker lost, and the job continues in a new epoch, without it or
 * with a new process at its rank. The lost worker need not be dead: it may continue in the old epoch for any time. The
 * properties:
 *
 *   disagreement  survivors leave the old epoch with different sets of complete chunks
 *   wrong_kind, wrong_sum, wrong_chunk, overwritten, stuck  as in aggregation.pml, for the members of an epoch
 *   wrong_sum_at_lost  as wrong_sum, for the lost worker, which continues in the old epoch
 *
 * The steps are those of section "Epoch change" of docs/understand/correctness.md:
 *   1. Every survivor is asked to quiesce: from then on it begins nothing and accepts nothing. It reports what it holds.
 *   2. For each slot, the furthest report is the target. The survivors fetch up to the target, and no further.
 *   3. The controller changes or deletes every entry of the old epoch in the worker table, one after the other.
 *   4. When all changes are acknowledged, it tells the members the new epoch, one after the other.
 * Three variants that the real protocol does not use: NO_QUIESCE omits steps 1 and 2; with NO_FREEZE the survivors still
 * accept RESULTs while they quiesce; with EARLY each member is told as soon as its own entry is changed. */

#define EPOCHS 2

mtype = { running, quiescing, fetching, changing, telling, done };
mtype stage = running;
byte lost = WORKERS;  /* the lost rank; WORKERS: none */
byte new_members;     /* one bit for each rank, like the next two */
byte asked;           /* members that were asked to quiesce */
byte told;            /* members that were told the new epoch */
byte target[SLOTS];

#define ALL ((1 << WORKERS) - 1)
#define HAS(ranks, worker) (((ranks) >> (worker)) & 1)
#define SURVIVORS (ALL & ~(1 << lost))
#define MEMBER(epoch, worker) ((epoch) == 0 || HAS(new_members, worker))
#define ENTRY_EPOCH(entry) entry_epoch[entry]
#ifndef TREE
#define ENTRY_MASK(worker) entry_mask[worker]
#endif

/* Which workers take part in which epoch, and up to which phase they accept RESULTs. The lost worker obeys no request. */
#ifdef NO_FREEZE
#define FROZEN(worker) false
#else
#define FROZEN(worker) HAS(asked, worker)
#endif
#define OBEYS(worker) (lost != WORKERS && (worker) != lost)
#define FENCED(epoch, worker) ((epoch) == 0 && (worker) == lost)
#define TAKES_PART(epoch, worker) \
    ((epoch) == 0 && (!OBEYS(worker) || !HAS(told, worker)) || (epoch) == 1 && HAS(told, worker))
#define WANTS(epoch, slot, worker, phase) \
    (TAKES_PART(epoch, worker) && ((epoch) == 1 || !OBEYS(worker) || !FROZEN(worker) || (phase) < target[slot]))
#define ACCEPTS(epoch, slot, worker, phase) \
    (WAITS(epoch, slot, worker) && held[PLACE(epoch, slot, worker)] == (phase) && WANTS(epoch, slot, worker, phase))
#define BEGINS(epoch, slot, worker) \
    (MAY_BEGIN(epoch, slot, worker) && TAKES_PART(epoch, worker) && \
     ((epoch) == 1 || !OBEYS(worker) || !HAS(asked, worker)))
#define ARRIVES(slot, worker, phase) skip

#include "worker.pml"
#ifdef TREE
#define PARENT_EPOCH(switch) entry_epoch[SENDERS + (switch)]
#include "tree.pml"
#define ENTRIES (SENDERS + SWITCHES - 1)
#else
#define IS_COMPLETE_FOR_ALL(half) (stored_bitmap[half] == ALL)
#include "one_switch.pml"
#define ENTRIES WORKERS
byte entry_mask[WORKERS];
#endif

/* The entries of all worker tables: the index of the epoch plus 1, or 0 for no entry. In a tree, switches have entries
 * at their parents as workers have, and their parents have entries at them. */
byte entry_epoch[ENTRIES];
byte entries_changed;

/* In its own epoch every member may still need a half. When the new epoch overwrites a half of the old one, the survivors
 * may still need it if it is complete; the lost worker does not count, because the new epoch exists to exclude it. */
#define NEEDS(old, epoch, slot, worker, phase) \
    (MEMBER(old, worker) && held[PLACE(old, slot, worker)] <= (phase) && WANTS(old, slot, worker, phase) && \
     ((old) >= (epoch) || OBEYS(worker) && IS_COMPLETE_FOR_ALL(half)))

inline check_overwritten(epoch, slot) {
    for (each : 0 .. WORKERS - 1) {
        if
        :: stored_epoch[half] != 0 && NEEDS(stored_epoch[half] - 1, epoch, slot, each, stored_phase[half]) ->
            violation(overwritten)
        :: else
        fi
    }
}

#ifdef TREE
#include "links.pml"
#endif

#define DELIVER(phase) \
    :: d_step { IS_SENT(epoch, slot, worker, phase) -> \
                arrive(epoch, slot, worker, phase); \
                answer(epoch, slot, worker, phase) }

#define ACCEPT(fault) \
    :: d_step { RESULT_WAITS(fault, epoch, slot, worker) && \
                ACCEPTS(epoch, slot, worker, held[PLACE(epoch, slot, worker)]) -> accept(epoch, slot, worker, fault) }

/* One rank in one slot and epoch, and the packets to and from it. */
proctype worker_in_slot(byte epoch; byte slot; byte worker) {
end:
    do
    :: d_step { BEGINS(epoch, slot, worker) -> begin(epoch, slot, worker) }
    ACCEPT(RIGHT)
    ACCEPT(WRONG_KIND)
    ACCEPT(WRONG_SUM)
    ACCEPT(WRONG_CHUNK)
    DELIVER(0)
    DELIVER(1)
#if PHASES > 2
    DELIVER(2)
#endif
    od
}

hidden byte other_worker;
hidden byte other_slot;

inline lose(worker, members) {
    lost = worker;
    new_members = members;
#ifdef NO_QUIESCE
    stage = changing;
#else
    stage = quiescing;
#endif
    printf("@lost worker=%d members=%d\n", worker, members)
}

inline ask(worker) {
    asked = asked | (1 << (worker));
    printf("@asked worker=%d\n", worker);
#ifdef NO_FREEZE
    raise_targets(worker)
#endif
}

inline raise_targets(worker) {
    for (other_slot : 0 .. SLOTS - 1) {
        if
        :: held[PLACE(0, other_slot, worker)] > target[other_slot] ->
            target[other_slot] = held[PLACE(0, other_slot, worker)]
        :: else
        fi
    }
}

/* A survivor holds the target of a slot; no entry of the old epoch is left. */
#define FETCHED(slot, worker) ((worker) == lost || held[PLACE(0, slot, worker)] >= target[slot])
#ifdef WITNESS
/* An example run, not a property: a survivor has to fetch a RESULT that another one holds. */
bool something_to_fetch;
#endif

#if WORKERS > 2
#define ALL_FETCHED(slot) (FETCHED(slot, 0) && FETCHED(slot, 1) && FETCHED(slot, 2))
#else
#define ALL_FETCHED(slot) (FETCHED(slot, 0) && FETCHED(slot, 1))
#endif

inline begin_fetching() {
#ifndef NO_FREEZE
    for (other_worker : 0 .. WORKERS - 1) {
        if
        :: other_worker != lost -> raise_targets(other_worker)
        :: else
        fi
    };
#endif
    stage = fetching;
#ifdef WITNESS
    something_to_fetch = !(ALL_FETCHED(0) && ALL_FETCHED(SLOTS - 1));
#endif
    printf("@fetching\n")
}

#ifdef TREE
#define SENDER_OF(entry) ((entry) < SENDERS -> (entry) : SENDER((entry) - SENDERS))
#endif

inline change_entry(entry) {
#ifdef TREE
    entry_epoch[entry] = 0;
    for (other_worker : 0 .. WORKERS - 1) {
        if
        :: HAS(new_members, other_worker) && IS_FROM(SENDER_OF(entry), other_worker) -> entry_epoch[entry] = 2
        :: else
        fi
    };
#else
    entry_epoch[entry] = (HAS(new_members, entry) -> 2 : 0);
    entry_mask[entry] = (HAS(new_members, entry) -> new_members : 0);
#endif
    entries_changed++;
    printf("@changed worker=%d\n", entry)
}

inline tell(worker) {
    printf("@told worker=%d\n", worker);
    for (other_worker : 0 .. WORKERS - 1) {
        for (other_slot : 0 .. SLOTS - 1) {
            if
            :: HAS(told & SURVIVORS, other_worker) && (worker) != lost &&
               held[PLACE(0, other_slot, other_worker)] != held[PLACE(0, other_slot, worker)] -> violation(disagreement)
            :: else
            fi
        }
    };
    told = told | (1 << (worker))
}

/* When all members are told, the state of the old epoch has no effect any more: the switch drops its contributions, and
 * the workers that waited for its RESULTs are in the new epoch. It is cleared because the states of the new epoch would
 * otherwise be multiplied by the ways to end the old one. */
inline end_change() {
    if
    :: stage == telling && told == new_members ->
        stage = done;
#ifdef TREE
        forget_links(0);
#endif
        for (other_worker : 0 .. WORKERS - 1) {
            for (other_slot : 0 .. SLOTS - 1) {
                if
                :: other_worker != lost ->
                    sent[PLACE(0, other_slot, other_worker)] = 0;
                    held[PLACE(0, other_slot, other_worker)] = 0;
                    forget_results(0, other_slot, other_worker);
                    forget_stream(0, other_slot, other_worker)
                :: else
                fi
            }
        }
    :: else
    fi
}

#if defined(EARLY) && defined(TREE)  /* the entries of its leaf are changed, those of the root perhaps not */
#define MAY_TELL(worker) (stage == changing && PARENT_EPOCH(ABOVE_RANK(worker)) == 2 || stage == telling)
#elif defined(EARLY)
#define MAY_TELL(worker) (stage == changing || stage == telling)
#else
#define MAY_TELL(worker) (stage == telling)
#endif

#define FOR_ENTRY(entry) \
    :: d_step { stage == changing && entry_epoch[entry] == 1 -> change_entry(entry) }

/* The `skip` is there because a d_step must not end with a loop. */
#define FOR_WORKER(worker) \
    :: d_step { stage == running -> lose(worker, ALL) } \
    :: d_step { stage == running -> lose(worker, ALL & ~(1 << (worker))) } \
    :: d_step { stage == quiescing && !HAS(asked, worker) && (worker) != lost -> ask(worker); skip } \
    FOR_ENTRY(worker) \
    :: d_step { MAY_TELL(worker) && entry_epoch[worker] == 2 && !HAS(told, worker) -> tell(worker); end_change(); skip }

proctype controller() {
end:
    do
#ifdef WITNESS
    :: d_step { stage == done && something_to_fetch -> violation(witness) }
#endif
    FOR_WORKER(0)
    FOR_WORKER(1)
#if WORKERS > 2
    FOR_WORKER(2)
#endif
#ifdef TREE
    FOR_ENTRY(SENDER(0))
    FOR_ENTRY(SENDER(1))
    FOR_ENTRY(SENDERS)
    FOR_ENTRY(SENDERS + 1)
#if SWITCHES > 3
    FOR_ENTRY(SENDER(2))
    FOR_ENTRY(SENDERS + 2)
#endif
#endif
    :: d_step { stage == quiescing && asked == SURVIVORS -> begin_fetching(); skip }
    :: d_step { stage == fetching && ALL_FETCHED(0) && ALL_FETCHED(SLOTS - 1) -> stage = changing }
    :: d_step { stage == changing && entries_changed == ENTRIES -> stage = telling; end_change(); skip }
    od
}

/* While the controller is between two of its steps, no worker waits for the network. */
#define FINISHED(epoch, slot, worker) \
    (stage == running && ((epoch) == 1 || AT_END(0, slot, worker)) || \
     stage == fetching && ((epoch) == 1 || FETCHED(slot, worker)) || \
     stage == done && ((epoch) == 0 || !MEMBER(1, worker) || AT_END(1, slot, worker)) || \
     stage == quiescing || stage == changing || stage == telling)

#include "progress.pml"

init {
    byte epoch;
    byte slot;
    byte worker;
    d_step {
        for (worker : 0 .. ENTRIES - 1) {
            entry_epoch[worker] = 1;
#ifndef TREE
            entry_mask[worker] = ALL
#endif
        }
    };
    atomic {
#ifdef BLOCKS
        choose_owned(slot, worker);
#endif
        for (epoch : 0 .. EPOCHS - 1) {
            for (slot : 0 .. SLOTS - 1) {
#ifdef TREE
                run_links(epoch, slot, worker);
#endif
                for (worker : 0 .. WORKERS - 1) {
                    run worker_in_slot(epoch, slot, worker);
#ifdef RECIRCULATION
                    run recirculated(epoch, slot, worker)
#endif
                }
            }
        };
        epoch = 0;
        slot = 0;
        worker = 0;
        run controller();
#ifndef NO_PROGRESS_CHECK
        run network_recovers()
#endif
    }
}
