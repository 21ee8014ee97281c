// A part of the soft switch that has a thread of its own: the slots that belong to it, and a socket of each UDP port.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dataplane/native/udp_batch.h"
#include "dataplane/softswitch/native/fault_injector.h"
#include "dataplane/softswitch/native/pipeline.h"
#include "dataplane/softswitch/native/port.h"
#include "dataplane/softswitch/native/udp_port.h"

namespace switchml {

// A packet that came to another shard than its slot's.
struct StrayPacket {
  uint16_t port;
  sockaddr_in source;
  std::vector<uint8_t> bytes;
};

// Where packets for a shard wait that others got.
class StrayBox {
 public:
  // So many packets wait; what comes beyond is lost, as it would be in a socket whose buffer is full.
  static constexpr size_t kMost = 4096;

  // `wake` is an eventfd that its owner polls.
  explicit StrayBox(int wake) : wake_(wake) {}

  void put(StrayPacket packet);
  std::vector<StrayPacket> take();

 private:
  int wake_;
  std::mutex mutex_;
  std::vector<StrayPacket> packets_;
};

// Which of `shards` a packet belongs to.
unsigned shard_of(const Datagram& packet, size_t shards);

// Hands a packet over that belongs to another shard than `own`. Returns whether it did.
bool hand_over(const std::vector<StrayBox*>& boxes, unsigned own, uint16_t port, const Datagram& packet);

// A shard of its own thread. Beside the switch's own thread, which is shard 0 and serves ports of every kind, there may
// be several of these. They share nothing: each has all tables, and counters and registers of its own, so that no
// packet waits for a lock that another shard holds. Every member function may be called from any thread, start() and
// stop() from one at a time.
class UdpShard {
 public:
  // Throws what SlotMemory throws; std::system_error when the kernel gives no event descriptor.
  UdpShard(unsigned index, size_t slots, size_t values);
  ~UdpShard();
  UdpShard(const UdpShard&) = delete;
  UdpShard& operator=(const UdpShard&) = delete;

  StrayBox& strays() { return strays_; }
  // The boxes of all shards, by number; they outlive its thread.
  void set_boxes(const std::vector<StrayBox*>& boxes) { boxes_ = boxes; }
  // The port's socket for this shard.
  void add_port(uint16_t number, UdpSocket socket);
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
  void process_burst(UdpPort* port, ReceiveBatch* datagrams);
  void process_strays();
  // Releases what the ports' faults held long enough. Returns the milliseconds until the next is due, -1 for never.
  int release_held();
  void wake() const;

  unsigned index_;
  int wake_fd_;
  StrayBox strays_;
  std::vector<StrayBox*> boxes_;
  std::mutex turn_;   // whoever has it is next: the thread asks again at once, and would keep others out
  std::mutex mutex_;  // guards everything below but the thread's own
  Ports ports_;
  std::unique_ptr<Pipeline> pipeline_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchml
