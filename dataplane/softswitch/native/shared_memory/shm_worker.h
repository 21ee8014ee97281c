// A thread of a shm port. It serves some of the ranks, and makes any sums that wait at the port while it runs. Each
// worker stays on some of the CPUs and asks the threads of its ranks to stay there, too. So the worker runs while its
// ranks wait, and the sums are spread over all cores.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_connection.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"
#include "native/channel/channel.h"
#include "native/runtime/turns.h"
#include "native/runtime/worker.h"

namespace switchml::soft {

class SharedMemoryService;
class ShmPort;

class ShmWorker {
 public:
  using Clock = std::chrono::steady_clock;

  // `port` and `service` must outlive this object. Throws std::system_error.
  ShmWorker(ShmPort* port, SharedMemoryService* service, std::vector<int> cpus);
  ~ShmWorker();
  ShmWorker(const ShmWorker&) = delete;
  ShmWorker& operator=(const ShmWorker&) = delete;

  void start();
  void stop();
  const std::vector<int>& cpus() const { return cpus_; }

  // In a control operation. Throws std::system_error.
  void attach(uint16_t number, ShmConnection* connection);
  void detach(uint16_t number, const ShmConnection& connection);
  // Wakes the worker, which then looks for new work.
  void wake() { worker_.wake_event().wake(); }

  // In a data thread's turn: returns whether the worker sleeps and was not woken yet.
  bool asleep() const { return asleep_; }
  // In a data thread's turn: wakes the worker. Precondition: asleep().
  void wake_asleep();
  // In a control operation: makes all waiting sums.
  void run_all();
  // In a control operation: forgets the sums that it has made.
  void forget_sums() { made_.clear(); }

 private:
  void run();
  // Finishes the sums that were made, takes the slots that the ranks have submitted, and makes the sums that became
  // possible. Returns whether there was any work.
  bool turn();
  bool serve(Pipeline* pipeline);
  // Lets the switch send those contributions to its parent again whose RESULTs are missing: all ranks of the job have
  // contributed to them, so a retransmission by any of these does. Returns whether there were any.
  bool repeat_contributions(Pipeline* pipeline, uint16_t number, ShmConnection* connection, Clock::time_point now);
  void sleep();
  // Wakes the ranks in sleepers_, which the turn has collected; values_ must be held.
  void wake_sleepers();
  // Tells the ranks when they must ring, and wakes those that have results. Returns false if a slot was submitted
  // during this call, or results have let a window move on: then the thread must not sleep.
  bool prepare_sleep();
  // Returns a rank without which no result of the job can come, or null.
  const ShmConnection* awaited_of(ShmJob* job) const;
  std::optional<Clock::time_point> next_deadline() const;

  // The place of a connection in a round: those of urgent jobs come before others of their tenant.
  struct Place {
    uint64_t tenant = 0;
    unsigned less_urgent = 0;
    uint16_t number = 0;  // of the connection

    bool operator<(const Place& other) const {
      return std::tie(tenant, less_urgent, number) < std::tie(other.tenant, other.less_urgent, other.number);
    }
  };
  static Place place_of(uint16_t number, const ShmConnection& connection);

  ShmPort* port_;
  SharedMemoryService* service_;
  std::vector<int> cpus_;
  int epoll_ = -1;  // watches the doorbells and the worker's event
  std::map<Place, ShmConnection*> connections_;
  bool asleep_ = false;
  std::vector<SumTask> tasks_;
  std::vector<SumTask> made_;  // run_all(), in a control operation, also adds to them
  std::vector<channel::ChannelControl*>
      sleepers_;  // processes to wake while values_ is held, so that their memory still exists
  runtime::Turns::Outside values_;
  unsigned passes_ = 0;
  runtime::Worker worker_;
};

}  // namespace switchml::soft
