// A switch port that carries Ethernet frames: the common base of frame ports and packet ports.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/ports/frame_batch.h"
#include "dataplane/softswitch/native/ports/frame_socket.h"
#include "dataplane/softswitch/native/ports/port.h"

namespace switchml::soft {

class EthernetPort : public Port {
 public:
  int fd() const override { return socket_.fd(); }
  PortCounters counters() const override;
  bool receive(ReceiveBuffers* buffers) const override { return buffers->frames.receive(socket_); }
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;
  bool send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) override;
  void flush() override { queue_.flush(socket_); }

 protected:
  EthernetPort(uint16_t number, FrameSocket socket) : Port(number, true), socket_(std::move(socket)) {}
  void send_due() override;

 private:
  void enqueue(const uint8_t* frame, size_t bytes);

  FrameSocket socket_;
  FrameSendQueue queue_;
  std::vector<uint8_t> result_;  // the frame being made
};

}  // namespace switchml::soft
