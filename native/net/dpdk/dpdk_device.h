// One queue of a DPDK port, in both directions, as a FrameDevice.
#pragma once

#include <rte_mbuf.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "native/net/dpdk/dpdk_port.h"
#include "native/net/dpdk/shared_region.h"
#include "native/net/frame_device.h"

namespace switchml::net {

class DpdkDevice : public FrameDevice {
 public:
  DpdkDevice(std::shared_ptr<DpdkPort> port, uint16_t queue);
  ~DpdkDevice() override;

  const std::string& name() const override { return port_->name(); }
  uint64_t mac() const override { return port_->mac(); }
  size_t largest_frame() const override { return port_->largest_frame(); }
  const std::string& kernel_interface() const override { return kernel_interface_; }
  void accept_udp_port(uint16_t /*port*/, bool /*accept*/) override {}  // every frame comes
  // What the driver counts for the port as a whole is queue 0's.
  FrameDeviceCounters counters() const override;
  void enter_thread() override;
  void leave_thread() override;
  size_t receive(Datagram* frames) override;
  uint64_t take_handed_to() override;
  void send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) override;
  void flush() override;
  void share(const std::shared_ptr<void>& memory, size_t bytes) override;
  void unshare(const void* memory) override;
  int fd() const override { return interrupt_fd_; }
  bool prepare_sleep() override;
  void end_sleep() override;

  // The port closes; nothing else is called afterwards. First what DPDK has given, then what it was given.
  void release_frames();
  void release_regions();

 private:
  using Clock = std::chrono::steady_clock;

  void release_received();
  void take_handed_over();
  void receive_burst();
  // Gives those of received_ from `first` on to other queues that belong there.
  void hand_over(size_t first);
  uint16_t owner_of(const rte_mbuf* frame) const;
  // The frame's bytes, in one piece, or null when it is not to be used; `index` is where it is joined if need be.
  const uint8_t* contents_of(const rte_mbuf* frame, size_t index);
  // The shared region that holds all of the payload, or null.
  SharedRegion* region_of(const uint8_t* payload, size_t bytes) const;
  rte_mbuf* make_whole(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes);
  // A header in front of `payload`, of which it takes one reference.
  rte_mbuf* make_chain(const uint8_t* header, size_t header_bytes, rte_mbuf* payload);
  rte_mbuf* attach(SharedRegion* region, const uint8_t* payload, size_t bytes);
  void fill_checksums(rte_mbuf* frame, Checksums checksums) const;
  bool offloads(uint64_t what) const { return (port_->transmit_offloads() & what) != 0; }
  // Gives frames up that have waited for too long.
  void drop_stalled(Clock::time_point now);
  void enqueue(rte_mbuf* frame, Checksums checksums);
  void count_lost(size_t frames, int error);

  std::shared_ptr<DpdkPort> port_;
  uint16_t index_;
  std::string kernel_interface_;  // none: DPDK gives every frame
  int interrupt_fd_;
  bool registered_lcore_ = false;
  Clock::time_point stalled_since_ = Clock::time_point::max();  // queue_
  std::vector<rte_mbuf*> received_;
  std::vector<std::vector<uint8_t>> joined_;         // of frames that came in several segments
  std::vector<std::vector<rte_mbuf*>> others_;       // being handed over, by queue
  uint64_t handed_to_ = 0;                           // see take_handed_to()
  std::vector<rte_mbuf*> queue_;                     // to be sent
  std::map<const uint8_t*, SharedRegion*> regions_;  // by the first byte
  FrameDeviceCounters counters_;
};

// All queues of a port, in order. Throws what DpdkPort throws.
std::vector<std::unique_ptr<FrameDevice>> queues_of(const std::shared_ptr<DpdkPort>& port);

}  // namespace switchml::net
