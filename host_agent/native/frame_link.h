// The packets of all jobs over one FrameDevice, a queue of an interface: the agent itself sends and receives whole
// Ethernet frames.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_agent/native/arp_cache.h"
#include "host_agent/native/assignment.h"
#include "host_agent/native/transport.h"
#include "native/channel/shared_memory.h"
#include "native/net/frame_device.h"
#include "native/runtime/poll_schedule.h"

namespace switchml::agent {

struct FrameLinkOptions {
  uint32_t address = 0;              // IPv4 address of this host on the device
  std::optional<uint64_t> next_hop;  // MAC address to which all packets are sent; default: the switch's, found by ARP
  bool busy = false;                 // never sleep: for a CPU that does nothing else
};

// One thread at a time uses it: the data thread that the queue belongs to, or one that runs between two of its rounds.
class FrameLink {
 public:
  using Clock = std::chrono::steady_clock;

  // The links of an interface's queues share an ARP cache. Throws std::system_error.
  FrameLink(std::unique_ptr<net::FrameDevice> device, const FrameLinkOptions& options,
            std::shared_ptr<ArpCache> arp_cache);
  ~FrameLink();
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  // Returns a job's transport to its switches; the link must outlive it. For the first of an interface's links
  // `*udp_port` is 0, and is set to the job's UDP port, which the caller passes to the other links. Throws
  // std::invalid_argument if packets of `packet_bytes` of UDP payload do not fit the device, and std::system_error if
  // no UDP port is left.
  std::unique_ptr<JobTransport> open(const RankAssignment& assignment, size_t packet_bytes, uint16_t* udp_port);
  // Starts or stops sharing memory that holds payloads of contributions. Some devices can read them directly from
  // there.
  void share(const std::shared_ptr<channel::SharedMemory>& memory) {
    device_->share({memory, memory->data()}, memory->bytes());
  }
  void unshare(const channel::SharedMemory& memory) { device_->unshare(memory.data()); }

  // Called by the thread that moves packets when it begins and when it ends.
  void enter_thread() { device_->enter_thread(); }
  void leave_thread() { device_->leave_thread(); }

  // Receives a burst of frames and passes them to their jobs, which may use them until the next call. Returns whether
  // there were any.
  bool receive(Clock::time_point now);
  // Returns the links to which receive() passed frames since the last call, as bits; the caller wakes their threads.
  uint64_t take_handed_to() { return device_->take_handed_to(); }
  // Returns whether to poll again at once; `found` says whether the last round found anything to do.
  bool look_again(bool found, Clock::time_point now) { return schedule_.look_again(found, now); }
  // Returns a descriptor that becomes readable, after prepare_sleep(), when it is time to poll again; prepare_sleep()
  // returns false if that is now.
  int fd() const { return device_->fd() >= 0 ? device_->fd() : schedule_.timer(); }
  bool prepare_sleep();
  void end_sleep();

  net::FrameDeviceCounters device_counters() const { return device_->counters(); }
  const counters::Link& counters() const { return counters_; }

 private:
  class JobLink;

  void take_frame(const net::Datagram& frame, Clock::time_point now);
  void listen_at(uint16_t port, JobLink* job);

  std::unique_ptr<net::FrameDevice> device_;
  FrameLinkOptions options_;
  runtime::PollSchedule schedule_;
  std::shared_ptr<ArpCache> arp_cache_;
  std::map<uint16_t, JobLink*> jobs_;  // by UDP port
  std::array<net::Datagram, net::FrameDevice::kBurst> frames_{};
  counters::Link counters_;
};

// Returns the links of an interface's queues, in order. Throws std::system_error.
std::vector<std::unique_ptr<FrameLink>> links_of(std::vector<std::unique_ptr<net::FrameDevice>> queues,
                                                 const FrameLinkOptions& options);

}  // namespace switchml::agent
