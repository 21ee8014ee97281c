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

#include "host_agent/native/message_transport.h"
#include "host_agent/native/udp_transport.h"
#include "native/net/udp_batch.h"
#include "native/wire/epoch_limit.h"
#include "native/wire/frame_headers.h"
#include "native/wire/rocev2.h"

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

void require_no_multicast(const RankAssignment& assignment) {
  if (!assignment.multicast_address.empty()) {
    throw std::invalid_argument(
        "a device does not support IP multicast: remove `multicast` of the switch from the controller's"
        " configuration");
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
        sender_(job.sender),
        channel_(job.ranks.at(rank)) {}

  uint32_t sender() const override { return sender_; }
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
  uint32_t sender_;
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
    path_->for_messages([this](net::MessageDevice& device) {
      const auto& shared = channel_->memory();
      device.share({shared, shared->data()}, shared->bytes());
    });
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

PacketPath::PacketPath(unsigned threads, Medium medium, uint32_t slot_uses) : slot_uses_(slot_uses) {
  if (auto* links = std::get_if<Links>(&medium)) links_ = std::move(*links);
  if (auto* messages = std::get_if<Messages>(&medium)) messages_ = std::move(*messages);
  if (messages_ != nullptr && threads != 1) {
    throw std::invalid_argument(messages_->name() +
                                " has one queue pair for each job, which one data thread serves, not " +
                                std::to_string(threads));
  }
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

PacketPath::Transports PacketPath::open_transports(const RankAssignment& assignment, uint32_t* sender) {
  const size_t packet_bytes = wire::protocol::header_bytes + assignment.values * sizeof(uint32_t);
  if (!links_.empty()) return open_links(assignment, packet_bytes, sender);
  if (messages_ != nullptr) return open_endpoint(assignment, packet_bytes, sender);
  return open_sockets(assignment, packet_bytes, sender);
}

PacketPath::Transports PacketPath::open_sockets(const RankAssignment& assignment, size_t packet_bytes,
                                                uint32_t* sender) {
  for (const sockaddr_in& endpoint : switch_endpoints(assignment)) {
    require_path(assignment.address, endpoint, packet_bytes);
  }
  const auto count = static_cast<unsigned>(threads_.size());
  Transports transports;
  std::vector<net::UdpSocket> sockets = net::open_udp_sockets(assignment.address, 0, kSocketBufferBytes, count);
  *sender = sockets.front().port();
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

PacketPath::Transports PacketPath::open_links(const RankAssignment& assignment, size_t packet_bytes, uint32_t* sender) {
  require_no_multicast(assignment);
  Transports transports;
  uint16_t udp_port = 0;  // the first link chooses it
  for_each_link([&](FrameLink& link) { transports.push_back(link.open(assignment, packet_bytes, &udp_port)); });
  *sender = udp_port;
  return transports;
}

PacketPath::Transports PacketPath::open_endpoint(const RankAssignment& assignment, size_t packet_bytes,
                                                 uint32_t* sender) {
  require_no_multicast(assignment);
  if (packet_bytes > messages_->largest_message()) {
    throw std::invalid_argument("messages of " + std::to_string(packet_bytes) + " bytes do not fit " +
                                messages_->name() + ", which takes " + std::to_string(messages_->largest_message()) +
                                ": raise its MTU, or use fewer values per packet");
  }
  net::EndpointOptions options;
  options.queue_key = assignment.secret;
  options.traffic_class = wire::ipv4::traffic_class_of(assignment.dscp);
  std::vector<sockaddr_in> switches = switch_endpoints(assignment);
  for (const sockaddr_in& one : switches) options.switches.push_back(ntohl(one.sin_addr.s_addr));
  std::unique_ptr<net::MessageEndpoint> endpoint;
  for_messages([&](net::MessageDevice& device) { endpoint = device.open(options); });
  *sender = wire::kIsQueuePair | endpoint->number();
  Transports transports;
  transports.push_back(std::make_unique<MessageTransport>(std::move(endpoint), std::move(switches)));
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
  auto transports = open_transports(assignment, &job->sender);
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
    const channel::SharedMemory& memory = *channel->second->memory();
    for_each_link([&](FrameLink& link) { link.unshare(memory); });
    for_messages([&](net::MessageDevice& device) { device.unshare(memory.data()); });
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
  if (links_.empty() && messages_ == nullptr) {
    throw std::invalid_argument("the agent uses the kernel's UDP");
  }
  LinkCounters sum;
  for_messages([&sum](const net::MessageDevice& device) {
    sum.counters::Device::add(device.counters());
    sum.counters::Link::add(device.link_counters());
  });
  for_each_link([&sum](const FrameLink& link) {
    sum.counters::Device::add(link.device_counters());
    sum.counters::Link::add(link.counters());
  });
  return sum;
}

}  // namespace switchml::agent
