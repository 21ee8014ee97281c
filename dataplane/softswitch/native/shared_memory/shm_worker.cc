#include "dataplane/softswitch/native/shared_memory/shm_worker.h"

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "dataplane/softswitch/native/shared_memory/shared_memory_service.h"
#include "dataplane/softswitch/native/shared_memory/shm_port.h"
#include "native/runtime/cpus.h"
#include "native/runtime/stopwatch.h"

namespace switchml::soft {
namespace {

// A small number, so that ranks can continue with complete slots while the others are being added up.
constexpr unsigned kTakenPerTurn = 32;
// A rank with fewer results than it waits for is woken when its worker goes to sleep, or after this many turns if the
// worker does not sleep.
constexpr unsigned kTurnsPerWake = 16;

void watch(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edge-triggered, so that the eventfd need not be read
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot watch a doorbell with epoll");
  }
}

}  // namespace

ShmWorker::ShmWorker(ShmPort* port, SharedMemoryService* service, std::vector<int> cpus)
    : port_(port),
      service_(service),
      cpus_(std::move(cpus)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      worker_("switchml-shm", &service->turns()) {
  if (epoll_ < 0)
    throw std::system_error(errno, std::generic_category(), "cannot create the epoll instance of a shm port");
  watch(epoll_, worker_.wake_event().fd());
}

ShmWorker::~ShmWorker() {
  stop();
  close(epoll_);
}

void ShmWorker::start() {
  worker_.start([this] { run(); });
}

void ShmWorker::stop() { worker_.stop(); }

void ShmWorker::run_all() {
  port_->sums().run_all(&made_);
  if (!made_.empty()) wake();
}

void ShmWorker::wake_asleep() {
  asleep_ = false;
  wake();
}

ShmWorker::Place ShmWorker::place_of(uint16_t number, const ShmConnection& connection) {
  const RankBinding& rank = connection.rank();
  return {rank.tenant, runtime::Precedence::kPriorities - rank.priority, number};
}

void ShmWorker::attach(uint16_t number, ShmConnection* connection) {
  watch(epoll_, connection->doorbell());
  connections_.emplace(place_of(number, *connection), connection);
}

void ShmWorker::detach(uint16_t number, const ShmConnection& connection) {
  const auto found = connections_.find(place_of(number, connection));
  if (found == connections_.end()) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second->doorbell(), nullptr);
  connections_.erase(found);
}

void ShmWorker::run() {
  runtime::stay_on(cpus_);
  while (!worker_.stopping()) {
    if (!turn()) sleep();
  }
}

bool ShmWorker::turn() {
  bool any = false;
  {
    const auto turn = worker_.turn();
    any = !made_.empty();
    Pipeline& pipeline = service_->pipeline();
    SharedSlotStore& slots = service_->slots();
    for (const SumTask& sum : made_) {
      const Completion* completion = slots.finish(sum);
      if (completion != nullptr) pipeline.send_completed(sum.half, *completion);
    }
    any = serve(&pipeline) || any;
    pipeline.flush();
    port_->sums().exchange(made_.size(), &tasks_);
    port_->wake_for_sums();
    port_->publish(any && ++passes_ % kTurnsPerWake == 0, &sleepers_);
    service_->publish_except(port_, &sleepers_);
    values_ = worker_.turns().work_outside();
  }
  wake_sleepers();
  made_.clear();
  if (!tasks_.empty()) {
    const runtime::Stopwatch summing;
    for (const SumTask& task : tasks_) task.run();
    const uint64_t each = summing.nanoseconds() / tasks_.size();
    for (const SumTask& task : tasks_) task.job->count_summing(each);
  }
  made_.swap(tasks_);
  any = any || !made_.empty();
  values_.unlock();
  return any;
}

void ShmWorker::wake_sleepers() {
  for (channel::ChannelControl* sleeper : sleepers_) channel::wake_process(*sleeper);
  sleepers_.clear();
}

bool ShmWorker::serve(Pipeline* pipeline) {
  const Clock::time_point now = Clock::now();
  port_->begin_turn(pipeline, now);
  bool any = false;
  unsigned taken = 0;
  for (const auto& [place, connection] : connections_) {
    const uint16_t number = place.number;
    connection->job().uplink().end_batch(now, connection->yields());
    wire::Header header;
    while (taken < kTakenPerTurn * connections_.size() && connection->take(&header)) {
      any = true;
      port_->contribute(pipeline, number, connection, header, now);
      ++taken;
    }
    connection->update_hold(now);
    any = repeat_contributions(pipeline, number, connection, now) || any;
    if (connection->next_retransmission() <= now) {
      any = true;
      connection->retransmit(now, [&, again = number, rank = connection](const wire::Header& sent) {
        port_->contribute(pipeline, again, rank, sent, now);
      });
    }
  }
  return any;
}

bool ShmWorker::repeat_contributions(Pipeline* pipeline, uint16_t number, ShmConnection* connection,
                                     Clock::time_point now) {
  Uplink& uplink = connection->job().uplink();
  if (uplink.next_deadline() == Clock::time_point::max()) return false;
  bool any = false;
  for (const uint32_t slot : uplink.due(now)) {
    if (!connection->may_repeat(slot)) continue;
    any = true;
    port_->contribute(pipeline, number, connection, connection->repeated(slot), now);
  }
  return any;
}

void ShmWorker::sleep() {
  std::optional<Clock::time_point> deadline;
  bool may_sleep = false;
  {
    const auto turn = worker_.turn();
    if (port_->sums().any_wait()) return;
    may_sleep = prepare_sleep();
    asleep_ = may_sleep;
    deadline = next_deadline();
    values_ = worker_.turns().work_outside();
  }
  wake_sleepers();
  values_.unlock();
  if (!may_sleep) return;
  int timeout = -1;
  if (deadline) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    timeout = static_cast<int>(std::max<decltype(wait)>(wait, 0));
  }
  std::array<epoll_event, 64> events;
  epoll_wait(epoll_, events.data(), events.size(), timeout);
  const auto turn = worker_.turn();
  asleep_ = false;
  for (const auto& [place, connection] : connections_) connection->expect_no_ring();
}

bool ShmWorker::prepare_sleep() {
  port_->publish(!port_->sums().any_left(), &sleepers_);
  const auto processor = static_cast<uint32_t>(sched_getcpu());
  ShmJob* job = nullptr;
  const ShmConnection* awaited = nullptr;
  for (const auto& [place, connection] : connections_) {
    connection->server_sleeps_on(processor);
    if (job != &connection->job()) {  // mostly it is the same as that of the previous connection
      job = &connection->job();
      awaited = awaited_of(job);
    }
    if (awaited == nullptr || awaited == connection) {
      // Waking this thread costs as much as a few slots, so the rank rings only for a whole pool, or for its last
      // submission.
      connection->expect_ring(connection->rank().job.slots);
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return std::none_of(connections_.begin(), connections_.end(), [](const auto& each) {
    ShmConnection& connection = *each.second;
    return (connection.expects_ring() && connection.submissions_wait()) || connection.may_send();
  });
}

// A slot's result cannot come before every rank has contributed to it. So if a rank has nothing in flight, no result of
// its job can come before this rank submits a slot, and no other rank need ring. Among several such ranks the slowest
// one is chosen: when it rings, the others have probably submitted, too.
const ShmConnection* ShmWorker::awaited_of(ShmJob* job) const {
  const ShmConnection* behind = nullptr;
  const ShmConnection* ahead = nullptr;
  const ShmConnection* awaited = nullptr;
  const auto visit = [&](auto&& act) {
    for (const auto& [place, connection] : connections_) {
      if (&connection->job() == job) act(connection);
    }
  };
  visit([&](const ShmConnection* connection) {
    if (behind == nullptr || connection->is_behind(*behind)) behind = connection;
    if (ahead == nullptr || ahead->is_behind(*connection)) ahead = connection;
  });
  if (behind->is_behind(*ahead)) job->set_slowest(behind->rank().worker);
  visit([&](const ShmConnection* connection) {
    const bool slowest = connection->rank().worker == job->slowest();
    if (connection->has_nothing_in_flight() && (awaited == nullptr || slowest)) awaited = connection;
  });
  return awaited;
}

std::optional<ShmWorker::Clock::time_point> ShmWorker::next_deadline() const {
  std::optional<Clock::time_point> earliest = port_->next_deadline();
  for (const auto& [place, connection] : connections_) {
    const auto next = std::min(
        {connection->next_retransmission(), connection->job().uplink().next_deadline(), connection->hold_deadline()});
    if (next != Clock::time_point::max()) earliest = std::min(earliest.value_or(next), next);
  }
  return earliest;
}

}  // namespace switchml::soft
