// dataplane.softswitch._native: the interface of the soft switch to the Python P4Runtime server.
#include "dataplane/softswitch/native/bindings/module.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/softswitch/native/bindings/module_kernels.h"
#include "dataplane/softswitch/native/ports/udp_port.h"
#include "native/bindings/by_name.h"
#include "native/bindings/device_capsule.h"
#include "native/bindings/errors.h"
#include "native/bindings/leaks.h"
#include "native/bindings/record.h"

// Queues that dataplane._dpdk or dataplane._xdp has opened.
template <>
struct switchml::bindings::Converter<std::vector<switchml::bindings::DeviceHolder>> {
  static const char* type() { return "collections.abc.Sequence[object]"; }
  static std::vector<DeviceHolder> convert(const char*, nanobind::handle given, uint64_t) {
    return take_devices(nanobind::cast<nanobind::sequence>(given));
  }
};
template <>
struct nanobind::detail::is_copy_constructible<switchml::soft::DevicePortSpec> : std::false_type {};

namespace switchml::soft {
namespace {

using bindings::define_by_name;
using bindings::field;
using bindings::optional;
using bindings::required;

size_t index_below(Int given, size_t entries, const char* counter) {
  return number<size_t>(given, counter, entries - 1);
}

// Returns packets and bytes of the counter that `find(pipeline)` returns.
template <class Find>
std::pair<uint64_t, uint64_t> read(Switch* self, Find&& find) {
  const nb::gil_scoped_release unlocked;
  const Counter counter = self->read_counter(find);
  return {counter.packets, counter.bytes};
}

template <class Find>
void write(Switch* self, Counter value, Find&& find) {
  const nb::gil_scoped_release unlocked;
  self->write_counter(find, value);
}

const auto kPortCounters = bindings::record<PortCounters>(
    "PortCounters", "Counters and settings of one port, since it was added.", bindings::counters<counters::Port>(),
    bindings::counters<counters::Faults>(),
    field("last_send_errno", &PortCounters::last_send_errno, "of the last send error; 0 without one"),
    field("receive_buffer", &PortCounters::receive_buffer, "bytes"),
    field("send_buffer", &PortCounters::send_buffer, "bytes"),
    field("udp_port", &PortCounters::udp_port, "0 for a port that is not UDP"), field("gso", &PortCounters::gso),
    field("gro", &PortCounters::gro));

nb::dict counters_of(Switch* self, uint16_t port) {
  PortCounters counters;
  {
    const nb::gil_scoped_release unlocked;
    counters = self->port_counters(port);
  }
  return kPortCounters.dict_of(counters);
}

void define_port_specs(nb::module_& module) {
  define_by_name<UdpPortSpec>(
      module, "UdpPortSpec", "A UDP socket at an IPv4 address; for UDP port 0 the kernel chooses.",
      required("address", &UdpPortSpec::address), optional("udp_port", &UdpPortSpec::udp_port, "0"));
  define_by_name<FramePortSpec>(
      module, "FramePortSpec",
      "A Unix datagram socket bound to `path`; its frames go to the socket at `peer`.\n\n"
      "Each datagram is one Ethernet frame. A frame is lost when no socket is bound to `peer` at the moment, or when "
      "its reader\nhas net.unix.max_dgram_qlen frames waiting.",
      required("path", &FramePortSpec::path), required("peer", &FramePortSpec::peer));
  define_by_name<PacketPortSpec>(
      module, "PacketPortSpec",
      "An Ethernet interface, which becomes promiscuous; this needs CAP_NET_RAW.\n\n"
      "Checksum offload may be on; segmentation offload (TSO, GSO, GRO) must be off there, and at the other end of a "
      "veth.",
      required("interface", &PacketPortSpec::interface));
  define_by_name<DevicePortSpec>(module, "DevicePortSpec",
                                 "A device that dataplane._dpdk or dataplane._xdp has opened, with a queue for each "
                                 "shard; a busy one never sleeps.",
                                 required("queues", &DevicePortSpec::queues), required("busy", &DevicePortSpec::busy));
  define_by_name<ShmPortSpec>(
      module, "ShmPortSpec",
      "Ranks that bind themselves at the Unix socket `path`, and share memory, served by `threads` threads (0: one for "
      "each CPU).",
      required("path", &ShmPortSpec::path), optional("threads", &ShmPortSpec::threads, "1"));
}

// Python keeps a description, which it may use again, except for the queues of a device.
template <class Spec>
PortSpec taken(const Spec* spec) {
  return *spec;
}
PortSpec taken(DevicePortSpec* spec) { return std::move(*spec); }

void bind_ports(nb::class_<Switch>* cls) {
  using Given = std::variant<UdpPortSpec*, FramePortSpec*, PacketPortSpec*, DevicePortSpec*, ShmPortSpec*>;
  cls->def(
      "add_port",
      [](Switch* self, Int port, const Given& spec) {
        const auto switch_port = port_number(port);
        const nb::gil_scoped_release unlocked;
        return self->add_port(switch_port, std::visit([](auto* given) { return taken(given); }, spec));
      },
      nb::arg("port"), nb::arg("spec"), "Add a port and return the UDP port that it has bound, 0 for none.");
  cls->def(
      "set_faults",
      [](Switch* self, Int port, double drop, double duplicate, double delay, Int seed, double flip) {
        const auto switch_port = port_number(port);
        const auto random_seed = number<uint64_t>(seed, "seed");
        const nb::gil_scoped_release unlocked;
        self->set_faults(switch_port, {drop, duplicate, delay, flip}, random_seed);
      },
      nb::arg("port"), nb::arg("drop"), nb::arg("duplicate"), nb::arg("delay"), nb::arg("seed"), nb::arg("flip") = 0.0,
      "Drop, duplicate and delay packets of a port, and flip a bit of their UDP payload, with these probabilities, in "
      "each "
      "direction.");
  cls->def(
      "port_counters", [](Switch* self, Int port) { return counters_of(self, port_number(port)); }, nb::arg("port"),
      nb::sig("def port_counters(self, port: int) -> PortCounters"), "Return the counters and settings of a port.");
}

void bind_counters(nb::class_<Switch>* cls) {
  cls->def(
      "worker_counter",
      [](Switch* self, const WorkerMatch& match) {
        return read(self, [&](Pipeline& p) -> Counter& { return p.tables.workers.counter(match.key, match.slots); });
      },
      nb::arg("match"), "Return (packets, bytes) of an entry of worker_table.");
  cls->def(
      "write_worker_counter",
      [](Switch* self, const WorkerMatch& match, Int packets, Int byte_count) {
        const Counter value{number<uint64_t>(packets, "packets"), number<uint64_t>(byte_count, "byte_count")};
        write(self, value, [&](Pipeline& p) -> Counter& { return p.tables.workers.counter(match.key, match.slots); });
      },
      nb::arg("match"), nb::arg("packets"), nb::arg("byte_count"), "Set the counter of an entry of worker_table.");
  cls->def(
      "read_drop_counter",
      [](Switch* self, Int index) {
        const auto at = index_below(index, DropCounters::kEntries, "drop_counter index");
        return read(self, [&](Pipeline& p) -> Counter& { return p.drops.at(at); });
      },
      nb::arg("index"), "Return (packets, bytes) of drop_counter; `index` is a DropReason.");
  cls->def(
      "write_drop_counter",
      [](Switch* self, Int index, Int packets, Int byte_count) {
        const auto at = index_below(index, DropCounters::kEntries, "drop_counter index");
        const Counter value{number<uint64_t>(packets, "packets"), number<uint64_t>(byte_count, "byte_count")};
        write(self, value, [&](Pipeline& p) -> Counter& { return p.drops.at(at); });
      },
      nb::arg("index"), nb::arg("packets"), nb::arg("byte_count"), "Set an entry of drop_counter.");
  cls->def(
      "read_job_counter",
      [](Switch* self, Int index) {
        const auto at = index_below(index, Pipeline::kJobCounterEntries, "job_counter index");
        return read(self, [&](Pipeline& p) -> Counter& { return p.job_counter(at); });
      },
      nb::arg("index"), "Return (packets, bytes) of job_counter; `index` is (job << 4) | Verdict.");
  cls->def(
      "write_job_counter",
      [](Switch* self, Int index, Int packets, Int byte_count) {
        const auto at = index_below(index, Pipeline::kJobCounterEntries, "job_counter index");
        const Counter value{number<uint64_t>(packets, "packets"), number<uint64_t>(byte_count, "byte_count")};
        write(self, value, [&](Pipeline& p) -> Counter& { return p.job_counter(at); });
      },
      nb::arg("index"), nb::arg("packets"), nb::arg("byte_count"), "Set an entry of job_counter.");
  cls->def(
      "read_register",
      [](Switch* self, const std::string& name, Int index) {
        const auto at = number<uint32_t>(index, "register index");
        const nb::gil_scoped_release unlocked;
        return self->control_slot(at, [&](Pipeline& p) { return p.slots().read_register(name, at); });
      },
      nb::arg("name"), nb::arg("index"), "Return one entry of a register, named as in the P4 program.");
  cls->def(
      "write_register",
      [](Switch* self, const std::string& name, Int index, Int value) {
        const auto at = number<uint32_t>(index, "register index");
        const auto word = number<uint64_t>(value, "register value");
        const nb::gil_scoped_release unlocked;
        self->control_slot(at, [&](Pipeline& p) { p.slots().write_register(name, at, word); });
      },
      nb::arg("name"), nb::arg("index"), nb::arg("value"), "Set one entry of a register.");
}

}  // namespace
}  // namespace switchml::soft

// NOLINTNEXTLINE(bugprone-signed-bitwise,performance-unnecessary-value-param): inside nanobind's macro
NB_MODULE(_native, m) {
  namespace nb = nanobind;
  using switchml::soft::Int;
  using switchml::soft::Switch;
  m.doc() = "The native soft switch: ports, the aggregation pipeline, and its tables, counters and registers.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  switchml::bindings::report_no_leaks_of_running_threads();
  switchml::soft::define_kernels(m.def_submodule(
      "kernels",
      "The additions of the switch, modulo 2^32, for tests and benchmarks; no switch may run at the same time "
      "in this process.\n\n"
      "Arrays are numpy vectors of uint8: big-endian words, starting at a multiple of 64 bytes."));
  m.attr("UDP_PORT_BUFFER_BYTES") = switchml::soft::UdpPort::kSocketBufferBytes;
  switchml::soft::kPortCounters.describe(m);
  switchml::soft::define_worker_match(m);
  switchml::soft::define_port_specs(m);
  nb::class_<Switch> cls(
      m, "Switch",
      "A switch with `slots` pool indexes and `values` 32-bit values per packet.\n\n"
      "Addresses are integers in host byte order. Raises KeyError for a key that does not exist, ValueError for a "
      "number "
      "out\nof range, and OSError for an error of the system. Methods may be called from any thread; each takes effect "
      "between\ntwo bursts of packets.");
  cls.def(
      "__init__",
      [](Switch* self, Int slots, Int values, Int shards) {
        new (self)
            Switch(switchml::soft::number<uint32_t>(slots, "slots"), switchml::soft::number<uint32_t>(values, "values"),
                   switchml::soft::number<uint32_t>(shards, "shards"));
      },
      nb::arg("slots"), nb::arg("values"), nb::arg("shards") = 1);
  cls.def(
      "reset",
      [](Switch* self, Int slots, Int values) {
        const auto new_slots = switchml::soft::number<uint32_t>(slots, "slots");
        const auto new_values = switchml::soft::number<uint32_t>(values, "values");
        const nb::gil_scoped_release unlocked;
        self->reset(new_slots, new_values);
      },
      nb::arg("slots"), nb::arg("values"),
      "Replace the pipeline by one with empty tables, groups, counters and registers; keep ports and their faults.");
  cls.def("start", &Switch::start, nb::call_guard<nb::gil_scoped_release>(), "Start the data thread.");
  cls.def("stop", &Switch::stop, nb::call_guard<nb::gil_scoped_release>(),
          "End the data thread; packets wait in the sockets until start().");
  switchml::soft::bind_ports(&cls);
  switchml::soft::bind_tables(&cls);
  switchml::soft::bind_counters(&cls);
}
