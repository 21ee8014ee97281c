/* One rank of a job: sums an array over all ranks. docs/guides/libswitchml.md says how to compile and run it. */
#include <stdio.h>
#include <stdlib.h>
#include <switchml.h>

enum { COUNT = 1000000 };

/* Ends the program with the library's text unless a call went well. */
static void require(switchml_status status) {
  if (status != SWITCHML_OK) {
    fprintf(stderr, "%s: %s\n", switchml_status_name(status), switchml_last_error()->message);
    exit(1);
  }
}

int main(void) {
  switchml_comm* comm;
  require(switchml_connect(NULL, &comm)); /* `switchml-ctl job start -- COMMAND` says which job and rank */
  switchml_info info = {.size = sizeof info};
  require(switchml_comm_info(comm, &info));

  float* gradient = malloc(COUNT * sizeof *gradient);
  if (gradient == NULL) return 1;
  for (int i = 0; i < COUNT; ++i) gradient[i] = (float)info.rank;

  switchml_work* work; /* any number of calls may be in flight, in the same order on all ranks */
  require(switchml_all_reduce(comm, gradient, gradient, COUNT, SWITCHML_FLOAT32, SWITCHML_AVERAGE, NULL, &work));
  require(switchml_work_wait(work));
  switchml_work_free(work);

  switchml_call_options options = SWITCHML_CALL_OPTIONS_INIT;
  options.wire = "blocks:bits=16"; /* half the bytes, with a larger error */
  require(switchml_all_reduce(comm, gradient, gradient, COUNT, SWITCHML_FLOAT32, SWITCHML_SUM, &options, NULL));
  printf("rank %u of %u: %g\n", info.rank, info.world_size, gradient[0]);

  free(gradient);
  require(switchml_comm_close(comm, NULL));
  switchml_comm_free(comm);
  return 0;
}
