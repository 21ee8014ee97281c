// The match-action tables and multicast groups, named and keyed as in the P4 program (dataplane/p4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/loss_table.h"
#include "native/wire/constants.h"

namespace switchml::soft {

// The exact keys of worker_table. Numbers are in host byte order.
struct WorkerKey {
  uint16_t ingress_port = 0;
  uint64_t eth_src = 0;
  uint32_t ipv4_src = 0;
  uint32_t sender = 0;  // its UDP port, or its queue pair with wire::kIsQueuePair
  uint16_t job = 0;
  uint8_t worker = 0;
  uint32_t secret = 0;
  wire::Kind kind = wire::Kind::contribution;

  bool operator==(const WorkerKey& other) const;
};

// The ternary key of worker_table, over the slot field.
struct SlotMatch {
  uint16_t value = 0;
  uint16_t mask = 0;
  int32_t priority = 0;  // the highest match wins

  bool covers(uint16_t slot) const { return (slot & mask) == value; }
};

// The bit of the parent in a bitmap. In a tree of switches, a job's parent is the switch that its sums are sent on to.
constexpr uint64_t kFinal = uint64_t{1} << (wire::protocol::max_workers - 1);

// An action of worker_table.
struct Admission {
  enum class Action : uint8_t { admit, admit_below, admit_parent };

  uint64_t worker_bit = 0;  // kFinal for a parent
  uint64_t job_mask = 0;    // of all senders below
  uint16_t epoch = 0;
  uint16_t group = 0;
  Action action = Action::admit;
  bool completed_here = false;  // of admit_parent: the RESULTs name this switch

  // Returns the bitmap of a half with everything that the job waits for.
  uint64_t full() const { return action == Action::admit ? job_mask : job_mask ^ kFinal; }
};

struct WorkerEntry {
  SlotMatch match;
  Admission admission;
  Counter counter;
};

// worker_table, which admits packets that may contribute. Its functions throw std::out_of_range for an entry that does
// not exist and std::invalid_argument for a match with value bits outside its mask.
class WorkerTable {
 public:
  // Adds an entry, or replaces the action of an existing one and keeps its counter.
  void set(const WorkerKey& key, const SlotMatch& match, const Admission& admission);
  void remove(const WorkerKey& key, const SlotMatch& match);
  Counter& counter(const WorkerKey& key, const SlotMatch& match);

  // Returns the entry that admits a packet, or null. Valid until the next change of the table.
  WorkerEntry* find(const WorkerKey& key, uint16_t slot);

 private:
  struct Hash {
    size_t operator()(const WorkerKey& key) const;
  };
  using Entries = std::vector<WorkerEntry>;  // highest priority first

  Entries::iterator locate(const WorkerKey& key, const SlotMatch& match);

  std::unordered_map<WorkerKey, Entries, Hash> entries_;
  // The result of the last lookup. The packets of a burst have one sender, so the next lookup nearly always has the
  // same key.
  WorkerKey last_key_;
  Entries* last_entries_ = nullptr;
};

// Parameters of the action `describe_job`.
struct SlotRange {
  uint16_t value = 0;
  uint16_t mask = 0;
};

// Parameters of the action `address_rank`, or with a queue pair, those of `address_queue_pair`.
struct RankAddress {
  uint64_t eth_dst = 0;
  uint32_t ipv4_dst = 0;
  uint16_t udp_dst = 0;
  uint64_t ranks = 0;  // those that listen there, as a bitmap
  std::optional<uint32_t> queue_pair = std::nullopt;
};

struct Replica {
  uint16_t port = 0;
  uint16_t instance = 0;  // the rank
};

// Returns the group that leads to the parent of the job whose results go to `group`, by its one replica.
constexpr uint16_t parent_group(uint16_t group) { return group | wire::tree::parent_group; }

struct SwitchAddress {
  uint64_t mac = 0;
  uint32_t ip = 0;
};

// An action of l2_table.
struct L2Action {
  enum class Kind : uint8_t { forward, flood, drop_no_route };

  Kind kind = Kind::drop_no_route;
  uint16_t port_or_group = 0;  // a port of `forward`, a group of `flood`
};

// All tables that the control plane writes. The remove_... functions throw std::out_of_range for a key that does not
// exist.
class Tables {
 public:
  WorkerTable workers;
  SwitchAddress switch_address;
  LossTable loss_ingress{"loss_ingress_table"};
  LossTable loss_egress{"loss_egress_table"};
  L2Action l2_default;  // for frames to an address that is not in l2_table

  void set_job(uint16_t job, SlotRange slots) { jobs_[job] = slots; }
  void remove_job(uint16_t job);
  const SlotRange* find_job(uint16_t job) const;

  void set_rank(uint16_t job, uint16_t rank, RankAddress address) { ranks_[rank_key(job, rank)] = address; }
  void remove_rank(uint16_t job, uint16_t rank);
  const RankAddress* find_rank(uint16_t job, uint16_t rank) const;

  void set_l2(uint64_t eth_dst, L2Action action) { l2_[eth_dst] = action; }
  void remove_l2(uint64_t eth_dst);
  // Returns the action for a frame to this address.
  const L2Action& find_l2(uint64_t eth_dst) const;

  void set_group(uint16_t group, const std::vector<Replica>& replicas);
  void remove_group(uint16_t group);
  // Returns the replicas of a group by port, the last added first for each port; null for an unknown group.
  const std::vector<Replica>* find_group(uint16_t group) const;

 private:
  static uint32_t rank_key(uint16_t job, uint16_t rank) { return static_cast<uint32_t>(job) << 16U | rank; }

  std::unordered_map<uint16_t, SlotRange> jobs_;
  std::unordered_map<uint32_t, RankAddress> ranks_;
  std::unordered_map<uint64_t, L2Action> l2_;
  std::unordered_map<uint16_t, std::vector<Replica>> groups_;
};

}  // namespace switchml::soft
