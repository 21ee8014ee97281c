// The verdict on a contribution, once its slot has been asked (DESIGN section 6). What the packet does to the slot's
// exponent and check follows from relation and seen alone, before the verdict is known:
//
//   newer              overwrite: the first of a phase overwrites what the slot held, nothing is ever cleared
//   same, not seen     add (the maximum for the exponent)
//   same, seen         fetch, so that the packet holds the slot's; a packet that is dropped as a duplicate shows nothing
//   stale              nothing
//
// The values are different in one respect only: a packet may have none. The first values of a phase overwrite,
// whoever brings them, even a rank that has contributed without any; a packet without values fetches what the phase has.
#ifndef SWITCHML_SLOT_DECISION_P4
#define SWITCHML_SLOT_DECISION_P4

#include "headers.p4"

control SlotDecision(inout metadata_t meta) {
    bit<1> full;  // everyone has contributed

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
            meta.relation: ternary;
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
            // The first of a phase; others are missing.
            (1, VERDICT_NONE, PHASE_NEWER, _, 0): conclude(VERDICT_AGGREGATED);
            // ... and the last as well in a job of one worker.
            (1, VERDICT_NONE, PHASE_NEWER, _, 1): conclude(VERDICT_COMPLETED);
            // A worker that was missing; others still are.
            (1, VERDICT_NONE, PHASE_SAME, 0, 0): conclude(VERDICT_AGGREGATED);
            // The last one that was missing.
            (1, VERDICT_NONE, PHASE_SAME, 0, 1): conclude(VERDICT_COMPLETED);
            // It has contributed and everyone has: the RESULT did not reach it.
            (1, VERDICT_NONE, PHASE_SAME, _, 1): conclude(VERDICT_RESENT);
            // It has contributed and others are missing: it will get the RESULT when they have.
            (1, VERDICT_NONE, PHASE_SAME, _, 0): ignore(VERDICT_DUPLICATE, DROP_REASON_DUPLICATE);
            // Everyone holds the result of this phase already, or the slot would not be in a later one.
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
