// switchml._native: the value side of a communicator for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"
#include "switchml/native/bindings/module_kernels.h"
#include "switchml/native/communicator.h"

namespace nb = nanobind;
using switchml::client::CallKind;
using switchml::client::CallStatus;
using switchml::client::Communicator;

namespace {

constexpr double kSignalCheckSeconds = 0.1;

// A communicator as Python holds it. Its threads exist only in the process that made it, so a forked child can neither
// use nor destroy it: there, every use throws std::logic_error, and the child's copy of its memory is left as it is.
class OwnedByProcess {
 public:
  OwnedByProcess(int memory_fd, int doorbell_fd, int results_fd)
      : process_(getpid()), communicator_(new Communicator(memory_fd, doorbell_fd, results_fd)) {}
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

uint64_t submit(const OwnedByProcess& communicator, uint32_t kind, uint64_t address, uint64_t size, bool contributes,
                uint32_t call_hash) {
  if (kind < static_cast<uint32_t>(CallKind::float32_sum) || kind > static_cast<uint32_t>(CallKind::barrier)) {
    throw std::invalid_argument("no kind of call has number " + std::to_string(kind));
  }
  const nb::gil_scoped_release release;
  return communicator->submit(static_cast<CallKind>(kind), address, size, contributes, call_hash);
}

// Waits in slices, so that a KeyboardInterrupt gets through.
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

const char* status_name(const Communicator::Outcome& outcome) {
  switch (outcome.status) {
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

nb::object check_failure(const OwnedByProcess& communicator) {
  const auto failure = communicator->check_failure();
  return failure ? nb::object(nb::make_tuple(failure->first, failure->second)) : nb::none();
}

nb::dict spent(const OwnedByProcess& communicator) {
  const switchml::channel::ProcessCounters& counters = communicator->spent();
  nb::dict result;
  const switchml::channel::ThreadTimes times =
      switchml::channel::thread_times_of(counters, switchml::runtime::monotonic_nanoseconds());
  result["quantize"] = times.quantize;
  result["waiting"] = times.waiting;
  result["dequantize"] = times.dequantize;
  result["sleeps"] = counters.sleeps.load(std::memory_order_relaxed);
  const switchml::channel::CallLog& calls = communicator->calls();
  result["calls"] = calls.ended();
  result["bytes"] = calls.bytes();
  result["call_time"] = calls.nanoseconds();
  nb::list took;
  for (size_t bucket = 0; bucket < switchml::runtime::kDurationBuckets; ++bucket) {
    took.append(calls.took(bucket));
  }
  result["calls_took"] = took;
  return result;
}

void translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    const nb::object args = nb::make_tuple(error.code().value(), nb::str(error.what()));
    PyErr_SetObject(PyExc_OSError, args.ptr());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_KeyError, error.what());
  } catch (const std::logic_error& error) {  // std::invalid_argument among them
    PyErr_SetString(PyExc_ValueError, error.what());
  }
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "The value side of a communicator: quantization, checks and its progress thread.";
  nb::register_exception_translator(translate);
  // What threads of the parent refer to is never released in a forked child, and not for want of reference counting.
  pthread_atfork(nullptr, nullptr, [] { nb::set_leak_warnings(false); });
  module.attr("KIND_FLOAT32_SUM") = static_cast<int>(CallKind::float32_sum);
  module.attr("KIND_FLOAT32_AVG") = static_cast<int>(CallKind::float32_average);
  module.attr("KIND_FLOAT16_SUM") = static_cast<int>(CallKind::float16_sum);
  module.attr("KIND_FLOAT16_AVG") = static_cast<int>(CallKind::float16_average);
  module.attr("KIND_BFLOAT16_SUM") = static_cast<int>(CallKind::bfloat16_sum);
  module.attr("KIND_BFLOAT16_AVG") = static_cast<int>(CallKind::bfloat16_average);
  module.attr("KIND_INT32_SUM") = static_cast<int>(CallKind::int32_sum);
  module.attr("KIND_BYTES") = static_cast<int>(CallKind::bytes);
  module.attr("KIND_BARRIER") = static_cast<int>(CallKind::barrier);

  nb::class_<Communicator::Outcome>(module, "Outcome")
      .def_prop_ro("status", &status_name)
      .def_prop_ro("non_finite_count", [](const Communicator::Outcome& outcome) { return outcome.non_finite.count; })
      .def_prop_ro("non_finite_indices",
                   [](const Communicator::Outcome& outcome) { return outcome.non_finite.indices; });

  switchml::client::define_kernels(
      module.def_submodule("kernels", "The arithmetic between a tensor and the words of a packet."));

  const auto free = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<OwnedByProcess>(module, "Communicator")
      .def(nb::init<int, int, int>(), nb::arg("memory_fd"), nb::arg("doorbell_fd"), nb::arg("results_fd") = -1)
      .def("submit", &submit, nb::arg("kind"), nb::arg("address"), nb::arg("size"), nb::arg("contributes"),
           nb::arg("call_hash"))
      .def("wait", &wait, nb::arg("ticket"), nb::arg("timeout"))
      .def(
          "outcome", [](const OwnedByProcess& c, uint64_t ticket) { return c->outcome(ticket); }, nb::arg("ticket"))
      .def(
          "release", [](const OwnedByProcess& c, uint64_t ticket) { c->release(ticket); }, nb::arg("ticket"))
      .def(
          "abandon", [](const OwnedByProcess& c) { c->abandon(); }, free)
      .def(
          "settle", [](const OwnedByProcess& c) { c->settle(); }, free)
      .def("check_failure", &check_failure)
      .def("spent", &spent)
      .def_prop_ro("attention_fd", [](const OwnedByProcess& c) { return c->attention_fd(); })
      .def_prop_ro("position", [](const OwnedByProcess& c) { return c->position(); })
      .def_prop_ro("rank", [](const OwnedByProcess& c) { return c->geometry().rank; })
      .def_prop_ro("world_size", [](const OwnedByProcess& c) { return c->geometry().world_size; })
      .def_prop_ro("slots", [](const OwnedByProcess& c) { return c->geometry().slots; })
      .def_prop_ro("values_per_packet", [](const OwnedByProcess& c) { return c->geometry().values; })
      .def("close", [](const OwnedByProcess& c) { c->abandon(); }, free);
}
