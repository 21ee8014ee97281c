/* SwitchML for C and C++: collectives that are summed inside the network.
 *
 * A process is one rank of a job. switchml_connect() attaches it through the agent on its host; all ranks then make the
 * same calls in the same order, any number of which may be in flight. Ranks of one job may be programs in C and in
 * Python. The page docs/guides/libswitchml.md has a complete program.
 *
 * Rules:
 * - Every function returns at once or at a deadline, none exits, throws or calls back.
 * - Any thread may use a communicator and any of its calls, as long as all ranks keep one order of calls.
 * - A child of fork() may not: its calls return SWITCHML_COMM_CLOSED.
 * - Memory that was given to a call belongs to it until the call has ended.
 * - The text of an error is that of the exception that a Python program would get.
 */
#ifndef SWITCHML_H
#define SWITCHML_H

#include <stddef.h>
#include <stdint.h>

/* In C++ too, a variable of these types may hold any number, which the library refuses. */
#ifdef __cplusplus
#define SWITCHML_INT : int
extern "C" {
#else
#define SWITCHML_INT
#endif

/* The status of a call. Below 0: nothing was sent, and no memory was changed, because of an argument or the machine. */
typedef enum switchml_status SWITCHML_INT {
  SWITCHML_OK = 0,
  /* A rank contributed NaN or infinity. The result is NaN at those places, which switchml_last_error() has, and right
   * at all others; the communicator remains usable. */
  SWITCHML_NON_FINITE = 1,
  /* Failures of a call, whose output is undefined unless the text says that the call was not started. All later calls
   * meet the same one, except after SWITCHML_WORLD_CHANGED. */
  SWITCHML_COLLECTIVE_TIMEOUT = 2,  /* not all ranks took part in time */
  SWITCHML_COLLECTIVE_MISMATCH = 3, /* another rank made another call */
  SWITCHML_INTEGRITY_ERROR = 4,     /* values were corrupted on their way */
  SWITCHML_WORKER_LOST = 5,         /* other ranks are lost */
  SWITCHML_WORLD_CHANGED = 6,       /* other ranks are lost, and the job goes on in another epoch: call again */
  SWITCHML_RANK_CLOSED = 7,         /* other ranks have made their last call */
  SWITCHML_JOB_ENDED = 8,           /* the job was stopped or completed */
  SWITCHML_JOB_FAILED = 9,          /* the job failed, and the text says why */
  SWITCHML_SWITCH_LOST = 10,        /* the switch lost the state of the job */
  SWITCHML_EPOCH_SPENT = 11,        /* the job has used its slots as often as one epoch allows */
  SWITCHML_AGENT_LOST = 12,         /* the agent of this host ended */
  SWITCHML_COMM_CLOSED = 13,        /* the communicator was closed, or belongs to the parent of this process */

  SWITCHML_INVALID_ARGUMENT = -1, /* the text names it */
  SWITCHML_UNSUPPORTED_TYPE = -2, /* the elements have no such sum */
  SWITCHML_CONNECT_ERROR = -3,    /* this process got no rank; `reason` says why */
  SWITCHML_NO_MEMORY = -4,
  SWITCHML_INTERNAL_ERROR = -5 /* a defect of this library; please report its text */
} switchml_status;

typedef enum switchml_type SWITCHML_INT {
  SWITCHML_FLOAT32 = 0,
  SWITCHML_FLOAT16 = 1,
  SWITCHML_BFLOAT16 = 2,
  SWITCHML_FLOAT64 = 3,
  SWITCHML_INT8 = 4,
  SWITCHML_INT16 = 5,
  SWITCHML_INT32 = 6,
  SWITCHML_INT64 = 7,
  SWITCHML_UINT8 = 8,
  SWITCHML_UINT16 = 9,
  SWITCHML_UINT32 = 10,
  SWITCHML_UINT64 = 11,
  SWITCHML_BOOL = 12 /* of one byte; a sum is true if a term is */
} switchml_type;

typedef enum switchml_op SWITCHML_INT {
  SWITCHML_SUM = 0,    /* integers wrap around */
  SWITCHML_AVERAGE = 1 /* of floating-point numbers */
} switchml_op;

typedef enum switchml_skip_zeros SWITCHML_INT {
  SWITCHML_SEND_ALL = 0,
  SWITCHML_SKIP_ZEROS = 1,     /* send only the blocks that are not zero */
  SWITCHML_SKIP_AUTOMATIC = 2, /* as earlier calls of the same size suggest */
} switchml_skip_zeros;

typedef struct switchml_comm switchml_comm; /* a rank in a job */
typedef struct switchml_work switchml_work; /* a call in flight */

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* The last status of this thread that was not SWITCHML_OK, in detail. Later versions may add members at the end. */
typedef struct switchml_error {
  switchml_status status;
  const char* message;   /* what happened, to what, what to do, and what the output holds */
  const char* reason;    /* of SWITCHML_CONNECT_ERROR: the name that agent or controller gave it, or "" */
  const uint32_t* ranks; /* that are lost, closed or late */
  size_t rank_count;
  const uint64_t* indices; /* of SWITCHML_NON_FINITE: the lowest such elements of the whole array */
  size_t index_count;
  uint64_t non_finite_count; /* all such elements */
  uint64_t completed_calls;  /* of SWITCHML_WORLD_CHANGED: those of the old epoch that all ranks have completed */
} switchml_error;

/* Returns the error; its memory is valid until this thread calls this library again. Before any error, its status is
 * SWITCHML_OK. */
const switchml_error* switchml_last_error(void);

/* Returns the name of a status, such as "SWITCHML_WORKER_LOST". */
const char* switchml_status_name(switchml_status status);

/* Returns the version of the library, such as "0.1.0". */
const char* switchml_version(void);

/* ---- communicators --------------------------------------------------------------------------------------------- */

/* Initialize with SWITCHML_CONNECT_OPTIONS_INIT, so that a program still works with later versions of this struct. */
typedef struct switchml_connect_options {
  size_t size;       /* of this struct */
  const char* agent; /* path of the agent's socket; NULL: SWITCHML_AGENT, or else an agent of the fabric in
                        SWITCHML_RUN_DIR, or of the one that `switchml-ctl up` has started */
  const char* job;   /* id or name, or with `create` the key of the job; NULL: SWITCHML_JOB */
  int64_t rank;      /* below 0: SWITCHML_RANK, or else RANK */
  int64_t
      world_size; /* below 0: SWITCHML_WORLD_SIZE, or else WORLD_SIZE. Without `create` only compared with the job's */
  int create;     /* not 0: begin the job when ranks 0 to world_size - 1 have called this with the same key */
  double timeout; /* seconds for the agent to answer or, with `create`, for the other ranks to come; 0: 30 or 300 */
  /* The members below are for `create`, and the same for all ranks. */
  const char* on_failure;  /* "abort", "shrink" or "restart"; NULL: SWITCHML_ON_FAILURE, or else "abort" */
  int priority;            /* 0 to 7 */
  uint32_t slots;          /* of the job's pool; 0: SWITCHML_SLOTS, or else the switch's default */
  const char* aggregators; /* names of soft switches, "s1,s2"; NULL: SWITCHML_AGGREGATORS, or else the agents' switch */
} switchml_connect_options;

#define SWITCHML_CONNECT_OPTIONS_INIT {sizeof(switchml_connect_options), NULL, NULL, -1, -1, 0, 0.0, NULL, 0, 0, NULL}

/* Attaches this process to a rank of a job. `options` may be NULL, if `switchml-ctl job start -- COMMAND` has started
 * the process. Sets *comm only if it returns SWITCHML_OK. */
switchml_status switchml_connect(const switchml_connect_options* options, switchml_comm** comm);

/* Ends this rank's part in the job, which completes when all ranks have done so. Calls in flight fail. Idempotent. A
 * rank that ends without this is reported to the others as lost. `loss` may be NULL; otherwise this rank is reported as
 * lost for that reason. */
switchml_status switchml_comm_close(switchml_comm* comm, const char* loss);

/* Closes the communicator, if it is open, and releases it. No thread may use it any more. NULL is allowed. */
void switchml_comm_free(switchml_comm* comm);

/* Set `size` to sizeof(switchml_info) before the call. */
typedef struct switchml_info {
  size_t size;
  const char* job; /* name; valid as long as the communicator */
  uint32_t rank;   /* it, like the next three members, may change with the epoch */
  uint32_t world_size;
  uint32_t epoch;
  uint32_t generation; /* the number of changes of epoch so far */
  uint64_t calls;      /* that this process has made in this epoch */
  uint32_t values_per_packet;
  uint32_t slots;
  int shares_memory;       /* the switch is on this host and reads the values where they are */
  switchml_status failure; /* that the next call will meet; SWITCHML_OK while the communicator is usable */
} switchml_info;

switchml_status switchml_comm_info(switchml_comm* comm, switchml_info* info);

/* ---- calls ----------------------------------------------------------------------------------------------------- */

/* Initialize with SWITCHML_CALL_OPTIONS_INIT. */
typedef struct switchml_call_options {
  size_t size;
  double timeout; /* seconds that the call may take; 0: 300 */
  const char*
      wire; /* how the values of a sum travel, such as "blocks:bits=16" (docs/guides/compression.md); NULL: as usual */
  switchml_skip_zeros skip_zeros; /* of an all-reduce */
} switchml_call_options;

#define SWITCHML_CALL_OPTIONS_INIT {sizeof(switchml_call_options), 0.0, NULL, SWITCHML_SEND_ALL}

/* In all of these, `options` may be NULL. If `work` is NULL, the function waits for the end of the call and returns
 * what happened to it. Otherwise it sets *work, if it returns SWITCHML_OK, and returns at once; what happens to the
 * call is then returned by switchml_work_wait(). Counts are in elements, the same on all ranks; 0 is allowed, and then
 * memory may be NULL. Memory is aligned to its type. */

/* `output` gets the sum or the average of all ranks' `input`; both may be the same memory, but may not overlap in any
 * other way. */
switchml_status switchml_all_reduce(switchml_comm* comm, const void* input, void* output, uint64_t count,
                                    switchml_type type, switchml_op op, const switchml_call_options* options,
                                    switchml_work** work);

/* `output` on rank r gets part r, of `part_count` elements, of the sum or the average of all ranks' `input`, which has
 * one part after the other. `output` may be this rank's part of `input`, but no other memory of it. */
switchml_status switchml_reduce_scatter(switchml_comm* comm, const void* input, void* output, uint64_t part_count,
                                        switchml_type type, switchml_op op, const switchml_call_options* options,
                                        switchml_work** work);

/* `output` gets the `part_count` elements of all ranks' `input`, one after the other, bit for bit. `input` may be this
 * rank's part of `output`, but no other memory of it. */
switchml_status switchml_all_gather(switchml_comm* comm, const void* input, void* output, uint64_t part_count,
                                    switchml_type type, const switchml_call_options* options, switchml_work** work);

/* `data` gets that of rank `root`, bit for bit. */
switchml_status switchml_broadcast(switchml_comm* comm, void* data, uint64_t count, switchml_type type, uint32_t root,
                                   const switchml_call_options* options, switchml_work** work);

/* Ends when all ranks have called it. */
switchml_status switchml_barrier(switchml_comm* comm, const switchml_call_options* options, switchml_work** work);

/* Sets *ended to whether the call has ended, with success or failure; does not wait. */
switchml_status switchml_work_test(switchml_work* work, int* ended);

/* Waits for the end of the call, until its timeout, and returns what happened to it. May be called again. */
switchml_status switchml_work_wait(switchml_work* work);

/* Releases the handle; the call goes on, and its memory belongs to it until a later call has ended. NULL is allowed. */
void switchml_work_free(switchml_work* work);

#ifdef __cplusplus
}
#endif

#endif
