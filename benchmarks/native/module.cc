#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "benchmarks/native/cache_line.h"
#include "benchmarks/native/memory_traffic.h"

namespace nb = nanobind;
namespace b = switchml::benchmarks;

NB_MODULE(_probes, module) {
  module.doc() = "What a benchmark asks the processor itself.";
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  module.def("two_processors", &b::two_processors);
  module.def("cache_line_round_trips", &b::cache_line_round_trips, nb::arg("first"), nb::arg("second"),
             nb::arg("batches"), nb::arg("limit"), free);
  module.def("memory_traffic", &b::memory_traffic, nb::arg("threads"), nb::arg("bytes_each"), nb::arg("seconds"), free);
}
