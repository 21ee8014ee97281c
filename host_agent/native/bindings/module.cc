// host_agent._engine: the agent's data path for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>

#include "host_agent/native/engine.h"
#include "host_agent/native/shared_memory_rank.h"
#include "native/bindings/device_capsule.h"
#include "native/net/udp_batch.h"

namespace nb = nanobind;
using switchml::agent::Engine;
using switchml::agent::PacketPath;
using switchml::agent::Rank;
using switchml::agent::RankAssignment;

namespace {

template <typename Integer>
Integer narrow(uint64_t value, const char* name) {
  if (value > std::numeric_limits<Integer>::max()) {
    throw std::invalid_argument(std::string(name) + " = " + std::to_string(value) + " is out of range");
  }
  return static_cast<Integer>(value);
}

RankAssignment assignment_of(const std::string& address, const std::string& switch_address, uint64_t switch_udp_port,
                             uint64_t job, uint64_t rank, uint64_t epoch, uint64_t world_size, uint64_t slot_base,
                             uint64_t slots, uint64_t values, uint64_t secret) {
  return {address,
          switch_address,
          narrow<uint16_t>(switch_udp_port, "switch_udp_port"),
          narrow<uint16_t>(job, "job"),
          narrow<uint8_t>(rank, "rank"),
          narrow<uint16_t>(epoch, "epoch"),
          narrow<uint32_t>(world_size, "world_size"),
          narrow<uint16_t>(slot_base, "slot_base"),
          narrow<uint32_t>(slots, "slots"),
          narrow<uint32_t>(values, "values"),
          "",
          narrow<uint32_t>(secret, "secret")};
}

uint64_t open_rank(Engine& engine, const std::string& address, const std::string& switch_address,
                   uint64_t switch_udp_port, uint64_t job, uint64_t rank, uint64_t epoch, uint64_t world_size,
                   uint64_t slot_base, uint64_t slots, uint64_t values, uint64_t secret,
                   const std::string& multicast_address) {
  RankAssignment assignment = assignment_of(address, switch_address, switch_udp_port, job, rank, epoch, world_size,
                                            slot_base, slots, values, secret);
  assignment.multicast_address = multicast_address;
  const nb::gil_scoped_release release;
  return engine.open_rank(assignment);
}

uint64_t open_shm_rank(Engine& engine, const std::string& path, const std::string& address, uint64_t job, uint64_t rank,
                       uint64_t epoch, uint64_t world_size, uint64_t slot_base, uint64_t slots, uint64_t values,
                       uint64_t secret) {
  const RankAssignment assignment =
      assignment_of(address, "", 0, job, rank, epoch, world_size, slot_base, slots, values, secret);
  const nb::gil_scoped_release release;
  return engine.open_shm_rank(path, assignment);
}

void make_engine(Engine* self, unsigned threads, const nb::sequence& queues, const std::string& address,
                 const std::optional<uint64_t>& next_hop, bool busy, uint32_t slot_uses) {
  PacketPath::Links links;
  if (nb::len(queues) > 0) {
    const switchml::agent::FrameLinkOptions options{switchml::net::parse_ipv4(address), next_hop, busy};
    links = switchml::agent::links_of(switchml::bindings::take_devices(queues), options);
  }
  new (self) Engine(threads, std::move(links), slot_uses);
}

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
  nb::dict result;
  result["received"] = counters.device.received;
  result["receive_overflow"] = counters.device.receive_overflow;
  result["receive_errors"] = counters.device.receive_errors;
  result["sent"] = counters.device.sending.sent;
  result["send_errors"] = counters.device.sending.lost;
  result["uncopied"] = counters.device.uncopied;
  result["handed_over"] = counters.device.handed_over;
  result["malformed"] = counters.link.malformed;
  result["bad_checksum"] = counters.link.bad_checksum;
  result["not_for_us"] = counters.link.not_for_us;
  result["unknown_port"] = counters.link.unknown_port;
  result["unresolved"] = counters.link.unresolved;
  return result;
}

nb::dict status(Engine& engine, uint64_t handle) {
  switchml::agent::RankStatus status;
  {
    const nb::gil_scoped_release release;
    status = engine.rank(handle)->status();
  }
  nb::dict result;
  result["position"] = status.position;
  result["sent"] = status.sent;
  result["received"] = status.received;
  result["retransmissions"] = status.retransmissions;
  result["early_retransmissions"] = status.early_retransmissions;
  result["ignored"] = status.ignored;
  result["packets_together"] = status.packets_together;
  result["round_trip_seconds"] = status.round_trip_seconds;
  result["epoch_spent"] = status.epoch_spent;
  return result;
}

nb::dict call_dict(const switchml::channel::CallTimes& call) {
  nb::dict result;
  result["sequence"] = call.sequence;
  result["kind"] = call.kind;
  result["bytes"] = call.bytes;
  result["submitted"] = call.submitted;
  result["begun"] = call.begun;
  result["answered"] = call.answered;
  result["ended"] = call.ended;
  result["quantize"] = call.quantize;
  result["waiting"] = call.waiting;
  result["dequantize"] = call.dequantize;
  return result;
}

nb::list histogram(const switchml::agent::RankProfile::Histogram& counts) {
  nb::list result;
  for (const uint64_t count : counts) {
    result.append(count);
  }
  return result;
}

nb::dict profile(Engine& engine, uint64_t handle, uint64_t calls) {
  switchml::agent::RankProfile profile;
  {
    const nb::gil_scoped_release release;
    profile = engine.rank(handle)->profile(calls);
  }
  nb::dict result;
  result["quantize"] = profile.quantize;
  result["waiting"] = profile.waiting;
  result["dequantize"] = profile.dequantize;
  result["sleeps"] = profile.sleeps;
  result["calls"] = profile.calls;
  result["bytes"] = profile.bytes;
  result["call_time"] = profile.call_time;
  result["calls_took"] = histogram(profile.calls_took);
  result["sending"] = profile.sending;
  result["receiving"] = profile.receiving;
  result["sent_bytes"] = profile.sent_bytes;
  result["received_bytes"] = profile.received_bytes;
  result["round_trips"] = histogram(profile.round_trips);
  result["round_trip_time"] = profile.round_trip_time;
  result["summing"] = profile.summing;
  result["taken_at"] = profile.taken_at;
  nb::list latest;
  for (const switchml::channel::CallTimes& call : profile.latest) {
    latest.append(call_dict(call));
  }
  result["latest"] = latest;
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

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind's signature
NB_MODULE(_engine, module) {
  module.doc() = "The agent's data path: packets between shared memory and the switch.";
  nb::register_exception_translator(translate);
  const auto free = nb::call_guard<nb::gil_scoped_release>();
  module.def(
      "shm_port_at",
      [](const std::string& path) {
        const nb::gil_scoped_release release;
        return switchml::agent::shm_port_at(path);
      },
      nb::arg("path"));
  module.attr("SOCKET_BUFFER_BYTES") = PacketPath::kSocketBufferBytes;
  module.attr("SLOT_USES") = switchml::wire::kSlotUses;
  module.def("granted_socket_buffers", [] {
    const switchml::net::UdpSocket socket("0.0.0.0", 0, PacketPath::kSocketBufferBytes);
    return nb::make_tuple(socket.receive_buffer(), socket.send_buffer());
  });
  nb::class_<Engine>(module, "Engine")
      .def("__init__", &make_engine, nb::arg("threads") = 1, nb::arg("queues") = nb::make_tuple(),
           nb::arg("address") = "", nb::arg("next_hop") = nb::none(), nb::arg("busy") = false,
           nb::arg("slot_uses") = switchml::wire::kSlotUses)
      .def("link_counters", &link_counters)
      .def("start", &Engine::start, free)
      .def("stop", &Engine::stop, free)
      .def("open_rank", &open_rank, nb::arg("address"), nb::arg("switch_address"), nb::arg("switch_udp_port"),
           nb::arg("job"), nb::arg("rank"), nb::arg("epoch"), nb::arg("world_size"), nb::arg("slot_base"),
           nb::arg("slots"), nb::arg("values"), nb::arg("secret") = 0, nb::arg("multicast_address") = "")
      .def("open_shm_rank", &open_shm_rank, nb::arg("path"), nb::arg("address"), nb::arg("job"), nb::arg("rank"),
           nb::arg("epoch"), nb::arg("world_size"), nb::arg("slot_base"), nb::arg("slots"), nb::arg("values"),
           nb::arg("secret") = 0)
      .def("udp_port", of_rank<&Rank::udp_port>, nb::arg("handle"), free)
      .def("switch_socket", of_rank<&Rank::switch_socket>, nb::arg("handle"), free)
      .def("switch_ended", of_rank<&Rank::switch_ended>, nb::arg("handle"), free)
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
          nb::arg("handle"))
      .def("close_rank", &Engine::close_rank, nb::arg("handle"), free)
      .def("status", &status, nb::arg("handle"))
      .def("freeze", of_rank<&Rank::freeze>, nb::arg("handle"), free)
      .def(
          "fetch",
          [](Engine& engine, uint64_t handle, const std::vector<uint32_t>& targets) {
            return engine.rank(handle)->fetch(targets);
          },
          nb::arg("handle"), nb::arg("targets"), free)
      .def("profile", &profile, nb::arg("handle"), nb::arg("calls"));
}
