#include "dataplane/softswitch/native/switch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

#include "dataplane/softswitch/native/frame_port.h"
#include "dataplane/softswitch/native/packet_port.h"
#include "dataplane/softswitch/native/udp_port.h"

namespace switchml {

Switch::Switch(size_t slots, size_t values)
    : pipeline_(std::make_unique<Pipeline>(slots, values, &ports_)), wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open an eventfd");
}

Switch::~Switch() {
  stop();
  close(wake_fd_);
}

void Switch::reset(size_t slots, size_t values) {
  auto pipeline = std::make_unique<Pipeline>(slots, values, &ports_);
  const TurnLock lock(this);
  pipeline_.swap(pipeline);
}

template <class Kind, class... Arguments>
Kind& Switch::add_port(uint16_t port, const Arguments&... arguments) {
  const TurnLock lock(this);
  if (port >= ports_.size()) {
    throw std::invalid_argument("port " + std::to_string(port) + " is above " + std::to_string(ports_.size() - 1));
  }
  if (ports_[port] != nullptr) throw std::invalid_argument("port " + std::to_string(port) + " is already there");
  auto made = std::make_unique<Kind>(port, arguments...);
  Kind& added = *made;
  ports_[port] = std::move(made);
  wake();
  return added;  // ports are never removed
}

uint16_t Switch::add_udp_port(uint16_t port, const std::string& address, uint16_t udp_port) {
  return add_port<UdpPort>(port, address, udp_port).socket().port();
}

void Switch::add_frame_port(uint16_t port, const std::string& path, const std::string& peer) {
  add_port<FramePort>(port, path, peer);
}

void Switch::add_packet_port(uint16_t port, const std::string& interface) { add_port<PacketPort>(port, interface); }

Port& Switch::port_at(uint16_t port) {
  if (port >= ports_.size() || ports_[port] == nullptr) {
    throw std::out_of_range("the switch has no port " + std::to_string(port));
  }
  return *ports_[port];
}

void Switch::set_faults(uint16_t port, const FaultRates& rates, uint64_t seed) {
  const TurnLock lock(this);
  port_at(port).set_faults(rates, seed);
}

PortCounters Switch::port_counters(uint16_t port) {
  const TurnLock lock(this);
  return port_at(port).counters();
}

void Switch::start() {
  if (thread_.joinable()) return;
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
}

void Switch::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake();
  thread_.join();
}

void Switch::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is woken anyway.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void Switch::run() {
  ReceiveBuffers buffers;
  std::vector<Port*> ports;
  std::vector<pollfd> polled;  // wake_fd_, then one for each of `ports`
  const auto list_ports = [&] {
    const TurnLock lock(this);
    ports.clear();
    polled.assign(1, {wake_fd_, POLLIN, 0});
    for (const auto& port : ports_) {
      if (port == nullptr) continue;
      ports.push_back(port.get());  // ports are never removed
      polled.push_back({port->fd(), POLLIN, 0});
    }
  };
  list_ports();
  while (!stopping_) {
    const int timeout = release_held(ports);
    if (poll(polled.data(), polled.size(), timeout) < 0) {
      for (pollfd& each : polled) each.revents = 0;  // a signal: they hold what was there before
      continue;
    }
    for (size_t i = 0; i < ports.size(); ++i) {
      if (polled[i + 1].revents != 0 && ports[i]->receive(&buffers)) process_burst(ports[i], &buffers);
    }
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
      list_ports();
    }
  }
}

void Switch::process_burst(Port* port, ReceiveBuffers* buffers) {
  const TurnLock lock(this);
  Datagram packet;
  if (port->carries_frames()) {
    while (buffers->frames.next(&packet)) pipeline_->receive(port, packet);
  } else {
    while (buffers->datagrams.next(&packet)) pipeline_->receive(port, packet);
  }
  pipeline_->flush();
}

int Switch::release_held(const std::vector<Port*>& ports) {
  using Clock = Port::Clock;
  const TurnLock lock(this);
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

}  // namespace switchml
