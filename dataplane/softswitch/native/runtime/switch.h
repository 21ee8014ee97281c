// The soft switch: its shards, the ports that are divided among them, and the operations of the control plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/device_port.h"
#include "dataplane/softswitch/native/ports/fault_injector.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/runtime/shard.h"
#include "dataplane/softswitch/native/shared_memory/shm_listener.h"
#include "dataplane/softswitch/native/shared_memory/shm_port.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "native/runtime/precedence.h"
#include "native/runtime/turns.h"
#include "native/wire/slot_blocks.h"

namespace switchml::soft {

// Every member function may be called from any thread, start() and stop() from one at a time. A control operation
// takes effect between two bursts of packets, never within one.
class Switch : private ShmHost, private PipelineHost {
 public:
  static constexpr unsigned kMostShards = 64;

  // Each shard has a thread, and the slots are divided among the shards (slot_blocks.h). A switch with more than one
  // shard can only have UDP ports, and devices with a queue for each shard. Throws std::invalid_argument, the
  // exceptions of SlotMemory, and std::system_error if the kernel does not give an event descriptor.
  Switch(size_t slots, size_t values, unsigned shards = 1);
  ~Switch() override;
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  // Replaces the pipeline by an empty one. Ports and their faults stay.
  void reset(size_t slots, size_t values);

  // The functions that add a port throw std::invalid_argument if the port number is taken or the port cannot be divided
  // among shards, and the exceptions of UdpSocket, FramePort and PacketPort.
  // Returns the UDP port that was bound.
  uint16_t add_udp_port(uint16_t port, const std::string& address, uint16_t udp_port);
  void add_frame_port(uint16_t port, const std::string& path, const std::string& peer);
  void add_packet_port(uint16_t port, const std::string& interface);
  // Adds a network device whose frames this process moves itself, with a queue for each shard; see DevicePort.
  void add_device_port(uint16_t port, std::vector<std::unique_ptr<net::FrameDevice>> queues, bool busy);
  // Adds a port for ranks on this machine, which bind themselves to it over a socket at `path` (shm_messages.h).
  // `threads` threads serve them; 0 for one thread per CPU.
  void add_shm_port(uint16_t port, const std::string& path, size_t threads);
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
      if (shard == 0) make_sums();
      return operation(pipeline);
    });
  }

 private:
  // Returns the first shard. It has all ports of a switch with one shard, and all shm ports.
  Shard& first() { return *shards_.front(); }
  // Throws std::invalid_argument if a port cannot have this number.
  void require_free(uint16_t port);
  // Adds a port, of which each shard gets a part.
  void add_port(std::vector<std::unique_ptr<Port>> parts);
  // Adds a port that is not divided among shards.
  void add_to_first(std::unique_ptr<Port> port);
  void require_one_shard() const;
  // Calls act(part, shard) for each shard's part of a port, in control operations.
  template <class Act>
  void for_each_part(uint16_t port, Act&& act);
  // In a control operation: makes the sums that wait at shm ports, so that the registers hold them.
  void make_sums();
  ShmGrant bind(uint16_t port, const RankBinding& rank) override;
  void unbind(uint16_t port, uint16_t connection) override;
  std::vector<uint32_t> quiesce(uint16_t port, uint16_t connection, const std::vector<uint32_t>& targets) override;
  ShmPort& shm_port_at(uint16_t port);
  std::shared_ptr<ShmJob> find_shm_job(uint16_t port, const RankBinding& rank);
  // Lets ranks of shm ports see what packets of other ports completed.
  void publish();
  runtime::Turns& turns() override { return first().turns(); }
  Pipeline& pipeline() override { return first().pipeline(); }
  SharedSlotStore& slots() override { return *shared_slots_; }
  void publish_except(const ShmPort* except, std::vector<channel::ChannelControl*>* sleepers) override;

  std::mutex ports_;  // held while ports are added to all shards, or looked up in them
  std::vector<std::unique_ptr<Shard>> shards_;
  bool runs_ = false;  // guarded by ports_
  // The members below are used in turns of the first shard.
  SharedSlotStore* shared_slots_;  // the slots of its pipeline
  std::vector<ShmPort*> shm_ports_;
  ShmJobs shm_jobs_;
  runtime::TenantPrecedences precedences_;                   // of the jobs that share memory with the switch
  std::vector<std::unique_ptr<ShmListener>> shm_listeners_;  // the last member, because listeners use all of the above
};

}  // namespace switchml::soft
