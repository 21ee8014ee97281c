// The ranks on this machine that share memory with the switch: the shm ports, and the jobs whose ranks are bound there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "dataplane/softswitch/native/shared_memory/shm_listener.h"
#include "dataplane/softswitch/native/shared_memory/shm_port.h"
#include "native/runtime/precedence.h"
#include "native/runtime/turns.h"

namespace switchml::soft {

// A port to which ranks on this machine bind themselves over a socket at `path` (shm_messages.h).
struct ShmPortSpec {
  std::string path;
  uint8_t threads = 1;  // that serve them; 0 for one thread per CPU
};

class SharedMemoryService {
 public:
  // The pipeline, its ports and its slots are used in turns of `turns`. All must outlive this object, and the ports
  // their threads: stop() must be called before they are destroyed.
  SharedMemoryService(runtime::Turns* turns, PortTable* all_ports, Pipeline* pipeline, SharedSlotStore* slots)
      : turns_(turns), all_ports_(all_ports), pipeline_(pipeline), slots_(slots) {}
  SharedMemoryService(const SharedMemoryService&) = delete;
  SharedMemoryService& operator=(const SharedMemoryService&) = delete;

  // One thread at a time calls these three.
  // Precondition: the number is free. Throws std::system_error.
  void add_port(uint16_t number, const ShmPortSpec& spec);
  // Start and end the threads of all ports; no effect if these run already, or do not run.
  void start();
  void stop();

  // In a control operation: takes another pipeline with its slots, and forgets what belongs to the one before.
  void replace(Pipeline* pipeline, SharedSlotStore* slots);
  // In a control operation: makes the sums that wait at the ports, so that the registers hold them.
  void make_sums();
  // In a turn: lets ranks see what packets of other ports completed.
  void publish();

  // For listeners. Binds a rank to a new connection, which exists until unbind(), and returns its number at the port.
  // Throws std::invalid_argument for a rank that this switch cannot serve, std::system_error and std::runtime_error.
  std::pair<uint16_t, ShmConnection*> bind(ShmPort* port, const RankBinding& rank);
  void unbind(ShmPort* port, uint16_t connection);

  // For workers.
  runtime::Turns& turns() { return *turns_; }
  // In a turn: the pipeline and its slots, which may be replaced between two turns.
  Pipeline& pipeline() { return *pipeline_; }
  SharedSlotStore& slots() { return *slots_; }
  // In a turn: lets the ranks of all ports but `except` see their results, and appends those that must be woken to
  // `sleepers`.
  void publish_except(const ShmPort* except, std::vector<channel::ChannelControl*>* sleepers);

 private:
  // Returns the generation of the job that is served already, or null. Throws if the rank cannot be served.
  std::shared_ptr<ShmJob> find_job(const ShmPort& port, const RankBinding& rank);

  runtime::Turns* turns_;
  bool runs_ = false;
  // The members below are used in turns.
  PortTable* all_ports_;  // of the pipeline
  Pipeline* pipeline_;
  SharedSlotStore* slots_;
  std::vector<ShmPort*> ports_;
  ShmJobs jobs_;
  runtime::TenantPrecedences precedences_;
  std::vector<std::unique_ptr<ShmListener>> listeners_;  // the last member, because listeners use all of the above
};

}  // namespace switchml::soft
