#include "dataplane/softswitch/native/runtime/switch.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace switchml::soft {

Switch::Switch(size_t slots, size_t values, unsigned shards) {
  if (shards < 1 || shards > kMostShards) {
    throw std::invalid_argument("a switch has 1 to " + std::to_string(kMostShards) + " shards, not " +
                                std::to_string(shards));
  }
  auto first_store = std::make_unique<SharedSlotStore>(slots, values);
  SharedSlotStore* shared_slots = first_store.get();
  shards_.push_back(std::make_unique<Shard>(&shards_, 0, std::move(first_store)));
  for (unsigned index = 1; index < shards; ++index) {
    shards_.push_back(std::make_unique<Shard>(&shards_, index, std::make_unique<PacketSlotStore>(slots, values)));
  }
  shared_memory_ =
      std::make_unique<SharedMemoryService>(&first().turns(), &first().ports(), &first().pipeline(), shared_slots);
  first().publish_after_bursts([this] { shared_memory_->publish(); });
}

void Switch::reset(size_t slots, size_t values) {
  auto first_store = std::make_unique<SharedSlotStore>(slots, values);
  SharedSlotStore* shared_slots = first_store.get();
  first().reset(std::move(first_store), [&](Pipeline* pipeline) { shared_memory_->replace(pipeline, shared_slots); });
  for (size_t index = 1; index < shards_.size(); ++index) {
    shards_[index]->reset(std::make_unique<PacketSlotStore>(slots, values), [](Pipeline*) {});
  }
}

void Switch::require_free(uint16_t port) {
  if (port >= kPortNumbers) {
    throw std::invalid_argument("port " + std::to_string(port) + " is above " + std::to_string(kPortNumbers - 1));
  }
  if (first().control([&](Pipeline&) { return first().ports().find(port) != nullptr; })) {
    throw std::invalid_argument("port " + std::to_string(port) + " is already there");
  }
}

uint16_t Switch::add_port(uint16_t number, PortSpec spec) {
  const std::lock_guard<std::mutex> lock(ports_);
  require_free(number);
  std::visit([&](auto& each) { add(number, std::move(each)); }, spec);
  return first().control([&](Pipeline&) { return first().ports().find(number)->counters().udp_port; });
}

template <class Spec>
void Switch::add(uint16_t number, Spec&& spec) {
  PortParts parts = open_port(number, std::forward<Spec>(spec), shards_.size());
  for (size_t index = 0; index < shards_.size(); ++index) {
    shards_[index]->control([&](Pipeline&) { shards_[index]->add_port(std::move(parts[index])); });
  }
}

void Switch::add(uint16_t number, ShmPortSpec&& spec) {
  require_one_shard(shards_.size());
  shared_memory_->add_port(number, spec);
}

void Switch::set_faults(uint16_t port, const FaultRates& rates, uint64_t seed) {
  const std::lock_guard<std::mutex> lock(ports_);
  for_each_part(port, [&](PipelinePort* part, size_t shard) { part->set_faults(rates, seed + shard); });
}

PortCounters Switch::port_counters(uint16_t port) {
  const std::lock_guard<std::mutex> lock(ports_);
  PortCounters sum;
  for_each_part(port, [&](const PipelinePort* part, size_t shard) {
    if (shard == 0) {
      sum = part->counters();
    } else {
      sum.add(part->counters());
    }
  });
  return sum;
}

template <class Act>
void Switch::for_each_part(uint16_t port, Act&& act) {
  for (size_t index = 0; index < shards_.size(); ++index) {
    shards_[index]->control([&](Pipeline&) {
      PipelinePort* part = shards_[index]->ports().find(port);
      if (part == nullptr) throw std::out_of_range("the switch has no port " + std::to_string(port));
      act(part, index);
    });
  }
}

void Switch::start() {
  const std::lock_guard<std::mutex> lock(ports_);
  for (const auto& shard : shards_) shard->start();
  shared_memory_->start();
}

void Switch::stop() {
  const std::lock_guard<std::mutex> lock(ports_);
  for (const auto& shard : shards_) shard->stop();
  shared_memory_->stop();
}

}  // namespace switchml::soft
