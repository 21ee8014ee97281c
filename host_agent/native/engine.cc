#include "host_agent/native/engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "host_agent/native/udp_transport.h"
#include "native/net/udp_batch.h"

namespace switchml::agent {

namespace {

int duplicate(int descriptor, const char* what) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    throw std::system_error(errno, std::generic_category(), std::string("dup of ") + what);
  }
  return copy;
}

}  // namespace

Engine::Engine(unsigned threads, Links links, uint32_t slot_uses) : links_(std::move(links)), slot_uses_(slot_uses) {
  if (!links_.empty() && links_.size() != threads) {
    throw std::invalid_argument("a device with " + std::to_string(links_.size()) +
                                " queues is for as many data threads, not " + std::to_string(threads));
  }
  if (threads < 1 || threads > kMostThreads) {
    throw std::invalid_argument("an agent has 1 to " + std::to_string(kMostThreads) + " data threads, not " +
                                std::to_string(threads));
  }
  threads_.reserve(threads);
  while (threads_.size() < threads) {
    FrameLink* link = links_.empty() ? nullptr : links_[threads_.size()].get();
    threads_.push_back(std::make_unique<DataThread>(&threads_, link));
  }
}

Engine::~Engine() { stop(); }

void Engine::start() {
  for (const auto& thread : threads_) {
    thread->start();
  }
}

void Engine::stop() {
  for (const auto& thread : threads_) {
    thread->stop();
  }
}

std::vector<std::unique_ptr<JobTransport>> Engine::open_transports(const RankAssignment& assignment,
                                                                   uint16_t* udp_port) {
  const sockaddr_in switch_endpoint =
      net::ipv4_endpoint(net::parse_ipv4(assignment.switch_address), assignment.switch_udp_port);
  const size_t packet_bytes = wire::protocol::header_bytes + assignment.values * sizeof(uint32_t);
  if (!links_.empty()) {
    return open_links(assignment, packet_bytes, udp_port);
  }
  if (const size_t largest = net::largest_datagram(assignment.address, switch_endpoint); packet_bytes > largest) {
    throw std::invalid_argument("packets of " + std::to_string(packet_bytes) + " bytes do not fit the way from " +
                                assignment.address + " to the switch at " + assignment.switch_address +
                                ", which takes " + std::to_string(largest) +
                                ": raise its MTU, or have fewer values in a packet");
  }
  const auto count = static_cast<unsigned>(threads_.size());
  std::vector<std::unique_ptr<JobTransport>> transports;
  std::vector<net::UdpSocket> sockets = net::open_udp_sockets(assignment.address, 0, kSocketBufferBytes, count);
  *udp_port = sockets.front().port();
  for (unsigned index = 0; index < count; ++index) {
    std::optional<net::UdpSocket> group_socket;
    if (!assignment.multicast_address.empty()) {
      const sockaddr_in group =
          net::ipv4_endpoint(net::parse_ipv4(assignment.multicast_address), wire::protocol::udp_port);
      group_socket =
          net::join_multicast_group(group, assignment.address, sockets[index].receive_buffer(), index, count);
    }
    transports.push_back(std::make_unique<UdpTransport>(std::move(sockets[index]), std::move(group_socket),
                                                        switch_endpoint, packet_bytes));
  }
  return transports;
}

std::vector<std::unique_ptr<JobTransport>> Engine::open_links(const RankAssignment& assignment, size_t packet_bytes,
                                                              uint16_t* udp_port) {
  if (!assignment.multicast_address.empty()) {
    throw std::invalid_argument(
        "a device takes no IP multicast: leave `multicast` of the switch out of the controller's"
        " configuration");
  }
  const sockaddr_in switch_endpoint =
      net::ipv4_endpoint(net::parse_ipv4(assignment.switch_address), assignment.switch_udp_port);
  std::vector<std::unique_ptr<JobTransport>> transports;
  *udp_port = 0;  // the first link chooses it
  for_each_link([&](FrameLink& link) { transports.push_back(link.open(switch_endpoint, packet_bytes, udp_port)); });
  return transports;
}

void Engine::open_job(const RankAssignment& assignment, Job* job) {
  job->key = next_job_++;
  job->results =
      channel::SharedMemory("switchml-results", channel::Channel::result_bytes(assignment.slots, assignment.values),
                            channel::SharedMemory::Others::may_read);
  const auto count = static_cast<unsigned>(threads_.size());
  auto transports = open_transports(assignment, &job->udp_port);
  for (unsigned index = 0; index < count; ++index) {
    threads_[index]->add_job(job->key, std::make_unique<JobRanks>(assignment, index, count,
                                                                  std::move(transports[index]), job->results.data()));
  }
}

void Engine::add_rank(const RankAssignment& assignment, Job* job) {
  const auto count = static_cast<unsigned>(threads_.size());
  auto& channel = job->ranks[assignment.rank];
  channel = std::make_shared<RankChannel>(assignment, job->results.data(), count);
  for (unsigned index = 0; index < count; ++index) {
    const bool is_home = index == home_of(assignment.rank);
    threads_[index]->add_rank(job->key, assignment, channel.get(), is_home ? channel->doorbell() : -1);
  }
}

void Engine::remove_rank(const JobName& name, uint8_t rank) {
  Job& job = jobs_.at(name);
  const auto channel = job.ranks.find(rank);
  if (channel != job.ranks.end() && channel->second->is_open()) {
    for_each_link([&](FrameLink& link) { link.unshare(*channel->second->memory()); });
  }
  for (unsigned index = 0; index < threads_.size(); ++index) {
    const bool has_doorbell = index == home_of(rank) && channel != job.ranks.end();
    threads_[index]->remove_rank(job.key, rank, has_doorbell ? channel->second->doorbell() : -1);
  }
  job.ranks.erase(rank);
  if (job.ranks.empty()) {
    jobs_.erase(name);
  }
}

uint64_t Engine::add(OpenRank rank) {
  const std::lock_guard<std::mutex> lock(handles_);
  const uint64_t handle = next_handle_++;
  ranks_.emplace(handle, std::make_shared<const OpenRank>(std::move(rank)));
  return handle;
}

std::shared_ptr<const Engine::OpenRank> Engine::rank_at(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(handles_);
  const auto found = ranks_.find(handle);
  if (found == ranks_.end()) {
    throw std::out_of_range("no open rank has handle " + std::to_string(handle));
  }
  return found->second;
}

uint64_t Engine::open_rank(const RankAssignment& given) {
  RankAssignment assignment = checked(given);
  assignment.slot_uses = slot_uses_;
  const std::lock_guard<std::mutex> lock(operations_);
  const JobName name{assignment.address, assignment.switch_address, assignment.switch_udp_port, assignment.job,
                     assignment.epoch};
  Job& job = jobs_[name];
  if (job.ranks.count(assignment.rank) != 0) {
    throw std::invalid_argument("rank " + std::to_string(assignment.rank) + " is open already");
  }
  try {
    if (job.key == 0) {
      open_job(assignment, &job);
    }
    add_rank(assignment, &job);
  } catch (...) {
    remove_rank(name, assignment.rank);
    throw;
  }
  return add({nullptr, name, job.key, assignment.rank, job.udp_port, job.ranks.at(assignment.rank)});
}

uint64_t Engine::open_shm_rank(const std::string& path, const RankAssignment& assignment) {
  OpenRank open;
  open.shm = std::make_shared<ShmRank>(path, assignment);
  return add(std::move(open));
}

uint16_t Engine::udp_port(uint64_t handle) {
  const auto open = rank_at(handle);
  return open->shm != nullptr ? open->shm->connection() : open->udp_port;
}

int Engine::switch_socket(uint64_t handle) {
  const auto open = rank_at(handle);
  return open->shm != nullptr ? open->shm->switch_socket() : -1;
}

bool Engine::switch_ended(uint64_t handle) {
  const auto open = rank_at(handle);
  return open->shm != nullptr && open->shm->switch_ended();
}

Engine::Descriptors Engine::open_channel(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(operations_);
  const auto open = rank_at(handle);
  if (open->shm != nullptr) {
    const auto descriptors = open->shm->take_descriptors();
    return {descriptors[0], descriptors[1], -1};
  }
  RankChannel& channel = *open->channel;
  Descriptors descriptors{-1, -1, -1};
  try {
    descriptors.doorbell = duplicate(channel.doorbell(), "the doorbell");
    descriptors.results = duplicate(jobs_.at(open->job).results.fd(), "the job's results");
    descriptors.memory = channel.open();
    for_each_link([&](FrameLink& link) { link.share(channel.memory()); });
  } catch (...) {
    for (const int descriptor : {descriptors.doorbell, descriptors.results}) {
      if (descriptor >= 0) {
        close(descriptor);
      }
    }
    throw;
  }
  return descriptors;
}

void Engine::close_rank(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(operations_);
  const auto closing = rank_at(handle);
  {
    const std::lock_guard<std::mutex> handles(handles_);
    ranks_.erase(handle);
  }
  if (closing->shm == nullptr) {
    remove_rank(closing->job, closing->rank);
  }
}

RankStatus Engine::status(uint64_t handle) {
  const auto open = rank_at(handle);
  RankStatus status = open->shm != nullptr ? open->shm->status() : open->channel->status();
  status.epoch_spent = wire::epoch_is_spent(status.uses, slot_uses_);
  return status;
}

Engine::LinkCounters Engine::link_counters() {
  if (links_.empty()) {
    throw std::invalid_argument("the agent uses the kernel's UDP");
  }
  LinkCounters sum;
  for_each_link([&sum](const FrameLink& link) {
    sum.device.add(link.device_counters());
    sum.link.add(link.counters());
  });
  return sum;
}

template <class Act>
std::vector<uint32_t> Engine::held_after(const OpenRank& open, Act&& act) {
  std::vector<uint32_t> held;
  for (const auto& thread : threads_) {
    const std::vector<uint32_t> part = act(*thread, open.key, open.rank);
    held.resize(part.size());
    std::transform(part.begin(), part.end(), held.begin(), held.begin(),
                   [](uint32_t own, uint32_t others) { return std::max(own, others); });
  }
  return held;
}

std::vector<uint32_t> Engine::freeze(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(operations_);
  const auto open = rank_at(handle);
  if (open->shm != nullptr) {
    return open->shm->freeze();
  }
  return held_after(*open,
                    [](DataThread& thread, DataThread::JobKey key, uint8_t rank) { return thread.freeze(key, rank); });
}

std::vector<uint32_t> Engine::fetch(uint64_t handle, const std::vector<uint32_t>& targets) {
  const std::lock_guard<std::mutex> lock(operations_);
  const auto open = rank_at(handle);
  if (open->shm != nullptr) {
    return open->shm->fetch(targets);
  }
  return held_after(*open, [&targets](DataThread& thread, DataThread::JobKey key, uint8_t rank) {
    return thread.fetch(key, rank, targets);
  });
}

RankProfile Engine::profile(uint64_t handle, uint64_t calls) {
  const auto open = rank_at(handle);
  if (open->shm != nullptr) {
    return open->shm->profile(calls);
  }
  const RankChannel& channel = *open->channel;
  RankProfile profile = channel.is_open() ? profile_of(channel.channel().control(), calls) : RankProfile{};
  profile.summing = 0;  // only the process writes there
  for (const auto& thread : threads_) {
    thread->add_to(open->key, open->rank, &profile);
  }
  return profile;
}

}  // namespace switchml::agent
