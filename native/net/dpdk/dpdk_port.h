// A DPDK port (ethdev) with its queues, a DpdkDevice each.
#pragma once

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "native/net/dpdk/shared_region.h"
#include "native/net/frame_device.h"

struct rte_eth_dev_info;

namespace switchml::net {

class DpdkDevice;

class DpdkPort {
 public:
  struct Options {
    std::string devargs;       // as of rte_dev_probe(): a PCI address or the name of a virtual device, and its options
    uint16_t mtu = 0;          // 0: as the device has it
    bool promiscuous = false;  // frames to other MAC addresses come as well
    uint16_t queues = 1;       // in each direction
  };
  // A burst that finds the device's ring full waits for the next flush; more than so many frames are as good as lost.
  static constexpr size_t kLongestQueue = 2048;
  // So are more that wait for the thread that they belong to.
  static constexpr unsigned kMostHandedOver = 2048;
  static constexpr size_t kHeaderRoom = 128;

  // start_eal() comes first. Throws std::invalid_argument for a device that is not there, is open already or has fewer
  // queues, and std::system_error when the driver refuses.
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
  // Readable when frames wait at the queue while its interrupt is enabled; -1 where the driver has none.
  int interrupt_fd(uint16_t queue) const;
  // What the device does for us, for a person: "hardware checksums, payloads copied, receive interrupts".
  std::string description() const;

  rte_mempool* frames() const { return frames_; }    // mbufs with room for a frame
  rte_mempool* headers() const { return headers_; }  // with room for headers, and those that point to shared memory
  // Frames for a queue that other queues got; null where there are no others.
  rte_ring* handed_to(uint16_t queue) const { return rings_.empty() ? nullptr : rings_[queue]; }

  // Every DpdkDevice while it is there.
  void add(DpdkDevice* queue) { devices_.push_back(queue); }
  void remove(DpdkDevice* queue);

  // Held by the thread of a queue while it uses the device, which may be started again otherwise.
  std::unique_lock<std::mutex> use(uint16_t queue) {
    return reconnects_ ? std::unique_lock<std::mutex>(in_use_[queue]) : std::unique_lock<std::mutex>();
  }
  // Whether there is a device to use; ask while use() is held.
  bool started() const { return started_; }
  // For the thread of queue 0: whether the other end is there, as far as that matters and is known. Tries to reach it
  // again from time to time.
  void look_at_link();

  // What the driver counts for all queues together.
  void add_counters(FrameDeviceCounters* counters) const;
  // A region for the packets of one queue, or null when the device cannot reach the memory. Any thread.
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
  bool reconnects_ = false;  // a client of net_memif, which does not do so by itself when its server was gone
  bool started_ = true;
  Clock::time_point looked_at_link_;
  std::vector<std::mutex> in_use_;  // of each queue, where the device may be started again
  rte_mempool* frames_ = nullptr;
  rte_mempool* headers_ = nullptr;
  std::vector<rte_ring*> rings_;
  std::vector<DpdkDevice*> devices_;
  std::mutex mappings_mutex_;
  std::map<const void*, std::weak_ptr<DmaMapping>> mappings_;  // by the first byte
};

}  // namespace switchml::net
