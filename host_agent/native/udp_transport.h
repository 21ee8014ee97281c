// The kernel's UDP.
#pragma once

#include <memory>
#include <utility>

#include "host_agent/native/transport.h"

namespace switchml {

class UdpTransport : public JobTransport {
 public:
  UdpTransport(UdpSocket socket, const sockaddr_in& switch_endpoint)
      : socket_(std::move(socket)), switch_endpoint_(switch_endpoint) {}

  int fd() const override { return socket_.fd(); }
  void send(SendBatch* batch) override { batch->flush(socket_, switch_endpoint_); }
  bool receive(ReceiveBatch* batch) override { return batch->receive(socket_); }
  bool next(ReceiveBatch* batch, Datagram* datagram) override { return batch->next(datagram); }

 private:
  UdpSocket socket_;
  sockaddr_in switch_endpoint_;
};

}  // namespace switchml
