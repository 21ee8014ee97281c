#include "host_agent/native/engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dataplane/native/udp_batch.h"
#include "host_agent/native/udp_transport.h"

namespace switchml {

namespace {

int duplicate(int descriptor, const char* what) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    throw std::system_error(errno, std::generic_category(), std::string("dup of ") + what);
  }
  return copy;
}

}  // namespace

Engine::Engine(unsigned threads, Links links) : links_(std::move(links)) {
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
  const sockaddr_in switch_endpoint = ipv4_endpoint(parse_ipv4(assignment.switch_address), assignment.switch_udp_port);
  const size_t packet_bytes = protocol::header_bytes + assignment.values * sizeof(uint32_t);
  if (!links_.empty()) {
    return open_links(assignment, packet_bytes, udp_port);
  }
  if (const size_t largest = largest_datagram(assignment.address, switch_endpoint); packet_bytes > largest) {
    throw std::invalid_argument("packets of " + std::to_string(packet_bytes) + " bytes do not fit the way from " +
                                assignment.address + " to the switch at " + assignment.switch_address +
                                ", which takes " + std::to_string(largest) +
                                ": raise its MTU, or have fewer values in a packet");
  }
  const auto count = static_cast<unsigned>(threads_.size());
  std::vector<std::unique_ptr<JobTransport>> transports;
  std::vector<UdpSocket> sockets = open_udp_sockets(assignment.address, 0, kSocketBufferBytes, count);
  *udp_port = sockets.front().port();
  for (unsigned index = 0; index < count; ++index) {
    std::optional<UdpSocket> group_socket;
    if (!assignment.multicast_address.empty()) {
      const sockaddr_in group = ipv4_endpoint(parse_ipv4(assignment.multicast_address), protocol::udp_port);
      group_socket = join_multicast_group(group, assignment.address, sockets[index].receive_buffer(), index, count);
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
  const sockaddr_in switch_endpoint = ipv4_endpoint(parse_ipv4(assignment.switch_address), assignment.switch_udp_port);
  std::vector<std::unique_ptr<JobTransport>> transports;
  *udp_port = 0;  // the first link chooses it
  for_each_link([&](FrameLink& link) { transports.push_back(link.open(switch_endpoint, packet_bytes, udp_port)); });
  return transports;
}

void Engine::open_job(const RankAssignment& assignment, Job* job) {
  job->key = next_job_++;
  job->results = SharedMemory("switchml-results", Channel::result_bytes(assignment.slots, assignment.values),
                              SharedMemory::Others::may_read);
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
  channel = std::make_unique<RankChannel>(assignment, job->results.data(), count);
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

uint64_t Engine::open_rank(const RankAssignment& given) {
  const RankAssignment assignment = checked(given);
  const std::lock_guard<std::mutex> lock(mutex_);
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
  const uint64_t handle = next_handle_++;
  ranks_.emplace(handle, OpenRank{name, assignment.rank});
  return handle;
}

uint64_t Engine::open_shm_rank(const std::string& path, const RankAssignment& assignment) {
  auto rank = std::make_unique<ShmRank>(path, assignment);
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t handle = next_handle_++;
  shm_ranks_.emplace(handle, std::move(rank));
  return handle;
}

Engine::OpenRank& Engine::rank_at(uint64_t handle) {
  const auto found = ranks_.find(handle);
  if (found == ranks_.end()) {
    throw std::out_of_range("no open rank has handle " + std::to_string(handle));
  }
  return found->second;
}

uint16_t Engine::udp_port(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->connection();
  }
  return jobs_.at(rank_at(handle).job).udp_port;
}

int Engine::switch_socket(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = shm_ranks_.find(handle);
  return found == shm_ranks_.end() ? -1 : found->second->switch_socket();
}

bool Engine::switch_ended(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = shm_ranks_.find(handle);
  return found != shm_ranks_.end() && found->second->switch_ended();
}

Engine::Descriptors Engine::open_channel(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    const auto descriptors = found->second->take_descriptors();
    return {descriptors[0], descriptors[1], -1};
  }
  const OpenRank& open = rank_at(handle);
  Job& job = jobs_.at(open.job);
  RankChannel& channel = *job.ranks.at(open.rank);
  Descriptors descriptors{-1, -1, -1};
  try {
    descriptors.doorbell = duplicate(channel.doorbell(), "the doorbell");
    descriptors.results = duplicate(job.results.fd(), "the job's results");
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
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shm_ranks_.erase(handle) != 0) {
    return;
  }
  const OpenRank closing = rank_at(handle);
  ranks_.erase(handle);
  remove_rank(closing.job, closing.rank);
}

RankStatus Engine::status(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->status();
  }
  const OpenRank& open = rank_at(handle);
  const DataThread::JobKey key = jobs_.at(open.job).key;
  RankStatus sum;
  for (const auto& thread : threads_) {
    const RankStatus part = thread->status(key, open.rank);
    sum.position += part.position;
    sum.sent += part.sent;
    sum.received += part.received;
    sum.retransmissions += part.retransmissions;
    sum.early_retransmissions += part.early_retransmissions;
    sum.ignored += part.ignored;
    sum.packets_together = std::max(sum.packets_together, part.packets_together);
    sum.round_trip_seconds = std::max(sum.round_trip_seconds, part.round_trip_seconds);
  }
  return sum;
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
std::vector<uint32_t> Engine::held_after(uint64_t handle, Act&& act) {
  const OpenRank& open = rank_at(handle);
  const DataThread::JobKey key = jobs_.at(open.job).key;
  std::vector<uint32_t> held;
  for (const auto& thread : threads_) {
    const std::vector<uint32_t> part = act(*thread, key, open.rank);
    held.resize(part.size());
    std::transform(part.begin(), part.end(), held.begin(), held.begin(),
                   [](uint32_t own, uint32_t others) { return std::max(own, others); });
  }
  return held;
}

std::vector<uint32_t> Engine::freeze(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->freeze();
  }
  return held_after(handle,
                    [](DataThread& thread, DataThread::JobKey key, uint8_t rank) { return thread.freeze(key, rank); });
}

std::vector<uint32_t> Engine::fetch(uint64_t handle, const std::vector<uint32_t>& targets) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->fetch(targets);
  }
  return held_after(handle, [&targets](DataThread& thread, DataThread::JobKey key, uint8_t rank) {
    return thread.fetch(key, rank, targets);
  });
}

RankProfile Engine::profile(uint64_t handle, uint64_t calls) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->profile(calls);
  }
  const OpenRank& open = rank_at(handle);
  const Job& job = jobs_.at(open.job);
  const RankChannel& channel = *job.ranks.at(open.rank);
  RankProfile profile = channel.is_open() ? profile_of(channel.channel().control(), calls) : RankProfile{};
  profile.summing = 0;  // nobody but the process writes there
  for (const auto& thread : threads_) {
    thread->add_to(job.key, open.rank, &profile);
  }
  return profile;
}

}  // namespace switchml
