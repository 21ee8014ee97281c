/* Collectives of MPI, compared with those of the MPI library itself (PMPI). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 50000 };

static int rank;
static int size;

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

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check(MPI_COMM_WORLD);
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
