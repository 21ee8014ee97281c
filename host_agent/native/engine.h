// The agent's data path: ranks, their jobs, and the threads that move their packets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/data_thread.h"
#include "host_agent/native/rank_channel.h"
#include "host_agent/native/shm_rank.h"
#include "native/channel/shared_memory.h"

namespace switchml::agent {

// Calls come from any thread. A handle that is not open raises std::out_of_range.
//
// Operations that open, close or stop ranks go one at a time and may take seconds, since they make memory and ask the
// switch. What only looks at a rank waits for none of them, and its status does not wait for a data thread either.
class Engine {
 public:
  static constexpr unsigned kMostThreads = 64;
  // What the socket of a job is to be given in each direction: a window of results of large packets, twice over.
  static constexpr size_t kSocketBufferBytes = size_t{16} << 20U;

  using Links = std::vector<std::unique_ptr<FrameLink>>;

  // Each rank's slots are divided among `threads` data threads. With links of an interface's queues, one for each
  // thread, packets travel over those instead of the kernel's UDP. Throws std::invalid_argument and std::system_error.
  // `slot_uses` is the number of uses of a slot that an epoch allows to ranks that share no memory with the switch.
  explicit Engine(unsigned threads, Links links = {}, uint32_t slot_uses = wire::kSlotUses);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start();
  void stop();

  // The ranks of a job share a UDP port, which the kernel picks. Throws std::invalid_argument, also when the rank is
  // open already, and std::system_error.
  uint64_t open_rank(const RankAssignment& assignment);
  // A rank that shares memory with the switch at `path`; it waits for that switch, a few milliseconds. Throws as
  // ShmRank's constructor does.
  uint64_t open_shm_rank(const std::string& path, const RankAssignment& assignment);
  // The rank's UDP port, or what takes its place.
  uint16_t udp_port(uint64_t handle);
  // Of a rank that shares memory with the switch its connection there, else -1. The rank keeps it.
  int switch_socket(uint64_t handle);
  // Whether the switch with which the rank shares memory has ended.
  bool switch_ended(uint64_t handle);
  // New descriptors for the process, which the caller closes.
  struct Descriptors {
    int memory;
    int doorbell;
    int results;
  };
  Descriptors open_channel(uint64_t handle);
  void close_rank(uint64_t handle);
  RankStatus status(uint64_t handle);
  // A change of epoch: as Rank's, but both return how many phases of each slot are held; also of a rank that shares
  // memory with the switch, then they throw what ShmConnector throws as well.
  std::vector<uint32_t> freeze(uint64_t handle);
  std::vector<uint32_t> fetch(uint64_t handle, const std::vector<uint32_t>& targets);
  // With up to `calls` of the rank's latest calls.
  RankProfile profile(uint64_t handle, uint64_t calls);
  // What is counted by no rank, of all links together. Throws std::invalid_argument without links.
  struct LinkCounters {
    net::FrameDeviceCounters device;
    FrameLinkCounters link;
  };
  LinkCounters link_counters();

 private:
  // What tells the jobs of an agent apart: addresses and port, job and epoch.
  using JobName = std::tuple<std::string, std::string, uint16_t, uint16_t, uint16_t>;
  struct Job {
    DataThread::JobKey key = 0;
    uint16_t udp_port = 0;
    channel::SharedMemory results;
    std::map<uint8_t, std::shared_ptr<RankChannel>> ranks;
  };
  struct OpenRank {
    std::shared_ptr<ShmRank> shm;  // where it shares memory with the switch; the rest is of all others
    JobName job;
    DataThread::JobKey key = 0;
    uint8_t rank = 0;
    uint16_t udp_port = 0;
    std::shared_ptr<RankChannel> channel;
  };

  // The ways of all threads to the switch, and the UDP port that they share.
  std::vector<std::unique_ptr<JobTransport>> open_transports(const RankAssignment& assignment, uint16_t* udp_port);
  std::vector<std::unique_ptr<JobTransport>> open_links(const RankAssignment& assignment, size_t packet_bytes,
                                                        uint16_t* udp_port);
  // Gives every thread its part of a job.
  void open_job(const RankAssignment& assignment, Job* job);
  void add_rank(const RankAssignment& assignment, Job* job);
  // Takes a rank, or what there is of it, from all threads; the job with its last rank.
  void remove_rank(const JobName& name, uint8_t rank);
  unsigned home_of(uint8_t rank) const { return rank % static_cast<unsigned>(threads_.size()); }
  uint64_t add(OpenRank rank);
  std::shared_ptr<const OpenRank> rank_at(uint64_t handle);
  // Calls act(link) for each link, while its thread stands still.
  template <class Act>
  void for_each_link(Act&& act) {
    for (size_t index = 0; index < links_.size(); ++index) {
      threads_[index]->paused([&] { act(*links_[index]); });
    }
  }
  // Calls act(thread, key, rank) for each thread, and returns how many phases of each slot are held in all.
  template <class Act>
  std::vector<uint32_t> held_after(const OpenRank& open, Act&& act);

  std::mutex operations_;  // held by the one that is under way
  Links links_;            // one for each thread, or none
  DataThread::Peers threads_;
  uint32_t slot_uses_;
  std::map<JobName, Job> jobs_;  // guarded by operations_
  DataThread::JobKey next_job_ = 1;
  std::mutex handles_;  // guards what follows, for a moment at a time
  std::map<uint64_t, std::shared_ptr<const OpenRank>> ranks_;
  uint64_t next_handle_ = 1;
};

}  // namespace switchml::agent
