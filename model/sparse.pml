/* A stream of sparse calls. A position of the stream is a column of BLOCKS blocks, of which each rank owns some; no rank
 * knows what the others own. A position uses its slot for a number of phases that depends on the data. The first one is
 * the announcement, without values. Then there is a phase for each block that some rank owns, in which its owners send
 * values. In each phase a rank names the next block that it owns, if there is one, and the smallest number that was named
 * tells all ranks which block is next. If no rank named a block, the position is finished.
 *
 * Calls follow each other in the slots. With DENSE_CALL, the call with this index is dense: its position uses one phase,
 * in which all ranks send values and name the position's number. */

#ifdef DENSE_CALL
#define CALLS ((PHASES + BLOCKS) / (1 + BLOCKS))
#define IS_DENSE(call) ((call) == DENSE_CALL)
#else
#define CALLS (PHASES / (1 + BLOCKS))
#define IS_DENSE(call) false
#endif

/* A set of blocks has one bit for each, and at most four bits. A stage is the announcement or a block. */
#define NO_BLOCK 255
#define ANNOUNCEMENT 0
#define STAGE_OF(block) ((block) + 1)
#define IS_IN(blocks, stage) ((stage) != ANNOUNCEMENT && (((blocks) << 1) >> (stage)) & 1)
#define NEXT_AFTER(blocks, stage) SMALLEST(((blocks) >> (stage)) << (stage))
#define SMALLEST(blocks) \
    ((blocks) & 1 -> 0 : ((blocks) & 2 -> 1 : ((blocks) & 4 -> 2 : ((blocks) & 8 -> 3 : NO_BLOCK))))

/* For each slot and rank, the sets of all calls: SPIN tries every choice. */
byte owned[SLOTS * WORKERS];
#define OWNED(slot, call, worker) ((owned[(slot) * WORKERS + (worker)] >> (BLOCKS * (call))) & ((1 << BLOCKS) - 1))

inline choose_owned(slot, worker) {
    for (slot : 0 .. SLOTS - 1) {
        for (worker : 0 .. WORKERS - 1) {
            do
            :: owned[slot * WORKERS + worker] + 1 < 1 << (BLOCKS * CALLS) -> owned[slot * WORKERS + worker]++
            :: break
            od
        }
    }
}

/* The worker in a slot: the calls that it has finished there, and the stage of the next one. */
byte calls[EPOCHS * SLOTS * WORKERS];
byte stages[EPOCHS * SLOTS * WORKERS];
#define CALL(epoch, slot, worker) calls[PLACE(epoch, slot, worker)]
#define STAGE(epoch, slot, worker) stages[PLACE(epoch, slot, worker)]
#define OWN(epoch, slot, worker) OWNED(slot, CALL(epoch, slot, worker), worker)
#define POSITION(epoch, slot, worker) (CALL(epoch, slot, worker) * SLOTS + (slot))
#define AT_END(epoch, slot, worker) (CALL(epoch, slot, worker) == CALLS)

/* The contributions: whether they have values, and the chunk that they name. */
byte with_values[EPOCHS * SLOTS * WORKERS];  /* one bit for each phase */
byte named[EPOCHS * SLOTS * WORKERS * PHASES];
#define HAS_VALUES(epoch, slot, worker, phase) HOLDS_PHASE(with_values[PLACE(epoch, slot, worker)], phase)
#define NAMED(epoch, slot, worker, phase) named[PLACE(epoch, slot, worker) * PHASES + (phase)]

/* Writes the worker's next contribution. */
inline prepare(epoch, slot, worker) {
    if
    :: IS_DENSE(CALL(epoch, slot, worker)) || IS_IN(OWN(epoch, slot, worker), STAGE(epoch, slot, worker)) ->
        ADD_PHASE(with_values[PLACE(epoch, slot, worker)], sent[PLACE(epoch, slot, worker)])
    :: else
    fi;
    NAMED(epoch, slot, worker, sent[PLACE(epoch, slot, worker)]) =
        (IS_DENSE(CALL(epoch, slot, worker)) -> POSITION(epoch, slot, worker) :
         NEXT_AFTER(OWN(epoch, slot, worker), STAGE(epoch, slot, worker)))
}

/* The RESULT that a phase must have: the workers whose values it contains, and its chunk. Both follow from the blocks of
 * all members: in order, each once. */
hidden byte right_call;
hidden byte right_stage;
hidden byte right_chunk;
hidden byte earlier;
hidden byte member;
hidden byte of_all;
#define OWNS(epoch, slot, worker, phase) (IS_DENSE(right_call) || IS_IN(OWNED(slot, right_call, worker), right_stage))
#define IS_LAST_PHASE (IS_DENSE(right_call) || right_chunk == NO_BLOCK)

inline specify(epoch, slot, phase) {
    for (earlier : 0 .. phase) {
        if
        :: earlier == 0 -> right_call = 0; right_stage = ANNOUNCEMENT
        :: earlier != 0 && IS_LAST_PHASE -> right_call++; right_stage = ANNOUNCEMENT
        :: earlier != 0 && !IS_LAST_PHASE -> right_stage = STAGE_OF(right_chunk)
        fi;
        of_all = 0;
        for (member : 0 .. WORKERS - 1) {
            if
            :: MEMBER(epoch, member) -> of_all = of_all | OWNED(slot, right_call, member)
            :: else
            fi
        };
        right_chunk = (IS_DENSE(right_call) -> right_call * SLOTS + (slot) : NEXT_AFTER(of_all, right_stage))
    }
}

/* Takes the chunk of a RESULT. It is the right one, because a wrong one is a violation. */
inline follow(epoch, slot, worker) {
    specify(epoch, slot, held[PLACE(epoch, slot, worker)]);
    if
    :: IS_LAST_PHASE -> CALL(epoch, slot, worker)++; STAGE(epoch, slot, worker) = ANNOUNCEMENT
    :: else -> STAGE(epoch, slot, worker) = STAGE_OF(right_chunk)
    fi
}

inline forget_stream(epoch, slot, worker) {
    CALL(epoch, slot, worker) = 0;
    STAGE(epoch, slot, worker) = ANNOUNCEMENT;
    with_values[PLACE(epoch, slot, worker)] = 0;
    for (earlier : 0 .. PHASES - 1) {
        NAMED(epoch, slot, worker, earlier) = 0
    }
}
