/* All collectives of libswitchml, over every type and many sizes: `collectives AGENT JOB RANKS`. Each rank is a thread.
 * The program ends with 0 if every result and every refusal was right. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchml.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 16, MOST_ELEMENTS = 4099 };

static const char* agent;
static const char* job;
static uint32_t ranks;
static pthread_barrier_t gate;

static const size_t type_bytes[] = {4, 2, 2, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
static const uint64_t sizes[] = {0, 1, 3, 64, 257, MOST_ELEMENTS};

#define REQUIRE(condition)                                                                                \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, switchml_last_error()->message); \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)
#define OK(call) REQUIRE((call) == SWITCHML_OK)
#define REFUSED(status, call) REQUIRE((call) == (status) && switchml_last_error()->message[0] != '\0')

/* Small whole numbers, whose sums every type holds exactly. */
static void put(void* memory, switchml_type type, uint64_t index, int value) {
  char* at = (char*)memory + index * type_bytes[type];
  float number = (float)value;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  if (type == SWITCHML_FLOAT32) {
    memcpy(at, &number, sizeof number);
  } else if (type == SWITCHML_BFLOAT16) {
    memcpy(at, (char*)&bits + 2, 2);
  } else if (type == SWITCHML_FLOAT16) {
    /* Normal numbers: the exponent's bias is 112 less, and the fraction has 13 bits fewer. */
    uint16_t half = value == 0 ? 0 : (uint16_t)((bits >> 16 & 0x8000) | (((bits & 0x7fffffff) - (112U << 23)) >> 13));
    memcpy(at, &half, sizeof half);
  } else if (type == SWITCHML_FLOAT64) {
    double wide = value;
    memcpy(at, &wide, sizeof wide);
  } else {
    int64_t whole = type == SWITCHML_BOOL ? value != 0 : value;
    memcpy(at, &whole, type_bytes[type]); /* little-endian */
  }
}

static int same(const void* memory, switchml_type type, uint64_t index, int value) {
  char expected[8];
  put(expected, type, 0, value);
  return memcmp((const char*)memory + index * type_bytes[type], expected, type_bytes[type]) == 0;
}

static int value_of(uint32_t rank, uint64_t index) { return (int)((index + 3 * rank) % 7); }

static int sum_at(uint64_t index) {
  int sum = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) sum += value_of(rank, index);
  return sum;
}

typedef struct Rank {
  switchml_comm* comm;
  uint32_t rank;
  char* input; /* MOST_RANKS * MOST_ELEMENTS elements of 8 bytes, as the next one */
  char* output;
} Rank;

static void fill(Rank* self, switchml_type type, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) put(self->input, type, i, value_of(self->rank, i));
  memset(self->output, 0x5a, count * type_bytes[type]);
}

static void reductions(Rank* self, switchml_type type, uint64_t count) {
  const uint64_t all = count * ranks;
  fill(self, type, all);
  OK(switchml_all_reduce(self->comm, self->input, self->output, all, type, SWITCHML_SUM, NULL, NULL));
  for (uint64_t i = 0; i < all; ++i) {
    REQUIRE(same(self->output, type, i, sum_at(i)));
    REQUIRE(same(self->input, type, i, value_of(self->rank, i)));
  }
  OK(switchml_reduce_scatter(self->comm, self->input, self->output, count, type, SWITCHML_SUM, NULL, NULL));
  for (uint64_t i = 0; i < count; ++i) REQUIRE(same(self->output, type, i, sum_at(self->rank * count + i)));
  OK(switchml_all_reduce(self->comm, self->input, self->input, all, type, SWITCHML_SUM, NULL, NULL));
  for (uint64_t i = 0; i < all; ++i) REQUIRE(same(self->input, type, i, sum_at(i)));
}

static void moves(Rank* self, switchml_type type, uint64_t count) {
  fill(self, type, count);
  OK(switchml_all_gather(self->comm, self->input, self->output, count, type, NULL, NULL));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (uint64_t i = 0; i < count; ++i) REQUIRE(same(self->output, type, rank * count + i, value_of(rank, i)));
  }
  const uint32_t root = (uint32_t)(count % ranks);
  OK(switchml_broadcast(self->comm, self->input, count, type, root, NULL, NULL));
  for (uint64_t i = 0; i < count; ++i) REQUIRE(same(self->input, type, i, value_of(root, i)));
  OK(switchml_barrier(self->comm, NULL, NULL));
}

static void calls_in_flight(Rank* self) {
  enum { CALLS = 8 };
  float* values = (float*)self->input;
  switchml_work* work[CALLS];
  for (int call = 0; call < CALLS; ++call) {
    for (int i = 0; i < MOST_ELEMENTS; ++i) values[call * MOST_ELEMENTS + i] = (float)value_of(self->rank, i);
    float* array = values + call * MOST_ELEMENTS;
    OK(switchml_all_reduce(self->comm, array, array, MOST_ELEMENTS, SWITCHML_FLOAT32, SWITCHML_SUM, NULL, &work[call]));
  }
  int ended = 0;
  while (!ended) OK(switchml_work_test(work[CALLS - 1], &ended));
  for (int call = 0; call < CALLS; ++call) {
    OK(switchml_work_wait(work[call]));
    OK(switchml_work_wait(work[call])); /* again */
    for (int i = 0; i < MOST_ELEMENTS; ++i) REQUIRE(values[call * MOST_ELEMENTS + i] == (float)sum_at(i));
    switchml_work_free(work[call]);
  }
}

static void wires(Rank* self) {
  switchml_call_options options = SWITCHML_CALL_OPTIONS_INIT;
  float* values = (float*)self->input;
  for (int i = 0; i < MOST_ELEMENTS; ++i) values[i] = (float)value_of(self->rank, i);
  options.wire = "blocks:bits=16";
  options.timeout = 60;
  OK(switchml_all_reduce(self->comm, values, values, MOST_ELEMENTS, SWITCHML_FLOAT32, SWITCHML_AVERAGE, &options,
                         NULL));
  for (int i = 0; i < MOST_ELEMENTS; ++i) REQUIRE(fabsf(values[i] - (float)sum_at(i) / (float)ranks) < 0.01F);
  memset(values, 0, MOST_ELEMENTS * sizeof *values);
  values[MOST_ELEMENTS - 1] = 1;
  options.wire = NULL;
  options.skip_zeros = SWITCHML_SKIP_ZEROS;
  OK(switchml_all_reduce(self->comm, values, values, MOST_ELEMENTS, SWITCHML_FLOAT32, SWITCHML_SUM, &options, NULL));
  for (int i = 0; i < MOST_ELEMENTS; ++i) REQUIRE(values[i] == (i == MOST_ELEMENTS - 1 ? (float)ranks : 0));

  values[5] = self->rank == ranks - 1 ? NAN : 1;
  REFUSED(SWITCHML_NON_FINITE,
          switchml_all_reduce(self->comm, values, values, 100, SWITCHML_FLOAT32, SWITCHML_SUM, NULL, NULL));
  const switchml_error* error = switchml_last_error();
  REQUIRE(error->non_finite_count == 1 && error->index_count == 1 && error->indices[0] == 5 && isnan(values[5]));
  OK(switchml_barrier(self->comm, NULL, NULL)); /* it remains usable */
}

static void refusals(Rank* self) {
  switchml_comm* comm = self->comm;
  char* memory = self->input;
  switchml_call_options options = SWITCHML_CALL_OPTIONS_INIT;
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(NULL, memory, memory, 1, 0, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, NULL, memory, 1, 0, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, memory, NULL, 1, 0, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, memory + 1, memory + 1, 1, 0, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, memory, memory, UINT64_MAX, 0, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_reduce_scatter(comm, memory, memory, UINT64_MAX / 2, 0, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, memory, memory, 1, 13, 0, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, memory, memory, 1, 0, 2, NULL, NULL));
  REFUSED(SWITCHML_UNSUPPORTED_TYPE,
          switchml_all_reduce(comm, memory, memory, 1, SWITCHML_INT32, SWITCHML_AVERAGE, NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_broadcast(comm, memory, 1, 0, ranks, NULL, NULL));
  options.wire = "blocks:bits=7";
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, memory, memory, 1, 0, 0, &options, NULL));
  options.wire = NULL;
  options.timeout = -1;
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_barrier(comm, &options, NULL));
  options.timeout = NAN;
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_barrier(comm, &options, NULL));
  options.size = 0;
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_barrier(comm, &options, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_work_test(NULL, NULL));
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_work_wait(NULL));
  switchml_info info = {.size = 1};
  REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_comm_info(comm, &info));
  switchml_work_free(NULL);
  switchml_comm_free(NULL);
  OK(switchml_barrier(comm, NULL, NULL)); /* nothing of all this was sent */

  switchml_work* work;
  memset(memory, 0, 40);
  if (self->rank > 0) pthread_barrier_wait(&gate); /* so that the call of rank 0 cannot end before */
  OK(switchml_all_reduce(comm, memory, memory, 10, SWITCHML_FLOAT32, SWITCHML_SUM, NULL, &work));
  if (self->rank == 0 && ranks > 1) {
    char* overlapping = memory + 4;
    REFUSED(SWITCHML_INVALID_ARGUMENT, switchml_all_reduce(comm, overlapping, overlapping, 10, 0, 0, NULL, NULL));
  }
  if (self->rank == 0) pthread_barrier_wait(&gate);
  OK(switchml_work_wait(work));
  switchml_work_free(work);
}

/* A child has a copy of the communicator, and no rank. */
static void forked_child(Rank* self) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    REFUSED(SWITCHML_COMM_CLOSED, switchml_barrier(self->comm, NULL, NULL));
    switchml_comm_free(self->comm);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static void* run(void* argument) {
  Rank* self = argument;
  switchml_connect_options options = SWITCHML_CONNECT_OPTIONS_INIT;
  options.agent = agent;
  options.job = job;
  options.rank = self->rank;
  options.world_size = ranks;
  OK(switchml_connect(&options, &self->comm));
  switchml_info info = {.size = sizeof info};
  OK(switchml_comm_info(self->comm, &info));
  REQUIRE(info.rank == self->rank && info.world_size == ranks && info.failure == SWITCHML_OK && info.calls == 0);
  self->input = calloc((size_t)MOST_RANKS * MOST_ELEMENTS, 8);
  self->output = calloc((size_t)MOST_RANKS * MOST_ELEMENTS, 8);
  REQUIRE(self->input != NULL && self->output != NULL);
  for (int type = SWITCHML_FLOAT32; type <= SWITCHML_BOOL; ++type) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
      reductions(self, (switchml_type)type, sizes[i]);
      moves(self, (switchml_type)type, sizes[i]);
    }
  }
  calls_in_flight(self);
  wires(self);
  refusals(self);
  if (self->rank == 0) forked_child(self);
  OK(switchml_barrier(self->comm, NULL, NULL));
  OK(switchml_comm_close(self->comm, NULL));
  OK(switchml_comm_close(self->comm, NULL));
  REFUSED(SWITCHML_COMM_CLOSED, switchml_barrier(self->comm, NULL, NULL));
  switchml_comm_free(self->comm);
  free(self->input);
  free(self->output);
  return NULL;
}

int main(int count, char** arguments) {
  if (count < 4) return 2;
  agent = arguments[1];
  job = arguments[2];
  ranks = (uint32_t)atoi(arguments[3]);
  if (ranks < 1 || ranks > MOST_RANKS) return 2;
  if (pthread_barrier_init(&gate, NULL, ranks) != 0) return 2;
  pthread_t threads[MOST_RANKS];
  Rank all[MOST_RANKS];
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    all[rank].rank = rank;
    if (pthread_create(&threads[rank], NULL, run, &all[rank]) != 0) return 2;
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) pthread_join(threads[rank], NULL);
  return 0;
}
