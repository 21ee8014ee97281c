/* One rank of a benchmark over MPI: open_mpi_rank SOCKET [apart]. Commands and answers are those of workers/rank.py,
 * the tensors those of workers/pattern.py. Reductions are in place, as they are in SwitchML and PyTorch, or with
 * `apart` from one buffer into another. */
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 1000003, FACTORS = 3 };

static int rank, world_size;
static int apart; /* whether results come into a buffer of their own */
static FILE *commands, *answers;

static void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  FILE* out = answers != NULL ? answers : stderr;
  fputs("{\"error\": \"", out);
  vfprintf(out, format, arguments);
  fputs("\"}\n", out);
  fflush(out);
  va_end(arguments);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

/* Aligned as PyTorch aligns its tensors. */
static void* allocate(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 64, bytes > 0 ? bytes : 1) != 0) fail("no memory for %zu bytes", bytes);
  return memory;
}

/* ---- the pattern ---- */

struct pattern {
  float* contribution;
  float* expected;
};

static struct pattern make_pattern(size_t elements) {
  const size_t length = elements < PERIOD ? elements : PERIOD;
  struct pattern pattern = {allocate(length * sizeof(float)), allocate(length * sizeof(float))};
  for (size_t i = 0; i < length; ++i) {
    const uint32_t fraction = ((uint32_t)i * UINT32_C(2654435761)) >> 8;
    const float base = ((float)fraction - 8388608.0F) / 8388608.0F;
    double sum = 0;
    for (int other = 0; other < world_size; ++other) sum += (double)(base * (float)(other + 1));
    pattern.contribution[i] = base * (float)(rank + 1);
    pattern.expected[i] = (float)sum;
  }
  return pattern;
}

static float factor_of(long call) { return ldexpf(1.0F, -(int)(call % FACTORS)); }

static void fill(const struct pattern* pattern, float* tensor, size_t elements, long call) {
  const float factor = factor_of(call);
  for (size_t start = 0; start < elements; start += PERIOD) {
    const size_t length = elements - start < PERIOD ? elements - start : PERIOD;
    for (size_t i = 0; i < length; ++i) tensor[start + i] = pattern->contribution[i] * factor;
  }
}

/* In units of the factor; infinity for NaN. */
static double largest_error(const struct pattern* pattern, const float* tensor, size_t elements, long call) {
  const float factor = factor_of(call);
  float largest = 0;
  for (size_t start = 0; start < elements; start += PERIOD) {
    const size_t length = elements - start < PERIOD ? elements - start : PERIOD;
    for (size_t i = 0; i < length; ++i) {
      const float error = fabsf(tensor[start + i] - pattern->expected[i] * factor);
      if (!(error <= largest)) largest = isnan(error) ? INFINITY : error;
    }
  }
  return (double)largest / (double)factor;
}

static double allowed_error(void) {
  const double magnitudes = world_size * (world_size + 1) / 2.0;
  const float rounded = (float)magnitudes;
  return (world_size - 1) * ldexp(1.0, -24) * magnitudes + (double)(nextafterf(rounded, INFINITY) - rounded);
}

/* ---- what this process has used ---- */

struct usage {
  double cpu_seconds;
  long wake_ups;
  long preemptions;
};

static double seconds_of(clockid_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now) != 0) fail("clock_gettime: %s", strerror(errno));
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct usage own_usage(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  const struct usage usage = {seconds_of(CLOCK_PROCESS_CPUTIME_ID), used.ru_nvcsw, used.ru_nivcsw};
  return usage;
}

/* ---- the calls ---- */

static void check(int status, const char* what) {
  if (status != MPI_SUCCESS) fail("%s failed with status %d", what, status);
}

static void all_reduce(const float* contribution, float* tensor, size_t elements, size_t tensors,
                       MPI_Request* requests) {
  if (tensors == 1) {
    check(MPI_Allreduce(apart ? contribution : MPI_IN_PLACE, tensor, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
          "MPI_Allreduce");
    return;
  }
  for (size_t i = 0; i < tensors; ++i) {
    const void* from = apart ? contribution + i * elements : MPI_IN_PLACE;
    check(MPI_Iallreduce(from, tensor + i * elements, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[i]),
          "MPI_Iallreduce");
  }
  check(MPI_Waitall((int)tensors, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
}

static void run(size_t elements, size_t tensors, long calls, long warm_up) {
  const size_t all = elements * tensors;
  const struct pattern pattern = make_pattern(all);
  float* tensor = allocate(all * sizeof(float));
  float* contribution = apart ? allocate(all * sizeof(float)) : tensor;
  MPI_Request* requests = allocate(tensors * sizeof(MPI_Request));
  double* seconds = allocate((size_t)calls * sizeof(double));
  struct usage used = {0, 0, 0};
  double largest = 0;
  const double allowed = allowed_error();
  for (long call = 0; call < warm_up + calls; ++call) {
    fill(&pattern, contribution, all, call);
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    const struct usage before = own_usage();
    const double begin = seconds_of(CLOCK_MONOTONIC);
    all_reduce(contribution, tensor, elements, tensors, requests);
    const double elapsed = seconds_of(CLOCK_MONOTONIC) - begin;
    const struct usage after = own_usage();
    /* What a rank has queued it sends only inside of calls: without this others wait for it while it verifies, and for
     * ever after the last call. */
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    const double error = largest_error(&pattern, tensor, all, call);
    if (!(error <= allowed)) {
      fail("call %ld of %zu elements gave a wrong sum: an element is %g from it, %g are allowed", call, all, error,
           allowed);
    }
    largest = error > largest ? error : largest;
    if (call >= warm_up) {
      seconds[call - warm_up] = elapsed;
      used.cpu_seconds += after.cpu_seconds - before.cpu_seconds;
      used.wake_ups += after.wake_ups - before.wake_ups;
      used.preemptions += after.preemptions - before.preemptions;
    }
  }
  fputs("{\"seconds\": [", answers);
  for (long call = 0; call < calls; ++call) fprintf(answers, "%s%.9f", call > 0 ? ", " : "", seconds[call]);
  fprintf(answers,
          "], \"cpu_seconds\": %.9f, \"wake_ups\": %ld, \"preemptions\": %ld, \"largest_error\": %.9g, "
          "\"allowed_error\": %.9g}\n",
          used.cpu_seconds, used.wake_ups, used.preemptions, largest, allowed);
  fflush(answers);
  free(pattern.contribution);
  free(pattern.expected);
  if (apart) free(contribution);
  free(tensor);
  free(requests);
  free(seconds);
}

/* ---- the benchmark's socket ---- */

static void connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) fail("%s is too long for a Unix socket", path);
  strcpy(address.sun_path, path);
  const int connection = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connection < 0 || connect(connection, (struct sockaddr*)&address, sizeof address) != 0) {
    fail("%s: %s", path, strerror(errno));
  }
  commands = fdopen(connection, "r");
  answers = fdopen(dup(connection), "w");
  if (commands == NULL || answers == NULL) fail("%s: %s", path, strerror(errno));
}

/* As workers/counters.py. */
static int take_share(void) {
  FILE* file = fopen("/proc/self/autogroup", "w");
  if (file == NULL) return 0;
  const int written = fputs("-20", file) >= 0;
  return fclose(file) == 0 && written;
}

int main(int count, char** arguments) {
  const int share = take_share();
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  apart = count == 3 && strcmp(arguments[2], "apart") == 0;
  if (count != 2 && !apart) fail("usage: open_mpi_rank SOCKET [apart]");
  connect_to(arguments[1]);
  fprintf(answers, "{\"rank\": %d, \"pid\": %ld, \"share\": %s}\n", rank, (long)getpid(), share ? "true" : "false");
  fflush(answers);
  char line[256];
  while (fgets(line, sizeof line, commands) != NULL) {
    size_t elements;
    size_t tensors;
    long calls;
    long warm_up;
    if (sscanf(line, "all_reduce %ld %ld %zu", &calls, &warm_up, &elements) == 3) {
      run(elements, 1, calls, warm_up);
    } else if (sscanf(line, "queue %ld %ld %zu %zu", &calls, &warm_up, &elements, &tensors) == 4) {
      run(elements, tensors, calls, warm_up);
    } else {
      break;
    }
  }
  fclose(commands);
  fclose(answers);
  MPI_Finalize();
  return 0;
}
