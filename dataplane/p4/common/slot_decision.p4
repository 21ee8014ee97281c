// What a contribution does to its slot, once epoch, phase and bitmap have spoken (DESIGN section 6).
#ifndef SWITCHML_SLOT_DECISION_P4
#define SWITCHML_SLOT_DECISION_P4

#include "headers.p4"

// bitmap: the ranks that had contributed to this phase before this packet; 0 when the phase is newer.
control SlotDecision(inout metadata_t meta, in relation_t relation, in bitmap_t bitmap) {
    bit<1> seen;         // this worker had contributed
    bit<1> full_before;  // everyone had
    bit<1> full_after;   // everyone has now

    @hidden
    action aggregate(operation_t operation) {
        meta.operation = operation;
        meta.verdict = VERDICT_AGGREGATED;
    }

    @hidden
    action complete(operation_t operation) {
        meta.operation = operation;
        meta.verdict = VERDICT_COMPLETED;
    }

    @hidden
    action resend() {
        meta.operation = OPERATION_FETCH;
        meta.verdict = VERDICT_RESENT;
    }

    @hidden
    action ignore(bit<4> verdict, bit<8> reason) {
        meta.verdict = verdict;
        meta.reason = reason;
    }

    @hidden
    table decision_table {
        key = {
            relation: ternary;
            seen: ternary;
            full_before: ternary;
            full_after: ternary;
        }
        actions = {
            aggregate;
            complete;
            resend;
            ignore;
        }
        const default_action = ignore(VERDICT_STALE, DROP_REASON_STALE);
        const entries = {
            // The first of a phase overwrites what the slot held: nothing is ever cleared.
            (PHASE_NEWER, _, _, 0): aggregate(OPERATION_OVERWRITE);
            // ... and is the last as well in a job of one worker.
            (PHASE_NEWER, _, _, 1): complete(OPERATION_OVERWRITE);
            // A worker that was missing; others still are.
            (PHASE_SAME, 0, _, 0): aggregate(OPERATION_ADD);
            // The last one that was missing.
            (PHASE_SAME, 0, _, 1): complete(OPERATION_ADD);
            // It has contributed and everyone has: the RESULT did not reach it.
            (PHASE_SAME, 1, 1, _): resend();
            // It has contributed and others are missing: it will get the RESULT when they have.
            (PHASE_SAME, 1, 0, _): ignore(VERDICT_DUPLICATE, DROP_REASON_DUPLICATE);
            // Everyone holds the result of this phase already, or the slot would not be in a later one.
            (PHASE_STALE, _, _, _): ignore(VERDICT_STALE, DROP_REASON_STALE);
        }
    }

    apply {
        seen = (bit<1>)((bitmap & meta.worker_bit) != 0);
        full_before = (bit<1>)(bitmap == meta.job_mask);
        full_after = (bit<1>)((bitmap | meta.worker_bit) == meta.job_mask);
        decision_table.apply();
    }
}

#endif
