#include "dataplane/softswitch/native/udp_shard.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "dataplane/native/short_slice.h"
#include "dataplane/native/slot_blocks.h"
#include "dataplane/native/wire.h"

namespace switchml {

void StrayBox::put(StrayPacket packet) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (packets_.size() >= kMost) return;
    packets_.push_back(std::move(packet));
  }
  const uint64_t one = 1;
  // Fails only when the counter is full, and then its reader is woken anyway.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

std::vector<StrayPacket> StrayBox::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(packets_, {});
}

unsigned shard_of(const Datagram& packet, size_t shards) {
  if (packet.length < protocol::header_bytes) return 0;
  return part_of_slot(wire::load_header(packet.data).slot >> 1U, static_cast<unsigned>(shards));
}

bool hand_over(const std::vector<StrayBox*>& boxes, unsigned own, uint16_t port, const Datagram& packet) {
  const unsigned owner = shard_of(packet, boxes.size());
  if (owner == own) return false;
  boxes[owner]->put({port, packet.source, {packet.data, packet.data + packet.length}});
  return true;
}

UdpShard::UdpShard(unsigned index, size_t slots, size_t values)
    : index_(index),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      strays_(wake_fd_),
      pipeline_(std::make_unique<Pipeline>(slots, values, &ports_)) {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open an eventfd");
}

UdpShard::~UdpShard() {
  stop();
  close(wake_fd_);
}

void UdpShard::add_port(uint16_t number, UdpSocket socket) {
  auto port = std::make_unique<UdpPort>(number, std::move(socket));
  {
    const std::lock_guard<std::mutex> turn(turn_);
    const std::lock_guard<std::mutex> lock(mutex_);
    ports_[number] = std::move(port);
  }
  wake();
}

void UdpShard::set_faults(uint16_t port, const FaultRates& rates, uint64_t seed) {
  control([&](Pipeline&) { ports_[port]->set_faults(rates, seed); });
}

PortCounters UdpShard::port_counters(uint16_t port) {
  return control([&](Pipeline&) { return ports_[port]->counters(); });
}

void UdpShard::reset(size_t slots, size_t values) {
  auto pipeline = std::make_unique<Pipeline>(slots, values, &ports_);
  control([&](Pipeline&) { pipeline_.swap(pipeline); });
}

void UdpShard::start() {
  if (thread_.joinable()) return;
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
}

void UdpShard::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake();
  thread_.join();
}

void UdpShard::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void UdpShard::run() {
  ask_for_short_slices();
  ReceiveBatch datagrams;
  std::vector<UdpPort*> ports;
  std::vector<pollfd> polled;  // wake_fd_, then one for each of `ports`
  const auto list_ports = [&] {
    control([&](Pipeline&) {
      ports.clear();
      polled.assign(1, {wake_fd_, POLLIN, 0});
      for (const auto& port : ports_) {
        if (port == nullptr) continue;
        ports.push_back(static_cast<UdpPort*>(port.get()));  // it has no others, and they are never removed
        polled.push_back({port->fd(), POLLIN, 0});
      }
    });
  };
  list_ports();
  while (!stopping_) {
    if (poll(polled.data(), polled.size(), release_held()) < 0) continue;  // a signal
    for (size_t i = 0; i < ports.size(); ++i) {
      if (polled[i + 1].revents != 0 && datagrams.receive(ports[i]->socket())) process_burst(ports[i], &datagrams);
    }
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
      process_strays();
      list_ports();
    }
  }
}

void UdpShard::process_burst(UdpPort* port, ReceiveBatch* datagrams) {
  control([&](Pipeline& pipeline) {
    Datagram packet;
    while (datagrams->next(&packet)) {
      if (!hand_over(boxes_, index_, port->number(), packet)) pipeline.receive(port, packet);
    }
    pipeline.flush();
  });
}

void UdpShard::process_strays() {
  const std::vector<StrayPacket> strays = strays_.take();
  control([&](Pipeline& pipeline) {
    for (const StrayPacket& stray : strays) {
      pipeline.receive(ports_[stray.port].get(), {stray.bytes.data(), stray.bytes.size(), stray.source});
    }
    pipeline.flush();
  });
}

int UdpShard::release_held() {
  using Clock = Port::Clock;
  return control([&](Pipeline& pipeline) {
    int timeout = -1;
    for (const auto& port : ports_) {
      if (port == nullptr || !port->next_deadline()) continue;
      pipeline.release_expired(port.get(), Clock::now());
      pipeline.flush();
      if (const auto next = port->next_deadline()) {
        const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
        const int bounded = static_cast<int>(std::max<decltype(wait)>(wait, 0));
        timeout = timeout < 0 ? bounded : std::min(timeout, bounded);
      }
    }
    return timeout;
  });
}

}  // namespace switchml
