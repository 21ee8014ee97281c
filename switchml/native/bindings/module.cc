// switchml._native: the native part of a communicator, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "native/bindings/errors.h"
#include "native/bindings/leaks.h"
#include "native/wire/constants.h"
#include "switchml/native/bindings/module_kernels.h"
#include "switchml/native/bindings/module_membership.h"
#include "switchml/native/lockstep.h"
#include "switchml/native/membership/collective.h"

namespace nb = nanobind;
using switchml::client::Collective;
using switchml::client::Lockstep;
using switchml::wire::Format;

namespace {

// Numpy's structure of an array (its C API, "The array interface protocol").
struct ArrayInterface {
  int two;
  int dimensions;
  char kind;
  int item_bytes;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
};

// Numpy's own way to the address in Python takes a microsecond.
uint64_t address_of(nb::handle array) {
  const nb::object capsule = array.attr("__array_struct__");
  const auto* interface = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (interface == nullptr) {
    throw nb::python_error();
  }
  return reinterpret_cast<uint64_t>(interface->data);
}

void make_lockstep(Lockstep* place, const Collective& call, uint64_t input, uint64_t output, uint64_t sequence,
                   uint32_t rank, uint32_t world_size, uint32_t values, bool optional_values) {
  const nb::gil_scoped_release release;
  auto* const from = reinterpret_cast<const uint8_t*>(input);  // NOLINT(performance-no-int-to-ptr): it is Python's
  auto* const to = reinterpret_cast<uint8_t*>(output);         // NOLINT(performance-no-int-to-ptr): the same
  call.require_values(from);
  auto described = call.at(rank, from, to);
  described.lanes.sequence = sequence;
  new (place) Lockstep(described, {rank, world_size, values, optional_values});
}

template <typename Element>
using Row = nb::ndarray<nb::numpy, Element, nb::ndim<1>>;

// Returns this rank's part in a round: memory of `self`, which the next round replaces.
std::pair<Row<uint8_t>, Row<int32_t>> contribute(nb::pointer_and_handle<Lockstep> self) {
  {
    const nb::gil_scoped_release release;
    self.p->contribute();
  }
  std::vector<uint8_t>& exponents = self.p->exponents();
  std::vector<int32_t>& words = self.p->words();
  return {Row<uint8_t>(exponents.data(), {exponents.size()}, self.h),
          Row<int32_t>(words.data(), {words.size()}, self.h)};
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The native part of a communicator: quantization, checks and its progress thread.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  switchml::bindings::report_no_leaks_of_running_threads();
  module.attr("MAX_WORLD_SIZE") = static_cast<int>(switchml::wire::protocol::max_world);
  module.attr("FORMAT_FLOAT32") = static_cast<int>(Format::float32);
  module.attr("FORMAT_NATURAL8") = static_cast<int>(Format::natural8);
  module.attr("FORMAT_DYNAMIC8") = static_cast<int>(Format::dynamic8);
  module.def("address_of", &address_of, nb::arg("array"), nb::sig("def address_of(array: object) -> int"),
             "Return the address of the first element of a numpy array.");

  switchml::client::define_membership(module);
  switchml::client::define_kernels(module.def_submodule(
      "kernels",
      "The arithmetic between a tensor and the words of a packet, for tests and benchmarks.\n\n"
      "Arrays are numpy vectors of uint8: views of the values, in this machine's byte order, and of the words, "
      "big-endian."));

  const auto free = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Lockstep>(
      module, "Lockstep",
      "A sum that goes another way than through a switch, with the bits that a job's switch would give.\n\n"
      "It has rounds until it has `ended`. In a round every rank calls `contribute`, replaces the exponents by the\n"
      "largest of all ranks and the words by their sums modulo 2^32, and calls `take`.")
      .def(
          "__init__", &make_lockstep, nb::arg("call"), nb::arg("input"), nb::arg("output"), nb::kw_only(),
          nb::arg("sequence"), nb::arg("rank"), nb::arg("world_size"), nb::arg("values"), nb::arg("optional_values"),
          "Begin the call, which is number `sequence` in a job with these properties, over the memory at two addresses."
          "\n\nRaises ValueError for arguments that cannot be.")
      .def_prop_ro("ended", &Lockstep::has_ended)
      .def("contribute", &contribute,
           "Return this rank's exponents and words of the next round, which may be empty. The round that follows\n"
           "overwrites both. Only while the call has not ended.")
      .def("take", &Lockstep::take, free,
           "Read the results of the round. Raises RuntimeError if they contradict each other.")
      .def_prop_ro(
          "non_finite_count", [](const Lockstep& call) { return call.non_finite().count; },
          "The number of elements that are NaN or infinite at some rank.")
      .def_prop_ro(
          "non_finite_indices", [](const Lockstep& call) { return call.non_finite().indices; },
          "The lowest indices of such elements.");
}
