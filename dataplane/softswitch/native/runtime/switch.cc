#include "dataplane/softswitch/native/runtime/switch.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "dataplane/softswitch/native/ports/frame_port.h"
#include "dataplane/softswitch/native/ports/packet_port.h"
#include "dataplane/softswitch/native/ports/udp_port.h"
#include "native/runtime/cpus.h"

namespace switchml::soft {

Switch::Switch(size_t slots, size_t values, unsigned shards) {
  if (shards < 1 || shards > kMostShards) {
    throw std::invalid_argument("a switch has 1 to " + std::to_string(kMostShards) + " shards, not " +
                                std::to_string(shards));
  }
  auto first_store = std::make_unique<SharedSlotStore>(slots, values);
  shared_slots_ = first_store.get();
  shards_.push_back(std::make_unique<Shard>(&shards_, 0, std::move(first_store)));
  for (unsigned index = 1; index < shards; ++index) {
    shards_.push_back(std::make_unique<Shard>(&shards_, index, std::make_unique<PacketSlotStore>(slots, values)));
  }
  first().publish_after_bursts([this] { publish(); });
}

Switch::~Switch() {
  shm_listeners_.clear();
  stop();
}

void Switch::reset(size_t slots, size_t values) {
  auto first_store = std::make_unique<SharedSlotStore>(slots, values);
  SharedSlotStore* shared_slots = first_store.get();
  first().reset(std::move(first_store), [&] {
    // Otherwise waiting sums would be made in the memory of the old pipeline and finished in the new one.
    for (ShmPort* port : shm_ports_) port->forget_sums();
    shm_jobs_.forget_results();
    shared_slots_ = shared_slots;
  });
  for (size_t index = 1; index < shards_.size(); ++index) {
    shards_[index]->reset(std::make_unique<PacketSlotStore>(slots, values), [] {});
  }
}

void Switch::require_free(uint16_t port) {
  if (port >= kPortNumbers) {
    throw std::invalid_argument("port " + std::to_string(port) + " is above " + std::to_string(kPortNumbers - 1));
  }
  if (first().control([&](Pipeline&) { return first().port(port) != nullptr; })) {
    throw std::invalid_argument("port " + std::to_string(port) + " is already there");
  }
}

void Switch::add_port(std::vector<std::unique_ptr<Port>> parts) {
  for (size_t index = 0; index < shards_.size(); ++index) {
    shards_[index]->control([&](Pipeline&) { shards_[index]->add_port(std::move(parts[index])); });
  }
}

uint16_t Switch::add_udp_port(uint16_t port, const std::string& address, uint16_t udp_port) {
  const std::lock_guard<std::mutex> lock(ports_);
  require_free(port);
  std::vector<net::UdpSocket> sockets =
      net::open_udp_sockets(address, udp_port, UdpPort::kSocketBufferBytes, static_cast<unsigned>(shards_.size()));
  const uint16_t bound = sockets.front().port();
  std::vector<std::unique_ptr<Port>> parts;
  parts.reserve(sockets.size());
  for (net::UdpSocket& socket : sockets) parts.push_back(std::make_unique<UdpPort>(port, std::move(socket)));
  add_port(std::move(parts));
  return bound;
}

void Switch::require_one_shard() const {
  if (shards_.size() > 1) throw std::invalid_argument("a switch with several shards can have only UDP and DPDK ports");
}

void Switch::add_to_first(std::unique_ptr<Port> port) {
  first().control([&](Pipeline&) { first().add_port(std::move(port)); });
}

void Switch::add_frame_port(uint16_t port, const std::string& path, const std::string& peer) {
  const std::lock_guard<std::mutex> lock(ports_);
  require_one_shard();
  require_free(port);
  add_to_first(std::make_unique<FramePort>(port, path, peer));
}

void Switch::add_packet_port(uint16_t port, const std::string& interface) {
  const std::lock_guard<std::mutex> lock(ports_);
  require_one_shard();
  require_free(port);
  add_to_first(std::make_unique<PacketPort>(port, interface));
}

void Switch::add_device_port(uint16_t port, std::vector<std::unique_ptr<net::FrameDevice>> queues, bool busy) {
  if (queues.size() != shards_.size()) {
    throw std::invalid_argument("a device with " + std::to_string(queues.size()) +
                                " queues needs the same number of shards, not " + std::to_string(shards_.size()));
  }
  const std::lock_guard<std::mutex> lock(ports_);
  require_free(port);
  std::vector<std::unique_ptr<Port>> parts;
  parts.reserve(queues.size());
  for (auto& queue : queues) parts.push_back(std::make_unique<DevicePort>(port, std::move(queue), busy));
  add_port(std::move(parts));
}

void Switch::add_shm_port(uint16_t port, const std::string& path, size_t threads) {
  const std::lock_guard<std::mutex> lock(ports_);
  require_one_shard();
  require_free(port);
  // Opens the socket first: a port without one would be useless, and could not be removed.
  ShmHost* host = this;
  auto listener = std::make_unique<ShmListener>(path, port, host);
  if (threads == 0) threads = runtime::cpus().size();
  PipelineHost* pipeline_host = this;
  auto made = std::make_unique<ShmPort>(port, pipeline_host, std::clamp<size_t>(threads, 1, ShmPort::kMostWorkers));
  ShmPort& added = *made;
  first().control([&](Pipeline&) {
    first().add_port_without_packets(std::move(made));
    shm_ports_.push_back(&added);
  });
  if (runs_) added.start();
  listener->start();
  shm_listeners_.push_back(std::move(listener));
}

void Switch::make_sums() {
  for (ShmPort* port : shm_ports_) port->make_sums();
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
      PipelinePort* part = shards_[index]->port(port);
      if (part == nullptr) throw std::out_of_range("the switch has no port " + std::to_string(port));
      act(part, index);
    });
  }
}

void Switch::start() {
  const std::lock_guard<std::mutex> lock(ports_);
  if (runs_) return;
  runs_ = true;
  for (const auto& shard : shards_) shard->start();
  for (ShmPort* port : shm_ports_) port->start();
}

void Switch::stop() {
  const std::lock_guard<std::mutex> lock(ports_);
  if (!runs_) return;
  runs_ = false;
  for (const auto& shard : shards_) shard->stop();
  for (ShmPort* port : shm_ports_) port->stop();
}

void Switch::publish_except(const ShmPort* except, std::vector<channel::ChannelControl*>* sleepers) {
  for (ShmPort* port : shm_ports_) {
    // A port without new results is left out: publishing there would wake ranks that sleep until there are more.
    if (port != except && port->has_results()) port->publish(true, sleepers);
  }
}

void Switch::publish() {
  std::vector<channel::ChannelControl*> sleepers;
  publish_except(nullptr, &sleepers);
  for (channel::ChannelControl* sleeper : sleepers) channel::wake_process(*sleeper);
}

}  // namespace switchml::soft
