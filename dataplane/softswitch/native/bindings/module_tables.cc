// The tables and multicast groups of dataplane.softswitch._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/bindings/module.h"
#include "native/bindings/by_name.h"
#include "native/wire/rocev2.h"

template <>
struct switchml::bindings::Converter<switchml::wire::Kind> {
  static const char* type() { return "int"; }
  static wire::Kind convert(const char* name, nanobind::handle given, uint64_t most) {
    // A table may have entries for kinds that no packet has.
    // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
    return static_cast<wire::Kind>(Converter<uint8_t>::convert(name, given, most));
  }
};

namespace switchml::soft {
namespace {

// ("forward", port), ("flood", group) or ("drop_no_route",), as the actions of l2_table are named.
L2Action l2_action(const nb::tuple& action) {
  const bool named = action.size() > 0 && nb::isinstance<nb::str>(action[0]);
  const auto name = named ? nb::cast<std::string>(action[0]) : std::string();
  if (name == "drop_no_route" && action.size() == 1) return {};
  const bool forward = name == "forward";
  if ((!forward && name != "flood") || action.size() != 2 || !nb::isinstance<nb::int_>(action[1])) {
    throw std::invalid_argument(std::string(nb::str(action).c_str()) +
                                " is not an action of l2_table: ('forward', port), ('flood', group) or "
                                "('drop_no_route',)");
  }
  const nb::int_ argument = nb::borrow<nb::int_>(action[1]);
  if (forward) return {L2Action::Kind::forward, port_number(argument)};
  return {L2Action::Kind::flood, number<uint16_t>(argument, "group")};
}

LossTable Tables::* loss_table(const std::string& direction) {
  if (direction == "ingress") return &Tables::loss_ingress;
  if (direction == "egress") return &Tables::loss_egress;
  throw std::invalid_argument("direction is '" + direction + "'; it must be 'ingress' or 'egress'");
}

}  // namespace

void define_worker_match(nb::module_& module) {
  const auto port = [](WorkerMatch& match) -> auto& { return match.key.ingress_port; };
  const auto eth_src = [](WorkerMatch& match) -> auto& { return match.key.eth_src; };
  const auto ipv4_src = [](WorkerMatch& match) -> auto& { return match.key.ipv4_src; };
  const auto sender = [](WorkerMatch& match) -> auto& { return match.key.sender; };
  const auto job = [](WorkerMatch& match) -> auto& { return match.key.job; };
  const auto worker = [](WorkerMatch& match) -> auto& { return match.key.worker; };
  const auto slot_value = [](WorkerMatch& match) -> auto& { return match.slots.value; };
  const auto slot_mask = [](WorkerMatch& match) -> auto& { return match.slots.mask; };
  const auto priority = [](WorkerMatch& match) -> auto& { return match.slots.priority; };
  const auto secret = [](WorkerMatch& match) -> auto& { return match.key.secret; };
  const auto kind = [](WorkerMatch& match) -> auto& { return match.key.kind; };
  bindings::define_by_name<WorkerMatch>(
      module, "WorkerMatch",
      "The key of an entry of worker_table. Raises ValueError for a number that is out of range.",
      bindings::required("port", port, kMostPort), bindings::required("eth_src", eth_src, kMostEthernet),
      bindings::required("ipv4_src", ipv4_src), bindings::required("sender", sender), bindings::required("job", job),
      bindings::required("worker", worker), bindings::required("slot_value", slot_value),
      bindings::required("slot_mask", slot_mask),
      // P4Runtime: a ternary match has a positive priority.
      bindings::required("priority", priority), bindings::required("kind", kind),
      bindings::optional("secret", secret, "0"));
}

void bind_tables(nb::class_<Switch>* cls) {
  cls->def(
      "set_worker",
      [](Switch* self, const WorkerMatch& match, Int bit, Int mask, Int epoch, Int group, bool has_parent) {
        const auto action = has_parent ? Admission::Action::admit_below : Admission::Action::admit;
        const Admission admission{number<uint64_t>(bit, "bit"), number<uint64_t>(mask, "mask"),
                                  number<uint16_t>(epoch, "epoch"), number<uint16_t>(group, "group"), action};
        control(self, [&](Pipeline& p) { p.tables.workers.set(match.key, match.slots, admission); });
      },
      nb::arg("match"), nb::kw_only(), nb::arg("bit"), nb::arg("mask"), nb::arg("epoch"), nb::arg("group"),
      nb::arg("has_parent") = false,
      "Add an entry to worker_table, or give the one with this key a new action and keep its counter. The action is "
      "`admit_below` if the job has a parent, else `admit`.");
  cls->def(
      "set_parent",
      [](Switch* self, const WorkerMatch& match, Int mask, Int epoch, Int group, bool completed_here) {
        const Admission admission{kFinal,
                                  number<uint64_t>(mask, "mask"),
                                  number<uint16_t>(epoch, "epoch"),
                                  number<uint16_t>(group, "group"),
                                  Admission::Action::admit_parent,
                                  completed_here};
        control(self, [&](Pipeline& p) { p.tables.workers.set(match.key, match.slots, admission); });
      },
      nb::arg("match"), nb::kw_only(), nb::arg("mask"), nb::arg("epoch"), nb::arg("group"), nb::arg("completed_here"),
      "Add an entry with the action `admit_parent` to worker_table, as set_worker() does.");
  cls->def(
      "delete_worker",
      [](Switch* self, const WorkerMatch& match) {
        control(self, [&](Pipeline& p) { p.tables.workers.remove(match.key, match.slots); });
      },
      nb::arg("match"), "Delete an entry of worker_table.");
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
      [](Switch* self, Int job, Int rank, Int eth_dst, Int ipv4_dst, Int udp_dst,
         const std::optional<nb::int_>& ranks) {
        const auto id = number<uint16_t>(job, "job");
        const auto of = number<uint16_t>(rank, "rank");
        const uint64_t itself = of < wire::protocol::max_workers ? uint64_t{1} << of : 0;
        const RankAddress address{number<uint64_t>(eth_dst, "eth_dst", kMostEthernet),
                                  number<uint32_t>(ipv4_dst, "ipv4_dst"), number<uint16_t>(udp_dst, "udp_dst"),
                                  ranks ? number<uint64_t>(*ranks, "ranks") : itself};
        control(self, [&](Pipeline& p) { p.tables.set_rank(id, of, address); });
      },
      nb::arg("job"), nb::arg("rank"), nb::arg("eth_dst"), nb::arg("ipv4_dst"), nb::arg("udp_dst"),
      nb::arg("ranks") = nb::none(),
      "Set an entry of rank_table. `ranks` are those that listen at the address, as a bitmap; by default only `rank`.");
  cls->def(
      "set_rank_queue_pair",
      [](Switch* self, Int job, Int rank, Int eth_dst, Int ipv4_dst, Int queue_pair, Int ranks) {
        const auto id = number<uint16_t>(job, "job");
        const auto of = number<uint16_t>(rank, "rank");
        const RankAddress address{number<uint64_t>(eth_dst, "eth_dst", kMostEthernet),
                                  number<uint32_t>(ipv4_dst, "ipv4_dst"), 0, number<uint64_t>(ranks, "ranks"),
                                  number<uint32_t>(queue_pair, "queue_pair", wire::rocev2::queue_pairs - 1)};
        control(self, [&](Pipeline& p) { p.tables.set_rank(id, of, address); });
      },
      nb::arg("job"), nb::arg("rank"), nb::arg("eth_dst"), nb::arg("ipv4_dst"), nb::arg("queue_pair"), nb::arg("ranks"),
      "Set an entry of rank_table for a rank with an RDMA card, as set_rank() does.");
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
        control(self, [&](Pipeline& p) { p.tables.set_group(id, checked); });
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
  cls->def(
      "set_l2",
      [](Switch* self, Int eth_dst, const nb::tuple& action) {
        const auto address = number<uint64_t>(eth_dst, "eth_dst", kMostEthernet);
        const L2Action checked = l2_action(action);
        control(self, [&](Pipeline& p) { p.tables.set_l2(address, checked); });
      },
      nb::arg("eth_dst"), nb::arg("action"),
      nb::sig("def set_l2(self, eth_dst: int, action: tuple[typing.Literal['forward', 'flood'], int] | "
              "tuple[typing.Literal['drop_no_route']]) -> None"),
      "Set an entry of l2_table: forward to a port, flood to a multicast group, or drop.");
  cls->def(
      "delete_l2",
      [](Switch* self, Int eth_dst) {
        const auto address = number<uint64_t>(eth_dst, "eth_dst", kMostEthernet);
        control(self, [&](Pipeline& p) { p.tables.remove_l2(address); });
      },
      nb::arg("eth_dst"), "Delete an entry of l2_table.");
  cls->def(
      "set_l2_default",
      [](Switch* self, const nb::tuple& action) {
        const L2Action checked = l2_action(action);
        control(self, [&](Pipeline& p) { p.tables.l2_default = checked; });
      },
      nb::arg("action"),
      nb::sig("def set_l2_default(self, action: tuple[typing.Literal['forward', 'flood'], int] | "
              "tuple[typing.Literal['drop_no_route']]) -> None"),
      "Set the default action of l2_table.");
  cls->def(
      "set_loss",
      [](Switch* self, Int port, const std::string& direction, Int threshold) {
        const auto table = loss_table(direction);
        const auto at = port_number(port);
        const auto below = number<uint32_t>(threshold, "threshold");
        control(self, [&](Pipeline& p) { (p.tables.*table).set(at, below); });
      },
      nb::arg("port"), nb::arg("direction"), nb::arg("threshold"),
      nb::sig("def set_loss(self, port: int, direction: typing.Literal['ingress', 'egress'], threshold: int) -> None"),
      "Set an entry of loss_ingress_table or loss_egress_table: a packet is lost when a random 32-bit number is below "
      "`threshold`, and always at 0xFFFFFFFF.");
  cls->def(
      "delete_loss",
      [](Switch* self, Int port, const std::string& direction) {
        const auto table = loss_table(direction);
        const auto at = port_number(port);
        control(self, [&](Pipeline& p) { (p.tables.*table).remove(at); });
      },
      nb::arg("port"), nb::arg("direction"),
      nb::sig("def delete_loss(self, port: int, direction: typing.Literal['ingress', 'egress']) -> None"),
      "Delete an entry of loss_ingress_table or loss_egress_table.");
}

}  // namespace switchml::soft
