// Determines the verdict on a contribution from the state of its slot (docs/protocol.md). How the packet changes the
// slot's exponent and check follows from the phase predicate and `seen` alone, before the verdict is known:
//
//   newer              overwrite: the first contribution of a phase replaces what the slot held; nothing is ever cleared
//   same, not seen     add (or take the maximum, for the exponent)
//   same, seen         read the slot into the packet; if the packet is dropped as a duplicate, this has no effect
//   stale              do nothing
//
// The values differ in one respect: a packet may have none. The first values of a phase overwrite, whichever rank sends
// them, even one that has contributed without values; a packet without values reads those that the phase has.
#ifndef SWITCHML_SLOT_DECISION_P4
#define SWITCHML_SLOT_DECISION_P4

#include "headers.p4"

control SlotDecision(inout metadata_t meta) {
    bit<1> full;  // all ranks have contributed

    @hidden
    action conclude(bit<4> verdict) {
        meta.verdict = verdict;
    }

    @hidden
    action ignore(bit<4> verdict, bit<8> reason) {
        meta.verdict = verdict;
        meta.reason = reason;
    }

    @hidden
    table decision_table {
        key = {
            meta.admitted: ternary;
            meta.verdict: ternary;
            meta.phase_predicate: ternary;
            meta.seen: ternary;
            full: ternary;
        }
        actions = {
            conclude;
            ignore;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            // The first contribution of a phase; others are missing.
            (1, VERDICT_NONE, PHASE_NEWER, _, 0): conclude(VERDICT_AGGREGATED);
            // The first and last contribution of a phase, in a job of one worker.
            (1, VERDICT_NONE, PHASE_NEWER, _, 1): conclude(VERDICT_COMPLETED);
            // A worker that was missing; others still are missing.
            (1, VERDICT_NONE, PHASE_SAME, 0, 0): conclude(VERDICT_AGGREGATED);
            // The last worker that was missing.
            (1, VERDICT_NONE, PHASE_SAME, 0, 1): conclude(VERDICT_COMPLETED);
            // This worker has contributed, and so has every other: the RESULT did not reach it.
            (1, VERDICT_NONE, PHASE_SAME, _, 1): conclude(VERDICT_RESENT);
            // This worker has contributed and others are missing: it gets the RESULT when they have contributed.
            (1, VERDICT_NONE, PHASE_SAME, _, 0): ignore(VERDICT_DUPLICATE, DROP_REASON_DUPLICATE);
            // All workers hold the RESULT of this phase already, or the slot would not be in a later one.
            (1, VERDICT_NONE, PHASE_STALE, _, _): ignore(VERDICT_STALE, DROP_REASON_STALE);
        }
        size = 7;
    }

    apply {
        full = 0;
        if (meta.bitmap == meta.job_mask) {
            full = 1;
        }
        decision_table.apply();
    }
}

#endif
