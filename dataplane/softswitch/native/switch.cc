#include "dataplane/softswitch/native/switch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dataplane/native/short_slice.h"
#include "dataplane/softswitch/native/frame_port.h"
#include "dataplane/softswitch/native/packet_port.h"
#include "dataplane/softswitch/native/processors.h"
#include "dataplane/softswitch/native/store_choice.h"
#include "dataplane/softswitch/native/udp_port.h"

namespace switchml {

Switch::Switch(size_t slots, size_t values, unsigned shards)
    : pipeline_(std::make_unique<Pipeline>(slots, values, &ports_)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      strays_(wake_fd_),
      boxes_{&strays_} {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open an eventfd");
  if (shards < 1 || shards > kMostShards) {
    throw std::invalid_argument("a switch has 1 to " + std::to_string(kMostShards) + " shards, not " +
                                std::to_string(shards));
  }
  for (unsigned index = 1; index < shards; ++index) {
    shards_.push_back(std::make_unique<UdpShard>(index, slots, values));
    boxes_.push_back(&shards_.back()->strays());
  }
  for (const auto& shard : shards_) shard->set_boxes(boxes_);
}

Switch::~Switch() {
  shm_listeners_.clear();
  stop();
  close(wake_fd_);
}

void Switch::reset(size_t slots, size_t values) {
  auto pipeline = std::make_unique<Pipeline>(slots, values, &ports_);
  {
    const Turns::Control turn(&turns_);
    pipeline_.swap(pipeline);
  }
  for (const auto& shard : shards_) shard->reset(slots, values);
}

template <class Kind, class... Arguments>
Kind& Switch::add_port(uint16_t port, Arguments&&... arguments) {
  const Turns::Control turn(&turns_);
  if (port >= ports_.size()) {
    throw std::invalid_argument("port " + std::to_string(port) + " is above " + std::to_string(ports_.size() - 1));
  }
  if (ports_[port] != nullptr) throw std::invalid_argument("port " + std::to_string(port) + " is already there");
  auto made = std::make_unique<Kind>(port, std::forward<Arguments>(arguments)...);
  Kind& added = *made;
  ports_[port] = std::move(made);
  wake();
  return added;  // ports are never removed
}

uint16_t Switch::add_udp_port(uint16_t port, const std::string& address, uint16_t udp_port) {
  std::vector<UdpSocket> sockets =
      open_udp_sockets(address, udp_port, UdpPort::kSocketBufferBytes, static_cast<unsigned>(boxes_.size()));
  const uint16_t bound = add_port<UdpPort>(port, std::move(sockets.front())).socket().port();
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i]->add_port(port, std::move(sockets[i + 1]));
  return bound;
}

void Switch::require_one_shard() const {
  if (!shards_.empty()) throw std::invalid_argument("a switch with several shards has only UDP ports");
}

void Switch::add_frame_port(uint16_t port, const std::string& path, const std::string& peer) {
  require_one_shard();
  add_port<FramePort>(port, path, peer);
}

void Switch::add_packet_port(uint16_t port, const std::string& interface) {
  require_one_shard();
  add_port<PacketPort>(port, interface);
}

void Switch::add_device_port(uint16_t port, std::unique_ptr<FrameDevice> device, bool busy) {
  require_one_shard();
  add_port<DevicePort>(port, std::move(device), busy);
}

void Switch::add_shm_port(uint16_t port, const std::string& path, size_t shards) {
  require_one_shard();
  // The socket first: a port that is there already must not be left without one.
  ShmHost* host = this;
  auto listener = std::make_unique<ShmListener>(path, port, host);
  if (shards == 0) shards = processors().size();
  const ShmWays ways{streaming_is_faster(), static_cast<uint8_t>(std::clamp<size_t>(shards, 1, ShmJob::kMostShards))};
  ShardHost* shard_host = this;
  ShmPort& added = add_port<ShmPort>(port, shard_host, size_t{ways.shards});
  {
    const Turns::Control turn(&turns_);
    ways_ = ways;
  }
  if (thread_.joinable()) added.start();
  listener->start();
  shm_listeners_.push_back(std::move(listener));
}

Port& Switch::port_at(uint16_t port) {
  if (port >= ports_.size() || ports_[port] == nullptr) {
    throw std::out_of_range("the switch has no port " + std::to_string(port));
  }
  return *ports_[port];
}

void Switch::set_faults(uint16_t port, const FaultRates& rates, uint64_t seed) {
  {
    const Turns::Control turn(&turns_);
    port_at(port).set_faults(rates, seed);
  }
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i]->set_faults(port, rates, seed + i + 1);
}

PortCounters Switch::port_counters(uint16_t port) {
  PortCounters sum;
  {
    const Turns::Control turn(&turns_);
    sum = port_at(port).counters();
  }
  for (const auto& shard : shards_) sum.add(shard->port_counters(port));
  return sum;
}

void Switch::start() {
  if (thread_.joinable()) return;
  stopping_ = false;
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
  wake();
  thread_.join();
  for (const auto& port : ports_) {
    if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_port->stop();
  }
}

void Switch::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is woken anyway.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void Switch::run() {
  ask_for_short_slices();
  ReceiveBuffers buffers;
  std::vector<Port*> ports;  // those of devices last: serve() takes what they receive
  std::vector<ShmPort*> shm_ports;
  std::vector<DevicePort*> device_ports;
  std::vector<pollfd> polled;  // wake_fd_, then one for each of `ports`
  const auto list_ports = [&] {
    const Turns::Control turn(&turns_);
    ports.clear();
    shm_ports.clear();
    for (DevicePort* port : device_ports) port->leave_thread();
    device_ports.clear();
    for (const auto& port : ports_) {
      if (port == nullptr) continue;
      if (auto* shm_port = dynamic_cast<ShmPort*>(port.get())) shm_ports.push_back(shm_port);
      if (auto* device_port = dynamic_cast<DevicePort*>(port.get())) {
        device_port->enter_thread();
        device_ports.push_back(device_port);
      } else {
        ports.push_back(port.get());  // ports are never removed
      }
    }
    ports.insert(ports.end(), device_ports.begin(), device_ports.end());
    polled.assign(1, {wake_fd_, POLLIN, 0});
    for (const Port* port : ports) polled.push_back({port->fd(), POLLIN, 0});
  };
  list_ports();
  while (!stopping_) {
    const bool look_again = serve(device_ports, &buffers);
    if (look_again) publish(shm_ports);
    int timeout = release_held(ports);
    for (DevicePort* port : device_ports) timeout = !look_again && port->prepare_sleep() ? timeout : 0;
    const int ready = poll(polled.data(), polled.size(), timeout);
    if (!look_again) {
      for (DevicePort* port : device_ports) port->end_sleep();
    }
    if (ready < 0) {
      for (pollfd& each : polled) each.revents = 0;  // a signal: they hold what was there before
      continue;
    }
    if (ready > 0) {
      for (size_t i = 0; i < ports.size() - device_ports.size(); ++i) {
        if (polled[i + 1].revents != 0 && ports[i]->receive(&buffers)) process_burst(ports[i], &buffers);
      }
      publish(shm_ports);
    }
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
      process_strays();
      list_ports();
    }
  }
  for (DevicePort* port : device_ports) port->leave_thread();
}

bool Switch::serve(const std::vector<DevicePort*>& ports, ReceiveBuffers* buffers) {
  bool found = false;
  for (DevicePort* port : ports) {
    {
      const Turns::Data turn(&turns_);
      port->flush();  // what it had no room for before
      if (!port->receive(buffers)) continue;
    }
    process_burst(port, buffers);
    found = true;
  }
  const auto now = Port::Clock::now();
  bool again = false;
  for (DevicePort* port : ports) again = port->look_again(found, now) || again;
  return again;
}

void Switch::process_burst(Port* port, ReceiveBuffers* buffers) {
  const Turns::Data turn(&turns_);
  Datagram packet;
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
  const std::vector<StrayPacket> strays = strays_.take();
  if (strays.empty()) return;
  const Turns::Data turn(&turns_);
  for (const StrayPacket& stray : strays) {
    pipeline_->receive(ports_[stray.port].get(), {stray.bytes.data(), stray.bytes.size(), stray.source});
  }
  pipeline_->flush();
}

int Switch::release_held(const std::vector<Port*>& ports) {
  using Clock = Port::Clock;
  const Turns::Data turn(&turns_);
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
  std::vector<ChannelControl*> sleepers;
  const Turns::Data turn(&turns_);
  for (ShmPort* port : ports) {
    // Or else each packet that completes nothing would wake ranks that sleep until there is more.
    if (port->has_results()) port->publish(true, &sleepers);
  }
  for (ChannelControl* sleeper : sleepers) wake_process(*sleeper);
}

}  // namespace switchml
