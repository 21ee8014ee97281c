/* One switch, which all workers send to: its answers, and an exchange over a network that loses nothing. */

#include "sums.pml"
#ifdef ONE_BIT
#include "one_bit_switch.pml"
#else
#include "switch.pml"
#endif
#include "results.pml"

hidden byte receiver;

inline arrive(epoch, slot, worker, phase) {
    aggregate(epoch, slot, worker, phase)
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
    :: verdict == VERDICT_COMPLETED ->
        judge_result(half, epoch, slot, worker, phase);
        multicast_result(epoch, slot, phase)
    :: verdict == VERDICT_RESENT ->
        judge_result(half, epoch, slot, worker, phase);
        send_result(epoch, slot, worker, phase)
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
        judge_result(half, epoch, slot, worker, retransmitted);
        for (receiver : 0 .. WORKERS - 1) {
            if
            :: (verdict == VERDICT_COMPLETED && MEMBER(epoch, receiver) || receiver == (worker)) &&
               ACCEPTS(epoch, slot, receiver, retransmitted) -> accept(epoch, slot, receiver, fault)
            :: else
            fi
        }
    :: else
    fi
}
