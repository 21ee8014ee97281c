#include "host_agent/native/packet_path.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "host_agent/native/udp_transport.h"
#include "native/net/udp_batch.h"
#include "native/wire/epoch_limit.h"
#include "native/wire/frame_headers.h"

namespace switchml::agent {

namespace {

int duplicate(int descriptor, const char* what) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    throw std::system_error(errno, std::generic_category(), std::string("dup of ") + what);
  }
  return copy;
}

// Throws std::invalid_argument if packets of this size do not fit the path from `address` to a switch.
void require_path(const std::string& address, const sockaddr_in& endpoint, size_t packet_bytes) {
  const size_t largest = net::largest_datagram(address, endpoint);
  if (packet_bytes > largest) {
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &endpoint.sin_addr, text.data(), text.size());
    throw std::invalid_argument("packets of " + std::to_string(packet_bytes) + " bytes do not fit the path from " +
                                address + " to the switch at " + text.data() + ", which takes " +
                                std::to_string(largest) + ": raise its MTU, or use fewer values per packet");
  }
}

}  // namespace

// One rank, whose slots are divided among all data threads.
class PacketPath::PacketRank : public Rank {
 public:
  PacketRank(PacketPath* path, JobName name, const Job& job, uint16_t rank)
      : path_(path),
        name_(std::move(name)),
        key_(job.key),
        rank_(rank),
        udp_port_(job.udp_port),
        channel_(job.ranks.at(rank)) {}

  uint16_t udp_port() const override { return udp_port_; }
  int switch_socket() const override { return -1; }
  bool switch_ended() const override { return false; }
  std::vector<int> open_channel() override;
  void close() override;
  RankStatus status() const override;
  RankProfile profile(uint64_t calls) const override;
  std::vector<uint32_t> freeze() override {
    return held_after([this](DataThread& thread) { return thread.freeze(key_, rank_); });
  }
  std::vector<uint32_t> fetch(const std::vector<uint32_t>& targets) override {
    return held_after([this, &targets](DataThread& thread) { return thread.fetch(key_, rank_, targets); });
  }
  void pause(bool paused) override;

 private:
  // The job, while operations_ is held; null once the rank is closed.
  const Job* find_job() const;
  const Job& job() const;
  // Calls act(thread) for each data thread. Returns the phases held of each slot over all threads.
  template <class Act>
  std::vector<uint32_t> held_after(Act&& act);

  PacketPath* path_;
  JobName name_;
  DataThread::JobKey key_;
  uint16_t rank_;
  uint16_t udp_port_;
  std::shared_ptr<RankChannel> channel_;
};

const PacketPath::Job* PacketPath::PacketRank::find_job() const {
  const auto job = path_->jobs_.find(name_);
  if (job == path_->jobs_.end()) {
    return nullptr;
  }
  const auto channel = job->second.ranks.find(rank_);
  return channel != job->second.ranks.end() && channel->second == channel_ ? &job->second : nullptr;
}

const PacketPath::Job& PacketPath::PacketRank::job() const {
  const Job* found = find_job();
  if (found == nullptr) {
    throw std::out_of_range("rank " + std::to_string(rank_) + " is closed");
  }
  return *found;
}

std::vector<int> PacketPath::PacketRank::open_channel() {
  const std::lock_guard<std::mutex> lock(path_->operations_);
  const Job& of_rank = job();
  int memory = -1;
  int doorbell = -1;
  int results = -1;
  try {
    doorbell = duplicate(channel_->doorbell(), "the doorbell");
    results = duplicate(of_rank.results.fd(), "the job's results");
    memory = channel_->open();
    path_->for_each_link([this](FrameLink& link) { link.share(channel_->memory()); });
    return {memory, doorbell, results};
  } catch (...) {
    for (const int descriptor : {memory, doorbell, results}) {
      if (descriptor >= 0) {
        ::close(descriptor);
      }
    }
    throw;
  }
}

void PacketPath::PacketRank::close() {
  const std::lock_guard<std::mutex> lock(path_->operations_);
  if (find_job() != nullptr) {
    path_->remove_rank(name_, rank_);
  }
}

RankStatus PacketPath::PacketRank::status() const {
  RankStatus status = channel_->status();
  status.epoch_spent = wire::epoch_is_spent(status.uses, path_->slot_uses_);
  return status;
}

RankProfile PacketPath::PacketRank::profile(uint64_t calls) const {
  RankProfile profile = channel_->is_open() ? profile_of(channel_->channel().control(), calls) : RankProfile{};
  profile.sum_ns = 0;  // no switch writes to this memory
  for (const auto& thread : path_->threads_) {
    thread->add_to(key_, rank_, &profile);
  }
  return profile;
}

void PacketPath::PacketRank::pause(bool paused) {
  for (const auto& thread : path_->threads_) {
    thread->pause(key_, paused);
  }
}

template <class Act>
std::vector<uint32_t> PacketPath::PacketRank::held_after(Act&& act) {
  const std::lock_guard<std::mutex> lock(path_->operations_);
  job();  // or the rank is closed
  std::vector<uint32_t> held;
  for (const auto& thread : path_->threads_) {
    const std::vector<uint32_t> part = act(*thread);
    held.resize(part.size());
    std::transform(part.begin(), part.end(), held.begin(), held.begin(),
                   [](uint32_t own, uint32_t others) { return std::max(own, others); });
  }
  return held;
}

PacketPath::PacketPath(unsigned threads, Links links, uint32_t slot_uses)
    : links_(std::move(links)), slot_uses_(slot_uses) {
  if (!links_.empty() && links_.size() != threads) {
    throw std::invalid_argument("a device with " + std::to_string(links_.size()) +
                                " queues needs the same number of data threads, not " + std::to_string(threads));
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

PacketPath::~PacketPath() { stop(); }

void PacketPath::start() {
  for (const auto& thread : threads_) {
    thread->start();
  }
}

void PacketPath::stop() {
  for (const auto& thread : threads_) {
    thread->stop();
  }
}

std::vector<std::unique_ptr<JobTransport>> PacketPath::open_transports(const RankAssignment& assignment,
                                                                       uint16_t* udp_port) {
  const size_t packet_bytes = wire::protocol::header_bytes + assignment.values * sizeof(uint32_t);
  if (!links_.empty()) {
    return open_links(assignment, packet_bytes, udp_port);
  }
  for (const sockaddr_in& endpoint : switch_endpoints(assignment)) {
    require_path(assignment.address, endpoint, packet_bytes);
  }
  const auto count = static_cast<unsigned>(threads_.size());
  std::vector<std::unique_ptr<JobTransport>> transports;
  std::vector<net::UdpSocket> sockets = net::open_udp_sockets(assignment.address, 0, kSocketBufferBytes, count);
  *udp_port = sockets.front().port();
  for (net::UdpSocket& socket : sockets) {
    socket.set_traffic_class(wire::ipv4::traffic_class_of(assignment.dscp));
  }
  for (unsigned index = 0; index < count; ++index) {
    std::optional<net::UdpSocket> group_socket;
    if (!assignment.multicast_address.empty()) {
      const sockaddr_in group =
          net::ipv4_endpoint(net::parse_ipv4(assignment.multicast_address), wire::protocol::udp_port);
      group_socket =
          net::join_multicast_group(group, assignment.address, sockets[index].receive_buffer(), index, count);
    }
    transports.push_back(
        std::make_unique<UdpTransport>(std::move(sockets[index]), std::move(group_socket), packet_bytes));
  }
  return transports;
}

std::vector<std::unique_ptr<JobTransport>> PacketPath::open_links(const RankAssignment& assignment, size_t packet_bytes,
                                                                  uint16_t* udp_port) {
  if (!assignment.multicast_address.empty()) {
    throw std::invalid_argument(
        "a device does not support IP multicast: remove `multicast` of the switch from the controller's"
        " configuration");
  }
  std::vector<std::unique_ptr<JobTransport>> transports;
  *udp_port = 0;  // the first link chooses it
  for_each_link([&](FrameLink& link) { transports.push_back(link.open(assignment, packet_bytes, udp_port)); });
  return transports;
}

DataThread::JobKey PacketPath::new_key(const RankAssignment& assignment) {
  constexpr unsigned kNumberBits = 56;
  const DataThread::JobKey less_urgent = runtime::Precedence::kPriorities - assignment.priority;
  return less_urgent << kNumberBits | ++jobs_opened_;
}

void PacketPath::open_job(const RankAssignment& assignment, Job* job) {
  job->key = new_key(assignment);
  job->results =
      channel::SharedMemory("switchml-results", channel::Channel::result_bytes(assignment.slots, assignment.values),
                            channel::SharedMemory::Others::may_read);
  const auto count = static_cast<unsigned>(threads_.size());
  auto transports = open_transports(assignment, &job->udp_port);
  const auto precedence = precedences_.of(assignment.tenant);
  for (unsigned index = 0; index < count; ++index) {
    threads_[index]->add_job(job->key,
                             std::make_unique<JobRanks>(assignment, index, count, std::move(transports[index]),
                                                        job->results.data(), precedence));
  }
}

void PacketPath::add_rank(const RankAssignment& assignment, Job* job) {
  const auto count = static_cast<unsigned>(threads_.size());
  auto& channel = job->ranks[assignment.rank];
  channel = std::make_shared<RankChannel>(assignment, job->results.data(), count);
  for (unsigned index = 0; index < count; ++index) {
    const bool is_home = index == home_of(assignment.rank);
    threads_[index]->add_rank(job->key, assignment, channel.get(), is_home ? channel->doorbell() : -1);
  }
}

void PacketPath::remove_rank(const JobName& name, uint16_t rank) {
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

std::shared_ptr<Rank> PacketPath::open(const RankAssignment& given) {
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
    return std::make_shared<PacketRank>(this, name, job, assignment.rank);
  } catch (...) {
    remove_rank(name, assignment.rank);
    throw;
  }
}

PacketPath::LinkCounters PacketPath::link_counters() {
  if (links_.empty()) {
    throw std::invalid_argument("the agent uses the kernel's UDP");
  }
  LinkCounters sum;
  for_each_link([&sum](const FrameLink& link) {
    sum.counters::Device::add(link.device_counters());
    sum.counters::Link::add(link.counters());
  });
  return sum;
}

}  // namespace switchml::agent
