#include "dataplane/softswitch/native/runtime/shard.h"

#include <algorithm>
#include <chrono>

#include "native/wire/constants.h"
#include "native/wire/slot_blocks.h"
#include "native/wire/wire.h"

namespace switchml::soft {

Shard::Shard(const Peers* peers, unsigned index, std::unique_ptr<SlotStore> slots)
    : peers_(peers),
      index_(index),
      worker_("switchml-switch"),
      strays_(&worker_.wake_event()),
      pipeline_(std::make_unique<Pipeline>(std::move(slots), &ports_)) {}

void Shard::add_port(std::unique_ptr<PipelinePort> port) {
  ports_.add(std::move(port));
  ports_changed_ = true;
  worker_.wake_event().wake();
}

void Shard::reset(std::unique_ptr<SlotStore> slots, const std::function<void(Pipeline*)>& announce) {
  auto pipeline = std::make_unique<Pipeline>(std::move(slots), &ports_);
  worker_.control([&] {
    announce(pipeline.get());
    pipeline_.swap(pipeline);
  });
}

void Shard::start() {
  worker_.start([this] { run(); });
}

void Shard::stop() { worker_.stop(); }

void Shard::run() {
  ReceiveBuffers buffers;
  PortWatch watch(&worker_.wake_event(), &strays_);
  ports_changed_ = true;
  while (!worker_.stopping()) {
    if (ports_changed_.exchange(false)) {
      const auto turn = worker_.turn();
      watch.list(ports_);
    }
    const bool poll_again = watch.poll_devices([&](DevicePort* port) { return poll(port, &buffers); });
    const bool ready = watch.wait(release_held(), poll_again, [&](Port* port) {
      if (port->receive(&buffers)) process(port, &buffers);
    });
    if (publish_ && (poll_again || ready)) {
      const auto turn = worker_.turn();
      publish_();
    }
    if (peers_->size() > 1) process_strays();
  }
}

bool Shard::poll(DevicePort* port, ReceiveBuffers* buffers) {
  bool received = false;
  {
    const auto turn = worker_.turn();
    port->flush();  // sends frames that the device had no room for before
    received = port->receive(buffers);
  }
  const uint64_t handed_to = port->take_handed_to();
  for (uint64_t others = handed_to; others != 0; others &= others - 1) {
    (*peers_)[static_cast<unsigned>(__builtin_ctzll(others))]->worker_.wake_event().nudge();
  }
  if (received) process(port, buffers);
  return received || handed_to != 0;
}

void Shard::process(Port* port, ReceiveBuffers* buffers) {
  const auto turn = worker_.turn();
  net::Datagram packet;
  if (port->carries_frames()) {
    while (buffers->frames.next(&packet)) pipeline_->receive(port, packet);
  } else {
    while (buffers->datagrams.next(&packet)) {
      if (!hand_over(port->number(), packet)) pipeline_->receive(port, packet);
    }
  }
  pipeline_->flush();
}

bool Shard::hand_over(uint16_t port, const net::Datagram& packet) {
  if (peers_->size() == 1) return false;
  if (packet.length < wire::protocol::header_bytes) return false;  // the pipeline drops it
  const uint32_t slot = wire::load_header(packet.data).slot >> 1U;
  const unsigned owner = wire::part_of_slot(slot, static_cast<unsigned>(peers_->size()));
  if (owner == index_) return false;
  (*peers_)[owner]->strays_.put({port, packet.source, {packet.data, packet.data + packet.length}});
  return true;
}

void Shard::process_strays() {
  const std::vector<StrayPacket> strays = strays_.take();
  if (strays.empty()) return;
  const auto turn = worker_.turn();
  for (const StrayPacket& stray : strays) {
    Port* port =
        ports_.find_packet_port(stray.port);  // null if only the other shard has got its part of a new port so far
    if (port != nullptr) pipeline_->receive(port, {stray.bytes.data(), stray.bytes.size(), stray.source});
  }
  pipeline_->flush();
}

int Shard::release_held() {
  using Clock = PipelinePort::Clock;
  const auto turn = worker_.turn();
  int timeout = -1;
  for (PipelinePort* port : ports_.all()) {
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

}  // namespace switchml::soft
