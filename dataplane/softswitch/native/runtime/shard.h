// A part of the soft switch with its own thread: the slots that belong to it, and a socket or queue of each port.
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

// Shards share no state: each has a copy of all tables, and its own counters and registers, so that no packet waits for
// a lock that another shard holds. Every member function may be called from any thread, start() and stop() from one at
// a time.
class Shard {
 public:
  using Peers = std::vector<std::unique_ptr<Shard>>;

  // This shard is number `index` of `peers`, which must outlive its thread. Throws std::system_error if the kernel does
  // not give an event descriptor.
  Shard(const Peers* peers, unsigned index, std::unique_ptr<SlotStore> slots);
  ~Shard() { stop(); }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Makes the thread call `publish` in a turn after packets have come. To be called before start().
  void publish_after_bursts(std::function<void()> publish) { publish_ = std::move(publish); }
  void start();
  void stop();

  // Runs `operation(pipeline)` between two bursts and returns what it returns.
  template <class Operation>
  auto control(Operation&& operation) {
    return worker_.control([&] { return operation(*pipeline_); });
  }
  // Returns the turns of the threads that share the pipeline.
  runtime::Turns& turns() { return worker_.turns(); }
  // To be called in a turn.
  Pipeline& pipeline() { return *pipeline_; }

  // In a control operation.
  PortTable& ports() { return ports_; }
  // In a control operation: adds this shard's part of a port. Precondition: its number is free.
  void add_port(std::unique_ptr<PipelinePort> port);
  // Replaces the pipeline by an empty one with these slots, after a call of `announce` with it.
  void reset(std::unique_ptr<SlotStore> slots, const std::function<void(Pipeline*)>& announce);

 private:
  void run();
  // Processes the packets that wait at a device port. Returns whether there were any, for this shard or others.
  bool poll(DevicePort* port, ReceiveBuffers* buffers);
  void process(Port* port, ReceiveBuffers* buffers);
  void process_strays();
  // Passes a packet that belongs to another shard to that shard. Returns whether it did.
  bool hand_over(uint16_t port, const net::Datagram& packet);
  // Releases packets that the ports' faults have held long enough. Returns the milliseconds until the next one is due,
  // or -1 if none is held.
  int release_held();

  const Peers* peers_;
  unsigned index_;
  runtime::Worker worker_;
  runtime::Mailbox<StrayPacket> strays_;
  std::function<void()> publish_;
  std::atomic<bool> ports_changed_{true};
  // The members below are used only in turns.
  PortTable ports_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace switchml::soft
