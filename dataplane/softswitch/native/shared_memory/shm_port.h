// A switch port for ranks on the same machine: their contributions are added up, and replaced by the sum, in the memory
// that they were written to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/shared_memory/shm_connection.h"
#include "dataplane/softswitch/native/shared_memory/shm_worker.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"

namespace switchml::soft {

// Nothing is lost here but on purpose, or while worker_table has no entry for a rank; then the port itself retransmits
// a contribution on the rank's behalf, as an agent would.
class ShmPort : public PipelinePort {
 public:
  static constexpr size_t kMostWorkers = 32;

  // `host` outlives it. Throws std::system_error.
  ShmPort(uint16_t number, PipelineHost* host, size_t workers);
  ShmPort(const ShmPort&) = delete;
  ShmPort& operator=(const ShmPort&) = delete;

  void start();
  void stop();

  // The CPUs near which a rank is served.
  const std::vector<int>& cpus_for(const RankBinding& rank) const { return worker_of(rank).cpus(); }
  // In a control operation, as all that follows but what says otherwise.
  // The number that stands for the connection from now on. Throws std::runtime_error when all are in use.
  uint16_t attach(std::unique_ptr<ShmConnection> connection);
  // Its job's slots still need the connection's memory (SharedSlotStore::take_over).
  std::unique_ptr<ShmConnection> detach(uint16_t number);
  // Makes the sums that wait.
  void make_sums();
  // Forgets all sums: the pipeline that they belong to goes away.
  void forget_sums();
  // A change of epoch: freezes a rank or, where there are `targets`, lets it fetch; returns how many phases of each
  // slot it holds. Throws std::invalid_argument.
  std::vector<uint32_t> quiesce(uint16_t number, const std::vector<uint32_t>& targets);

  // In a data thread's turn: puts one contribution through `pipeline`.
  void contribute(Pipeline* pipeline, uint16_t number, ShmConnection* connection, const wire::Header& header,
                  Clock::time_point now);
  // In a data thread's turn: the sums that workers have to make, and a worker more for those that wait.
  SumQueue& sums() { return sums_; }
  void wake_for_sums();
  // At the start of a data thread's turn: lets go of what the port's faults held long enough.
  void begin_turn(Pipeline* pipeline, Clock::time_point now);
  // In a data thread's turn: lets the ranks see their results, and appends those to `sleepers` that are to be woken for
  // so many, or for any if there is `nothing_left` to do.
  void publish(bool nothing_left, std::vector<channel::ChannelControl*>* sleepers);
  // In a data thread's turn: whether there are results that publish() has not let the ranks see.
  bool has_results() const { return has_results_; }

  PortCounters counters() const override;
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;

 protected:
  void send_due() override;

 private:
  // Serves a rank. Neighbouring ranks share a worker, and workers have about as many ranks each.
  ShmWorker& worker_of(const RankBinding& rank) const;
  // The same with a packet of its own, which can be held back or lost like any other.
  void contribute_as_packet(Pipeline* pipeline, uint16_t number, const ShmConnection& connection,
                            const wire::Header& header);
  ShmConnection* find(uint16_t number) const;
  void complete(ShmConnection* connection, const uint8_t* header, const uint8_t* words);

  std::map<uint16_t, std::unique_ptr<ShmConnection>> connections_;
  uint16_t last_number_ = 0;
  bool loses_ = false;  // packets are, or were, lost on purpose: whatever is in flight may be
  uint64_t sent_ = 0;
  bool has_results_ = false;
  SumQueue sums_;
  std::vector<uint8_t> packet_;
  std::vector<std::unique_ptr<ShmWorker>> workers_;
};

}  // namespace switchml::soft
