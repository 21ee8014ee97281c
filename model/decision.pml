/* What becomes of a contribution: the decision_table of dataplane/p4/common/slot_decision.p4, row for row. The
 * numbers are those of constants.p4 and types.p4. tests/unit/test_protocol_model.py compares all of it with the P4
 * sources. */

#define VERDICT_AGGREGATED 1
#define VERDICT_COMPLETED 2
#define VERDICT_RESENT 3
#define VERDICT_DUPLICATE 4
#define VERDICT_STALE 5
#define VERDICT_WRONG_EPOCH 6

#define PHASE_STALE 0
#define PHASE_SAME 1
#define PHASE_NEWER 2

hidden byte relation;  /* of the packet's phase to the one that the half holds */
hidden byte seen;      /* the sender has contributed to this phase before */
hidden byte complete;      /* everyone has, the sender among them */
hidden byte verdict;

/* No two rows hold at once. */
inline decide() {
    if
    :: relation == PHASE_NEWER && !complete         -> verdict = VERDICT_AGGREGATED
    :: relation == PHASE_NEWER && complete          -> verdict = VERDICT_COMPLETED
    :: relation == PHASE_SAME && !seen && !complete -> verdict = VERDICT_AGGREGATED
    :: relation == PHASE_SAME && !seen && complete  -> verdict = VERDICT_COMPLETED
    :: relation == PHASE_SAME && seen && complete   -> verdict = VERDICT_RESENT
    :: relation == PHASE_SAME && seen && !complete  -> verdict = VERDICT_DUPLICATE
    :: relation == PHASE_STALE                  -> verdict = VERDICT_STALE
    fi
}
