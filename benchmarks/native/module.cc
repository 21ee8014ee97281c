#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "benchmarks/native/cache_line.h"
#include "benchmarks/native/kernel_speed.h"
#include "benchmarks/native/memory_traffic.h"

namespace nb = nanobind;
namespace b = switchml::benchmarks;

namespace {

nb::list kernel_names() {
  nb::list names;
  for (const b::KernelName& kernel : b::kernel_names()) {
    names.append(nb::make_tuple(kernel.name, kernel.chooses_instructions));
  }
  return names;
}

std::vector<double> time_kernel(const std::string& name, unsigned instructions, size_t bytes, double seconds) {
  return b::time_kernel(name, static_cast<switchml::kernels::Instructions>(instructions), bytes, seconds);
}

}  // namespace

NB_MODULE(_probes, module) {
  module.doc() = "What a benchmark asks the processor itself.";
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  module.def("two_processors", &b::two_processors);
  module.def("cache_line_round_trips", &b::cache_line_round_trips, nb::arg("first"), nb::arg("second"),
             nb::arg("batches"), nb::arg("limit"), free);
  module.def("memory_traffic", &b::memory_traffic, nb::arg("threads"), nb::arg("bytes_each"), nb::arg("seconds"), free);
  module.def("kernel_names", &kernel_names);
  module.def("time_kernel", &time_kernel, nb::arg("name"), nb::arg("instructions"), nb::arg("tensor_bytes"),
             nb::arg("seconds"), free);
}
