/* Carries large collectives of an MPI program through the network: an MPI library's functions of the same names, which
 * a program gets by LD_PRELOAD or by linking. docs/guides/mpi.md says how to compile it for an MPI library, and when it
 * pays.
 *
 * MPI_Allreduce, MPI_Iallreduce and MPI_Reduce_scatter_block with MPI_SUM and MPI_Allgather go through the network if
 * their type is a basic one that libswitchml has and they have at least SWITCHML_MPI_LEAST_BYTES; everything else is
 * MPI's own. These are things that all ranks of a communicator know alike, so that they decide alike. A communicator
 * becomes a separate job at its first such call that blocks, if all of its ranks find an agent, and otherwise stays
 * with MPI. MPI_Iallreduce, which may not wait for other ranks, goes through the network only where there is a job
 * already.
 *
 * While a call waits for the network it lets MPI progress: another rank may need a message before it makes its call.
 *
 * MPI_SUM of floating-point numbers is that of libswitchml: alike on all ranks and in every run, within a bound
 * (docs/understand/protocol.md). NaN stays NaN; an infinity becomes NaN. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchml.h>
#include <sys/random.h>
#include <time.h>

enum { KEY_BYTES = 16, LEAST_BYTES = 1024 * 1024, JOIN_SECONDS = 30, CALL_SECONDS = 300, PAUSE_NANOSECONDS = 20000 };

/* The calls of one function, in the report. */
typedef struct Counted {
  const char* name;
  uint64_t network_calls;
  uint64_t network_bytes;
  uint64_t mpi_calls;
} Counted;

enum { ALLREDUCE, IALLREDUCE, REDUCE_SCATTER_BLOCK, ALLGATHER, FUNCTIONS };

/* A communicator that has asked for a job. */
typedef struct Member {
  switchml_comm* comm; /* NULL if it stays with MPI */
  struct Member* next; /* of all that are open */
} Member;

/* A call in flight that the program knows by a request: a generalized one of MPI's, which all of MPI's functions take.
 */
typedef struct Pending {
  MPI_Request request;
  MPI_Comm comm;
  switchml_work* work;
  time_t deadline;
  int code;             /* of MPI, once the call has ended */
  struct Pending* next; /* of all that have not ended */
} Pending;

static const switchml_call_options call_options = {.size = sizeof call_options, .timeout = CALL_SECONDS};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static Counted counted[FUNCTIONS] = {{.name = "MPI_Allreduce"},
                                     {.name = "MPI_Iallreduce"},
                                     {.name = "MPI_Reduce_scatter_block"},
                                     {.name = "MPI_Allgather"}};
static Member* members;
static Pending* all_pending;
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

/* Returns the job of a communicator, or NULL if it stays with MPI, or has none and may not `begin` one. Only one thread
 * at a time makes collective calls on a communicator, so that the lock is not held while its ranks join. */
static switchml_comm* job_of(MPI_Comm comm, int begin) {
  Member* member = NULL;
  int found = 0;
  pthread_mutex_lock(&lock);
  if (keyval == MPI_KEYVAL_INVALID) PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL);
  PMPI_Comm_get_attr(comm, keyval, &member, &found);
  if (!found && begin) {
    member = calloc(1, sizeof *member);
    if (member == NULL) abort(); /* as MPI does without memory: the other ranks join */
    member->next = members;
    members = member;
    PMPI_Comm_set_attr(comm, keyval, member);
  }
  pthread_mutex_unlock(&lock);
  if (!found && begin) member->comm = join(comm);
  return member == NULL ? NULL : member->comm;
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
    if (!inter && size > 1 && *bytes >= least_bytes()) job = job_of(comm, function != IALLREDUCE);
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

/* Lets MPI move the messages of other ranks, and leaves the CPU to other threads for a moment. */
static void let_mpi_progress(void) {
  const struct timespec moment = {0, PAUSE_NANOSECONDS};
  int found;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  nanosleep(&moment, NULL);
}

/* Returns the code of MPI for what happened; a failure goes to the communicator's error handler. */
static int ended(MPI_Comm comm, switchml_status status) {
  if (status == SWITCHML_OK || status == SWITCHML_NON_FINITE) return MPI_SUCCESS;
  fprintf(stderr, "switchml: %s: %s\n", switchml_status_name(status), switchml_last_error()->message);
  PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

static time_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

/* Returns whether a call has ended, or whether its time is over, so that switchml_work_wait() ends it. */
static int has_ended(switchml_work* work, time_t deadline) {
  int itself = 1;
  return switchml_work_test(work, &itself) != SWITCHML_OK || itself || seconds_now() > deadline;
}

/* Waits for a call that was made with this status. */
static int finished(MPI_Comm comm, switchml_status made, switchml_work* work) {
  if (made != SWITCHML_OK) return ended(comm, made);
  for (const time_t by = seconds_now() + CALL_SECONDS; !has_ended(work, by);) let_mpi_progress();
  const switchml_status status = switchml_work_wait(work);
  const int code = ended(comm, status);
  switchml_work_free(work);
  return code;
}

int MPI_Allreduce(const void* input, void* output, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  switchml_type type;
  switchml_work* work = NULL;
  uint64_t bytes = 0;
  switchml_comm* job = job_for(ALLREDUCE, op == MPI_SUM, comm, datatype, count, 0, &type, &bytes);
  if (job == NULL) return PMPI_Allreduce(input, output, count, datatype, op, comm);
  const void* from = input == MPI_IN_PLACE ? output : input;
  const switchml_status made =
      switchml_all_reduce(job, from, output, (uint64_t)count, type, SWITCHML_SUM, &call_options, &work);
  return finished(comm, made, work);
}

int MPI_Reduce_scatter_block(const void* input, void* output, int count, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm) {
  switchml_type type;
  switchml_work* work = NULL;
  uint64_t bytes = 0;
  /* In place, the result of every rank but the first would replace values that are still to be sent. */
  const int possible = op == MPI_SUM && input != MPI_IN_PLACE;
  switchml_comm* job = job_for(REDUCE_SCATTER_BLOCK, possible, comm, datatype, count, 1, &type, &bytes);
  if (job == NULL) return PMPI_Reduce_scatter_block(input, output, count, datatype, op, comm);
  const switchml_status made =
      switchml_reduce_scatter(job, input, output, (uint64_t)count, type, SWITCHML_SUM, &call_options, &work);
  return finished(comm, made, work);
}

int MPI_Allgather(const void* input, int sent, MPI_Datatype sent_type, void* output, int count, MPI_Datatype datatype,
                  MPI_Comm comm) {
  switchml_type type;
  switchml_work* work = NULL;
  uint64_t bytes = 0;
  const int possible = input == MPI_IN_PLACE || (sent == count && sent_type == datatype);
  switchml_comm* job = job_for(ALLGATHER, possible, comm, datatype, count, 1, &type, &bytes);
  if (job == NULL) return PMPI_Allgather(input, sent, sent_type, output, count, datatype, comm);
  switchml_info info = {.size = sizeof info};
  switchml_status made = switchml_comm_info(job, &info);
  const char* own = (const char*)output + bytes / info.world_size * info.rank;
  const void* from = input == MPI_IN_PLACE ? own : input;
  if (made == SWITCHML_OK) made = switchml_all_gather(job, from, output, (uint64_t)count, type, &call_options, &work);
  return finished(comm, made, work);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* MPI calls these three for a generalized request: for its status when it has ended, when it is freed, and never. */
static int query(void* extra, MPI_Status* status) {
  const Pending* pending = extra;
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return pending->code;
}

static int release(void* extra) {
  Pending* pending = extra;
  switchml_work_free(pending->work);
  free(pending);
  return MPI_SUCCESS;
}

static int refuse_to_cancel(void* extra, int complete) {
  (void)extra;
  return complete ? MPI_SUCCESS : MPI_ERR_REQUEST;
}

int MPI_Iallreduce(const void* input, void* output, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  switchml_type type;
  uint64_t bytes = 0;
  switchml_comm* job = job_for(IALLREDUCE, op == MPI_SUM, comm, datatype, count, 0, &type, &bytes);
  if (job == NULL) return PMPI_Iallreduce(input, output, count, datatype, op, comm, request);
  Pending* pending = calloc(1, sizeof *pending);
  if (pending == NULL) abort(); /* as MPI does without memory: the other ranks make the call */
  const void* from = input == MPI_IN_PLACE ? output : input;
  const switchml_status made =
      switchml_all_reduce(job, from, output, (uint64_t)count, type, SWITCHML_SUM, &call_options, &pending->work);
  if (made != SWITCHML_OK) {
    free(pending);
    return ended(comm, made);
  }
  pending->comm = comm;
  pending->deadline = seconds_now() + CALL_SECONDS;
  const int code = PMPI_Grequest_start(query, release, refuse_to_cancel, pending, &pending->request);
  if (code != MPI_SUCCESS) abort(); /* the memory of the call belongs to it */
  *request = pending->request;
  pthread_mutex_lock(&lock);
  pending->next = all_pending;
  all_pending = pending;
  pthread_mutex_unlock(&lock);
  return MPI_SUCCESS;
}

/* Takes the first of some requests whose call has ended from those that have not, and returns it, or NULL. Sets
 * *waiting to the number of those that have not ended. */
static Pending* take_ended(int count, const MPI_Request requests[], int* waiting) {
  Pending* found = NULL;
  *waiting = 0;
  pthread_mutex_lock(&lock);
  for (Pending** place = &all_pending; *place != NULL && found == NULL; place = &(*place)->next) {
    for (int i = 0; i < count; ++i) {
      if (requests[i] != (*place)->request) continue;
      if (has_ended((*place)->work, (*place)->deadline)) found = *place;
      ++*waiting;
      break;
    }
    if (found == NULL) continue;
    *place = found->next;
    break;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* Tells MPI which of some requests have ended, and returns how many of the network's have not. */
static int complete_ended(int count, const MPI_Request requests[]) {
  int waiting;
  for (Pending* each; (each = take_ended(count, requests, &waiting)) != NULL;) {
    each->code = ended(each->comm, switchml_work_wait(each->work));
    PMPI_Grequest_complete(each->request);
  }
  return waiting;
}

static void complete_all(int count, const MPI_Request requests[]) {
  while (complete_ended(count, requests) > 0) let_mpi_progress();
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  complete_all(1, request);
  return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  complete_all(count, requests);
  return PMPI_Waitall(count, requests, statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  while (complete_ended(count, requests) > 0) {
    int found = 0;
    const int code = PMPI_Testany(count, requests, index, &found, status);
    if (found || code != MPI_SUCCESS) return code;
    let_mpi_progress();
  }
  return PMPI_Waitany(count, requests, index, status);
}

int MPI_Waitsome(int count, MPI_Request requests[], int* found, int indices[], MPI_Status statuses[]) {
  while (complete_ended(count, requests) > 0) {
    const int code = PMPI_Testsome(count, requests, found, indices, statuses);
    if (*found != 0 || code != MPI_SUCCESS) return code;
    let_mpi_progress();
  }
  return PMPI_Waitsome(count, requests, found, indices, statuses);
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  complete_ended(1, request);
  return PMPI_Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  complete_ended(count, requests);
  return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  complete_ended(count, requests);
  return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int count, MPI_Request requests[], int* found, int indices[], MPI_Status statuses[]) {
  complete_ended(count, requests);
  return PMPI_Testsome(count, requests, found, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  complete_ended(1, &request);
  return PMPI_Request_get_status(request, flag, status);
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
