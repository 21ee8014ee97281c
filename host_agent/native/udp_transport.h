// The transport over the kernel's UDP.
#pragma once

#include <optional>
#include <utility>

#include "host_agent/native/gso_batch_size.h"
#include "host_agent/native/transport.h"
#include "native/runtime/stopwatch.h"

namespace switchml::agent {

class UdpTransport : public JobTransport {
 public:
  // Results come to the job's socket, and those for several agents to `group_socket` if the job has one. Packets with
  // values have `packet_bytes` bytes.
  UdpTransport(net::UdpSocket socket, std::optional<net::UdpSocket> group_socket, size_t packet_bytes)
      : socket_(std::move(socket)),
        group_socket_(std::move(group_socket)),
        gso_batch_size_(net::SendBatch::largest_gso_batch(packet_bytes)) {}

  unsigned sources() const override { return group_socket_ ? 2 : 1; }
  int fd(unsigned source) const override { return socket_of(source).fd(); }
  void send(net::SendBatch* batch, const sockaddr_in& switch_endpoint) override {
    const size_t packets = batch->size();
    batch->limit_gso_batches(gso_batch_size_.for_packets(packets));
    const runtime::Stopwatch sending;
    batch->flush(socket_, switch_endpoint);
    gso_batch_size_.sent(packets, sending.nanoseconds());
  }
  uint64_t gso_batch_size() const override { return gso_batch_size_.chosen(); }
  bool receive(unsigned source, net::ReceiveBatch* batch) override { return batch->receive(socket_of(source)); }
  bool next(net::ReceiveBatch* batch, net::Datagram* datagram) override { return batch->next(datagram); }

 private:
  const net::UdpSocket& socket_of(unsigned source) const {
    return source == 1 && group_socket_ ? *group_socket_ : socket_;
  }

  net::UdpSocket socket_;
  std::optional<net::UdpSocket> group_socket_;
  GsoBatchSize gso_batch_size_;
};

}  // namespace switchml::agent
