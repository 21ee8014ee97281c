#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "switchml/benchmarks/native/cache_line.h"
#include "switchml/benchmarks/native/memory_traffic.h"

namespace nb = nanobind;
namespace b = switchml::benchmarks;

NB_MODULE(_probes, module) {
  module.doc() = "Measurements of the CPU and its memory.";
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  module.def("two_cpus", &b::two_cpus,
             "Return the first and the last CPU that this process may run on; -1 and -1 if there is only one.");
  module.def(
      "cache_line_round_trips", &b::cache_line_round_trips, nb::arg("first"), nb::arg("second"), nb::arg("batches"),
      nb::arg("limit"), free,
      "Return the seconds of a cache line's round trip between two CPUs: the median of each batch, fastest "
      "first.\n\nEnds after `limit` seconds with the batches measured so far; returns none if the threads cannot be "
      "pinned to the CPUs.");
  module.def("memory_traffic", &b::memory_traffic, nb::arg("threads"), nb::arg("bytes_each"), nb::arg("seconds"), free,
             "Return the bytes that all threads together read and write per second, each copying `bytes_each`.");
}
