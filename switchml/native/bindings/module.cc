// switchml._native: the native part of a communicator, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "native/bindings/by_name.h"
#include "native/bindings/errors.h"
#include "native/bindings/leaks.h"
#include "native/bindings/record.h"
#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"
#include "native/wire/constants.h"
#include "switchml/native/bindings/module_kernels.h"
#include "switchml/native/communicator.h"
#include "switchml/native/lockstep.h"

namespace nb = nanobind;
using switchml::bindings::counters;
using switchml::bindings::define_by_name;
using switchml::bindings::optional;
using switchml::bindings::record;
using switchml::bindings::required;
using switchml::client::CallDescription;
using switchml::client::CallKind;
using switchml::client::CallStatus;
using switchml::client::Communicator;
using switchml::client::Division;
using switchml::client::Form;
using switchml::client::Lockstep;
using switchml::client::SipKey;
using switchml::wire::Format;

namespace switchml::bindings {

template <>
struct Converter<CallKind> {
  static const char* type() { return "int"; }
  static CallKind convert(const char* name, nb::handle given, uint64_t) {
    const auto kind = Converter<uint32_t>::convert(name, given, 0);
    if (kind < static_cast<uint32_t>(CallKind::float32_sum) || kind > static_cast<uint32_t>(client::kLastCallKind)) {
      throw std::invalid_argument("no kind of call has number " + std::to_string(kind));
    }
    return static_cast<CallKind>(kind);
  }
};

template <>
struct Converter<Division> {
  static const char* type() { return "int"; }
  static Division convert(const char* name, nb::handle given, uint64_t) {
    return static_cast<Division>(Converter<uint8_t>::convert(name, given, static_cast<uint64_t>(Division::gather)));
  }
};

template <>
struct Converter<Form> {
  static const char* type() { return "int"; }
  static Form convert(const char* name, nb::handle given, uint64_t) {
    return static_cast<Form>(Converter<uint8_t>::convert(name, given, static_cast<uint64_t>(Form::automatic)));
  }
};

template <>
struct Converter<Format> {
  static const char* type() { return "int"; }
  static Format convert(const char* name, nb::handle given, uint64_t) {
    const auto format = Converter<uint32_t>::convert(name, given, 0);
    if (!wire::is_known(format)) {
      throw std::invalid_argument("no values of a call have format " + std::to_string(format));
    }
    return static_cast<Format>(format);
  }
};

}  // namespace switchml::bindings

namespace {

constexpr double kSignalCheckSeconds = 0.1;

SipKey key_of(const nb::bytes& bytes) {
  SipKey key;
  if (bytes.size() != sizeof key) {
    throw std::invalid_argument("the key of the check has " + std::to_string(sizeof key) + " bytes, not " +
                                std::to_string(bytes.size()));
  }
  std::memcpy(key.data(), bytes.c_str(), sizeof key);
  return key;
}

// The Python object of a communicator. Its threads exist only in the process that made it, so a forked child can
// neither use nor destroy it: in the child every use throws std::logic_error, and the copy of its memory is never
// released.
class OwnedByProcess {
 public:
  OwnedByProcess(const nb::bytes& check_key, int memory_fd, int doorbell_fd, int shared_fd, bool direct)
      : process_(getpid()),
        communicator_(new Communicator(memory_fd, doorbell_fd, shared_fd, key_of(check_key), direct)) {}
  ~OwnedByProcess() {
    if (process_ == getpid()) {
      delete communicator_;
    }
  }
  OwnedByProcess(const OwnedByProcess&) = delete;
  OwnedByProcess& operator=(const OwnedByProcess&) = delete;

  Communicator& get() const {
    if (process_ != getpid()) {
      throw std::logic_error("the communicator belongs to process " + std::to_string(process_) +
                             ", from which this one was forked");
    }
    return *communicator_;
  }
  Communicator* operator->() const { return &get(); }

 private:
  pid_t process_;
  Communicator* communicator_;
};

void define_call(nb::module_& module) {
  // The members of the structs inside it.
  const auto size = [](CallDescription& call) -> auto& { return call.arrays.elements; };
  const auto division = [](CallDescription& call) -> auto& { return call.arrays.division; };
  const auto lane_bits = [](CallDescription& call) -> auto& { return call.lanes.bits; };
  const auto stochastic = [](CallDescription& call) -> auto& { return call.lanes.stochastic; };
  const auto seed = [](CallDescription& call) -> auto& { return call.lanes.seed; };
  const auto format = [](CallDescription& call) -> auto& { return call.lanes.format; };
  define_by_name<CallDescription>(
      module, "CallDescription",
      "A call over `size` elements (bytes for KIND_BYTES), except for its memory.\n\n"
      "With DIVISION_WHOLE both arrays have all elements. With DIVISION_SCATTER (sums) and DIVISION_GATHER (bytes) "
      "the\n"
      "elements are one part of equal length for each rank, and the output or the input has only the part of this "
      "rank.\nA rank that does not `contribute` to a call of bytes adds nothing to them. All ranks must have the same\n"
      "`call_hash`. The sums of integers must fit lanes of `lane_bits` bits. A sum with FORM_SPARSE has the same "
      "result,\nand sends only the blocks that have values, if the pipeline can do that; with FORM_AUTOMATIC it does "
      "so "
      "where\nearlier calls suggest it. `format` is that of floating-point numbers in packets.\n\n"
      "Raises ValueError for a number that is out of range.",
      required("kind", &CallDescription::kind), required("size", size), required("division", division),
      required("call_hash", &CallDescription::call_hash),
      optional("contributes", &CallDescription::contributes, "True"), optional("lane_bits", lane_bits, "32"),
      optional("stochastic", stochastic, "False"), optional("seed", seed, "0"),
      optional("form", &CallDescription::form, "0"), optional("format", format, "1"));
}

// Returns the call over the memory at two addresses.
CallDescription at(CallDescription call, uint64_t input, uint64_t output) {
  call.arrays.input = reinterpret_cast<const uint8_t*>(input);  // NOLINT(performance-no-int-to-ptr): from Python
  call.arrays.output = reinterpret_cast<uint8_t*>(output);      // NOLINT(performance-no-int-to-ptr): the same
  return call;
}

uint64_t submit(const OwnedByProcess& communicator, const CallDescription& call, uint64_t input, uint64_t output,
                bool awaited) {
  const nb::gil_scoped_release release;
  return communicator->submit(at(call, input, output), awaited);
}

bool all_within(const nb::int_& kind, uint64_t address, uint64_t elements, int32_t bound) {
  const auto of = switchml::bindings::Converter<CallKind>::convert("kind", kind, 0);
  if (address % switchml::client::element_bytes(of) != 0 || (elements > 0 && address == 0)) {
    throw std::invalid_argument("no array has such memory");
  }
  const nb::gil_scoped_release release;
  auto* memory = reinterpret_cast<const uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr): it comes from Python
  return switchml::client::all_within(of, memory, elements, bound);
}

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

void make_lockstep(Lockstep* place, const CallDescription& call, uint64_t input, uint64_t output, uint64_t sequence,
                   uint32_t rank, uint32_t world_size, uint32_t values, bool optional_values) {
  const nb::gil_scoped_release release;
  CallDescription described = at(call, input, output);
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

// Waits in short intervals, so that a KeyboardInterrupt can be raised between them.
bool wait(const OwnedByProcess& communicator, uint64_t ticket, double timeout) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (;;) {
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    const double left = std::max(0.0, timeout - passed);
    bool ended;
    {
      const nb::gil_scoped_release release;
      ended = communicator->wait(ticket, std::min(left, kSignalCheckSeconds));
    }
    if (PyErr_CheckSignals() != 0) {
      throw nb::python_error();
    }
    if (ended || left == 0) {
      return ended;
    }
  }
}

const char* name_of(CallStatus status) {
  switch (status) {
    case CallStatus::pending:
      return "pending";
    case CallStatus::done:
      return "done";
    case CallStatus::non_finite:
      return "non_finite";
    case CallStatus::failed:
      return "failed";
  }
  return "failed";
}

std::optional<std::pair<uint64_t, uint64_t>> check_failure(const OwnedByProcess& communicator) {
  return communicator->check_failure();
}

// Counters of a progress thread and of its calls, at one moment.
struct Spent : switchml::counters::Thread, switchml::counters::Process {};

const auto kSpent = record<Spent>(
    "Spent",
    "The counters of the progress thread and of its calls, with durations in nanoseconds.\n\n"
    "Bucket i of `calls_by_duration` counts calls that took less than 1.024 us times 2^i, and the last one all others.",
    counters<switchml::counters::Thread>(), counters<switchml::counters::Process>());

nb::dict spent(const OwnedByProcess& communicator) {
  const switchml::channel::ProcessCounters& shared = communicator->spent();
  return kSpent.dict_of({switchml::channel::thread_times_of(shared, switchml::runtime::monotonic_nanoseconds()),
                         switchml::channel::process_counters_of(shared, communicator->calls())});
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The native part of a communicator: quantization, checks and its progress thread.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  switchml::bindings::report_no_leaks_of_running_threads();
  module.attr("MAX_WORLD_SIZE") = static_cast<int>(switchml::wire::protocol::max_world);
  module.attr("KIND_FLOAT32_SUM") = static_cast<int>(CallKind::float32_sum);
  module.attr("KIND_FLOAT32_AVG") = static_cast<int>(CallKind::float32_average);
  module.attr("KIND_FLOAT16_SUM") = static_cast<int>(CallKind::float16_sum);
  module.attr("KIND_FLOAT16_AVG") = static_cast<int>(CallKind::float16_average);
  module.attr("KIND_BFLOAT16_SUM") = static_cast<int>(CallKind::bfloat16_sum);
  module.attr("KIND_BFLOAT16_AVG") = static_cast<int>(CallKind::bfloat16_average);
  module.attr("KIND_INT32_SUM") = static_cast<int>(CallKind::int32_sum);
  module.attr("KIND_BYTES") = static_cast<int>(CallKind::bytes);
  module.attr("KIND_BARRIER") = static_cast<int>(CallKind::barrier);
  module.attr("KIND_INT16_SUM") = static_cast<int>(CallKind::int16_sum);
  module.attr("KIND_INT8_SUM") = static_cast<int>(CallKind::int8_sum);
  module.attr("KIND_UINT8_SUM") = static_cast<int>(CallKind::uint8_sum);
  module.attr("KIND_BOOL_SUM") = static_cast<int>(CallKind::bool_sum);
  module.attr("KIND_INT64_SUM") = static_cast<int>(CallKind::int64_sum);
  module.attr("DIVISION_WHOLE") = static_cast<int>(Division::whole);
  module.attr("DIVISION_SCATTER") = static_cast<int>(Division::scatter);
  module.attr("DIVISION_GATHER") = static_cast<int>(Division::gather);
  module.attr("FORMAT_INT32") = static_cast<int>(Format::int32);
  module.attr("FORMAT_FLOAT32") = static_cast<int>(Format::float32);
  module.attr("FORMAT_NATURAL8") = static_cast<int>(Format::natural8);
  module.attr("FORMAT_DYNAMIC8") = static_cast<int>(Format::dynamic8);
  module.attr("FORM_DENSE") = static_cast<int>(Form::dense);
  module.attr("FORM_SPARSE") = static_cast<int>(Form::sparse);
  module.attr("FORM_AUTOMATIC") = static_cast<int>(Form::automatic);
  module.def("all_within", &all_within, nb::arg("kind"), nb::arg("address"), nb::arg("elements"), nb::arg("bound"),
             "Return whether no integer at `address` is farther from 0 than `bound`; `kind` is that of their sum.");

  module.def("address_of", &address_of, nb::arg("array"), nb::sig("def address_of(array: object) -> int"),
             "Return the address of the first element of a numpy array.");

  kSpent.describe(module);
  define_call(module);

  nb::class_<Communicator::Outcome>(module, "Outcome", "The outcome of a call that has ended.")
      .def_prop_ro(
          "status", [](const Communicator::Outcome& outcome) { return name_of(outcome.status); },
          nb::sig("def status(self) -> typing.Literal['done', 'non_finite', 'failed']"))
      .def_prop_ro(
          "non_finite_count", [](const Communicator::Outcome& outcome) { return outcome.non_finite.count; },
          "The number of elements that are NaN or infinite at some rank.")
      .def_prop_ro(
          "non_finite_indices", [](const Communicator::Outcome& outcome) { return outcome.non_finite.indices; },
          "The lowest indices of such elements.")
      .def_prop_ro(
          "wire_bytes", [](const Communicator::Outcome& outcome) { return outcome.wire_bytes; },
          "The bytes of the values that this rank has put into packets, without retransmissions.")
      .def_prop_ro(
          "blocks",
          [](const Communicator::Outcome& outcome) {
            return std::make_tuple(outcome.blocks.sent, outcome.blocks.received, outcome.blocks.all);
          },
          "The blocks that this rank has sent with values, those that any rank has, and all.")
      .def_prop_ro(
          "sparse", [](const Communicator::Outcome& outcome) { return outcome.sparse; },
          "True if the call was a sparse one.");

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
  nb::class_<OwnedByProcess>(
      module, "Communicator",
      "One rank's end of the memory that it shares with its agent, and the thread that works on it.")
      .def(nb::init<const nb::bytes&, int, int, int, bool>(), nb::arg("check_key"), nb::arg("memory_fd"),
           nb::arg("doorbell_fd"), nb::arg("shared_fd") = -1, nb::kw_only(), nb::arg("direct") = true,
           "Duplicate the descriptors. `check_key` has the 16 bytes that only the ranks of the epoch know. `shared_fd` "
           "is\nthe memory that the job's ranks on this machine share: their results or, where the switch shares it, "
           "that for\ndirect calls, which no rank makes unless all are `direct`.")
      .def("submit", &submit, nb::arg("call"), nb::arg("input"), nb::arg("output"), nb::arg("awaited") = false,
           "Start a call over the memory at two addresses, and return its ticket: the number of calls before it.\n\n"
           "`awaited` tells that this thread calls `wait` next: a short call may begin only there. Raises ValueError "
           "for\nmemory that no array can have, for parts of unequal length, and after `abandon`.")
      .def_prop_ro(
          "submitted", [](const OwnedByProcess& c) { return c->submitted(); }, "The number of calls so far.")
      .def("wait", &wait, nb::arg("ticket"), nb::arg("timeout"),
           "Wait at most `timeout` seconds, and return whether the call has ended.")
      .def(
          "status", [](const OwnedByProcess& c, uint64_t ticket) { return name_of(c->status(ticket)); },
          nb::arg("ticket"),
          nb::sig("def status(self, ticket: int) -> typing.Literal['pending', 'done', 'non_finite', 'failed']"))
      .def(
          "release", [](const OwnedByProcess& c, uint64_t ticket) { return c->release(ticket); }, nb::arg("ticket"),
          "Forget a call that has ended, and return its outcome.")
      .def(
          "abandon", [](const OwnedByProcess& c) { c->abandon(); }, free,
          "Make every unfinished call fail, and return when the native code no longer touches user memory.")
      .def(
          "settle", [](const OwnedByProcess& c) { c->settle(); }, free,
          "Take the results that have arrived, then do the same as `abandon`.")
      .def(
          "fail_from", [](const OwnedByProcess& c, uint64_t ticket) { c->fail_from(ticket); }, nb::arg("ticket"),
          "Make the call with this ticket and all later ones fail, once the earlier ones have ended.")
      .def("check_failure", &check_failure, "Return the stream position and the ticket of the call whose check failed.")
      .def("spent", &spent, nb::sig("def spent(self) -> Spent"), "Return the counters of the progress thread.")
      .def_prop_ro(
          "attention_fd", [](const OwnedByProcess& c) { return c->attention_fd(); },
          "An eventfd, readable once a check has failed.")
      .def_prop_ro(
          "position", [](const OwnedByProcess& c) { return c->position(); }, "The number of chunks that have results.")
      .def_prop_ro(
          "round_trips", [](const OwnedByProcess& c) { return c->round_trips(); },
          "The nanoseconds of all round trips that the agent has measured, and the bytes that came during them.")
      .def_prop_ro("rank", [](const OwnedByProcess& c) { return c->geometry().rank; })
      .def_prop_ro("world_size", [](const OwnedByProcess& c) { return c->geometry().world_size; })
      .def_prop_ro("slots", [](const OwnedByProcess& c) { return c->geometry().slots; })
      .def_prop_ro(
          "formats", [](const OwnedByProcess& c) { return c->geometry().formats; },
          "The formats in which the switches take values: bit f for format f.")
      .def_prop_ro("optional_values", [](const OwnedByProcess& c) { return c->geometry().optional_values != 0; })
      .def_prop_ro(
          "shares_memory",
          [](const OwnedByProcess& c) { return c->geometry().results_apart == switchml::channel::Geometry::kInPlace; })
      .def_prop_ro("values_per_packet", [](const OwnedByProcess& c) { return c->geometry().values; })
      .def("close", [](const OwnedByProcess& c) { c->abandon(); }, free, "Do the same as `abandon`.");
}
