// An AF_XDP socket as a FrameDevice: the SwitchML packets of one interface bypass the kernel's network stack.
#pragma once

#include <xdp/xsk.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "native/net/frame_device.h"
#include "native/net/xdp/xdp_filter.h"

namespace switchml::net {

class XdpDevice : public FrameDevice {
 public:
  // Throws std::invalid_argument if there is no such interface or it has several receive queues, and std::system_error
  // if the kernel reports an error.
  explicit XdpDevice(const std::string& interface);
  ~XdpDevice() override;

  const std::string& name() const override { return interface_; }
  uint64_t mac() const override { return mac_; }
  size_t largest_frame() const override { return largest_frame_; }
  const std::string& kernel_interface() const override { return interface_; }
  void accept_udp_port(uint16_t port, bool accept) override { filter_->redirect(port, accept); }
  FrameDeviceCounters counters() const override;
  void enter_thread() override {}
  void leave_thread() override {}
  size_t receive(Datagram* frames) override;
  uint64_t take_handed_to() override { return 0; }
  void send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) override;
  void flush() override;
  void share(const std::shared_ptr<void>& /*memory*/, size_t /*bytes*/) override {
  }  // frames lie in the socket's memory
  void unshare(const void* /*memory*/) override {}
  int fd() const override { return xsk_socket__fd(socket_); }
  bool prepare_sleep() override;
  void end_sleep() override {}

  // Returns "zero-copy" or "copy mode", and whether the driver or the kernel runs the XDP program.
  std::string description() const;

 private:
  void open();
  void bind();
  void close();
  // Gives the frames of the last receive() back to the kernel.
  void refill();
  // Takes back the frames that the kernel has sent.
  void reclaim();
  uint8_t* frame_at(uint64_t address) const { return memory_ + address; }

  std::string interface_;
  uint64_t mac_ = 0;
  size_t largest_frame_ = 0;
  bool zero_copy_ = false;
  uint8_t* memory_ = nullptr;  // kFrames frames; at any time the kernel owns some of them
  xsk_umem* umem_ = nullptr;
  xsk_socket* socket_ = nullptr;
  xsk_ring_prod fill_{};
  xsk_ring_cons completion_{};
  xsk_ring_cons receive_{};
  xsk_ring_prod transmit_{};
  std::unique_ptr<XdpFilter> filter_;
  std::vector<uint64_t> free_;      // frames free for sending
  std::vector<uint64_t> received_;  // frames that receive() has lent out
  uint32_t unsent_ = 0;             // frames in the transmit ring after the last system call
  FrameDeviceCounters counters_;
};

}  // namespace switchml::net
