// A switch port for ranks on the same machine. It adds up their contributions, and replaces them by the sum, in the
// memory that the ranks wrote them to.
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

// A contribution is lost here only on purpose, or while worker_table has no entry for the rank. The port then
// retransmits it for the rank, as an agent would. If this switch is below another one, its contribution to that one can
// be lost as well, and the port lets the switch send it again (uplink.h).
class ShmPort : public PipelinePort {
 public:
  static constexpr size_t kMostWorkers = 32;

  // `service` must outlive this object. Throws std::system_error.
  ShmPort(uint16_t number, SharedMemoryService* service, size_t workers);
  ShmPort(const ShmPort&) = delete;
  ShmPort& operator=(const ShmPort&) = delete;

  void start();
  void stop();

  // Returns the CPUs on which a rank is served.
  const std::vector<int>& cpus_for(const RankBinding& rank) const { return worker_of(rank).cpus(); }
  // The functions below are for control operations unless they say otherwise.
  // Returns the number of the new connection. Throws std::runtime_error if all numbers are in use.
  uint16_t attach(std::unique_ptr<ShmConnection> connection);
  // The caller must keep the connection until SharedSlotStore::take_over(): the job's slots still use its memory.
  std::unique_ptr<ShmConnection> detach(uint16_t number);
  // Makes all waiting sums.
  void make_sums();
  // Forgets all sums, because their pipeline is being replaced.
  void forget_sums();
  // A change of epoch: freezes a rank or, if `targets` is not empty, lets it fetch; returns the number of phases that
  // it holds of each slot. Throws std::invalid_argument.
  std::vector<uint32_t> quiesce(uint16_t number, const std::vector<uint32_t>& targets);

  // In a control operation or a data thread's turn: returns whether packets are lost, delayed, repeated or changed here
  // on purpose.
  bool is_faulty(const Pipeline& pipeline) const;
  // In a data thread's turn: passes one contribution to `pipeline`.
  void contribute(Pipeline* pipeline, uint16_t number, ShmConnection* connection, const wire::Header& header,
                  Clock::time_point now);
  // In a data thread's turn: the sums that the workers must make, and a call that wakes one more worker for those that
  // wait.
  SumQueue& sums() { return sums_; }
  void wake_for_sums();
  // At the start of a data thread's turn: releases packets that the port's faults have held long enough.
  void begin_turn(Pipeline* pipeline, Clock::time_point now);
  // In a data thread's turn: lets the ranks see their results, and appends those that must be woken to `sleepers`. With
  // `nothing_left` to do, a sleeping rank is woken for any result, otherwise only for the number that it waits for.
  void publish(bool nothing_left, std::vector<channel::ChannelControl*>* sleepers);
  // In a data thread's turn: returns whether there are results that the ranks cannot see before publish().
  bool has_results() const { return has_results_; }

  PortCounters counters() const override;
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;

 protected:
  void send_due() override;

 private:
  // Returns the worker that serves a rank. Neighbouring ranks share a worker, and all workers have about the same
  // number of ranks.
  ShmWorker& worker_of(const RankBinding& rank) const;
  // Does the same with a real packet, which the port's faults can delay or lose.
  void contribute_as_packet(Pipeline* pipeline, uint16_t number, const ShmConnection& connection,
                            const wire::Header& header);
  ShmConnection* find(uint16_t number) const;
  void complete(ShmConnection* connection, const uint8_t* header, const uint8_t* words);

  std::map<uint16_t, std::unique_ptr<ShmConnection>> connections_;
  uint16_t last_number_ = 0;
  bool loses_ = false;  // packets are or were lost on purpose, so any contribution in flight may be lost
  uint64_t sent_ = 0;
  bool has_results_ = false;
  SumQueue sums_;
  std::vector<uint8_t> packet_;
  std::vector<std::unique_ptr<ShmWorker>> workers_;
};

}  // namespace switchml::soft
