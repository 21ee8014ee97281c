// A switch port that carries Ethernet frames over a socket: a frame port or a packet port.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/ports/frame_batch.h"
#include "dataplane/softswitch/native/ports/frame_socket.h"
#include "dataplane/softswitch/native/ports/port.h"
#include "dataplane/softswitch/native/ports/result_frame.h"

namespace switchml::soft {

// A frame port, whose link is a pair of Unix datagram sockets: one Ethernet frame in each datagram. It needs no
// privilege and no network device, so packet tests use it.
struct FramePortSpec {
  std::string path;
  std::string peer;
};

// A packet port, which is a network interface: it receives every frame that comes in there, to any address.
struct PacketPortSpec {
  std::string interface;
};

class EthernetPort : public Port {
 public:
  EthernetPort(uint16_t number, FrameSocket socket) : Port(number, true), socket_(std::move(socket)) {}

  int fd() const override { return socket_.fd(); }
  PortCounters counters() const override;
  bool receive(ReceiveBuffers* buffers) const override { return buffers->frames.receive(socket_); }
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;
  bool send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) override;
  void flush() override { queue_.flush(socket_); }

 protected:
  void send_due() override;

 private:
  void enqueue(const uint8_t* frame, size_t bytes);

  FrameSocket socket_;
  FrameSendQueue queue_;
  ResultFrames results_;
};

// Binds a socket to `path`, which must not exist unless it is the socket of a process that has ended, and sends to the
// socket that is bound to `peer` at that moment. A frame is lost if no socket is bound there, or if its queue is full:
// the kernel queues net.unix.max_dgram_qlen frames, or more if the peer has connected its socket to `path`. Throws
// std::invalid_argument for a path that cannot be a socket address and std::system_error if binding fails.
PortParts open_port(uint16_t number, const FramePortSpec& spec, size_t shards);

// Opens an AF_PACKET socket on an Ethernet interface and makes the interface promiscuous; needs CAP_NET_RAW. The host's
// own traffic there continues. An interface that is down, or goes down, carries nothing until it is up again.
// Segmentation offload (TSO, GSO, GRO) must be off on the host and at the other end of a veth: otherwise frames arrive
// unsegmented and are dropped for their length. Throws std::system_error if the interface does not exist or is not
// Ethernet, or if this process lacks the privilege.
PortParts open_port(uint16_t number, const PacketPortSpec& spec, size_t shards);

}  // namespace switchml::soft
