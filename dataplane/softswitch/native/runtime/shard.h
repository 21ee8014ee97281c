// A part of the soft switch that has a thread of its own: the slots that belong to it, and a socket or a queue of each
// port.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/device_port.h"
#include "dataplane/softswitch/native/ports/fault_injector.h"
#include "dataplane/softswitch/native/ports/port.h"
#include "dataplane/softswitch/native/ports/udp_port.h"
#include "dataplane/softswitch/native/runtime/mailbox.h"
#include "dataplane/softswitch/native/runtime/port_watch.h"

namespace switchml::soft {

// Beside the switch's own thread, which is shard 0 and serves ports of every kind, there may be several of these. They
// share nothing: each has all tables, and counters and registers of its own, so that no packet waits for a lock that
// another shard holds. Every member function may be called from any thread, start() and stop() from one at a time.
class Shard {
 public:
  // Throws what SlotMemory throws; std::system_error when the kernel gives no event descriptor.
  Shard(unsigned index, size_t slots, size_t values)
      : index_(index), pipeline_(std::make_unique<Pipeline>(slots, values, &ports_)) {}
  ~Shard() { stop(); }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  Mailbox& mailbox() { return mailbox_; }
  // Those of all shards, by number; they outlive its thread.
  void set_boxes(const std::vector<Mailbox*>& boxes) { boxes_ = boxes; }
  // The port's part for this shard: a UdpPort or a DevicePort, made from its number and `arguments`. Throws what that
  // throws.
  template <class Kind, class... Arguments>
  void add_port(uint16_t number, Arguments&&... arguments) {
    auto port = std::make_unique<Kind>(number, std::forward<Arguments>(arguments)...);
    control([&](Pipeline&) { ports_[number] = std::move(port); });
    ports_changed_ = true;
    mailbox_.wake();
  }
  void set_faults(uint16_t port, const FaultRates& rates, uint64_t seed);
  PortCounters port_counters(uint16_t port);
  void reset(size_t slots, size_t values);
  void start();
  void stop();

  // Runs `operation(pipeline)` between two bursts and returns what it returns.
  template <class Operation>
  auto control(Operation&& operation) {
    const std::lock_guard<std::mutex> turn(turn_);
    const std::lock_guard<std::mutex> lock(mutex_);
    return operation(*pipeline_);
  }

 private:
  void run();
  void process_datagrams(Port* port, ReceiveBuffers* buffers);
  void process_frames(Port* port, ReceiveBuffers* buffers);
  void process_strays();
  // Releases what the ports' faults held long enough. Returns the milliseconds until the next is due, -1 for never.
  int release_held(const std::vector<Port*>& ports);

  unsigned index_;
  Mailbox mailbox_;
  std::vector<Mailbox*> boxes_;
  std::mutex turn_;   // whoever has it is next: the thread asks again at once, and would keep others out
  std::mutex mutex_;  // guards everything below but the thread's own
  Ports ports_;
  std::unique_ptr<Pipeline> pipeline_;
  std::atomic<bool> ports_changed_{true};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchml::soft
