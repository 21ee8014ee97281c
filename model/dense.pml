/* A stream of dense calls: each phase of a slot is a position of the stream, whose number every rank names. */

#define POSITION(epoch, slot, worker) (held[PLACE(epoch, slot, worker)] * SLOTS + (slot))
#define AT_END(epoch, slot, worker) (held[PLACE(epoch, slot, worker)] == PHASES)

/* The contributions: whether they have values, and the chunk that they name. */
#ifdef OWNERS  /* bit WORKERS * phase + worker is set if the worker's contribution to that phase has values */
#define HAS_VALUES(epoch, slot, worker, phase) ((OWNERS >> (WORKERS * (phase) + (worker))) & 1)
#else
#define HAS_VALUES(epoch, slot, worker, phase) true
#endif
#define NAMED(epoch, slot, worker, phase) ((phase) * SLOTS + (slot))

/* The RESULT that a phase must have: the workers whose values it contains, and its chunk. */
#define OWNS(epoch, slot, worker, phase) HAS_VALUES(epoch, slot, worker, phase)

hidden byte right_chunk;

inline specify(epoch, slot, phase) {
    right_chunk = (phase) * SLOTS + (slot)
}

/* Only sparse calls have more state. */
inline prepare(epoch, slot, worker) { skip }
inline follow(epoch, slot, worker) { skip }
inline forget_stream(epoch, slot, worker) { skip }
