// The soft switch: its shards, the ports that are divided among them, and the operations of the control plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/device_port.h"
#include "dataplane/softswitch/native/ports/ethernet_port.h"
#include "dataplane/softswitch/native/ports/fault_injector.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/ports/udp_port.h"
#include "dataplane/softswitch/native/runtime/shard.h"
#include "dataplane/softswitch/native/shared_memory/shared_memory_service.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "native/wire/slot_blocks.h"

namespace switchml::soft {

// The description of a port.
using PortSpec = std::variant<UdpPortSpec, FramePortSpec, PacketPortSpec, DevicePortSpec, ShmPortSpec>;

// Every member function may be called from any thread, start() and stop() from one at a time. A control operation
// takes effect between two bursts of packets, never within one.
class Switch {
 public:
  static constexpr unsigned kMostShards = 64;

  // Each shard has a thread, and the slots are divided among the shards (slot_blocks.h). A switch with more than one
  // shard can only have UDP ports, and devices with a queue for each shard. Throws std::invalid_argument, the
  // exceptions of SlotMemory, and std::system_error if the kernel does not give an event descriptor.
  Switch(size_t slots, size_t values, unsigned shards = 1);
  ~Switch() { stop(); }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  // Replaces the pipeline by an empty one. Ports and their faults stay.
  void reset(size_t slots, size_t values);

  // Returns the UDP port that was bound, 0 for other ports. Throws std::invalid_argument if the port number is taken or
  // the port cannot be divided among shards, and the exceptions of open_port().
  uint16_t add_port(uint16_t number, PortSpec spec);
  // Throws std::out_of_range for a port that does not exist, like every function that takes a port number.
  void set_faults(uint16_t port, const FaultRates& rates, uint64_t seed);
  PortCounters port_counters(uint16_t port);

  // Start and end the data threads; while these do not run, packets wait in the sockets. No effect if the threads run
  // already, or do not run.
  void start();
  void stop();

  // Runs `operation(pipeline)`, which changes tables or groups, on every shard between two bursts.
  template <class Operation>
  void control(Operation&& operation) {
    for (const auto& shard : shards_) shard->control(operation);
  }
  // Returns the sum over all shards of the counter that `find(pipeline)` returns a reference to.
  template <class Find>
  Counter read_counter(Find&& find) {
    Counter sum;
    for (const auto& shard : shards_) {
      const Counter part = shard->control([&](Pipeline& pipeline) -> Counter { return find(pipeline); });
      sum.packets += part.packets;
      sum.bytes += part.bytes;
    }
    return sum;
  }
  template <class Find>
  void write_counter(Find&& find, Counter value) {
    for (const auto& shard : shards_) {
      shard->control([&](Pipeline& pipeline) { find(pipeline) = std::exchange(value, {}); });
    }
  }
  // Runs `operation(pipeline)` on the shard of a register index and returns what it returns.
  template <class Operation>
  auto control_slot(size_t index, Operation&& operation) {
    const unsigned shard =
        wire::part_of_slot(static_cast<uint32_t>(index >> 1U), static_cast<unsigned>(shards_.size()));
    return shards_[shard]->control([&](Pipeline& pipeline) {
      if (shard == 0) shared_memory_->make_sums();
      return operation(pipeline);
    });
  }

 private:
  // Returns the first shard, the one that shares memory with ranks.
  Shard& first() { return *shards_.front(); }
  // Throws std::invalid_argument if a port cannot have this number.
  void require_free(uint16_t port);
  // Adds a port to the shards.
  template <class Spec>
  void add(uint16_t number, Spec&& spec);
  void add(uint16_t number, ShmPortSpec&& spec);
  // Calls act(part, shard) for each shard's part of a port, in control operations.
  template <class Act>
  void for_each_part(uint16_t port, Act&& act);

  std::mutex ports_;  // held while ports are added to all shards, or looked up in them
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<SharedMemoryService> shared_memory_;  // after the first shard, whose pipeline it uses
};

}  // namespace switchml::soft
