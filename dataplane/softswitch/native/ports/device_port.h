// A switch port that is a network device, DPDK or AF_XDP: what one shard has of it, a FrameDevice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/softswitch/native/ports/port.h"
#include "native/net/frame_device.h"
#include "native/runtime/poll_schedule.h"

namespace switchml::soft {

class DevicePort : public Port {
 public:
  // A busy port keeps the data thread from sleeping. Throws std::system_error.
  DevicePort(uint16_t number, std::unique_ptr<net::FrameDevice> device, bool busy);

  int fd() const override { return device_->fd() >= 0 ? device_->fd() : schedule_.timer(); }
  PortCounters counters() const override;
  bool receive(ReceiveBuffers* buffers) const override;
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;
  bool send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) override;
  void flush() override { device_->flush(); }

  // For the data thread alone, as receive().
  void enter_thread() { device_->enter_thread(); }
  void leave_thread() { device_->leave_thread(); }
  // The shards whose queues receive() gave frames to since the last call, as bits.
  uint64_t take_handed_to() { return device_->take_handed_to(); }
  // Whether to look again at once, `found` saying that somebody had something to do in the last round.
  bool look_again(bool found, Clock::time_point now) { return schedule_.look_again(found, now); }
  // Makes fd() tell when to look again; false when that is now.
  bool prepare_sleep();
  void end_sleep();

 protected:
  void send_due() override;

 private:
  void send(const uint8_t* frame, size_t bytes) {
    device_->send({frame, bytes, 1}, nullptr, 0, net::Checksums::finished);
  }

  std::unique_ptr<net::FrameDevice> device_;
  runtime::PollSchedule schedule_;
  std::vector<uint8_t> headers_;  // of the copies of one RESULT
  std::vector<uint8_t> result_;   // the frame being made, where faults are to decide about each
};

}  // namespace switchml::soft
