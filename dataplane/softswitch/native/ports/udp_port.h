// A switch port that is a UDP socket; the rank table holds the addresses of its peers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/softswitch/native/ports/port.h"
#include "native/net/udp_batch.h"

namespace switchml::soft {

struct UdpPortSpec {
  std::string address;    // IPv4
  uint16_t udp_port = 0;  // 0 lets the kernel choose
};

class UdpPort : public Port {
 public:
  // The requested size of the socket buffers: a window of every worker of several jobs may arrive while the thread is
  // busy with other ports.
  static constexpr size_t kSocketBufferBytes = size_t{32} << 20U;

  UdpPort(uint16_t number, net::UdpSocket socket);

  const net::UdpSocket& socket() const { return socket_; }

  int fd() const override { return socket_.fd(); }
  PortCounters counters() const override;
  bool receive(ReceiveBuffers* buffers) const override { return buffers->datagrams.receive(socket_); }
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;
  bool send_frame(const uint8_t* /*frame*/, size_t /*bytes*/, Counter* /*injected_loss*/) override { return false; }
  void flush() override {}

 protected:
  void send_due() override;

 private:
  void send_with_faults(const std::vector<OutgoingPacket>& packets, const sockaddr_in& destination,
                        Counter* injected_loss);

  net::UdpSocket socket_;
  net::SendBatch sender_;
  std::vector<sockaddr_in> destinations_;
};

// Throws the exceptions of UdpSocket.
PortParts open_port(uint16_t number, const UdpPortSpec& spec, size_t shards);

}  // namespace switchml::soft
