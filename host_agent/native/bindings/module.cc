// host_agent._engine: the agent's data path for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "host_agent/native/engine.h"
#include "host_agent/native/shared_memory_rank.h"
#include "native/bindings/by_name.h"
#include "native/bindings/device_capsule.h"
#include "native/bindings/errors.h"
#include "native/bindings/leaks.h"
#include "native/bindings/record.h"
#include "native/counters/counters.h"
#include "native/net/udp_batch.h"

namespace groups = switchml::counters;
namespace nb = nanobind;
using switchml::agent::Aggregator;
using switchml::agent::Engine;
using switchml::agent::PacketPath;
using switchml::agent::Rank;
using switchml::agent::RankAssignment;
using switchml::agent::RankProfile;
using switchml::agent::RankStatus;
using switchml::bindings::counters;
using switchml::bindings::define_by_name;
using switchml::bindings::field;
using switchml::bindings::optional;
using switchml::bindings::record;
using switchml::bindings::required;
using switchml::channel::CallTimes;

// A list of numbers of ranks.
template <>
struct switchml::bindings::Converter<std::vector<uint16_t>> {
  static const char* type() { return "collections.abc.Sequence[int]"; }
  static std::vector<uint16_t> convert(const char* name, nb::handle given, uint64_t) {
    std::vector<uint16_t> numbers;
    for (const nb::handle one : given) numbers.push_back(Converter<uint16_t>::convert(name, one, UINT16_MAX));
    return numbers;
  }
};

// A list of (address, UDP port).
template <>
struct switchml::bindings::Converter<std::vector<Aggregator>> {
  static const char* type() { return "collections.abc.Sequence[tuple[str, int]]"; }
  static std::vector<Aggregator> convert(const char*, nb::handle given, uint64_t) {
    std::vector<Aggregator> aggregators;
    for (const nb::handle one : given) {
      const auto [address, udp_port] = nb::cast<std::pair<std::string, nb::int_>>(one);
      aggregators.push_back({address, number<uint16_t>(udp_port, "udp_port of an aggregator")});
    }
    return aggregators;
  }
};

namespace {

void define_assignment(nb::module_& module) {
  define_by_name<RankAssignment>(
      module, "RankAssignment",
      "One rank of a job in one epoch.\n\n"
      "`address`: of this host's data interface.\n"
      "`worker`: the rank's number in packets, which is the rank unless the job is on several switches.\n"
      "`workers`: above that of all ranks of the job here, or 0 for the world size.\n"
      "`optional_values`: the pipelines of the job take contributions without values in any phase.\n"
      "`owned_results`: they send values that only one rank reads to this rank alone.\n"
      "`one_port`: all ranks of the job are at one port, so that those on a shm port can share memory.\n"
      "`formats`: they take contributions in format f if its bit f is set.\n"
      "`priority`: 0..7. Among the jobs of one tenant here, those with the highest priority send first.\n"
      "`tenant`: a number for the owner of the job.\n"
      "`switch_ranks`: in a tree with `owned_results`, the ranks at this rank's switch, each at the place of its "
      "number.\n\n"
      "The others are for ranks whose packets travel over UDP.\n"
      "`aggregators`: the addresses and UDP ports of the switches that share the slots, slot s of the pool at number "
      "s\nmodulo their count; none: all slots are at `switch_address`.\n"
      "`dscp`: 0..63, of the IPv4 header of the rank's packets; that of the job's first rank here counts.\n\n"
      "Raises ValueError for a number that is out of range.",
      required("address", &RankAssignment::address), required("job", &RankAssignment::job),
      required("rank", &RankAssignment::rank), required("worker", &RankAssignment::worker),
      required("epoch", &RankAssignment::epoch), required("world_size", &RankAssignment::world_size),
      required("slot_base", &RankAssignment::slot_base), required("slots", &RankAssignment::slots),
      required("values", &RankAssignment::values), optional("secret", &RankAssignment::secret, "0"),
      optional("optional_values", &RankAssignment::optional_values, "False"),
      optional("owned_results", &RankAssignment::owned_results, "False"),
      optional("one_port", &RankAssignment::one_port, "False"), optional("formats", &RankAssignment::formats, "2"),
      optional("workers", &RankAssignment::workers, "0"), optional("priority", &RankAssignment::priority, "0"),
      optional("tenant", &RankAssignment::tenant, "0"),
      optional("switch_address", &RankAssignment::switch_address, "''"),
      optional("switch_udp_port", &RankAssignment::switch_udp_port, "0"),
      optional("multicast_address", &RankAssignment::multicast_address, "''"),
      optional("switch_ranks", &RankAssignment::switch_ranks, "()"),
      optional("aggregators", &RankAssignment::aggregators, "()"), optional("dscp", &RankAssignment::dscp, "0"));
}

void make_engine(Engine* self, unsigned threads, const nb::typed<nb::sequence, nb::object>& queues,
                 const std::string& address, const std::optional<uint64_t>& next_hop, bool busy,
                 const nb::object& messages, uint32_t slot_uses) {
  PacketPath::Medium medium;
  if (nb::len(queues) > 0) {
    const switchml::agent::FrameLinkOptions options{switchml::net::parse_ipv4(address), next_hop, busy};
    medium = switchml::agent::links_of(switchml::bindings::take_devices(queues), options);
  } else if (!messages.is_none()) {
    medium = std::move(*switchml::bindings::device_in<switchml::bindings::MessageDeviceHolder>(messages));
  }
  new (self) Engine(threads, std::move(medium), slot_uses);
}

const auto kLinkCounters =
    record<PacketPath::LinkCounters>("LinkCounters", "Frames of an engine's device, in this process.",
                                     counters<groups::Device>(), counters<groups::Link>());

const auto kRankStatus = record<RankStatus>(
    "RankStatus", "The state of one rank; counters are of this epoch.", counters<groups::Rank>(),
    field("position", &RankStatus::position, "contributions sent for the first time"),
    field("gso_batch_size", &RankStatus::gso_batch_size,
          "the largest number of packets sent in one message, over udp; 0 before it was measured"),
    field("window", &RankStatus::window,
          "packets that may be in flight; 0 for a rank that shares memory with the switch"),
    field("round_trip_seconds", &RankStatus::round_trip_seconds),
    field("epoch_spent", &RankStatus::epoch_spent, "a slot was used nearly as often as an epoch allows"));

const auto kCallTimes = record<CallTimes>(
    "CallTimes",
    "One call that has ended; times are nanoseconds of the machine's monotonic clock.\n\n"
    "The counters are the times of the rank's progress thread between `begun` and `ended`.",
    field("sequence", &CallTimes::sequence), field("kind", &CallTimes::kind), field("bytes", &CallTimes::bytes),
    field("submitted", &CallTimes::submitted), field("begun", &CallTimes::begun),
    field("answered", &CallTimes::answered, "the result of the last chunk was found"),
    field("ended", &CallTimes::ended), counters<groups::Thread>());

nb::list calls_of(const RankProfile& profile) {
  nb::list calls;
  for (const CallTimes& call : profile.latest) {
    calls.append(kCallTimes.dict_of(call));
  }
  return calls;
}

const auto kRankProfile = record<RankProfile>(
    "RankProfile",
    "The time of one rank in each of its activities, in nanoseconds. Values reported by its process are not "
    "checked.\n\n"
    "Bucket i of a histogram counts durations below 1.024 us times 2^i, and its last one all others.",
    counters<groups::Thread>(), counters<groups::Process>(), counters<groups::Path>(),
    field("taken_at", &RankProfile::taken_at, "the monotonic clock when this was read"),
    field("latest", &calls_of, "the latest calls, oldest first", "list[CallTimes]"));

// A method of the rank with a handle.
template <auto kMethod>
auto of_rank(Engine& engine, uint64_t handle) {
  return (engine.rank(handle).get()->*kMethod)();
}

nb::dict link_counters(Engine& engine) {
  PacketPath::LinkCounters counters;
  {
    const nb::gil_scoped_release release;
    counters = engine.link_counters();
  }
  return kLinkCounters.dict_of(counters);
}

nb::dict status(Engine& engine, uint64_t handle) {
  RankStatus status;
  {
    const nb::gil_scoped_release release;
    status = engine.rank(handle)->status();
  }
  return kRankStatus.dict_of(status);
}

nb::dict profile(Engine& engine, uint64_t handle, uint64_t calls) {
  RankProfile profile;
  {
    const nb::gil_scoped_release release;
    profile = engine.rank(handle)->profile(calls);
  }
  return kRankProfile.dict_of(profile);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind's signature
NB_MODULE(_engine, module) {
  module.doc() = "The agent's data path: packets between shared memory and the switch.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  switchml::bindings::report_no_leaks_of_running_threads();
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  kRankStatus.describe(module);
  kLinkCounters.describe(module);
  kCallTimes.describe(module);
  kRankProfile.describe(module);
  define_assignment(module);
  module.def(
      "shm_port_at",
      [](const std::string& path) {
        const nb::gil_scoped_release release;
        return switchml::agent::shm_port_at(path);
      },
      nb::arg("path"),
      "Return the number of the shm port whose switch listens at `path`.\n\nRaises the same as Engine.open_shm_rank.");
  // The buffer size to ask for in each direction of a job's socket.
  module.attr("SOCKET_BUFFER_BYTES") = PacketPath::kSocketBufferBytes;
  // The uses of one slot that an epoch allows.
  module.attr("SLOT_USES") = switchml::wire::kSlotUses;
  module.def(
      "granted_socket_buffers",
      [] {
        const switchml::net::UdpSocket socket("0.0.0.0", 0, PacketPath::kSocketBufferBytes);
        return std::make_pair(socket.receive_buffer(), socket.send_buffer());
      },
      "Return the sizes of the receive and send buffers that the kernel gives a job's socket.\n\n"
      "Raises OSError if no socket can be opened.");
  nb::class_<Engine>(module, "Engine",
                     "All ranks of one agent, their slots divided among `threads`.\n\n"
                     "Methods do not wait for the network. A handle that is not open raises KeyError.")
      .def("__init__", &make_engine, nb::arg("threads") = 1, nb::arg("queues") = nb::make_tuple(),
           nb::arg("address") = "", nb::arg("next_hop") = nb::none(), nb::arg("busy") = false,
           nb::arg("messages") = nb::none(), nb::arg("slot_uses") = switchml::wire::kSlotUses,
           "With the queues of a device of dataplane.devices, one for each thread, packets travel over them as frames "
           "from\n`address` instead of over the kernel's UDP. They are sent to the MAC address `next_hop`, or to the "
           "one "
           "that ARP\nfinds. A busy engine never sleeps. With the `messages` of an RDMA device they are its "
           "messages.\n\nRaises ValueError, also for threads outside 1..64, and "
           "OSError.")
      .def("link_counters", &link_counters, nb::sig("def link_counters(self) -> LinkCounters"),
           "Return the counters of the device. Raises ValueError without one.")
      .def("lost_descriptor", &Engine::lost_fd,
           "Return a descriptor that becomes readable when the RDMA device cannot be used any more; -1 without one.")
      .def("lost", &Engine::lost, free, "Return why the RDMA device cannot be used any more; empty while it can.")
      .def("start", &Engine::start, free)
      .def("stop", &Engine::stop, free)
      .def("open_rank", &Engine::open_rank, nb::arg("assignment"), free,
           "Open a rank whose packets travel over UDP, and return its handle. Raises ValueError and OSError.")
      .def("open_shm_rank", &Engine::open_shm_rank, nb::arg("path"), nb::arg("assignment"), free,
           "Open a rank that shares memory with the switch that listens at `path`, and return its handle.\n\n"
           "Raises OSError if no switch answers there, and ValueError if it refuses.")
      .def(
          "sender", of_rank<&Rank::sender>, nb::arg("handle"), free,
          "Return the UDP source port of the rank's packets, the same for all ranks of a job here; its queue pair plus "
          "2^24\nof an RDMA device; or, for a rank that shares memory, the number of its connection.")
      .def("switch_socket", of_rank<&Rank::switch_socket>, nb::arg("handle"), free,
           "Return, for a rank that shares memory with the switch, a descriptor that becomes readable when the switch "
           "ends;\n-1 for any other.")
      .def("switch_ended", of_rank<&Rank::switch_ended>, nb::arg("handle"), free,
           "Return whether the switch with which the rank shares memory has ended.")
      .def(
          "open_channel",
          [](Engine& engine, uint64_t handle) {
            std::vector<int> descriptors;
            {
              const nb::gil_scoped_release release;
              descriptors = engine.rank(handle)->open_channel();
            }
            return nb::tuple(nb::cast(descriptors));
          },
          nb::arg("handle"), nb::sig("def open_channel(self, handle: int) -> tuple[int, ...]"),
          "Return descriptors of the memory, the doorbell and, where they are apart, the job's results. The caller "
          "closes\nthem.")
      .def("close_rank", &Engine::close_rank, nb::arg("handle"), free)
      .def("status", &status, nb::arg("handle"), nb::sig("def status(self, handle: int) -> RankStatus"))
      .def(
          "freeze", of_rank<&Rank::freeze>, nb::arg("handle"), free,
          "Stop beginning phases and taking results, and return the number of phases of each slot that the rank holds."
          "\n\nRaises OSError and ValueError if the switch that a rank shares memory with does not answer, or refuses.")
      .def(
          "fetch",
          [](Engine& engine, uint64_t handle, const std::vector<uint32_t>& targets) {
            return engine.rank(handle)->fetch(targets);
          },
          nb::arg("handle"), nb::arg("targets"), free,
          "Take results of each slot until the rank holds the number of its phases in `targets`; return the numbers "
          "that it\nholds now.\n\nRaises the same as `freeze`.")
      .def(
          "pause", [](Engine& engine, uint64_t handle, bool paused) { engine.rank(handle)->pause(paused); },
          nb::arg("handle"), nb::arg("paused"), free,
          "Stop the ranks of the rank's job here from sending to switches and taking results from them, or let them "
          "continue.\n\nRanks that share memory with a switch are not affected.")
      .def("profile", &profile, nb::arg("handle"), nb::arg("calls"),
           nb::sig("def profile(self, handle: int, calls: int) -> RankProfile"),
           "Return the profile of the rank, with up to `calls` of its latest calls.");
}
