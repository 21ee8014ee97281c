/* The chunk of a half: the smallest that the contributions to its phase named (the register slot_next). */

byte stored_chunk[HALVES] = 255;  /* so that the first variant below is right in the first phase of a half */

/* Three broken variants: a new phase does not overwrite the chunk; late duplicates lower it as well; a RESULT has the
 * chunk of the packet that it answers. */
#ifdef CHUNK_KEPT
#define OVERWRITES_CHUNK false
#else
#define OVERWRITES_CHUNK (phase_predicate == PHASE_NEWER)
#endif

#ifdef CHUNK_OF_LATE
#define LOWERS_CHUNK true
#else
#define LOWERS_CHUNK (phase_predicate != PHASE_STALE && !seen)
#endif

#ifdef CHUNK_OF_TRIGGER
#define RESULT_CHUNK(half, epoch, slot, worker, phase) NAMED(epoch, slot, worker, phase)
#else
#define RESULT_CHUNK(half, epoch, slot, worker, phase) stored_chunk[half]
#endif

inline take_chunk(half, chunk) {
    if
    :: OVERWRITES_CHUNK || LOWERS_CHUNK && (chunk) < stored_chunk[half] -> stored_chunk[half] = chunk
    :: else
    fi
}
