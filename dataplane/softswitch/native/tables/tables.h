// The match-action tables and multicast groups, named and keyed as in the P4 program (dataplane/p4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dataplane/softswitch/native/tables/counter.h"
#include "dataplane/softswitch/native/tables/loss_table.h"

namespace switchml::soft {

// The exact keys of worker_table. Numbers are in host byte order.
struct WorkerKey {
  uint16_t ingress_port = 0;
  uint64_t eth_src = 0;
  uint32_t ipv4_src = 0;
  uint16_t udp_src = 0;
  uint16_t job = 0;
  uint8_t worker = 0;
  uint32_t secret = 0;

  bool operator==(const WorkerKey& other) const;
};

// The ternary key of worker_table, over the slot field.
struct SlotMatch {
  uint16_t value = 0;
  uint16_t mask = 0;
  int32_t priority = 0;  // the highest match wins

  bool covers(uint16_t slot) const { return (slot & mask) == value; }
};

// Parameters of the action `admit`.
struct Admission {
  uint64_t worker_bit = 0;
  uint64_t job_mask = 0;
  uint16_t epoch = 0;
  uint16_t group = 0;
};

struct WorkerEntry {
  SlotMatch match;
  Admission admission;
  Counter counter;
};

// worker_table: which packets may contribute. Throws std::out_of_range for an entry that is not there and
// std::invalid_argument for a match with value bits outside its mask.
class WorkerTable {
 public:
  // Adds an entry, or gives the one that is there a new action and leaves its counter.
  void set(const WorkerKey& key, const SlotMatch& match, const Admission& admission);
  void remove(const WorkerKey& key, const SlotMatch& match);
  Counter& counter(const WorkerKey& key, const SlotMatch& match);

  // The entry that admits a packet; null when none does. Valid until the next change.
  WorkerEntry* find(const WorkerKey& key, uint16_t slot);

 private:
  struct Hash {
    size_t operator()(const WorkerKey& key) const;
  };
  using Entries = std::vector<WorkerEntry>;  // highest priority first

  Entries::iterator locate(const WorkerKey& key, const SlotMatch& match);

  std::unordered_map<WorkerKey, Entries, Hash> entries_;
  // The packets of a run have one sender, so the last lookup is nearly always the next one.
  WorkerKey last_key_;
  Entries* last_entries_ = nullptr;
};

// Parameters of the action `describe_job`.
struct SlotRange {
  uint16_t value = 0;
  uint16_t mask = 0;
};

// Parameters of the action `address_rank`.
struct RankAddress {
  uint64_t eth_dst = 0;
  uint32_t ipv4_dst = 0;
  uint16_t udp_dst = 0;
};

struct Replica {
  uint16_t port = 0;
  uint16_t instance = 0;  // the rank
};

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

// Everything that the control plane writes. remove_... throw std::out_of_range for a key that is not there.
class Tables {
 public:
  WorkerTable workers;
  SwitchAddress switch_address;
  LossTable loss_ingress{"loss_ingress_table"};
  LossTable loss_egress{"loss_egress_table"};
  L2Action l2_default;  // of frames to an address that l2_table does not have

  void set_job(uint16_t job, SlotRange slots) { jobs_[job] = slots; }
  void remove_job(uint16_t job);
  const SlotRange* find_job(uint16_t job) const;

  void set_rank(uint16_t job, uint16_t rank, RankAddress address) { ranks_[rank_key(job, rank)] = address; }
  void remove_rank(uint16_t job, uint16_t rank);
  const RankAddress* find_rank(uint16_t job, uint16_t rank) const;

  void set_l2(uint64_t eth_dst, L2Action action) { l2_[eth_dst] = action; }
  void remove_l2(uint64_t eth_dst);
  // What is done with a frame to this address.
  const L2Action& find_l2(uint64_t eth_dst) const;

  void set_group(uint16_t group, const std::vector<Replica>& replicas);
  void remove_group(uint16_t group);
  // The replicas by port, of one port the last first; null for an unknown group.
  const std::vector<Replica>* find_group(uint16_t group) const;

 private:
  static uint32_t rank_key(uint16_t job, uint16_t rank) { return static_cast<uint32_t>(job) << 16U | rank; }

  std::unordered_map<uint16_t, SlotRange> jobs_;
  std::unordered_map<uint32_t, RankAddress> ranks_;
  std::unordered_map<uint64_t, L2Action> l2_;
  std::unordered_map<uint16_t, std::vector<Replica>> groups_;
};

}  // namespace switchml::soft
