/* The verdict on a contribution: the decision_table of dataplane/p4/common/slot_decision.p4, row by row. The numbers are
 * those of constants.p4 and types.p4. tests/unit/test_protocol_model.py compares this file with the P4 sources. */

#define VERDICT_AGGREGATED 1
#define VERDICT_COMPLETED 2
#define VERDICT_RESENT 3
#define VERDICT_DUPLICATE 4
#define VERDICT_STALE 5
#define VERDICT_WRONG_EPOCH 6
#define VERDICT_FORWARDED 7

#define PHASE_STALE 0
#define PHASE_SAME 1
#define PHASE_NEWER 2

hidden byte phase_predicate;  /* the packet's phase compared with the half's */
hidden byte seen;             /* the sender has contributed to this phase before */
hidden byte complete;         /* all members have contributed, including the sender */
hidden byte verdict;

/* At most one guard holds. */
inline decide() {
    if
    :: phase_predicate == PHASE_NEWER && !complete         -> verdict = VERDICT_AGGREGATED
    :: phase_predicate == PHASE_NEWER && complete          -> verdict = VERDICT_COMPLETED
    :: phase_predicate == PHASE_SAME && !seen && !complete -> verdict = VERDICT_AGGREGATED
    :: phase_predicate == PHASE_SAME && !seen && complete  -> verdict = VERDICT_COMPLETED
    :: phase_predicate == PHASE_SAME && seen && complete   -> verdict = VERDICT_RESENT
    :: phase_predicate == PHASE_SAME && seen && !complete  -> verdict = VERDICT_DUPLICATE
    :: phase_predicate == PHASE_STALE                  -> verdict = VERDICT_STALE
    fi
}
