/* Sending a RESULT, and an exchange over a network that loses nothing. */

hidden byte receiver;

#define ADD_PHASE(set, place, phase) set[place] = set[place] | (1 << (phase))

inline send_result(epoch, slot, worker, phase) {
    if
    :: right -> ADD_PHASE(right_results, PLACE(epoch, slot, worker), phase)
    :: else -> ADD_PHASE(wrong_results, PLACE(epoch, slot, worker), phase)
    fi
}

inline multicast_result(epoch, slot, phase) {
    for (receiver : 0 .. WORKERS - 1) {
        if
        :: MEMBER(epoch, receiver) -> send_result(epoch, slot, receiver, phase)
        :: else
        fi
    }
}

#ifdef RECIRCULATION
#include "recirculation.pml"
#else
inline answer(epoch, slot, worker, phase) {
    if
    :: verdict == VERDICT_COMPLETED -> judge_sum(half, epoch, worker, phase); multicast_result(epoch, slot, phase)
    :: verdict == VERDICT_RESENT -> judge_sum(half, epoch, worker, phase); send_result(epoch, slot, worker, phase)
    :: else
    fi
}
#endif

/* A worker's timer expires, and its retransmission and the answer are delivered at once. Everything else that the network
 * holds is lost. */
hidden byte retransmitted;

inline exchange(epoch, slot, worker) {
    retransmitted = held[PLACE(epoch, slot, worker)];
    ARRIVES(slot, worker, retransmitted);
    aggregate(epoch, slot, worker, retransmitted);
    if
    :: verdict == VERDICT_COMPLETED || verdict == VERDICT_RESENT ->
        judge_sum(half, epoch, worker, retransmitted);
        for (receiver : 0 .. WORKERS - 1) {
            if
            :: (verdict == VERDICT_COMPLETED && MEMBER(epoch, receiver) || receiver == (worker)) &&
               ACCEPTS(epoch, slot, receiver, retransmitted) -> accept(epoch, slot, receiver, right)
            :: else
            fi
        }
    :: else
    fi
}
