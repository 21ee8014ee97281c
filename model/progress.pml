/* Checks for any state that all workers finish if no more packets are lost. FINISHED(epoch, slot, worker) tells whether
 * a worker has finished, and BEGINS whether it may begin its next phase. Every step here is one that workers and network
 * could take, so this reaches no new states. */

#define ENOUGH_ROUNDS (2 * EPOCHS * SLOTS * PHASES)

hidden byte rounds;
hidden byte turn_epoch;
hidden byte turn_slot;
hidden byte turn_worker;
hidden byte finished;

inline check_finished() {
    finished = true;
    for (turn_epoch : 0 .. EPOCHS - 1) {
        for (turn_slot : 0 .. SLOTS - 1) {
            for (turn_worker : 0 .. WORKERS - 1) {
                finished = finished && FINISHED(turn_epoch, turn_slot, turn_worker)
            }
        }
    }
}

inline take_turn(epoch, slot, worker) {
    if
    :: BEGINS(epoch, slot, worker) -> begin(epoch, slot, worker)
    :: else
    fi;
    if
    :: WAITS(epoch, slot, worker) -> exchange(epoch, slot, worker)
    :: else
    fi
}

inline finish() {
    rounds = 0;
    check_finished();
    do
    :: finished -> break
    :: !finished && rounds == ENOUGH_ROUNDS -> violation(stuck); break
    :: !finished && rounds < ENOUGH_ROUNDS ->
        for (turn_epoch : 0 .. EPOCHS - 1) {
            for (turn_slot : 0 .. SLOTS - 1) {
                for (turn_worker : 0 .. WORKERS - 1) {
                    take_turn(turn_epoch, turn_slot, turn_worker)
                }
            }
        };
        check_finished();
        rounds++
    od;
    rounds = 0
}

proctype network_recovers() {
end:
    do
    :: d_step { printf("@recovers\n"); finish() }
    od
}
