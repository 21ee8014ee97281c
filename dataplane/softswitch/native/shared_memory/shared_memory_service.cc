#include "dataplane/softswitch/native/shared_memory/shared_memory_service.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "native/channel/channel.h"
#include "native/channel/direct_memory.h"
#include "native/runtime/cpus.h"

namespace switchml::soft {

void SharedMemoryService::add_port(uint16_t number, const ShmPortSpec& spec) {
  const size_t threads = spec.threads == 0 ? runtime::cpus().size() : spec.threads;
  auto made = std::make_unique<ShmPort>(number, this, std::clamp<size_t>(threads, 1, ShmPort::kMostWorkers));
  ShmPort* port = made.get();
  // Before the port is added: one without a socket would be useless, and could not be removed.
  listeners_.push_back(std::make_unique<ShmListener>(spec.path, port, this));
  {
    const runtime::Turns::Control turn(turns_);
    all_ports_->add(std::move(made));
    ports_.push_back(port);
  }
  if (runs_) port->start();
  listeners_.back()->start();
}

void SharedMemoryService::start() {
  runs_ = true;
  for (ShmPort* port : ports_) port->start();
}

void SharedMemoryService::stop() {
  runs_ = false;
  for (ShmPort* port : ports_) port->stop();
}

void SharedMemoryService::replace(Pipeline* pipeline, SharedSlotStore* slots) {
  // Otherwise waiting sums would be made in the memory of the old pipeline and finished in the new one.
  for (ShmPort* port : ports_) port->forget_sums();
  jobs_.forget_results();
  pipeline_ = pipeline;
  slots_ = slots;
}

void SharedMemoryService::make_sums() {
  for (ShmPort* port : ports_) port->make_sums();
}

void SharedMemoryService::publish_except(const ShmPort* except, std::vector<channel::ChannelControl*>* sleepers) {
  for (ShmPort* port : ports_) {
    // A port without new results is left out: publishing there would wake ranks that sleep until there are more.
    if (port != except && port->has_results()) port->publish(true, sleepers);
  }
}

void SharedMemoryService::publish() {
  std::vector<channel::ChannelControl*> sleepers;
  publish_except(nullptr, &sleepers);
  for (channel::ChannelControl* sleeper : sleepers) channel::wake_process(*sleeper);
}

std::shared_ptr<ShmJob> SharedMemoryService::find_job(const ShmPort& port, const RankBinding& rank) {
  const ShmJobKey& key = rank.job;
  const size_t values = slots_->values_per_packet();
  const size_t most_slots = slots_->halves() / 2;
  if (key.values != values) {
    throw std::invalid_argument("packets of this switch have " + std::to_string(values) + " values, not " +
                                std::to_string(key.values));
  }
  if (size_t{key.slot_base} + key.slots > most_slots) {
    throw std::invalid_argument("this switch has " + std::to_string(most_slots) +
                                " slots, and those of the job exceed this range");
  }
  std::shared_ptr<ShmJob> job = jobs_.get(key);
  if (job != nullptr && job->has_rank(rank.worker)) {
    throw std::invalid_argument("rank " + std::to_string(rank.rank) + " of job " + std::to_string(key.job) +
                                " has a connection already (requested at port " + std::to_string(port.number()) + ")");
  }
  return job;
}

namespace {

void make_direct_memory(ShmJob* job) {
  const uint32_t ranks = job->key().world_size;
  if (ranks < 2 || ranks > channel::DirectControl::kMostRanks) return;
  channel::SharedMemory memory("switchml-direct", channel::DirectMemory::bytes(ranks),
                               channel::SharedMemory::Others::may_write);
  channel::DirectMemory::make(memory.data(), ranks);
  job->set_direct(std::move(memory));
}

}  // namespace

// The memory is made while packets flow, without a turn, so the state of the switch is checked before and after it.
std::pair<uint16_t, ShmConnection*> SharedMemoryService::bind(ShmPort* port, const RankBinding& rank) {
  std::shared_ptr<ShmJob> job;
  std::shared_ptr<runtime::Precedence> precedence;
  bool faulty = false;
  {
    const runtime::Turns::Control turn(turns_);
    job = find_job(*port, rank);
    faulty = port->is_faulty(*pipeline_);
    precedence = precedences_.of(rank.tenant);
  }
  const bool is_new = job == nullptr;
  if (is_new) {
    job = std::make_shared<ShmJob>(rank.job);
    // Injected faults would have no effect on direct calls.
    if (rank.one_port && !faulty) make_direct_memory(job.get());
  }
  const int doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (doorbell < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  auto made = std::make_unique<ShmConnection>(rank, job, doorbell, port->cpus_for(rank), std::move(precedence));
  ShmConnection* connection = made.get();
  const runtime::Turns::Control turn(turns_);
  if (find_job(*port, rank) != (is_new ? nullptr : job)) {
    throw std::runtime_error("the job's ranks came through two ports at the same moment; try again");
  }
  const uint16_t number = port->attach(std::move(made));
  if (is_new) jobs_.put(job);
  job->set_contributions(rank.worker, connection->contributions());
  return {number, connection};
}

void SharedMemoryService::unbind(ShmPort* port, uint16_t connection) {
  std::unique_ptr<ShmConnection> ended;  // its memory is freed after the turn
  const runtime::Turns::Control turn(turns_);
  make_sums();  // sums that wait at any port may use its memory
  ended = port->detach(connection);
  if (ended == nullptr) return;
  ShmJob& job = ended->job();
  pipeline_->flush();
  slots_->take_over(job, ended->rank().worker);
  job.set_contributions(ended->rank().worker, nullptr);
  if (!job.has_ranks()) {
    slots_->forget(job);
    jobs_.remove(job);
  }
}

}  // namespace switchml::soft
