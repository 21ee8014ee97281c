// The binding of ranks to a shm port, and their leaving.
#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dataplane/softswitch/native/runtime/switch.h"

namespace switchml::soft {
namespace {

int duplicate(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw std::system_error(errno, std::generic_category(), "cannot duplicate a descriptor for a rank");
  return copy;
}

}  // namespace

ShmPort& Switch::shm_port_at(uint16_t port) {
  const auto found = std::find_if(shm_ports_.begin(), shm_ports_.end(),
                                  [port](const ShmPort* each) { return each->number() == port; });
  if (found == shm_ports_.end()) throw std::invalid_argument("port " + std::to_string(port) + " is not a shm port");
  return **found;
}

// Returns the generation of the job that is served already, or null. Throws if the rank cannot be served.
std::shared_ptr<ShmJob> Switch::find_shm_job(uint16_t port, const RankBinding& rank) {
  const ShmJobKey& key = rank.job;
  const size_t values = slots().values_per_packet();
  const size_t most_slots = slots().halves() / 2;
  if (key.values != values) {
    throw std::invalid_argument("packets of this switch have " + std::to_string(values) + " values, not " +
                                std::to_string(key.values));
  }
  if (size_t{key.slot_base} + key.slots > most_slots) {
    throw std::invalid_argument("this switch has " + std::to_string(most_slots) +
                                " slots, and those of the job exceed this range");
  }
  std::shared_ptr<ShmJob> job = shm_jobs_.get(key);
  if (job != nullptr && job->has_rank(rank.worker)) {
    throw std::invalid_argument("rank " + std::to_string(rank.rank) + " of job " + std::to_string(key.job) +
                                " has a connection already (requested at port " + std::to_string(port) + ")");
  }
  return job;
}

// The memory is made while packets flow, without a turn, so the state of the switch is checked before and after it.
ShmGrant Switch::bind(uint16_t port, const RankBinding& rank) {
  std::shared_ptr<ShmJob> job;
  const ShmPort* found = nullptr;
  std::shared_ptr<runtime::Precedence> precedence;
  first().control([&](Pipeline&) {
    job = find_shm_job(port, rank);
    found = &shm_port_at(port);
    precedence = precedences_.of(rank.tenant);
  });
  const bool is_new = job == nullptr;
  if (is_new) job = std::make_shared<ShmJob>(rank.job);
  const int doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (doorbell < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  auto connection = std::make_unique<ShmConnection>(rank, job, doorbell, found->cpus_for(rank), std::move(precedence));
  ShmConnection& bound = *connection;

  ShmGrant grant;
  grant.descriptors[0] = duplicate(bound.memory().fd());
  grant.descriptors[1] = duplicate(doorbell);
  bound.memory().close_descriptor();
  const runtime::Turns::Control turn(&turns());
  if (find_shm_job(port, rank) != (is_new ? nullptr : job)) {
    throw std::runtime_error("the job's ranks came through two ports at the same moment; try again");
  }
  grant.connection = shm_port_at(port).attach(std::move(connection));
  if (is_new) shm_jobs_.put(job);
  job->set_contributions(rank.worker, bound.contributions());
  return grant;
}

std::vector<uint32_t> Switch::quiesce(uint16_t port, uint16_t connection, const std::vector<uint32_t>& targets) {
  const runtime::Turns::Control turn(&turns());
  return shm_port_at(port).quiesce(connection, targets);
}

void Switch::unbind(uint16_t port, uint16_t connection) {
  std::unique_ptr<ShmConnection> ended;  // its memory is freed after the turn
  std::shared_ptr<ShmJob> job;
  const runtime::Turns::Control turn(&turns());
  make_sums();  // sums that wait at any port may use its memory
  ended = shm_port_at(port).detach(connection);
  if (ended == nullptr) return;
  job = ended->shared_job();
  pipeline().flush();
  slots().take_over(*job, ended->rank().worker);
  job->set_contributions(ended->rank().worker, nullptr);
  if (!job->has_ranks()) {
    slots().forget(*job);
    shm_jobs_.remove(*job);
  }
}

}  // namespace switchml::soft
