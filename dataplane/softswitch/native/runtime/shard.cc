#include "dataplane/softswitch/native/runtime/shard.h"

#include <algorithm>
#include <chrono>

#include "native/runtime/short_slice.h"

namespace switchml::soft {

void Shard::set_faults(uint16_t port, const FaultRates& rates, uint64_t seed) {
  control([&](Pipeline&) { ports_[port]->set_faults(rates, seed); });
}

PortCounters Shard::port_counters(uint16_t port) {
  return control([&](Pipeline&) { return ports_[port]->counters(); });
}

void Shard::reset(size_t slots, size_t values) {
  auto pipeline = std::make_unique<Pipeline>(slots, values, &ports_);
  control([&](Pipeline&) { pipeline_.swap(pipeline); });
}

void Shard::start() {
  if (thread_.joinable()) return;
  stopping_ = false;
  ports_changed_ = true;
  thread_ = std::thread([this] { run(); });
}

void Shard::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  mailbox_.wake();
  thread_.join();
}

void Shard::run() {
  runtime::ask_for_short_slices();
  ReceiveBuffers buffers;
  PortWatch watch(&mailbox_, &boxes_);
  while (!stopping_) {
    if (ports_changed_.exchange(false)) {
      control([&](Pipeline&) { watch.list(ports_); });
    }
    const bool look_again = watch.look_at_devices(
        [&](DevicePort* port) {
          return control([&](Pipeline&) {
            port->flush();  // what it had no room for before
            return port->receive(&buffers);
          });
        },
        [&](DevicePort* port) { process_frames(port, &buffers); });
    watch.wait(release_held(watch.ports()), look_again, [&](Port* port) {
      if (port->receive(&buffers)) process_datagrams(port, &buffers);
    });
    process_strays();
  }
}

void Shard::process_datagrams(Port* port, ReceiveBuffers* buffers) {
  control([&](Pipeline& pipeline) {
    net::Datagram packet;
    while (buffers->datagrams.next(&packet)) {
      if (!hand_over(boxes_, index_, port->number(), packet)) pipeline.receive(port, packet);
    }
    pipeline.flush();
  });
}

void Shard::process_frames(Port* port, ReceiveBuffers* buffers) {
  control([&](Pipeline& pipeline) {
    net::Datagram frame;
    while (buffers->frames.next(&frame)) pipeline.receive(port, frame);
    pipeline.flush();
  });
}

void Shard::process_strays() {
  const std::vector<StrayPacket> strays = mailbox_.take();
  if (strays.empty()) return;
  control([&](Pipeline& pipeline) {
    for (const StrayPacket& stray : strays) {
      Port* port = ports_[stray.port].get();  // which another shard may have got a moment before
      if (port != nullptr) pipeline.receive(port, {stray.bytes.data(), stray.bytes.size(), stray.source});
    }
    pipeline.flush();
  });
}

int Shard::release_held(const std::vector<Port*>& ports) {
  using Clock = Port::Clock;
  return control([&](Pipeline& pipeline) {
    int timeout = -1;
    for (Port* port : ports) {
      if (!port->next_deadline()) continue;
      pipeline.release_expired(port, Clock::now());
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

}  // namespace switchml::soft
