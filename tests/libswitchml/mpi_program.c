/* Collectives of MPI, compared with those of the MPI library itself (PMPI); with the argument `dead`, a rank dies. */
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 50000, REQUESTS = 4, MESSAGE = 4 << 20 };

static int rank;
static int size;
static MPI_Status statuses[REQUESTS];

static void require(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Whole numbers, whose sums every type holds. */
#define CHECK_TYPE(Type, datatype)                                                                              \
  do {                                                                                                          \
    Type* input = calloc((size_t)COUNT * (size_t)size, sizeof(Type));                                           \
    Type* mine = calloc((size_t)COUNT * (size_t)size, sizeof(Type));                                            \
    Type* theirs = calloc((size_t)COUNT * (size_t)size, sizeof(Type));                                          \
    require(input != NULL && mine != NULL && theirs != NULL, "memory");                                         \
    for (int i = 0; i < COUNT * size; ++i) input[i] = (Type)((i + rank) % 5);                                   \
    MPI_Allreduce(input, mine, COUNT * size, datatype, MPI_SUM, comm);                                          \
    PMPI_Allreduce(input, theirs, COUNT * size, datatype, MPI_SUM, comm);                                       \
    require(memcmp(mine, theirs, sizeof(Type) * (size_t)COUNT * (size_t)size) == 0, "MPI_Allreduce of " #Type); \
    memcpy(mine, input, sizeof(Type) * (size_t)COUNT * (size_t)size);                                           \
    MPI_Allreduce(MPI_IN_PLACE, mine, COUNT * size, datatype, MPI_SUM, comm);                                   \
    require(memcmp(mine, theirs, sizeof(Type) * (size_t)COUNT * (size_t)size) == 0, "MPI_IN_PLACE of " #Type);  \
    MPI_Allreduce(input, mine, COUNT, datatype, MPI_MAX, comm);                                                 \
    PMPI_Allreduce(input, theirs, COUNT, datatype, MPI_MAX, comm);                                              \
    require(memcmp(mine, theirs, sizeof(Type) * COUNT) == 0, "MPI_MAX of " #Type);                              \
    MPI_Reduce_scatter_block(input, mine, COUNT, datatype, MPI_SUM, comm);                                      \
    PMPI_Reduce_scatter_block(input, theirs, COUNT, datatype, MPI_SUM, comm);                                   \
    require(memcmp(mine, theirs, sizeof(Type) * COUNT) == 0, "MPI_Reduce_scatter_block of " #Type);             \
    MPI_Allgather(input, COUNT, datatype, mine, COUNT, datatype, comm);                                         \
    PMPI_Allgather(input, COUNT, datatype, theirs, COUNT, datatype, comm);                                      \
    require(memcmp(mine, theirs, sizeof(Type) * (size_t)COUNT * (size_t)size) == 0, "MPI_Allgather of " #Type); \
    free(input);                                                                                                \
    free(mine);                                                                                                 \
    free(theirs);                                                                                               \
  } while (0)

static void check(MPI_Comm comm) {
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  CHECK_TYPE(float, MPI_FLOAT);
  CHECK_TYPE(double, MPI_DOUBLE);
  CHECK_TYPE(int, MPI_INT);
  CHECK_TYPE(long, MPI_LONG);
  CHECK_TYPE(unsigned short, MPI_UNSIGNED_SHORT);
  CHECK_TYPE(unsigned char, MPI_UNSIGNED_CHAR);
  float one = 1;
  float sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_FLOAT, MPI_SUM, comm);
  require(sum == (float)size, "a small sum");
  MPI_Allreduce(&one, &sum, 0, MPI_FLOAT, MPI_SUM, comm);
}

/* The ways in which a program learns that requests have ended; each returns when all have. */
static void by_wait(MPI_Request* requests) {
  for (int i = REQUESTS - 1; i >= 0; --i) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

static void by_waitall(MPI_Request* requests) { MPI_Waitall(REQUESTS, requests, statuses); }

static void by_waitany(MPI_Request* requests) {
  for (int index = 0; index != MPI_UNDEFINED;) MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
}

static void by_waitsome(MPI_Request* requests) {
  int indices[REQUESTS];
  for (int ended = 0; ended != MPI_UNDEFINED;) {
    MPI_Waitsome(REQUESTS, requests, &ended, indices, statuses);
  }
}

static void by_test(MPI_Request* requests) {
  for (int i = 0; i < REQUESTS; ++i) {
    int done = 0;
    for (; !done; sched_yield()) MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
    for (done = 0; !done; sched_yield()) MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
  }
}

static void by_testall(MPI_Request* requests) {
  for (int done = 0; !done; sched_yield()) MPI_Testall(REQUESTS, requests, &done, statuses);
}

static void by_testany(MPI_Request* requests) {
  for (int index = 0, done = 0; !done || index != MPI_UNDEFINED; sched_yield()) {
    MPI_Testany(REQUESTS, requests, &index, &done, MPI_STATUS_IGNORE);
  }
}

static void by_testsome(MPI_Request* requests) {
  int indices[REQUESTS];
  for (int ended = 0; ended != MPI_UNDEFINED; sched_yield()) {
    MPI_Testsome(REQUESTS, requests, &ended, indices, statuses);
  }
}

/* Sums in flight together with messages to the next rank. */
static void check_requests(MPI_Comm comm) {
  void (*const ways[])(MPI_Request*) = {by_wait, by_waitall, by_waitany, by_waitsome,
                                        by_test, by_testall, by_testany, by_testsome};
  int* values = calloc((size_t)3 * COUNT, sizeof(int));
  require(values != NULL, "memory");
  for (size_t way = 0; way < sizeof ways / sizeof *ways; ++way) {
    MPI_Request requests[REQUESTS];
    int from_neighbour = -1;
    for (int i = 0; i < COUNT; ++i) {
      values[i] = i + rank;
      values[2 * COUNT + i] = rank;
    }
    MPI_Iallreduce(values, values + COUNT, COUNT, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Irecv(&from_neighbour, 1, MPI_INT, (rank + size - 1) % size, 0, comm, &requests[1]);
    MPI_Iallreduce(MPI_IN_PLACE, values + 2 * COUNT, COUNT, MPI_INT, MPI_SUM, comm, &requests[2]);
    MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % size, 0, comm, &requests[3]);
    ways[way](requests);
    for (int i = 0; i < REQUESTS; ++i) require(requests[i] == MPI_REQUEST_NULL, "a request that has ended");
    const int ranks = size * (size - 1) / 2;
    for (int i = 0; i < COUNT; ++i) {
      require(values[COUNT + i] == size * i + ranks && values[2 * COUNT + i] == ranks, "MPI_Iallreduce");
    }
    require(from_neighbour == (rank + size - 1) % size, "a message");
  }
  free(values);
}

/* A rank waits for a message before it makes a call that the sender is in already: the sender must still send. */
static void check_progress(MPI_Comm comm) {
  char* message = calloc(MESSAGE, 1);
  float* values = calloc(2 * (size_t)COUNT, sizeof(float));
  require(message != NULL && values != NULL, "memory");
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 0) MPI_Isend(message, MESSAGE, MPI_CHAR, 1, 0, comm, &request);
  if (rank == 1) MPI_Recv(message, MESSAGE, MPI_CHAR, 0, 0, comm, MPI_STATUS_IGNORE);
  MPI_Allreduce(values, values + COUNT, COUNT, MPI_FLOAT, MPI_SUM, comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  free(message);
  free(values);
}

/* Rank 1 dies; the others learn of it from a call that blocks, or from a request. */
static void check_death(MPI_Comm comm) {
  float* values = calloc(2 * (size_t)COUNT, sizeof(float));
  require(values != NULL, "memory");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Allreduce(values, values + COUNT, COUNT, MPI_FLOAT, MPI_SUM, comm);
  if (rank == 1) raise(SIGKILL);
  int code;
  if (rank == 0) {
    code = MPI_Allreduce(values, values + COUNT, COUNT, MPI_FLOAT, MPI_SUM, comm);
  } else {
    MPI_Request request;
    code = MPI_Iallreduce(values, values + COUNT, COUNT, MPI_FLOAT, MPI_SUM, comm, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  require(code == MPI_ERR_OTHER, "the code of a call without rank 1");
  printf("rank %d was told\n", rank);
  fflush(stdout);
  _exit(0); /* MPI_Finalize would wait for rank 1 */
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1 && strcmp(argv[1], "dead") == 0) check_death(MPI_COMM_WORLD);
  check(MPI_COMM_WORLD);
  check_requests(MPI_COMM_WORLD);
  check_progress(MPI_COMM_WORLD);
  int world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, world % 2, world, &half);
  check(half);
  MPI_Comm_free(&half);
  MPI_Comm copy; /* nobody frees it */
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  check(copy);
  if (world == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
