// A switch port that is a network device (DPDK or AF_XDP): the part of one shard, which is a FrameDevice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/softswitch/native/ports/port.h"
#include "dataplane/softswitch/native/ports/result_frame.h"
#include "native/net/frame_device.h"
#include "native/runtime/poll_schedule.h"

namespace switchml::soft {

struct DevicePortSpec {
  std::vector<std::unique_ptr<net::FrameDevice>> queues;  // one for each shard
  bool busy = false;                                      // keeps the data threads from sleeping
};

class DevicePort : public Port {
 public:
  // Throws std::system_error.
  DevicePort(uint16_t number, std::unique_ptr<net::FrameDevice> device, bool busy);

  int fd() const override { return device_->fd() >= 0 ? device_->fd() : schedule_.timer(); }
  PortCounters counters() const override;
  bool receive(ReceiveBuffers* buffers) const override;
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;
  bool send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) override;
  void flush() override { device_->flush(); }

  // Only for the data thread, like receive().
  void enter_thread() { device_->enter_thread(); }
  void leave_thread() { device_->leave_thread(); }
  // Returns the shards to whose queues receive() passed frames since the last call, as bits.
  uint64_t take_handed_to() { return device_->take_handed_to(); }
  // Returns whether to poll again at once; `found` tells whether the last round found any packets.
  bool look_again(bool found, Clock::time_point now) { return schedule_.look_again(found, now); }
  // Arranges that fd() becomes readable when it is time to poll again; returns false if that is now.
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
  std::vector<uint8_t> headers_;  // headers of the copies of one RESULT
  ResultFrames results_;          // of the copies that differ in more than headers, or that faults must decide about
};

// Throws std::invalid_argument if there is not a queue for each shard, and std::system_error.
PortParts open_port(uint16_t number, DevicePortSpec spec, size_t shards);

}  // namespace switchml::soft
