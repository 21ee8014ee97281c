/* A tree of switches. A switch treats its parent as one more rank, FINAL, whose packet replaces the sum instead of adding
 * to it. When all ranks and switches below have contributed, it sends its sum to the parent as its own contribution. The
 * parent's RESULT completes the phase, and the switch sends it on downwards. It keeps no timers: a retransmission from
 * below makes it send its contribution again, until FINAL is set.
 *
 * Each switch has its own halves. A sender is a rank, or a switch: WORKERS plus its number. The root has the highest
 * number, and every switch a lower one than its parent. With PER_LEAF, the ranks are below leaves in groups of this size,
 * and the leaves are below the root. With CHAIN, switch 0 has rank 0 and is below switch 1, which is below switch 2, the
 * root, as are the other ranks. */

#ifdef CHAIN
#define SWITCHES 3
#define ABOVE_RANK(rank) ((rank) == 0 -> 0 : 2)
#define ABOVE_SWITCH(switch) ((switch) + 1)
#define IS_BELOW(switch, rank) ((switch) == ROOT || (rank) == 0)
#else
#define LEAF(rank) ((rank) / PER_LEAF)
#define SWITCHES ((WORKERS + PER_LEAF - 1) / PER_LEAF + 1)
#define ABOVE_RANK(rank) LEAF(rank)
#define ABOVE_SWITCH(switch) ROOT
#define IS_BELOW(switch, rank) ((switch) == ROOT || LEAF(rank) == (switch))
#endif

#define ROOT (SWITCHES - 1)
#define SENDER(switch) (WORKERS + (switch))
#define SENDERS (WORKERS + SWITCHES - 1)
#define ABOVE(sender) ((sender) < WORKERS -> ABOVE_RANK(sender) : ABOVE_SWITCH((sender) - WORKERS))
#define IS_FROM(sender, rank) ((sender) < WORKERS -> (sender) == (rank) : IS_BELOW((sender) - WORKERS, rank))
#define BIT(sender) (1 << (sender))
#define FINAL 128  /* the highest bit of a bitmap */

#define HALVES (2 * SLOTS * SWITCHES)
#define HALF_AT(switch, slot, phase) (2 * ((switch) * SLOTS + (slot)) + ((phase) & 1))

hidden byte here;  /* the switch that processes the packet */
hidden byte rank;
hidden byte child;

/* The ranks and switches directly below this switch, one bit for each, and FINAL unless it is the root: those that take
 * part in the epoch, and all that there are. */
hidden byte members;
hidden byte all_members;

#ifdef NO_FINAL  /* a broken variant: a leaf completes a phase by itself */
#define FINAL_AT(switch) 0
#else
#define FINAL_AT(switch) ((switch) == ROOT -> 0 : FINAL)
#endif

inline find_masks(epoch) {
    members = FINAL_AT(here);
    all_members = members;
    for (child : 0 .. SENDERS - 1) {
        for (rank : 0 .. WORKERS - 1) {
            if
            :: ABOVE(child) == here && IS_FROM(child, rank) ->
                all_members = all_members | BIT(child);
                members = members | (MEMBER(epoch, rank) -> BIT(child) : 0)
            :: else
            fi
        }
    }
}

/* A packet in the tree: the ranks whose values it brings, one bit for each, and the smallest chunk that its ranks name. */
hidden byte brought_by;
hidden byte brought_chunk;
#define BRINGS(rank, sender) ((brought_by >> (rank)) & 1)
#define BROUGHT_VALUES(epoch, slot, sender, phase) (brought_by != 0)
#define BROUGHT_CHUNK(epoch, slot, sender, phase) brought_chunk

/* Describes a right contribution of a sender. That of the root describes the RESULT. */
inline describe(epoch, slot, sender, phase) {
    brought_by = 0;
    brought_chunk = 255;
    for (rank : 0 .. WORKERS - 1) {
        if
        :: MEMBER(epoch, rank) && IS_FROM(sender, rank) ->
            brought_by = brought_by | (HAS_VALUES(epoch, slot, rank, phase) -> BIT(rank) : 0);
            brought_chunk = (NAMED(epoch, slot, rank, phase) < brought_chunk -> NAMED(epoch, slot, rank, phase) :
                             brought_chunk)
        :: else
        fi
    }
}

#define ENTRY_MASK(sender) members
#define IS_COMPLETE_FOR_ALL(half) (stored_bitmap[half] == all_members)

#include "sums.pml"
#include "switch.pml"
#include "results.pml"

/* The packets between switches, all of them right: by the switch that is not the parent, one bit for each phase. */
#define LINK(epoch, slot, switch) (((epoch) * SLOTS + (slot)) * (SWITCHES - 1) + (switch))
byte contributions_up[EPOCHS * SLOTS * (SWITCHES - 1)];
byte results_down[EPOCHS * SLOTS * (SWITCHES - 1)];

#ifdef FORWARD_ONCE  /* a broken variant: a retransmission from below does not make a switch repeat its contribution */
#define FORWARDS (verdict == VERDICT_AGGREGATED && IS_FULL_BELOW)
#else
#define FORWARDS ((verdict == VERDICT_AGGREGATED || verdict == VERDICT_DUPLICATE) && IS_FULL_BELOW)
#endif
#define IS_FULL_BELOW (here != ROOT && stored_bitmap[half] == (members & ~FINAL))

/* A contribution reaches the switch above its sender. */
inline arrive(epoch, slot, sender, phase) {
    here = ABOVE(sender);
    find_masks(epoch);
    describe(epoch, slot, sender, phase);
    aggregate(epoch, slot, sender, phase)
}

/* The parent's RESULT reaches a switch. */
inline replace_sum(epoch, slot, switch, phase) {
    here = switch;
    find_masks(epoch);
    describe(epoch, slot, SENDER(ROOT), phase);
    half = HALF(slot, phase);
    if
    :: PARENT_EPOCH(here) != (epoch) + 1 -> verdict = VERDICT_WRONG_EPOCH
    :: PARENT_EPOCH(here) == (epoch) + 1 &&
       (stored_epoch[half] != (epoch) + 1 || stored_phase[half] != (phase)) -> verdict = VERDICT_STALE
    :: PARENT_EPOCH(here) == (epoch) + 1 && stored_epoch[half] == (epoch) + 1 && stored_phase[half] == (phase) ->
        if
        :: stored_bitmap[half] & FINAL -> verdict = VERDICT_DUPLICATE
        :: else ->
            stored_bitmap[half] = stored_bitmap[half] | FINAL;
            replace_values(half, epoch, phase);
            stored_chunk[half] = brought_chunk;
            verdict = (stored_bitmap[half] == members -> VERDICT_COMPLETED : VERDICT_AGGREGATED)
        fi
    fi;
    printf("@final epoch=%d slot=%d switch=%d phase=%d verdict=%d\n", epoch, slot, here, phase, verdict)
}

/* Two broken variants: the values of the RESULT are added; whether the phase has values does not follow from the RESULT. */
inline replace_values(half, epoch, phase) {
    if
#ifdef FINAL_ADDS
    :: brought_by != 0 && filled[half] -> add_to_sum(half, epoch, SENDER(ROOT), phase)
    :: brought_by != 0 && !filled[half] -> overwrite_sum(half, epoch, SENDER(ROOT), phase)
#elif defined(FINAL_KEEPS_KIND)
    :: brought_by != 0 && filled[half] -> overwrite_sum(half, epoch, SENDER(ROOT), phase)
    :: brought_by != 0 && !filled[half]
#else
    :: brought_by != 0 -> overwrite_sum(half, epoch, SENDER(ROOT), phase)
#endif
    :: brought_by == 0 -> filled[half] = false
    fi
}

/* A switch that sends a wrong packet to another one is a violation at once. */
inline blame() {
    if
    :: fault == RIGHT
    :: fault == WRONG_KIND -> violation(wrong_kind)
    :: fault == WRONG_SUM -> violation(wrong_sum)
    :: fault == WRONG_CHUNK -> violation(wrong_chunk)
    fi
}

/* Sets `fault` for the contribution that this switch makes of a half. */
inline judge_contribution(epoch, slot, phase) {
    describe(epoch, slot, SENDER(here), phase);
    right = true;
    for (each : 0 .. WORKERS - 1) {
        right = right && contained[half * WORKERS + each] == (BRINGS(each, here) -> CONTRIBUTION(epoch, phase) : NOTHING)
    };
    if
    :: filled[half] != (brought_by != 0) -> fault = WRONG_KIND
    :: else ->
        if
        :: brought_by != 0 && !right -> fault = WRONG_SUM
        :: else -> fault = (stored_chunk[half] == brought_chunk -> RIGHT : WRONG_CHUNK)
        fi
    fi
}

inline send_up(epoch, slot, phase) {
    judge_contribution(epoch, slot, phase);
    blame();
    verdict = VERDICT_FORWARDED;
    printf("@forwarded epoch=%d slot=%d switch=%d phase=%d\n", epoch, slot, here, phase);
    ADD_PHASE(contributions_up[LINK(epoch, slot, here)], phase)
}

/* Sends the RESULT of a half to some of those below, one bit for each. */
inline send_down(epoch, slot, receivers, phase) {
    judge_result(half, epoch, slot, 0, phase);
    for (child : 0 .. SENDERS - 1) {
        if
        :: !((receivers) & BIT(child))
        :: ((receivers) & BIT(child)) && child < WORKERS -> send_result(epoch, slot, child, phase)
        :: ((receivers) & BIT(child)) && child >= WORKERS ->
            blame();
            ADD_PHASE(results_down[LINK(epoch, slot, child - WORKERS)], phase)
        fi
    }
}

inline answer(epoch, slot, sender, phase) {
    if
    :: FORWARDS -> send_up(epoch, slot, phase)
    :: verdict == VERDICT_COMPLETED -> send_down(epoch, slot, members & ~FINAL, phase)
    :: verdict == VERDICT_RESENT -> send_down(epoch, slot, BIT(sender), phase)
    :: else
    fi
}

inline forget_links(epoch) {
    for (child : 0 .. SLOTS * (SWITCHES - 1) - 1) {
        contributions_up[LINK(epoch, 0, child)] = 0;
        results_down[LINK(epoch, 0, child)] = 0
    }
}

/* A worker's timer expires. Its retransmission, what switches send on because of it, and the answers are delivered at
 * once. Everything else that the network holds is lost. */
hidden byte retransmitted;
hidden byte climbed;
hidden byte answered;  /* ranks and switches that get the RESULT, one bit for each */
hidden byte descent;
hidden byte receiver;

inline exchange(epoch, slot, worker) {
    retransmitted = held[PLACE(epoch, slot, worker)];
    climbed = worker;
    do
    :: true ->
        arrive(epoch, slot, climbed, retransmitted);
        if
        :: FORWARDS -> climbed = SENDER(here)
        :: else -> break
        fi
    od;
    answered = (verdict == VERDICT_COMPLETED -> members & ~FINAL : (verdict == VERDICT_RESENT -> BIT(climbed) : 0));
    judge_result(half, epoch, slot, 0, retransmitted);
    for (descent : 0 .. SWITCHES - 2) {
        if
        :: answered & BIT(SENDER(ROOT - 1 - descent)) ->
            replace_sum(epoch, slot, ROOT - 1 - descent, retransmitted);
            if
            :: verdict == VERDICT_COMPLETED ->
                answered = answered | (members & ~FINAL);
                judge_result(half, epoch, slot, 0, retransmitted)
            :: else
            fi
        :: else
        fi
    };
    for (receiver : 0 .. WORKERS - 1) {
        if
        :: (answered & BIT(receiver)) && ACCEPTS(epoch, slot, receiver, retransmitted) ->
            accept(epoch, slot, receiver, fault)
        :: else
        fi
    }
}
