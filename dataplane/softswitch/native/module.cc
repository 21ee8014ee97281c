// dataplane.softswitch._native: the soft switch as the Python P4Runtime server sees it. Types are in ../_native.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/switch.h"

namespace nb = nanobind;

namespace switchml {
namespace {

constexpr uint64_t kMostPort = kPortNumbers - 1;
constexpr uint64_t kMostEthernet = 0xFFFFFFFFFFFF;

// Python numbers are checked here, so that one that does not fit names itself.
template <class Number>
Number number(const nb::int_& given, const char* name, uint64_t most = std::numeric_limits<Number>::max()) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(given.ptr());
  const bool fits = !(value == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) && value <= most;
  if (!fits) {
    PyErr_Clear();
    throw std::invalid_argument(std::string(name) + " is " + nb::str(given).c_str() + "; it must be 0 to " +
                                std::to_string(most));
  }
  return static_cast<Number>(value);
}

uint16_t port_number(const nb::int_& given) { return number<uint16_t>(given, "port", kMostPort); }

int32_t priority_of(const nb::int_& given) {
  // P4Runtime: a ternary match has a positive priority.
  return static_cast<int32_t>(number<uint32_t>(given, "priority", std::numeric_limits<int32_t>::max()));
}

size_t index_below(const nb::int_& given, size_t entries, const char* counter) {
  return number<size_t>(given, counter, entries - 1);
}

std::pair<WorkerKey, SlotMatch> worker_key(const nb::int_& port, const nb::int_& eth_src, const nb::int_& ipv4_src,
                                           const nb::int_& udp_src, const nb::int_& job, const nb::int_& worker,
                                           const nb::int_& slot_value, const nb::int_& slot_mask,
                                           const nb::int_& priority) {
  return {
      {port_number(port), number<uint64_t>(eth_src, "eth_src", kMostEthernet), number<uint32_t>(ipv4_src, "ipv4_src"),
       number<uint16_t>(udp_src, "udp_src"), number<uint16_t>(job, "job"), number<uint8_t>(worker, "worker")},
      {number<uint16_t>(slot_value, "slot_value"), number<uint16_t>(slot_mask, "slot_mask"), priority_of(priority)}};
}

std::pair<uint64_t, uint64_t> as_pair(const Counter& counter) { return {counter.packets, counter.bytes}; }

// Runs `operation(pipeline)` between two bursts; the interpreter may run meanwhile.
template <class Operation>
auto control(Switch* self, Operation&& operation) {
  const nb::gil_scoped_release unlocked;
  return self->control(operation);
}

void translate(const std::exception_ptr& error, void* /*payload*/) {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& e) {
    // Given errno and text, OSError picks its own subclass.
    const nb::object exception = nb::borrow(PyExc_OSError)(e.code().value(), e.what());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  } catch (const std::out_of_range& e) {
    PyErr_SetString(PyExc_KeyError, e.what());
  }
}

nb::dict counters_of(Switch* self, uint16_t port) {
  PortCounters counters;
  {
    const nb::gil_scoped_release unlocked;
    counters = self->port_counters(port);
  }
  nb::dict result;
  result["received"] = counters.received;
  result["receive_overflow"] = counters.receive_overflow;
  result["sent"] = counters.sending.sent;
  result["send_errors"] = counters.sending.lost;
  result["last_send_errno"] = counters.sending.last_error;
  result["injected_drop"] = counters.faults.dropped;
  result["injected_duplicate"] = counters.faults.duplicated;
  result["injected_delay"] = counters.faults.delayed;
  result["receive_buffer"] = counters.receive_buffer;
  result["send_buffer"] = counters.send_buffer;
  result["udp_port"] = counters.udp_port;
  result["gso"] = counters.gso;
  result["gro"] = counters.gro;
  return result;
}

using Int = const nb::int_&;

void bind_ports(nb::class_<Switch>* cls) {
  cls->def(
      "add_udp_port",
      [](Switch* self, Int port, const std::string& address, Int udp_port) {
        const auto switch_port = port_number(port);
        const auto wanted = number<uint16_t>(udp_port, "udp_port");
        const nb::gil_scoped_release unlocked;
        return self->add_udp_port(switch_port, address, wanted);
      },
      nb::arg("port"), nb::arg("address"), nb::arg("udp_port"),
      "Bind a UDP socket as switch port `port` and return its UDP port (0 lets the kernel pick one).");
  cls->def(
      "set_faults",
      [](Switch* self, Int port, double drop, double duplicate, double delay, Int seed) {
        const auto switch_port = port_number(port);
        const auto random_seed = number<uint64_t>(seed, "seed");
        const nb::gil_scoped_release unlocked;
        self->set_faults(switch_port, {drop, duplicate, delay}, random_seed);
      },
      nb::arg("port"), nb::arg("drop"), nb::arg("duplicate"), nb::arg("delay"), nb::arg("seed"),
      "Drop, duplicate and delay packets of a port with these probabilities, in each direction.");
  cls->def(
      "port_counters", [](Switch* self, Int port) { return counters_of(self, port_number(port)); }, nb::arg("port"),
      "Return what a port has seen since it was added.");
}

void bind_tables(nb::class_<Switch>* cls) {
  cls->def(
      "set_worker",
      [](Switch* self, Int port, Int eth_src, Int ipv4_src, Int udp_src, Int job, Int worker, Int slot_value,
         Int slot_mask, Int priority, Int bit, Int mask, Int epoch, Int group) {
        const auto key = worker_key(port, eth_src, ipv4_src, udp_src, job, worker, slot_value, slot_mask, priority);
        const Admission admission{number<uint64_t>(bit, "bit"), number<uint64_t>(mask, "mask"),
                                  number<uint16_t>(epoch, "epoch"), number<uint16_t>(group, "group")};
        control(self, [&](Pipeline& p) { p.tables.workers.set(key.first, key.second, admission); });
      },
      nb::arg("port"), nb::arg("eth_src"), nb::arg("ipv4_src"), nb::arg("udp_src"), nb::arg("job"), nb::arg("worker"),
      nb::arg("slot_value"), nb::arg("slot_mask"), nb::arg("priority"), nb::arg("bit"), nb::arg("mask"),
      nb::arg("epoch"), nb::arg("group"),
      "Add an entry to worker_table, or give the one with this key a new action and keep its counter.");
  cls->def(
      "delete_worker",
      [](Switch* self, Int port, Int eth_src, Int ipv4_src, Int udp_src, Int job, Int worker, Int slot_value,
         Int slot_mask, Int priority) {
        const auto key = worker_key(port, eth_src, ipv4_src, udp_src, job, worker, slot_value, slot_mask, priority);
        control(self, [&](Pipeline& p) { p.tables.workers.remove(key.first, key.second); });
      },
      nb::arg("port"), nb::arg("eth_src"), nb::arg("ipv4_src"), nb::arg("udp_src"), nb::arg("job"), nb::arg("worker"),
      nb::arg("slot_value"), nb::arg("slot_mask"), nb::arg("priority"), "Delete an entry of worker_table.");
  cls->def(
      "set_job",
      [](Switch* self, Int job, Int slot_value, Int slot_mask) {
        const auto id = number<uint16_t>(job, "job");
        const SlotRange slots{number<uint16_t>(slot_value, "slot_value"), number<uint16_t>(slot_mask, "slot_mask")};
        control(self, [&](Pipeline& p) { p.tables.set_job(id, slots); });
      },
      nb::arg("job"), nb::arg("slot_value"), nb::arg("slot_mask"), "Set an entry of job_table.");
  cls->def(
      "delete_job",
      [](Switch* self, Int job) {
        const auto id = number<uint16_t>(job, "job");
        control(self, [&](Pipeline& p) { p.tables.remove_job(id); });
      },
      nb::arg("job"), "Delete an entry of job_table.");
  cls->def(
      "set_rank",
      [](Switch* self, Int job, Int rank, Int eth_dst, Int ipv4_dst, Int udp_dst) {
        const auto id = number<uint16_t>(job, "job");
        const auto of = number<uint16_t>(rank, "rank");
        const RankAddress address{number<uint64_t>(eth_dst, "eth_dst", kMostEthernet),
                                  number<uint32_t>(ipv4_dst, "ipv4_dst"), number<uint16_t>(udp_dst, "udp_dst")};
        control(self, [&](Pipeline& p) { p.tables.set_rank(id, of, address); });
      },
      nb::arg("job"), nb::arg("rank"), nb::arg("eth_dst"), nb::arg("ipv4_dst"), nb::arg("udp_dst"),
      "Set an entry of rank_table.");
  cls->def(
      "delete_rank",
      [](Switch* self, Int job, Int rank) {
        const auto id = number<uint16_t>(job, "job");
        const auto of = number<uint16_t>(rank, "rank");
        control(self, [&](Pipeline& p) { p.tables.remove_rank(id, of); });
      },
      nb::arg("job"), nb::arg("rank"), "Delete an entry of rank_table.");
  cls->def(
      "set_group",
      [](Switch* self, Int group, const std::vector<std::pair<nb::int_, nb::int_>>& replicas) {
        const auto id = number<uint16_t>(group, "group");
        std::vector<Replica> checked;
        checked.reserve(replicas.size());
        for (const auto& [port, instance] : replicas) {
          checked.push_back({port_number(port), number<uint16_t>(instance, "instance")});
        }
        control(self, [&](Pipeline& p) { p.tables.set_group(id, std::move(checked)); });
      },
      nb::arg("group"), nb::arg("replicas"), "Set a multicast group to (port, instance) pairs.");
  cls->def(
      "delete_group",
      [](Switch* self, Int group) {
        const auto id = number<uint16_t>(group, "group");
        control(self, [&](Pipeline& p) { p.tables.remove_group(id); });
      },
      nb::arg("group"), "Delete a multicast group.");
  cls->def(
      "set_switch_address",
      [](Switch* self, Int mac, Int ip) {
        const SwitchAddress address{number<uint64_t>(mac, "mac", kMostEthernet), number<uint32_t>(ip, "ip")};
        control(self, [&](Pipeline& p) { p.tables.switch_address = address; });
      },
      nb::arg("mac"), nb::arg("ip"), "Set the default action of switch_address_table.");
}

void bind_counters(nb::class_<Switch>* cls) {
  cls->def(
      "worker_counter",
      [](Switch* self, Int port, Int eth_src, Int ipv4_src, Int udp_src, Int job, Int worker, Int slot_value,
         Int slot_mask, Int priority) {
        const auto key = worker_key(port, eth_src, ipv4_src, udp_src, job, worker, slot_value, slot_mask, priority);
        return control(self, [&](Pipeline& p) { return as_pair(p.tables.workers.counter(key.first, key.second)); });
      },
      nb::arg("port"), nb::arg("eth_src"), nb::arg("ipv4_src"), nb::arg("udp_src"), nb::arg("job"), nb::arg("worker"),
      nb::arg("slot_value"), nb::arg("slot_mask"), nb::arg("priority"),
      "Return (packets, bytes) of an entry of worker_table.");
  cls->def(
      "write_worker_counter",
      [](Switch* self, Int port, Int eth_src, Int ipv4_src, Int udp_src, Int job, Int worker, Int slot_value,
         Int slot_mask, Int priority, Int packets, Int byte_count) {
        const auto key = worker_key(port, eth_src, ipv4_src, udp_src, job, worker, slot_value, slot_mask, priority);
        const Counter value{number<uint64_t>(packets, "packets"), number<uint64_t>(byte_count, "byte_count")};
        control(self, [&](Pipeline& p) { p.tables.workers.counter(key.first, key.second) = value; });
      },
      nb::arg("port"), nb::arg("eth_src"), nb::arg("ipv4_src"), nb::arg("udp_src"), nb::arg("job"), nb::arg("worker"),
      nb::arg("slot_value"), nb::arg("slot_mask"), nb::arg("priority"), nb::arg("packets"), nb::arg("byte_count"),
      "Set the counter of an entry of worker_table.");
  cls->def(
      "read_drop_counter",
      [](Switch* self, Int index) {
        const auto at = index_below(index, DropCounters::kEntries, "drop_counter index");
        return control(self, [&](Pipeline& p) { return as_pair(p.drops.at(at)); });
      },
      nb::arg("index"), "Return (packets, bytes) of drop_counter; `index` is a DropReason.");
  cls->def(
      "write_drop_counter",
      [](Switch* self, Int index, Int packets, Int byte_count) {
        const auto at = index_below(index, DropCounters::kEntries, "drop_counter index");
        const Counter value{number<uint64_t>(packets, "packets"), number<uint64_t>(byte_count, "byte_count")};
        control(self, [&](Pipeline& p) { p.drops.at(at) = value; });
      },
      nb::arg("index"), nb::arg("packets"), nb::arg("byte_count"), "Set an entry of drop_counter.");
  cls->def(
      "read_job_counter",
      [](Switch* self, Int index) {
        const auto at = index_below(index, Pipeline::kJobCounterEntries, "job_counter index");
        return control(self, [&](Pipeline& p) { return as_pair(p.job_counter(at)); });
      },
      nb::arg("index"), "Return (packets, bytes) of job_counter; `index` is (job << 4) | Verdict.");
  cls->def(
      "write_job_counter",
      [](Switch* self, Int index, Int packets, Int byte_count) {
        const auto at = index_below(index, Pipeline::kJobCounterEntries, "job_counter index");
        const Counter value{number<uint64_t>(packets, "packets"), number<uint64_t>(byte_count, "byte_count")};
        control(self, [&](Pipeline& p) { p.job_counter(at) = value; });
      },
      nb::arg("index"), nb::arg("packets"), nb::arg("byte_count"), "Set an entry of job_counter.");
  cls->def(
      "read_register",
      [](Switch* self, const std::string& name, Int index) {
        const auto at = number<uint32_t>(index, "register index");
        return control(self, [&](Pipeline& p) { return p.slots.read_register(name, at); });
      },
      nb::arg("name"), nb::arg("index"), "Return one entry of a register, named as in the P4 program.");
  cls->def(
      "write_register",
      [](Switch* self, const std::string& name, Int index, Int value) {
        const auto at = number<uint32_t>(index, "register index");
        const auto word = number<uint64_t>(value, "register value");
        control(self, [&](Pipeline& p) { p.slots.write_register(name, at, word); });
      },
      nb::arg("name"), nb::arg("index"), nb::arg("value"), "Set one entry of a register.");
}

}  // namespace
}  // namespace switchml

// NOLINTNEXTLINE(bugprone-signed-bitwise,performance-unnecessary-value-param): inside nanobind's macro
NB_MODULE(_native, m) {
  using switchml::Int;
  using switchml::Switch;
  m.doc() = "The native soft switch: UDP ports, the aggregation pipeline, and its tables, counters and registers.";
  nb::register_exception_translator(switchml::translate);
  nb::class_<Switch> cls(m, "Switch", "A switch with `slots` pool indexes and `values` 32-bit values per packet.");
  cls.def(
      "__init__",
      [](Switch* self, Int slots, Int values) {
        new (self) Switch(switchml::number<uint32_t>(slots, "slots"), switchml::number<uint32_t>(values, "values"));
      },
      nb::arg("slots"), nb::arg("values"));
  cls.def(
      "reset",
      [](Switch* self, Int slots, Int values) {
        const auto new_slots = switchml::number<uint32_t>(slots, "slots");
        const auto new_values = switchml::number<uint32_t>(values, "values");
        const nb::gil_scoped_release unlocked;
        self->reset(new_slots, new_values);
      },
      nb::arg("slots"), nb::arg("values"),
      "Begin a new pipeline: tables, groups, counters and registers are empty; ports and their faults stay.");
  cls.def("start", &Switch::start, nb::call_guard<nb::gil_scoped_release>(), "Start the data thread.");
  cls.def("stop", &Switch::stop, nb::call_guard<nb::gil_scoped_release>(),
          "End the data thread; packets wait in the sockets until start().");
  switchml::bind_ports(&cls);
  switchml::bind_tables(&cls);
  switchml::bind_counters(&cls);
}
