// One queue of a DPDK port (ethdev) as a FrameDevice.
#pragma once

#include <rte_mbuf.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/native/frame_device.h"

struct rte_eth_dev_info;

namespace switchml {

class DpdkDevice : public FrameDevice {
 public:
  struct Options {
    std::string devargs;       // as of rte_dev_probe(): a PCI address or the name of a virtual device, and its options
    uint16_t mtu = 0;          // 0: as the device has it
    bool promiscuous = false;  // frames to other MAC addresses come as well
  };

  // start_eal() comes first. Throws std::invalid_argument for a device that is not there or is open already and
  // std::system_error when the driver refuses.
  explicit DpdkDevice(const Options& options);
  ~DpdkDevice() override;

  const std::string& name() const override { return name_; }
  uint64_t mac() const override { return mac_; }
  size_t largest_frame() const override { return largest_frame_; }
  const std::string& kernel_interface() const override { return kernel_interface_; }
  void accept_udp_port(uint16_t /*port*/, bool /*accept*/) override {}  // every frame comes
  FrameDeviceCounters counters() const override;
  void enter_thread() override;
  void leave_thread() override;
  size_t receive(Datagram* frames) override;
  void send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) override;
  void flush() override;
  void share(const std::shared_ptr<void>& memory, size_t bytes) override;
  void unshare(const void* memory) override;
  int fd() const override { return interrupt_fd_; }
  bool prepare_sleep() override;
  void end_sleep() override;

  // What the device does for us, for a person: "hardware checksums, no copy of payloads, interrupts".
  std::string description() const;

 private:
  using Clock = std::chrono::steady_clock;
  class SharedRegion;

  void configure(const Options& options);
  void start(const rte_eth_dev_info& info, bool interrupts);
  void close();
  void release_received();
  // Whether the other end is there, as far as that matters and is known; tries to reach it again from time to time.
  bool connected();
  // The shared region that holds all of the payload, or null.
  SharedRegion* region_of(const uint8_t* payload, size_t bytes) const;
  rte_mbuf* make_whole(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes);
  // A header in front of `payload`, of which it takes one reference.
  rte_mbuf* make_chain(const uint8_t* header, size_t header_bytes, rte_mbuf* payload);
  rte_mbuf* attach(SharedRegion* region, const uint8_t* payload, size_t bytes);
  void fill_checksums(rte_mbuf* frame, Checksums checksums) const;
  // Gives frames up that have waited for too long.
  void drop_stalled(Clock::time_point now);
  void enqueue(rte_mbuf* frame, Checksums checksums);
  void count_lost(size_t frames, int error);

  std::string name_;
  std::string kernel_interface_;  // none: DPDK gives every frame
  uint16_t port_ = 0;
  uint64_t mac_ = 0;
  size_t largest_frame_ = 0;
  uint64_t transmit_offloads_ = 0;
  bool on_virtual_bus_ = false;
  int interrupt_fd_ = -1;
  bool registered_lcore_ = false;
  bool closed_ = false;
  bool reconnects_ = false;  // a client of net_memif, which does not do so by itself when its server was gone
  bool started_ = true;
  Clock::time_point looked_at_link_;
  Clock::time_point stalled_since_ = Clock::time_point::max();  // the queue
  rte_mempool* frames_ = nullptr;                               // mbufs with room for a frame
  rte_mempool* headers_ = nullptr;  // mbufs with room for headers, and those that point to shared memory
  std::vector<rte_mbuf*> received_;
  std::vector<std::vector<uint8_t>> joined_;  // of frames that came in several segments
  std::vector<rte_mbuf*> queue_;
  std::map<const uint8_t*, SharedRegion*> regions_;  // by the first byte
  FrameDeviceCounters counters_;
};

}  // namespace switchml
