// The soft switch: ports, a pipeline, the thread that moves packets, and the control plane's way in.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/fault_injector.h"
#include "dataplane/softswitch/native/pipeline.h"
#include "dataplane/softswitch/native/port.h"
#include "dataplane/softswitch/native/shm_listener.h"
#include "dataplane/softswitch/native/shm_port.h"

namespace switchml {

// Every member function may be called from any thread, start() and stop() from one at a time. A control operation
// takes effect between two bursts of packets, never within one.
class Switch : private ShmHost {
 public:
  // Throws what SlotMemory throws; std::system_error when the kernel gives no event descriptor.
  Switch(size_t slots, size_t values);
  ~Switch() override;
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  // Puts a new, empty pipeline in place of the old one. Ports and their faults stay.
  void reset(size_t slots, size_t values);

  // Throw std::invalid_argument when the port number is taken, and what UdpPort, FramePort and PacketPort throw.
  // Returns the UDP port that was bound.
  uint16_t add_udp_port(uint16_t port, const std::string& address, uint16_t udp_port);
  void add_frame_port(uint16_t port, const std::string& path, const std::string& peer);
  void add_packet_port(uint16_t port, const std::string& interface);
  // Ranks on this machine bind themselves to the port over a socket at `path` (shm_messages.h).
  void add_shm_port(uint16_t port, const std::string& path);
  // Throws std::out_of_range for a port that is not there, like every function that names one.
  void set_faults(uint16_t port, const FaultRates& rates, uint64_t seed);
  PortCounters port_counters(uint16_t port);

  // Starts and ends the data thread; no effect when it runs, or not. Packets wait in the sockets meanwhile.
  void start();
  void stop();

  // Runs `operation(pipeline)` between two bursts and returns what it returns.
  template <class Operation>
  auto control(Operation&& operation) {
    const TurnLock lock(this);
    return operation(*pipeline_);
  }

 private:
  // Lets the data thread and control operations in by turns: whoever waits for `turn_` is next, so that a data thread
  // under load, which asks again at once, does not keep the others out.
  class TurnLock {
   public:
    explicit TurnLock(Switch* owner) : lock_(owner->pipeline_mutex_, std::defer_lock) {
      const std::lock_guard<std::mutex> turn(owner->turn_);
      lock_.lock();
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  // Makes a port of the given class from its number and `arguments`.
  template <class Kind, class... Arguments>
  Kind& add_port(uint16_t port, const Arguments&... arguments);
  Port& port_at(uint16_t port);
  ShmGrant bind(uint16_t port, const ShmRank& rank) override;
  void unbind(uint16_t port, uint16_t connection) override;
  std::vector<uint32_t> quiesce(uint16_t port, uint16_t connection, const std::vector<uint32_t>& targets) override;
  ShmPort& shm_port_at(uint16_t port);
  std::shared_ptr<ShmJob> find_shm_job(uint16_t port, const ShmRank& rank);
  void run();
  void process_burst(Port* port, ReceiveBuffers* buffers);
  // Takes what the ranks of shm ports have submitted. Returns whether there was anything.
  bool serve(const std::vector<ShmPort*>& ports);
  // Tells those ranks that the data thread is about to sleep. False when it may not.
  bool prepare_sleep(const std::vector<ShmPort*>& ports);
  void end_sleep(const std::vector<ShmPort*>& ports);
  // Releases what the ports' faults held long enough. Returns the milliseconds until the next is due, -1 for never.
  int release_held(const std::vector<Port*>& ports);
  void wake();

  std::mutex turn_;
  std::mutex pipeline_mutex_;  // guards everything below but the thread's own
  Ports ports_;
  ShmJobs shm_jobs_;
  std::unique_ptr<Pipeline> pipeline_;
  bool streaming_ = false;  // stores to memory of shm ports bypass the caches

  std::thread thread_;
  std::atomic<bool> stopping_{false};
  int wake_fd_ = -1;  // tells the data thread that ports_ or stopping_ has changed
  std::vector<std::unique_ptr<ShmListener>> shm_listeners_;  // the last member: they use all of the above
};

}  // namespace switchml
