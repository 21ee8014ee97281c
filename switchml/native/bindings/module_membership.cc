#include "switchml/native/bindings/module_membership.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "native/bindings/record.h"
#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"
#include "switchml/native/membership/collective.h"
#include "switchml/native/membership/failure.h"
#include "switchml/native/membership/membership.h"
#include "switchml/native/membership/wire_choice.h"
#include "switchml/native/xla/all_reduce.h"

namespace switchml::client {

namespace {

namespace nb = nanobind;
using bindings::counters;
using bindings::record;

constexpr double kSignalCheckSeconds = 0.1;

// ---- failures -------------------------------------------------------------------------------------------------------

const char* name_of(FailureKind kind) {
  constexpr std::array<const char*, 15> kNames{
      "connect",    "unsupported_tensor", "non_finite",    "collective_timeout", "collective_mismatch",
      "integrity",  "worker_lost",        "world_changed", "rank_closed",        "job_ended",
      "job_failed", "switch_lost",        "epoch_spent",   "agent_lost",         "closed"};
  return kNames[static_cast<size_t>(kind)];
}

nb::tuple tuple_of(const std::vector<uint32_t>& numbers) { return nb::tuple(nb::cast(numbers)); }

// Raises the exception that switchml.client.failures makes of a failure.
void translate_failure(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const FailureError& error) {
    const nb::object exception =
        nb::module_::import_("switchml.client.failures").attr("exception_of")(nb::cast(error.failure()));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  }
}

void define_failures(nb::module_& module) {
  nb::class_<Failure>(module, "Failure", "A failure of a rank; switchml.client.failures makes exceptions of it.")
      .def_prop_ro("kind", [](const Failure& failure) { return name_of(failure.kind); })
      .def_ro("message", &Failure::message)
      .def_prop_ro(
          "ranks", [](const Failure& failure) { return tuple_of(failure.ranks); },
          nb::sig("def ranks(self) -> tuple[int, ...]"))
      .def_ro("reason", &Failure::reason)
      .def_prop_ro("epoch", [](const Failure& failure) { return failure.world.epoch; })
      .def_prop_ro("rank", [](const Failure& failure) { return failure.world.rank; })
      .def_prop_ro("world_size", [](const Failure& failure) { return failure.world.world_size; })
      .def_prop_ro(
          "joined", [](const Failure& failure) { return tuple_of(failure.world.joined); },
          nb::sig("def joined(self) -> tuple[int, ...]"))
      .def_prop_ro("completed", [](const Failure& failure) { return failure.world.completed; })
      .def_prop_ro(
          "indices", [](const Failure& failure) { return nb::tuple(nb::cast(failure.indices)); },
          nb::sig("def indices(self) -> tuple[int, ...]"))
      .def_ro("count", &Failure::count);
  nb::class_<FailureEvents>(module, "FailureEvents", "The failures of a membership; it outlives the membership.")
      .def(
          "next",
          [](FailureEvents& events, double seconds) -> std::optional<Failure> {
            const nb::gil_scoped_release release;
            const FailurePointer failure = events.next(seconds);
            return failure ? std::optional(*failure) : std::nullopt;
          },
          nb::arg("seconds"),
          "Wait for the next failure or change of epoch, at most `seconds`, and return it, once; or None.")
      .def_prop_ro("ended", &FailureEvents::ended, "True once no more events come.");
}

// ---- calls ----------------------------------------------------------------------------------------------------------

Operation operation_of(const std::string& name) {
  static const std::map<std::string, Operation> operations{{"all_reduce", Operation::all_reduce},
                                                           {"reduce_scatter", Operation::reduce_scatter},
                                                           {"all_gather", Operation::all_gather},
                                                           {"broadcast", Operation::broadcast},
                                                           {"barrier", Operation::barrier}};
  const auto found = operations.find(name);
  if (found == operations.end()) throw std::invalid_argument("there is no operation " + name);
  return found->second;
}

Form form_of(const std::string& skip_zeros) {
  static const std::map<std::string, Form> forms{{"no", Form::dense}, {"yes", Form::sparse}, {"auto", Form::automatic}};
  const auto found = forms.find(skip_zeros);
  if (found == forms.end()) throw std::invalid_argument("skip_zeros is " + skip_zeros + "; it must be no, yes or auto");
  return found->second;
}

CollectivePointer make_collective(const std::string& operation, std::string op, std::string dtype,
                                  uint32_t element_bytes, uint64_t elements, uint32_t root,
                                  const std::optional<std::string>& wire, const std::string& skip_zeros,
                                  uint32_t world_size, uint32_t formats) {
  CollectiveRequest request{operation_of(operation),
                            std::move(op),
                            std::move(dtype),
                            element_bytes,
                            elements,
                            root,
                            std::nullopt,
                            Form::dense};
  if (wire) request.wire = WireChoice::parse(*wire);
  request.form = form_of(skip_zeros);
  return std::make_shared<const Collective>(std::move(request), world_size, formats);
}

nb::tuple parse_wire(const std::string& text) {
  const WireChoice choice = WireChoice::parse(text);
  nb::dict choices;
  if (choice.kind() == WireChoice::Kind::blocks || choice.kind() == WireChoice::Kind::integers) {
    choices["bits"] = choice.bits();
  }
  if (choice.kind() == WireChoice::Kind::blocks) choices["rounding"] = choice.stochastic() ? "stochastic" : "nearest";
  if (choice.kind() == WireChoice::Kind::integers) choices["bound"] = choice.bound();
  if (choice.kind() == WireChoice::Kind::codes) {
    choices["name"] = choice.format() == wire::Format::natural8 ? "natural8" : "dynamic8";
  }
  if (choice.kind() == WireChoice::Kind::blocks || choice.kind() == WireChoice::Kind::codes) {
    choices["seed"] = choice.seed();
  }
  return nb::make_tuple(choice.name(), choices);
}

void define_calls(nb::module_& module) {
  module.def(
      "parse_wire", &parse_wire, nb::arg("text"),
      nb::sig("def parse_wire(text: str) -> tuple[str, dict[str, typing.Any]]"),
      "Return the kind of the wire with this text, and its choices by name.\n\nRaises ValueError for any other text.");
  module.def(
      "wire_problem",
      [](const std::string& text, uint32_t formats) { return WireChoice::parse(text).problem(formats); },
      nb::arg("text"), nb::arg("formats"),
      "Return why switches that take these `formats` cannot sum what comes so; empty if they can.");
  nb::class_<Collective>(module, "Collective", "A collective call, without its memory, that a job can make.")
      .def("in_words", &Collective::in_words, nb::arg("sequence"));
  module.def(
      "describe", &make_collective, nb::arg("operation"), nb::kw_only(), nb::arg("op"), nb::arg("dtype"),
      nb::arg("element_bytes"), nb::arg("elements"), nb::arg("root"), nb::arg("wire").none(), nb::arg("skip_zeros"),
      nb::arg("world_size"), nb::arg("formats"),
      "Return the call of `operation` in a job of `world_size` ranks whose switches take these `formats`.\n\n"
      "`elements` are those of all parts, of the type `dtype`; `wire` is a text; `skip_zeros` is a word: no, yes, auto."
      "\n\nRaises ValueError, or UnsupportedTensor, if it cannot be made.");

  module.def(
      "xla_all_reduce",
      [] { return nb::capsule(reinterpret_cast<const void*>(&xla::all_reduce), "xla._CUSTOM_CALL_TARGET"); },
      nb::sig("def xla_all_reduce() -> typing.Any"),
      "Return the handler of all-reduces for XLA, in the form in which JAX registers it.");

  using Outcome = Communicator::Outcome;
  nb::class_<Outcome>(module, "Outcome", "The values that a call that has ended has sent.")
      .def_ro("wire_bytes", &Outcome::wire_bytes,
              "The bytes of the values that this rank has put into packets, without retransmissions.")
      .def_prop_ro(
          "blocks",
          [](const Outcome& outcome) {
            return std::make_tuple(outcome.blocks.sent, outcome.blocks.received, outcome.blocks.all);
          },
          "The blocks that this rank has sent with values, those that any rank has, and all.")
      .def_ro("sparse", &Outcome::sparse, "True if the call was a sparse one.");
}

// ---- the membership -------------------------------------------------------------------------------------------------

void raise_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// A membership's threads exist only in the process that made it, so that a forked child can neither use nor destroy it:
// the copy of its memory is never released.
class OwnedByProcess {
 public:
  explicit OwnedByProcess(std::shared_ptr<Membership> membership)
      : process_(getpid()), membership_(new std::shared_ptr<Membership>(std::move(membership))) {}
  ~OwnedByProcess() {
    if (process_ != getpid()) return;
    const nb::gil_scoped_release release;
    delete membership_;
  }
  OwnedByProcess(const OwnedByProcess&) = delete;
  OwnedByProcess& operator=(const OwnedByProcess&) = delete;

  Membership* operator->() const { return membership_->get(); }
  const std::shared_ptr<Membership>& shared() const { return *membership_; }

 private:
  pid_t process_;
  std::shared_ptr<Membership>* membership_;
};

class OwnedWork {
 public:
  explicit OwnedWork(std::unique_ptr<Membership::Work> work) : process_(getpid()), work_(work.release()) {}
  ~OwnedWork() {
    if (process_ != getpid()) return;
    const nb::gil_scoped_release release;
    delete work_;
  }
  OwnedWork(const OwnedWork&) = delete;
  OwnedWork& operator=(const OwnedWork&) = delete;

  Membership::Work* operator->() const { return work_; }

 private:
  pid_t process_;
  Membership::Work* work_;
};

// Waits in short intervals, so that a KeyboardInterrupt can be raised between them.
bool ends_within(const OwnedWork& work, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (;;) {
    const double left = std::max(0.0, seconds - std::chrono::duration<double>(Clock::now() - begin).count());
    bool ended;
    {
      const nb::gil_scoped_release release;
      ended = work->ends_within(std::min(left, kSignalCheckSeconds));
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (ended || left == 0) return ended;
  }
}

Communicator::Outcome wait(const OwnedWork& work) {
  ends_within(work, std::max(0.0, work->seconds_left()));
  const nb::gil_scoped_release release;
  return work->wait();
}

// An address in memory, from Python.
uint8_t* at(uint64_t address) {
  return reinterpret_cast<uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr): Python has numbers only
}

std::unique_ptr<OwnedWork> submit(const OwnedByProcess& membership, const CollectivePointer& call, uint64_t input,
                                  uint64_t output, double seconds, bool awaited) {
  const nb::gil_scoped_release release;
  return std::make_unique<OwnedWork>(membership->submit(call, at(input), at(output), seconds, awaited));
}

std::unique_ptr<OwnedByProcess> attach(const std::string& agent, std::string job, uint32_t rank,
                                       std::optional<uint32_t> world_size, double seconds,
                                       const std::optional<nb::dict>& create) {
  AttachRequest request{std::move(job), rank, world_size, std::nullopt};
  if (create) {
    const nb::dict& options = *create;
    request.create =
        NewJob{seconds, nb::cast<uint32_t>(options["slots"]), nb::cast<std::string>(options["on_failure"]),
               nb::cast<uint32_t>(options["priority"]), nb::cast<std::vector<std::string>>(options["aggregators"])};
    seconds += nb::cast<double>(options["start_seconds"]);
  }
  const nb::gil_scoped_release release;
  return std::make_unique<OwnedByProcess>(Membership::attach(agent, request, seconds, &raise_signals));
}

// Counters of a progress thread and of its calls, at one moment.
struct Spent : counters::Thread, counters::Process {};

const auto kSpent = record<Spent>(
    "Spent",
    "The counters of the progress thread and of its calls, with durations in nanoseconds.\n\n"
    "Bucket i of `calls_by_duration` counts calls that took less than 1.024 us times 2^i, and the last one all others.",
    counters<counters::Thread>(), counters<counters::Process>());

nb::dict spent(const OwnedByProcess& membership) {
  const std::shared_ptr<Communicator> communicator = membership->communicator();
  const channel::ProcessCounters& shared = communicator->spent();
  return kSpent.dict_of({channel::thread_times_of(shared, runtime::monotonic_nanoseconds()),
                         channel::process_counters_of(shared, communicator->calls())});
}

void define_members(nb::class_<OwnedByProcess>& membership) {
  const auto number = [&membership](const char* name, auto get, const char* text = "") {
    membership.def_prop_ro(
        name, [get](const OwnedByProcess& member) { return get(member->communicator()->geometry()); }, text);
  };
  number("slots", [](const Geometry& geometry) { return geometry.slots; });
  number("values_per_packet", [](const Geometry& geometry) { return geometry.values; });
  number("optional_values", [](const Geometry& geometry) { return geometry.optional_values != 0; });
  number(
      "formats", [](const Geometry& geometry) { return geometry.formats; },
      "The formats in which the switches take values: bit f for format f.");
  number("shares_memory",
         [](const Geometry& geometry) { return geometry.results_apart == channel::Geometry::kInPlace; });
  const auto attached = [&membership](const char* name, auto get) {
    membership.def_prop_ro(name, [get](const OwnedByProcess& member) { return get(member->attachment()); });
  };
  attached("rank", [](const Attachment& now) { return now.rank; });
  attached("world_size", [](const Attachment& now) { return now.world_size; });
  attached("name", [](const Attachment& now) { return now.name; });
  attached("epoch", [](const Attachment& now) { return now.epoch; });
  attached("generation", [](const Attachment& now) { return now.generation; });
  membership.def_prop_ro(
      "joined", [](const OwnedByProcess& member) { return tuple_of(member->attachment().joined); },
      nb::sig("def joined(self) -> tuple[int, ...]"));
  attached("on_failure", [](const Attachment& now) { return now.on_failure; });
  attached("priority", [](const Attachment& now) { return now.priority; });
  membership
      .def_prop_ro(
          "calls", [](const OwnedByProcess& member) { return member->state().calls; },
          "The number of calls that this process has made in this epoch.")
      .def_prop_ro("closed", [](const OwnedByProcess& member) { return member->state().closed; })
      .def_prop_ro(
          "failure",
          [](const OwnedByProcess& member) -> std::optional<Failure> {
            const FailurePointer failure = member->state().failure;
            return failure ? std::optional(*failure) : std::nullopt;
          },
          "The failure that the next call will meet.")
      .def_prop_ro(
          "waiters", [](const OwnedByProcess& member) { return member->waiters(); },
          "The number of threads that wait for a call.")
      .def_prop_ro("events", [](const OwnedByProcess& member) { return member->events(); })
      .def_prop_ro(
          "position", [](const OwnedByProcess& member) { return member->communicator()->position(); },
          "The number of chunks that have results.")
      .def_prop_ro(
          "round_trips", [](const OwnedByProcess& member) { return member->communicator()->round_trips(); },
          "The nanoseconds of all round trips that the agent has measured, and the bytes that came in them.")
      .def_prop_ro(
          "xla_number", [](const OwnedByProcess& member) { return xla::number_of(member.shared()); },
          "The number by which programs that XLA has compiled name this membership.")
      .def("spent", &spent, nb::sig("def spent(self) -> Spent"), "Return the counters of the progress thread.");
}

}  // namespace

void define_membership(nb::module_& module) {
  nb::register_exception_translator(translate_failure);
  define_failures(module);
  define_calls(module);
  kSpent.describe(module);
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<OwnedWork>(module, "Work", "A call in flight.")
      .def(
          "has_ended", [](const OwnedWork& work) { return work->has_ended(); }, free,
          "Return, without waiting, whether the call has ended.")
      .def("ends_within", &ends_within, nb::arg("seconds"),
           "Wait at most `seconds`, and return whether the call has ended.")
      .def("wait", &wait, "Wait for the end of the call, until its timeout, and raise what happened to it.")
      .def_prop_ro(
          "outcome", [](const OwnedWork& work) { return work->outcome(); },
          "The outcome, once a thread has waited for it.")
      .def_prop_ro(
          "was_waited_for", [](const OwnedWork& work) { return work->was_waited_for(); },
          "True once a thread has waited for the end of the call; also in a forked child.")
      .def("in_words", [](const OwnedWork& work) { return work->in_words(); });
  nb::class_<OwnedByProcess> membership(module, "Membership", "One rank's membership in a job, in this process only.");
  membership
      .def_static("attach", &attach, nb::arg("agent"), nb::arg("job"), nb::arg("rank"), nb::arg("world_size").none(),
                  nb::arg("seconds"), nb::arg("create").none() = nb::none(),
                  nb::sig("def attach(agent: str, job: str, rank: int, world_size: int | None, seconds: float, "
                          "create: dict[str, typing.Any] | None = None) -> Membership"),
                  "Attach through the agent at a path, which has `seconds` to answer.\n\n"
                  "`create` has the options of a job that its ranks begin.")
      .def("submit", &submit, nb::arg("call"), nb::arg("input"), nb::arg("output"), nb::arg("seconds"),
           nb::arg("awaited"),
           "Make a call over the memory at two addresses, which may take `seconds`.\n\n"
           "`awaited` tells that this thread waits for it next: a short call may begin only there.")
      .def(
          "settle", [](const OwnedByProcess& member) { return member->settle(); }, free,
          "Take the results that have arrived, let all other calls fail, and return the number of complete ones.")
      .def(
          "end", [](const OwnedByProcess& member, const std::string& loss) { member->end(loss); }, nb::arg("loss") = "",
          free, "End the membership; with a `loss`, report this rank as lost for that reason.");
  define_members(membership);
}

}  // namespace switchml::client
