#include "dataplane/softswitch/native/runtime/switch.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "dataplane/softswitch/native/ports/frame_port.h"
#include "dataplane/softswitch/native/ports/packet_port.h"
#include "dataplane/softswitch/native/ports/udp_port.h"
#include "dataplane/softswitch/native/runtime/store_choice.h"
#include "native/runtime/processors.h"
#include "native/runtime/short_slice.h"

namespace switchml::soft {

Switch::Switch(size_t slots, size_t values, unsigned shards)
    : pipeline_(std::make_unique<Pipeline>(slots, values, &ports_)), boxes_{&mailbox_} {
  if (shards < 1 || shards > kMostShards) {
    throw std::invalid_argument("a switch has 1 to " + std::to_string(kMostShards) + " shards, not " +
                                std::to_string(shards));
  }
  for (unsigned index = 1; index < shards; ++index) {
    shards_.push_back(std::make_unique<Shard>(index, slots, values));
    boxes_.push_back(&shards_.back()->mailbox());
  }
  for (const auto& shard : shards_) shard->set_boxes(boxes_);
}

Switch::~Switch() {
  shm_listeners_.clear();
  stop();
}

void Switch::reset(size_t slots, size_t values) {
  auto pipeline = std::make_unique<Pipeline>(slots, values, &ports_);
  {
    const runtime::Turns::Control turn(&turns_);
    for (const auto& port : ports_) {
      // Sums that wait would be made in the old pipeline's memory, and finished in the new one.
      if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_port->forget_sums();
    }
    shm_jobs_.forget_results();
    pipeline_.swap(pipeline);
  }
  for (const auto& shard : shards_) shard->reset(slots, values);
}

template <class Kind, class... Arguments>
Kind& Switch::add_port(uint16_t port, Arguments&&... arguments) {
  const runtime::Turns::Control turn(&turns_);
  if (port >= ports_.size()) {
    throw std::invalid_argument("port " + std::to_string(port) + " is above " + std::to_string(ports_.size() - 1));
  }
  if (ports_[port] != nullptr) throw std::invalid_argument("port " + std::to_string(port) + " is already there");
  auto made = std::make_unique<Kind>(port, std::forward<Arguments>(arguments)...);
  Kind& added = *made;
  ports_[port] = std::move(made);
  ports_changed_ = true;
  mailbox_.wake();
  return added;  // ports are never removed
}

uint16_t Switch::add_udp_port(uint16_t port, const std::string& address, uint16_t udp_port) {
  std::vector<net::UdpSocket> sockets =
      net::open_udp_sockets(address, udp_port, UdpPort::kSocketBufferBytes, static_cast<unsigned>(boxes_.size()));
  const uint16_t bound = add_port<UdpPort>(port, std::move(sockets.front())).socket().port();
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i]->add_port<UdpPort>(port, std::move(sockets[i + 1]));
  return bound;
}

void Switch::require_one_shard() const {
  if (!shards_.empty()) throw std::invalid_argument("a switch with several shards has only UDP and DPDK ports");
}

void Switch::add_frame_port(uint16_t port, const std::string& path, const std::string& peer) {
  require_one_shard();
  add_port<FramePort>(port, path, peer);
}

void Switch::add_packet_port(uint16_t port, const std::string& interface) {
  require_one_shard();
  add_port<PacketPort>(port, interface);
}

void Switch::add_device_port(uint16_t port, std::vector<std::unique_ptr<net::FrameDevice>> queues, bool busy) {
  if (queues.size() != boxes_.size()) {
    throw std::invalid_argument("a device with " + std::to_string(queues.size()) +
                                " queues is for as many shards, not " + std::to_string(boxes_.size()));
  }
  add_port<DevicePort>(port, std::move(queues.front()), busy);
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i]->add_port<DevicePort>(port, std::move(queues[i + 1]), busy);
  }
}

void Switch::add_shm_port(uint16_t port, const std::string& path, size_t shards) {
  require_one_shard();
  // The socket first: a port that is there already must not be left without one.
  ShmHost* host = this;
  auto listener = std::make_unique<ShmListener>(path, port, host);
  if (shards == 0) shards = runtime::processors().size();
  const ShmWays ways{streaming_is_faster(), static_cast<uint8_t>(std::clamp<size_t>(shards, 1, ShmJob::kMostShards))};
  ShardHost* shard_host = this;
  ShmPort& added = add_port<ShmPort>(port, shard_host, size_t{ways.shards});
  {
    const runtime::Turns::Control turn(&turns_);
    ways_ = ways;
  }
  if (thread_.joinable()) added.start();
  listener->start();
  shm_listeners_.push_back(std::move(listener));
}

void Switch::make_sums() {
  for (const auto& port : ports_) {
    if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_port->make_sums();
  }
}

Port& Switch::port_at(uint16_t port) {
  if (port >= ports_.size() || ports_[port] == nullptr) {
    throw std::out_of_range("the switch has no port " + std::to_string(port));
  }
  return *ports_[port];
}

void Switch::set_faults(uint16_t port, const FaultRates& rates, uint64_t seed) {
  {
    const runtime::Turns::Control turn(&turns_);
    port_at(port).set_faults(rates, seed);
  }
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i]->set_faults(port, rates, seed + i + 1);
}

PortCounters Switch::port_counters(uint16_t port) {
  PortCounters sum;
  {
    const runtime::Turns::Control turn(&turns_);
    sum = port_at(port).counters();
  }
  for (const auto& shard : shards_) sum.add(shard->port_counters(port));
  return sum;
}

void Switch::start() {
  if (thread_.joinable()) return;
  stopping_ = false;
  ports_changed_ = true;
  thread_ = std::thread([this] { run(); });
  for (const auto& port : ports_) {
    if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_port->start();
  }
  for (const auto& shard : shards_) shard->start();
}

void Switch::stop() {
  for (const auto& shard : shards_) shard->stop();
  if (!thread_.joinable()) return;
  stopping_ = true;
  mailbox_.wake();
  thread_.join();
  for (const auto& port : ports_) {
    if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_port->stop();
  }
}

std::vector<ShmPort*> Switch::list_ports(PortWatch* watch) {
  const runtime::Turns::Control turn(&turns_);
  watch->list(ports_);
  std::vector<ShmPort*> shm_ports;
  for (const auto& port : ports_) {
    if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_ports.push_back(shm_port);
  }
  return shm_ports;
}

void Switch::run() {
  runtime::ask_for_short_slices();
  ReceiveBuffers buffers;
  PortWatch watch(&mailbox_, &boxes_);
  std::vector<ShmPort*> shm_ports;
  while (!stopping_) {
    if (ports_changed_.exchange(false)) shm_ports = list_ports(&watch);
    const bool look_again = watch.look_at_devices(
        [&](DevicePort* port) {
          const runtime::Turns::Data turn(&turns_);
          port->flush();  // what it had no room for before
          return port->receive(&buffers);
        },
        [&](DevicePort* port) { process_burst(port, &buffers); });
    if (look_again) publish(shm_ports);
    const bool any = watch.wait(release_held(watch.ports()), look_again, [&](Port* port) {
      if (port->receive(&buffers)) process_burst(port, &buffers);
    });
    if (any) publish(shm_ports);
    if (!shards_.empty()) process_strays();
  }
}

void Switch::process_burst(Port* port, ReceiveBuffers* buffers) {
  const runtime::Turns::Data turn(&turns_);
  net::Datagram packet;
  if (port->carries_frames()) {
    while (buffers->frames.next(&packet)) pipeline_->receive(port, packet);
  } else {
    while (buffers->datagrams.next(&packet)) {
      if (shards_.empty() || !hand_over(boxes_, 0, port->number(), packet)) pipeline_->receive(port, packet);
    }
  }
  pipeline_->flush();
}

void Switch::process_strays() {
  const std::vector<StrayPacket> strays = mailbox_.take();
  if (strays.empty()) return;
  const runtime::Turns::Data turn(&turns_);
  for (const StrayPacket& stray : strays) {
    pipeline_->receive(ports_[stray.port].get(), {stray.bytes.data(), stray.bytes.size(), stray.source});
  }
  pipeline_->flush();
}

int Switch::release_held(const std::vector<Port*>& ports) {
  using Clock = Port::Clock;
  const runtime::Turns::Data turn(&turns_);
  int timeout = -1;
  for (Port* port : ports) {
    if (!port->next_deadline()) continue;
    pipeline_->release_expired(port, Clock::now());
    pipeline_->flush();
    if (const auto next = port->next_deadline()) {
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
      const int bounded = static_cast<int>(std::max<decltype(wait)>(wait, 0));
      timeout = timeout < 0 ? bounded : std::min(timeout, bounded);
    }
  }
  return timeout;
}

void Switch::publish(const std::vector<ShmPort*>& ports) {
  if (ports.empty()) return;
  std::vector<channel::ChannelControl*> sleepers;
  const runtime::Turns::Data turn(&turns_);
  for (ShmPort* port : ports) {
    // Or else each packet that completes nothing would wake ranks that sleep until there is more.
    if (port->has_results()) port->publish(true, &sleepers);
  }
  for (channel::ChannelControl* sleeper : sleepers) channel::wake_process(*sleeper);
}

}  // namespace switchml::soft
