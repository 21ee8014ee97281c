// A part of the soft switch that has a thread of its own: the slots that belong to it, and a socket or a queue of each
// port.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/ports/device_port.h"
#include "dataplane/softswitch/native/ports/fault_injector.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/runtime/port_watch.h"
#include "dataplane/softswitch/native/runtime/stray_packet.h"
#include "native/net/udp_batch.h"
#include "native/runtime/mailbox.h"
#include "native/runtime/turns.h"
#include "native/runtime/worker.h"

namespace switchml::soft {

// Shards share nothing: each has all tables, and counters and registers of its own, so that no packet waits for a lock
// that another shard holds. Every member function may be called from any thread, start() and stop() from one at a time.
class Shard {
 public:
  using Peers = std::vector<std::unique_ptr<Shard>>;

  // One of `peers`, by `index`; they outlive its thread. Throws std::system_error when the kernel gives no event
  // descriptor.
  Shard(const Peers* peers, unsigned index, std::unique_ptr<SlotStore> slots);
  ~Shard() { stop(); }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Before start(): calls `publish` in a turn of the thread after packets have come.
  void publish_after_bursts(std::function<void()> publish) { publish_ = std::move(publish); }
  void start();
  void stop();

  // Runs `operation(pipeline)` between two bursts and returns what it returns.
  template <class Operation>
  auto control(Operation&& operation) {
    return worker_.control([&] { return operation(*pipeline_); });
  }
  // What those who share the pipeline with the thread take turns by.
  runtime::Turns& turns() { return worker_.turns(); }
  // In a turn.
  Pipeline& pipeline() { return *pipeline_; }

  // In a control operation: the port of this number, or null.
  PipelinePort* port(uint16_t number) const { return ports_.find(number); }
  // In a control operation: adds this shard's part of a port, or a port without packets. Its number is free.
  void add_port(std::unique_ptr<Port> port);
  void add_port_without_packets(std::unique_ptr<PipelinePort> port) { ports_.add_without_packets(std::move(port)); }
  // Replaces the pipeline by an empty one with these slots, right after `forget` was called.
  void reset(std::unique_ptr<SlotStore> slots, const std::function<void()>& forget);

 private:
  void run();
  // Takes what waits at a device port, and returns whether there was anything, for this shard or others.
  bool poll(DevicePort* port, ReceiveBuffers* buffers);
  void process(Port* port, ReceiveBuffers* buffers);
  void process_strays();
  // Hands a packet over that belongs to another shard. Returns whether it did.
  bool hand_over(uint16_t port, const net::Datagram& packet);
  // Releases what the ports' faults held long enough. Returns the milliseconds until the next is due, -1 for never.
  int release_held();

  const Peers* peers_;
  unsigned index_;
  runtime::Worker worker_;
  runtime::Mailbox<StrayPacket> strays_;
  std::function<void()> publish_;
  std::atomic<bool> ports_changed_{true};
  // What follows is used in turns.
  PortTable ports_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace switchml::soft
