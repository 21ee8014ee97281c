// Ranks whose contributions travel as packets: their jobs, and the data threads that move the packets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/data_thread.h"
#include "host_agent/native/rank.h"
#include "host_agent/native/rank_channel.h"
#include "native/channel/shared_memory.h"
#include "native/net/message_device.h"
#include "native/runtime/precedence.h"

namespace switchml::agent {

// Any thread may call it. Calls that open, close or stop ranks are made one at a time.
class PacketPath {
 public:
  static constexpr unsigned kMostThreads = 64;
  // The socket buffer to ask for in each direction: a window of results of large packets, twice over.
  static constexpr size_t kSocketBufferBytes = size_t{16} << 20U;

  using Links = std::vector<std::unique_ptr<FrameLink>>;
  using Messages = std::unique_ptr<net::MessageDevice>;
  // The medium of packets: the kernel's UDP, the links of an interface's queues, one for each thread, or the
  // messages of a device, which one thread sends.
  using Medium = std::variant<std::monostate, Links, Messages>;

  // Each rank's slots are divided among `threads` data threads. `slot_uses` is the number of uses of a slot that an
  // epoch allows. Throws std::invalid_argument and std::system_error.
  PacketPath(unsigned threads, Medium medium, uint32_t slot_uses);
  ~PacketPath();
  PacketPath(const PacketPath&) = delete;
  PacketPath& operator=(const PacketPath&) = delete;

  void start();
  void stop();

  // Opens a rank. The ranks of a job share a UDP port, which the kernel picks, or a queue pair. The path must outlive
  // the rank. Throws std::invalid_argument, also if the rank is open already, and std::system_error.
  std::shared_ptr<Rank> open(const RankAssignment& assignment);

  // Counters of all links or of the device, for frames that belong to no rank. Throws std::invalid_argument over UDP.
  struct LinkCounters : counters::Device, counters::Link {};
  LinkCounters link_counters();

  // Like those of MessageDevice. Other media are never lost: -1, and an empty text.
  int lost_fd() const { return messages_ == nullptr ? -1 : messages_->lost_fd(); }
  std::string lost() const { return messages_ == nullptr ? "" : messages_->lost(); }

 private:
  class PacketRank;
  // The key of a job in an agent: addresses and port, job and epoch.
  using JobName = std::tuple<std::string, std::string, uint16_t, uint16_t, uint16_t>;
  struct Job {
    DataThread::JobKey key = 0;
    uint32_t sender = 0;
    channel::SharedMemory results;
    std::map<uint16_t, std::shared_ptr<RankChannel>> ranks;
  };

  using Transports = std::vector<std::unique_ptr<JobTransport>>;
  // Each returns the transport of each thread to the switch, and sets `*sender` to the number that they share.
  Transports open_transports(const RankAssignment& assignment, uint32_t* sender);
  Transports open_sockets(const RankAssignment& assignment, size_t packet_bytes, uint32_t* sender);
  Transports open_links(const RankAssignment& assignment, size_t packet_bytes, uint32_t* sender);
  Transports open_endpoint(const RankAssignment& assignment, size_t packet_bytes, uint32_t* sender);
  // Returns a key for a new job: a lower one for a more urgent job, so that threads serve it before others.
  DataThread::JobKey new_key(const RankAssignment& assignment);
  // Gives every thread its part of a job.
  void open_job(const RankAssignment& assignment, Job* job);
  void add_rank(const RankAssignment& assignment, Job* job);
  // Removes a rank, also one that was added in part, from all threads; the job with its last rank.
  void remove_rank(const JobName& name, uint16_t rank);
  unsigned home_of(uint16_t rank) const { return rank % static_cast<unsigned>(threads_.size()); }
  // Calls act(device), and act(link) for each link, between two rounds of its thread.
  template <class Act>
  void for_messages(Act&& act) {
    if (messages_ != nullptr) threads_.front()->paused([&] { act(*messages_); });
  }
  template <class Act>
  void for_each_link(Act&& act) {
    for (size_t index = 0; index < links_.size(); ++index) {
      threads_[index]->paused([&] { act(*links_[index]); });
    }
  }

  std::mutex operations_;  // held by the current operation
  Links links_;            // one for each thread, or none
  Messages messages_;      // null without such a device
  DataThread::Peers threads_;
  uint32_t slot_uses_;
  std::map<JobName, Job> jobs_;  // guarded by operations_
  DataThread::JobKey jobs_opened_ = 0;
  runtime::TenantPrecedences precedences_;  // guarded by operations_
};

}  // namespace switchml::agent
