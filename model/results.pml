/* RESULTs: what is wrong with them, and sending one. */

hidden byte fault;
hidden byte must_have_values;

/* Sets `fault` for the RESULT that answers this worker's contribution. */
inline judge_result(half, epoch, slot, worker, phase) {
    judge_sum(half, epoch, slot, phase);
    must_have_values = false;
    for (each : 0 .. WORKERS - 1) {
        must_have_values = must_have_values || MEMBER(epoch, each) && OWNS(epoch, slot, each, phase)
    };
    if
    :: RESULT_HAS_VALUES(half, epoch, slot, worker, phase) != must_have_values -> fault = WRONG_KIND
    :: else ->
        if
        :: must_have_values && !right -> fault = WRONG_SUM
        :: else -> fault = (RESULT_CHUNK(half, epoch, slot, worker, phase) == right_chunk -> RIGHT : WRONG_CHUNK)
        fi
    fi
}

inline send_result(epoch, slot, worker, phase) {
    ADD_PHASE(RESULTS(fault, epoch, slot, worker), phase)
}

inline forget_results(epoch, slot, worker) {
    for (fault : 0 .. FAULTS - 1) {
        RESULTS(fault, epoch, slot, worker) = 0
    }
}
