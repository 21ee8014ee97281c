/* Carries large collectives of an MPI program through the network: an MPI library's functions of the same names, which
 * a program gets by LD_PRELOAD or by linking. docs/mpi.md says how to compile it for an MPI library, and when it pays.
 *
 * MPI_Allreduce and MPI_Reduce_scatter_block with MPI_SUM and MPI_Allgather go through the network if their type is a
 * basic one that libswitchml has and they have at least SWITCHML_MPI_LEAST_BYTES; everything else is MPI's own. These
 * are things that all ranks of a communicator know alike, so that they decide alike. A communicator becomes a
 * separate job at its first such call, if all of its ranks find an agent, and otherwise stays with MPI.
 *
 * MPI_SUM of floating-point numbers is that of libswitchml: alike on all ranks and in every run, within a bound
 * (docs/protocol.md). NaN stays NaN; an infinity becomes NaN. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchml.h>
#include <sys/random.h>

enum { KEY_BYTES = 16, LEAST_BYTES = 256 * 1024, JOIN_SECONDS = 30 };

/* The calls of one function, in the report. */
typedef struct Counted {
  const char* name;
  uint64_t network_calls;
  uint64_t network_bytes;
  uint64_t mpi_calls;
} Counted;

enum { ALLREDUCE, REDUCE_SCATTER_BLOCK, ALLGATHER, FUNCTIONS };

/* A communicator that has asked for a job. */
typedef struct Member {
  switchml_comm* comm; /* NULL if it stays with MPI */
  struct Member* next; /* of all that are open */
} Member;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static Counted counted[FUNCTIONS] = {
    {.name = "MPI_Allreduce"}, {.name = "MPI_Reduce_scatter_block"}, {.name = "MPI_Allgather"}};
static Member* members;
static int keyval = MPI_KEYVAL_INVALID;
static int has_said_why;

static uint64_t least_bytes(void) {
  const char* given = getenv("SWITCHML_MPI_LEAST_BYTES");
  char* end;
  const uint64_t bytes = given == NULL ? LEAST_BYTES : strtoull(given, &end, 10);
  if (given != NULL && (*given == '\0' || *end != '\0')) {
    fprintf(stderr, "switchml: SWITCHML_MPI_LEAST_BYTES is '%s', which is not a number; %d is used\n", given,
            LEAST_BYTES);
    return LEAST_BYTES;
  }
  return bytes;
}

/* ---- communicators --------------------------------------------------------------------------------------------- */

static void close_member(Member* member) {
  for (Member** place = &members; *place != NULL; place = &(*place)->next) {
    if (*place != member) continue;
    *place = member->next;
    break;
  }
  switchml_comm_free(member->comm);
  free(member);
}

/* MPI calls this when a communicator is freed. */
static int forget(MPI_Comm comm, int key, void* attribute, void* extra) {
  (void)comm, (void)key, (void)extra;
  pthread_mutex_lock(&lock);
  close_member(attribute);
  pthread_mutex_unlock(&lock);
  return MPI_SUCCESS;
}

/* Says why a communicator stays with MPI, from the first rank that knows; its ranks say it once. */
static void say_why(MPI_Comm comm, int rank, int failed) {
  int first = failed && !has_said_why ? rank : INT32_MAX;
  int saying = 0;
  PMPI_Allreduce(&first, &saying, 1, MPI_INT, MPI_MIN, comm);
  has_said_why = 1;
  if (saying == rank)
    fprintf(stderr, "switchml: collectives stay with MPI; rank %d: %s\n", rank, switchml_last_error()->message);
}

/* Joins the job of a communicator, with all of its ranks. */
static switchml_comm* join(MPI_Comm comm) {
  int rank;
  int size;
  unsigned char random[KEY_BYTES] = {0};
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &size);
  if (rank == 0 && getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) memset(random, 0, sizeof random);
  PMPI_Bcast(random, sizeof random, MPI_BYTE, 0, comm);
  char key[8 + 2 * KEY_BYTES] = "mpi-";
  for (int i = 0; i < KEY_BYTES; ++i) snprintf(key + 4 + 2 * i, 3, "%02x", random[i]);
  switchml_connect_options options = SWITCHML_CONNECT_OPTIONS_INIT;
  options.job = key;
  options.rank = rank;
  options.world_size = size;
  options.create = 1;
  options.timeout = JOIN_SECONDS;
  switchml_comm* joined = NULL;
  const int failed = switchml_connect(&options, &joined) != SWITCHML_OK;
  int any_failed = 0;
  PMPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, comm);
  if (!any_failed) return joined;
  say_why(comm, rank, failed);
  switchml_comm_free(joined);
  return NULL;
}

/* Returns the job of a communicator, or NULL if it stays with MPI. Only one thread at a time makes collective calls on
 * a communicator, so that the lock is not held while its ranks join. */
static switchml_comm* job_of(MPI_Comm comm) {
  Member* member = NULL;
  int found = 0;
  pthread_mutex_lock(&lock);
  if (keyval == MPI_KEYVAL_INVALID) PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL);
  PMPI_Comm_get_attr(comm, keyval, &member, &found);
  if (!found) {
    member = calloc(1, sizeof *member);
    if (member == NULL) abort(); /* as MPI does without memory: the other ranks join */
    member->next = members;
    members = member;
    PMPI_Comm_set_attr(comm, keyval, member);
  }
  pthread_mutex_unlock(&lock);
  if (!found) member->comm = join(comm);
  return member->comm;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* Returns whether a type is a basic one that libswitchml has, and which. */
static int type_of(MPI_Datatype datatype, switchml_type* type) {
  const switchml_type of_long = sizeof(long) == 8 ? SWITCHML_INT64 : SWITCHML_INT32;
  const switchml_type of_unsigned_long = sizeof(long) == 8 ? SWITCHML_UINT64 : SWITCHML_UINT32;
  const struct {
    MPI_Datatype datatype;
    switchml_type type;
  } known[] = {
      {MPI_FLOAT, SWITCHML_FLOAT32},
      {MPI_DOUBLE, SWITCHML_FLOAT64},
      {MPI_INT, SWITCHML_INT32},
      {MPI_LONG, of_long},
      {MPI_LONG_LONG, SWITCHML_INT64},
      {MPI_UNSIGNED, SWITCHML_UINT32},
      {MPI_UNSIGNED_LONG, of_unsigned_long},
      {MPI_UNSIGNED_LONG_LONG, SWITCHML_UINT64},
      {MPI_SHORT, SWITCHML_INT16},
      {MPI_UNSIGNED_SHORT, SWITCHML_UINT16},
      {MPI_SIGNED_CHAR, SWITCHML_INT8},
      {MPI_UNSIGNED_CHAR, SWITCHML_UINT8},
      {MPI_INT8_T, SWITCHML_INT8},
      {MPI_INT16_T, SWITCHML_INT16},
      {MPI_INT32_T, SWITCHML_INT32},
      {MPI_INT64_T, SWITCHML_INT64},
      {MPI_UINT8_T, SWITCHML_UINT8},
      {MPI_UINT16_T, SWITCHML_UINT16},
      {MPI_UINT32_T, SWITCHML_UINT32},
      {MPI_UINT64_T, SWITCHML_UINT64},
      {MPI_REAL, SWITCHML_FLOAT32},
      {MPI_DOUBLE_PRECISION, SWITCHML_FLOAT64},
      {MPI_INTEGER, SWITCHML_INT32},
      {MPI_REAL4, SWITCHML_FLOAT32},
      {MPI_REAL8, SWITCHML_FLOAT64},
      {MPI_INTEGER4, SWITCHML_INT32},
      {MPI_INTEGER8, SWITCHML_INT64},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (known[i].datatype != datatype || datatype == MPI_DATATYPE_NULL) continue;
    *type = known[i].type;
    return 1;
  }
  return 0;
}

/* Counts a call of a function, and returns the job for it over `count` elements for each rank or in all, or NULL for
 * MPI's function.
 */
static switchml_comm* job_for(int function, int possible, MPI_Comm comm, MPI_Datatype datatype, int count,
                              int ranks_of_count, switchml_type* type, uint64_t* bytes) {
  int inter = 0;
  int size = 0;
  int element = 0;
  switchml_comm* job = NULL;
  if (possible && comm != MPI_COMM_NULL && count > 0 && type_of(datatype, type)) {
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &size);
    PMPI_Type_size(datatype, &element);
    *bytes = (uint64_t)count * (uint64_t)element * (uint64_t)(ranks_of_count ? size : 1);
    if (!inter && size > 1 && *bytes >= least_bytes()) job = job_of(comm);
  }
  pthread_mutex_lock(&lock);
  if (job == NULL) {
    ++counted[function].mpi_calls;
  } else {
    ++counted[function].network_calls;
    counted[function].network_bytes += *bytes;
  }
  pthread_mutex_unlock(&lock);
  return job;
}

/* Returns the code of MPI for what happened; a failure goes to the communicator's error handler. */
static int ended(MPI_Comm comm, switchml_status status) {
  if (status == SWITCHML_OK || status == SWITCHML_NON_FINITE) return MPI_SUCCESS;
  fprintf(stderr, "switchml: %s: %s\n", switchml_status_name(status), switchml_last_error()->message);
  PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

int MPI_Allreduce(const void* input, void* output, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  switchml_type type;
  uint64_t bytes = 0;
  switchml_comm* job = job_for(ALLREDUCE, op == MPI_SUM, comm, datatype, count, 0, &type, &bytes);
  if (job == NULL) return PMPI_Allreduce(input, output, count, datatype, op, comm);
  const void* from = input == MPI_IN_PLACE ? output : input;
  return ended(comm, switchml_all_reduce(job, from, output, (uint64_t)count, type, SWITCHML_SUM, NULL, NULL));
}

int MPI_Reduce_scatter_block(const void* input, void* output, int count, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm) {
  switchml_type type;
  uint64_t bytes = 0;
  /* In place, the result of every rank but the first would replace values that are still to be sent. */
  const int possible = op == MPI_SUM && input != MPI_IN_PLACE;
  switchml_comm* job = job_for(REDUCE_SCATTER_BLOCK, possible, comm, datatype, count, 1, &type, &bytes);
  if (job == NULL) return PMPI_Reduce_scatter_block(input, output, count, datatype, op, comm);
  return ended(comm, switchml_reduce_scatter(job, input, output, (uint64_t)count, type, SWITCHML_SUM, NULL, NULL));
}

int MPI_Allgather(const void* input, int sent, MPI_Datatype sent_type, void* output, int count, MPI_Datatype datatype,
                  MPI_Comm comm) {
  switchml_type type;
  uint64_t bytes = 0;
  const int possible = input == MPI_IN_PLACE || (sent == count && sent_type == datatype);
  switchml_comm* job = job_for(ALLGATHER, possible, comm, datatype, count, 1, &type, &bytes);
  if (job == NULL) return PMPI_Allgather(input, sent, sent_type, output, count, datatype, comm);
  switchml_info info = {.size = sizeof info};
  switchml_status status = switchml_comm_info(job, &info);
  const char* own = (const char*)output + bytes / info.world_size * info.rank;
  const void* from = input == MPI_IN_PLACE ? own : input;
  if (status == SWITCHML_OK) status = switchml_all_gather(job, from, output, (uint64_t)count, type, NULL, NULL);
  return ended(comm, status);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void report(void) {
  const char* wanted = getenv("SWITCHML_MPI_REPORT");
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (wanted == NULL || strcmp(wanted, "0") == 0 || rank != 0) return;
  for (int i = 0; i < FUNCTIONS; ++i) {
    fprintf(stderr, "switchml: rank 0: %s: network %llu calls, %llu bytes; MPI %llu calls\n", counted[i].name,
            (unsigned long long)counted[i].network_calls, (unsigned long long)counted[i].network_bytes,
            (unsigned long long)counted[i].mpi_calls);
  }
}

/* Communicators that the program has not freed are closed here: otherwise their jobs would count as failed. */
int MPI_Finalize(void) {
  report();
  pthread_mutex_lock(&lock);
  for (Member* member = members; member != NULL; member = member->next) {
    switchml_comm_free(member->comm);
    member->comm = NULL; /* MPI frees the communicator, and with it the member, later */
  }
  pthread_mutex_unlock(&lock);
  return PMPI_Finalize();
}
