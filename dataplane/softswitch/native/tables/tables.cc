#include "dataplane/softswitch/native/tables/tables.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace switchml::soft {
namespace {

// The finalizer of splitmix64: every bit of the key reaches every bit of the hash.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EB;
  return x ^ (x >> 31U);
}

// Returns the address as text, such as 02:00:00:00:00:01.
std::string mac_text(uint64_t mac) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned shift = 48; shift > 0; shift -= 8) {
    if (!text.empty()) text += ':';
    text += kDigits[mac >> (shift - 4) & 0xFU];
    text += kDigits[mac >> (shift - 8) & 0xFU];
  }
  return text;
}

bool same(const SlotMatch& a, const SlotMatch& b) {
  return a.value == b.value && a.mask == b.mask && a.priority == b.priority;
}

template <class Map, class Key>
const typename Map::mapped_type* find_in(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

bool WorkerKey::operator==(const WorkerKey& other) const {
  return ipv4_src == other.ipv4_src && sender == other.sender && job == other.job && worker == other.worker &&
         secret == other.secret && kind == other.kind && ingress_port == other.ingress_port && eth_src == other.eth_src;
}

size_t WorkerTable::Hash::operator()(const WorkerKey& key) const {
  const uint64_t source =
      static_cast<uint64_t>(key.ipv4_src) << 32U ^ static_cast<uint64_t>(key.sender) << 16U ^ key.job;
  const uint64_t rest = key.eth_src << 16U ^ static_cast<uint64_t>(key.ingress_port) << 8U ^ key.worker;
  return mix(source ^ mix(rest ^ mix(static_cast<uint64_t>(key.kind) << 32U | key.secret)));
}

WorkerTable::Entries::iterator WorkerTable::locate(const WorkerKey& key, const SlotMatch& match) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    const auto entry = std::find_if(found->second.begin(), found->second.end(),
                                    [&](const WorkerEntry& e) { return same(e.match, match); });
    if (entry != found->second.end()) return entry;
  }
  throw std::out_of_range("worker_table has no entry for job " + std::to_string(key.job) + ", worker " +
                          std::to_string(key.worker) + ", ingress port " + std::to_string(key.ingress_port) +
                          " with these addresses, slots, priority and secret");
}

void WorkerTable::set(const WorkerKey& key, const SlotMatch& match, const Admission& admission) {
  if ((match.value & match.mask) != match.value) {
    throw std::invalid_argument("worker_table: slot value " + std::to_string(match.value) +
                                " has bits outside its mask " + std::to_string(match.mask));
  }
  Entries& entries = entries_[key];
  for (WorkerEntry& entry : entries) {
    if (same(entry.match, match)) {
      entry.admission = admission;
      return;
    }
  }
  const auto lower = std::find_if(entries.begin(), entries.end(),
                                  [&](const WorkerEntry& e) { return e.match.priority < match.priority; });
  entries.insert(lower, WorkerEntry{match, admission, {}});
}

void WorkerTable::remove(const WorkerKey& key, const SlotMatch& match) {
  const auto entry = locate(key, match);
  const auto found = entries_.find(key);
  found->second.erase(entry);
  if (!found->second.empty()) return;
  last_entries_ = nullptr;
  entries_.erase(found);
}

Counter& WorkerTable::counter(const WorkerKey& key, const SlotMatch& match) { return locate(key, match)->counter; }

WorkerEntry* WorkerTable::find(const WorkerKey& key, uint16_t slot) {
  if (last_entries_ == nullptr || !(key == last_key_)) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    last_key_ = key;
    last_entries_ = &found->second;
  }
  for (WorkerEntry& entry : *last_entries_) {
    if (entry.match.covers(slot)) return &entry;
  }
  return nullptr;
}

void Tables::remove_job(uint16_t job) {
  if (jobs_.erase(job) == 0) throw std::out_of_range("job_table has no job " + std::to_string(job));
}

const SlotRange* Tables::find_job(uint16_t job) const { return find_in(jobs_, job); }

void Tables::remove_rank(uint16_t job, uint16_t rank) {
  if (ranks_.erase(rank_key(job, rank)) == 0) {
    throw std::out_of_range("rank_table has no rank " + std::to_string(rank) + " of job " + std::to_string(job));
  }
}

const RankAddress* Tables::find_rank(uint16_t job, uint16_t rank) const { return find_in(ranks_, rank_key(job, rank)); }

void Tables::remove_l2(uint64_t eth_dst) {
  if (l2_.erase(eth_dst) == 0) {
    throw std::out_of_range("l2_table has no entry for Ethernet address " + mac_text(eth_dst));
  }
}

const L2Action& Tables::find_l2(uint64_t eth_dst) const {
  const L2Action* found = find_in(l2_, eth_dst);
  return found != nullptr ? *found : l2_default;
}

void Tables::set_group(uint16_t group, const std::vector<Replica>& replicas) {
  std::vector<Replica> ordered;
  ordered.reserve(replicas.size());
  for (const Replica& replica : replicas) {
    // Inserted before the other replicas of its port, which is the order in which BMv2 sends them.
    const auto place = std::lower_bound(ordered.begin(), ordered.end(), replica,
                                        [](const Replica& a, const Replica& b) { return a.port < b.port; });
    ordered.insert(place, replica);
  }
  groups_[group] = std::move(ordered);
}

void Tables::remove_group(uint16_t group) {
  if (groups_.erase(group) == 0) throw std::out_of_range("there is no multicast group " + std::to_string(group));
}

const std::vector<Replica>* Tables::find_group(uint16_t group) const { return find_in(groups_, group); }

}  // namespace switchml::soft
