// A DPDK port (ethdev); each of its queues is a DpdkDevice.
#pragma once

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "native/net/dpdk/queue_locks.h"
#include "native/net/dpdk/shared_region.h"
#include "native/net/frame_device.h"

struct rte_eth_dev_info;

namespace switchml::net {

class DpdkDevice;

class DpdkPort {
 public:
  struct Options {
    std::string devargs;       // for rte_dev_probe(): a PCI address or the name of a virtual device, and its options
    uint16_t mtu = 0;          // 0: leave the device's MTU as it is
    bool promiscuous = false;  // receive frames to other MAC addresses as well
    uint16_t queues = 1;       // in each direction
  };
  // The most frames that wait for the next flush() while the device's ring is full; further ones are dropped.
  static constexpr size_t kLongestQueue = 2048;
  // The most frames that wait for the thread that serves their slots; further ones are dropped.
  static constexpr unsigned kMostHandedOver = 2048;
  static constexpr size_t kHeaderRoom = 128;

  // start_eal() must have been called. Throws std::invalid_argument for a device that does not exist, is open already
  // or has fewer queues, and std::system_error if the driver reports an error.
  explicit DpdkPort(const Options& options);
  ~DpdkPort();
  DpdkPort(const DpdkPort&) = delete;
  DpdkPort& operator=(const DpdkPort&) = delete;

  const std::string& name() const { return name_; }
  uint16_t number() const { return port_; }
  uint16_t queues() const { return queues_; }
  uint64_t mac() const { return mac_; }
  size_t largest_frame() const { return largest_frame_; }
  uint64_t transmit_offloads() const { return transmit_offloads_; }
  // Returns a descriptor that is readable when frames wait at the queue while its interrupt is enabled; -1 if the
  // driver has no interrupts.
  int interrupt_fd(uint16_t queue) const;
  // Returns the offloads in words: "hardware checksums, payloads copied, receive interrupts".
  std::string description() const;

  rte_mempool* frames() const { return frames_; }    // mbufs with room for a frame
  rte_mempool* headers() const { return headers_; }  // mbufs with room for headers, or that point to shared memory
  // Returns the ring of frames for this queue that other queues received; null if it is the only queue.
  rte_ring* handed_to(uint16_t queue) const { return rings_.empty() ? nullptr : rings_[queue]; }

  // Each DpdkDevice calls add() when it is created and remove() when it is destroyed.
  void add(DpdkDevice* queue) { devices_.push_back(queue); }
  void remove(DpdkDevice* queue);

  // The thread of a queue holds the result while it receives or sends; without one, it must try again later.
  std::optional<std::unique_lock<std::mutex>> use(uint16_t queue) {
    if (!shares_memory_) return std::unique_lock<std::mutex>();
    auto lock = in_use_.try_lock(queue);
    if (!lock.owns_lock() || !started_) return std::nullopt;
    return lock;
  }
  // For the thread of queue 0: if the device must reconnect by itself and its other end is gone, tries from time to
  // time to reach it again.
  void look_at_link();

  // Adds the counters that the driver keeps for all queues together.
  void add_counters(FrameDeviceCounters* counters) const;
  // Returns a region for the packets of one queue, or null if the device cannot reach the memory. Called from any
  // thread.
  SharedRegion* reach(const std::shared_ptr<void>& memory, size_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  void probe(const std::string& devargs);
  void configure(const Options& options);
  void require_queues(const rte_eth_dev_info& info) const;
  void make_memory(uint16_t mtu);
  void start(const rte_eth_dev_info& info, bool interrupts);
  void await_connection() const;
  void close();
  void free_rings();

  std::string name_;
  uint16_t queues_;
  uint16_t port_ = 0;
  uint64_t mac_ = 0;
  size_t largest_frame_ = 0;
  uint64_t transmit_offloads_ = 0;
  bool spreads_ = false;  // RSS is on
  bool on_virtual_bus_ = false;
  bool interrupts_ = false;
  bool closed_ = false;
  bool shares_memory_ = false;  // with the process at the other end: net_memif
  bool reconnects_ = false;     // a client of net_memif: its driver does not reconnect when its server was gone
  bool started_ = true;
  Clock::time_point looked_at_link_;
  QueueLocks in_use_;  // only if `shares_memory_`: by the thread of each queue, or while the connection changes
  rte_mempool* frames_ = nullptr;
  rte_mempool* headers_ = nullptr;
  std::vector<rte_ring*> rings_;
  std::vector<DpdkDevice*> devices_;
  std::mutex mappings_mutex_;
  std::map<const void*, std::weak_ptr<DmaMapping>> mappings_;  // by the first byte
};

}  // namespace switchml::net
