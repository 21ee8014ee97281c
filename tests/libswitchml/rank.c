/* One rank that makes the same all-reduce again and again: `rank AGENT JOB RANK RANKS CALLS ELEMENTS`. It prints the
 * sum of its last result, or the name and the text of what ended it. */
#include <stdio.h>
#include <stdlib.h>
#include <switchml.h>

static int report(void) {
  const switchml_error* error = switchml_last_error();
  printf("%s %zu %s\n", switchml_status_name(error->status), error->rank_count, error->message);
  return error->status == SWITCHML_OK;
}

int main(int count, char** arguments) {
  if (count < 7) return 2;
  switchml_connect_options options = SWITCHML_CONNECT_OPTIONS_INIT;
  options.agent = arguments[1];
  options.job = arguments[2];
  options.rank = atoi(arguments[3]);
  options.world_size = atoi(arguments[4]);
  const int calls = atoi(arguments[5]);
  const uint64_t elements = strtoull(arguments[6], NULL, 10);
  switchml_comm* comm;
  if (switchml_connect(&options, &comm) != SWITCHML_OK) return report();
  float* values = malloc(elements * sizeof *values);
  if (values == NULL) return 2;
  printf("attached\n");
  fflush(stdout);
  for (int call = 0; call < calls; ++call) {
    for (uint64_t i = 0; i < elements; ++i) values[i] = 1;
    const switchml_status status =
        switchml_all_reduce(comm, values, values, elements, SWITCHML_FLOAT32, SWITCHML_SUM, NULL, NULL);
    if (status == SWITCHML_WORLD_CHANGED) continue;
    if (status != SWITCHML_OK) return report();
  }
  double sum = 0;
  for (uint64_t i = 0; i < elements; ++i) sum += values[i];
  printf("%g\n", sum);
  switchml_comm_free(comm);
  free(values);
  return 0;
}
