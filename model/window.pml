/* The definition of a worker's window. A chunk takes one phase or two (its exponent first), the same at every rank. In
 * between, the chunk is with the training process, so its second phase is queued behind other chunks, in a different
 * order at each rank. The network is perfect and every chunk has a separate slot: this model is about the window alone,
 * whose size every rank chooses itself. SPIN searches for a state in which no rank can continue ("invalid end state").
 *
 * The window is a range of stream positions: a queued chunk may be sent if it is less than the window size beyond the
 * lowest chunk that the agent has. With PACKETS, which the agent does not use, the window is a number of packets, sent
 * in the order in which they were queued. */

mtype = { with_process, queued, in_flight, complete };

#define CHUNKS 3
#define AT(worker, chunk) ((worker) * CHUNKS + (chunk))

byte phases_of[CHUNKS];
byte window[WORKERS];
mtype state[WORKERS * CHUNKS] = with_process;
byte sent[WORKERS * CHUNKS];  /* number of phases sent */
#ifdef PACKETS
chan queue[WORKERS] = [CHUNKS] of { byte };
byte flying[WORKERS];
#endif

#define IS_FIRST_SUBMISSION(chunk) (sent[AT(worker, chunk)] == 0)
#define WAS_SUBMITTED(chunk) (sent[AT(worker, chunk)] != 0 || state[AT(worker, chunk)] != with_process)
#define MAY_SUBMIT(chunk) \
    (state[AT(worker, chunk)] == with_process && \
     (!IS_FIRST_SUBMISSION(chunk) || (chunk) == 0 || WAS_SUBMITTED((chunk) - 1)))

#define IS_WITH_AGENT(chunk) (state[AT(worker, chunk)] == queued || state[AT(worker, chunk)] == in_flight)
#define LOWEST (IS_WITH_AGENT(0) -> 0 : (IS_WITH_AGENT(1) -> 1 : 2))

#if WORKERS > 2
#define ALL_HAVE_SENT(chunk, phases) \
    (sent[AT(0, chunk)] >= phases && sent[AT(1, chunk)] >= phases && sent[AT(2, chunk)] >= phases)
#else
#define ALL_HAVE_SENT(chunk, phases) (sent[AT(0, chunk)] >= phases && sent[AT(1, chunk)] >= phases)
#endif

inline submit(chunk) {
    state[AT(worker, chunk)] = queued;
#ifdef PACKETS
    queue[worker]!chunk
#endif
}

inline send(chunk) {
    printf("@send worker=%d chunk=%d phase=%d\n", worker, chunk, sent[AT(worker, chunk)]);
    state[AT(worker, chunk)] = in_flight;
    sent[AT(worker, chunk)]++;
#ifdef PACKETS
    queue[worker]?_;
    flying[worker]++
#endif
}

inline take_result(chunk) {
    printf("@result worker=%d chunk=%d phase=%d\n", worker, chunk, sent[AT(worker, chunk)] - 1);
    state[AT(worker, chunk)] = (sent[AT(worker, chunk)] == phases_of[chunk] -> complete : with_process);
#ifdef PACKETS
    flying[worker]--
#endif
}

#ifdef PACKETS
#define MAY_SEND(chunk) (queue[worker]?[chunk] && flying[worker] < window[worker])
#else
#define MAY_SEND(chunk) (state[AT(worker, chunk)] == queued && (chunk) < LOWEST + window[worker])
#endif

#define CHUNK(chunk) \
    :: d_step { MAY_SUBMIT(chunk) -> submit(chunk) } \
    :: d_step { MAY_SEND(chunk) -> send(chunk) } \
    :: d_step { state[AT(worker, chunk)] == in_flight && ALL_HAVE_SENT(chunk, sent[AT(worker, chunk)]) -> \
                take_result(chunk) }

proctype rank(byte worker) {
    do
    CHUNK(0)
    CHUNK(1)
    CHUNK(2)
    :: d_step { state[AT(worker, 0)] == complete && state[AT(worker, 1)] == complete &&
                state[AT(worker, 2)] == complete } -> break
    od
}

init {
    byte each;
    atomic {
        for (each : 0 .. CHUNKS - 1) {
            if
            :: phases_of[each] = 1
            :: phases_of[each] = 2
            fi
        };
        for (each : 0 .. WORKERS - 1) {
            if
            :: window[each] = 1
            :: window[each] = 2
            :: window[each] = CHUNKS
            fi
        };
        for (each : 0 .. WORKERS - 1) {
            run rank(each)
        }
    }
}
