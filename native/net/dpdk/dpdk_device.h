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
  // The counters that the driver keeps for the whole port are added to those of queue 0.
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

  // Called when the port closes; nothing else is called afterwards. release_frames() comes first and frees the packets
  // of DPDK; release_regions() then frees the memory that was shared with it.
  void release_frames();
  void release_regions();

 private:
  using Clock = std::chrono::steady_clock;

  void release_received();
  void take_handed_over();
  void receive_burst();
  // Passes the frames in received_, from `first` on, whose slots belong to other queues to those queues.
  void hand_over(size_t first);
  uint16_t owner_of(const rte_mbuf* frame) const;
  // Returns the frame's bytes in one piece, or null if the frame must be dropped. A frame of several segments is copied
  // into joined_[index].
  const uint8_t* contents_of(const rte_mbuf* frame, size_t index);
  // Returns the shared region that holds all of the payload, or null.
  SharedRegion* region_of(const uint8_t* payload, size_t bytes) const;
  rte_mbuf* make_whole(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes);
  // Returns a frame that is a header followed by `payload`; it takes over one reference to `payload`.
  rte_mbuf* make_chain(const uint8_t* header, size_t header_bytes, rte_mbuf* payload);
  rte_mbuf* attach(SharedRegion* region, const uint8_t* payload, size_t bytes);
  void fill_checksums(rte_mbuf* frame, Checksums checksums) const;
  bool offloads(uint64_t what) const { return (port_->transmit_offloads() & what) != 0; }
  // Drops frames that have waited for too long.
  void drop_stalled(Clock::time_point now);
  void enqueue(rte_mbuf* frame, Checksums checksums);
  void count_lost(size_t frames, int error);

  std::shared_ptr<DpdkPort> port_;
  uint16_t index_;
  std::string kernel_interface_;  // empty, because DPDK delivers every frame
  int interrupt_fd_;
  bool registered_lcore_ = false;
  Clock::time_point stalled_since_ = Clock::time_point::max();  // for how long queue_ could not be sent
  std::vector<rte_mbuf*> received_;
  std::vector<std::vector<uint8_t>> joined_;         // copies of frames that came in several segments
  std::vector<std::vector<rte_mbuf*>> others_;       // frames to hand over, by queue
  uint64_t handed_to_ = 0;                           // see take_handed_to()
  std::vector<rte_mbuf*> queue_;                     // frames to send
  std::map<const uint8_t*, SharedRegion*> regions_;  // by the first byte
  FrameDeviceCounters counters_;
};

// Returns all queues of a port, in order. Throws what DpdkPort throws.
std::vector<std::unique_ptr<FrameDevice>> queues_of(const std::shared_ptr<DpdkPort>& port);

}  // namespace switchml::net
