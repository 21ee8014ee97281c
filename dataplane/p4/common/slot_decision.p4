// Determines the verdict on a contribution from the state of its slot (docs/understand/protocol.md). How the packet changes the
// slot's exponent, check and chunk follows from the phase predicate and `seen` alone, before the verdict is known:
//
//   newer              overwrite: the first contribution of a phase replaces what the slot held; nothing is ever cleared
//   same, not seen     add (the exponent: take the maximum; the chunk: take the minimum)
//   same, seen         read the slot into the packet; if the packet is dropped as a duplicate, this has no effect
//   stale              do nothing
//   replaced, not seen overwrite: the parent's RESULT takes the place of the sum
//   replaced, seen     do nothing
//
// The values differ in one respect: a packet may have none. The first values of a phase overwrite, whichever rank sends
// them, even one that has contributed without values; a packet without values reads those that the phase has.
#ifndef SWITCHML_SLOT_DECISION_P4
#define SWITCHML_SLOT_DECISION_P4

#include "headers.p4"

control SlotDecision(inout metadata_t meta) {
    bit<1> full;        // all ranks have contributed, and the RESULT of the parent is there if the job has one
    bit<1> full_below;  // only that RESULT is missing

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
            full_below: ternary;
        }
        actions = {
            conclude;
            ignore;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            // Each packet from below makes a switch send the sum of all senders below to its parent: the one that was sent
            // before, or the RESULT, may be lost.
            (1, VERDICT_NONE, PHASE_NEWER, _, _, 1): conclude(VERDICT_FORWARDED);
            (1, VERDICT_NONE, PHASE_SAME, _, _, 1): conclude(VERDICT_FORWARDED);
            // The first contribution of a phase; others are missing.
            (1, VERDICT_NONE, PHASE_NEWER, _, 0, _): conclude(VERDICT_AGGREGATED);
            // The first and last contribution of a phase, in a job of one worker.
            (1, VERDICT_NONE, PHASE_NEWER, _, 1, _): conclude(VERDICT_COMPLETED);
            // A worker that was missing; others still are missing.
            (1, VERDICT_NONE, PHASE_SAME, 0, 0, _): conclude(VERDICT_AGGREGATED);
            // The last worker that was missing.
            (1, VERDICT_NONE, PHASE_SAME, 0, 1, _): conclude(VERDICT_COMPLETED);
            // This worker has contributed, and so has every other: the RESULT did not reach it.
            (1, VERDICT_NONE, PHASE_SAME, _, 1, _): conclude(VERDICT_RESENT);
            // This worker has contributed and others are missing: it gets the RESULT when they have contributed.
            (1, VERDICT_NONE, PHASE_SAME, _, 0, _): ignore(VERDICT_DUPLICATE, DROP_REASON_DUPLICATE);
            // All workers hold the RESULT of this phase already, or the slot would not be in a later one.
            (1, VERDICT_NONE, PHASE_STALE, _, _, _): ignore(VERDICT_STALE, DROP_REASON_STALE);
            // The RESULT of the parent. It is the answer to the sum of all senders below, so these are not missing.
            (1, VERDICT_NONE, PHASE_REPLACED, 0, 1, _): conclude(VERDICT_COMPLETED);
            (1, VERDICT_NONE, PHASE_REPLACED, 0, 0, _): conclude(VERDICT_AGGREGATED);
            (1, VERDICT_NONE, PHASE_REPLACED, _, _, _): ignore(VERDICT_DUPLICATE, DROP_REASON_DUPLICATE);
        }
        size = 12;
    }

    @hidden
    action mark(bit<1> all, bit<1> all_below) {
        full = all;
        full_below = all_below;
    }

    @hidden
    table missing_table {
        key = {
            meta.has_parent: ternary;
            meta.bitmap: ternary;
        }
        actions = {
            mark;
        }
        const default_action = mark(0, 0);
        const entries = {
            (0, 0): mark(1, 0);
            (1, 0): mark(0, 1);
            (1, FINAL): mark(1, 0);
        }
        size = 3;
    }

    apply {
        // With a parent, the mask has the senders below only, so that FINAL remains if it is in the bitmap.
        meta.bitmap = meta.bitmap ^ meta.job_mask;
        missing_table.apply();
        decision_table.apply();
    }
}

#endif
