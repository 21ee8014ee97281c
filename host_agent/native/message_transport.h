// The transport over messages of a device, such as an RDMA card.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "host_agent/native/transport.h"
#include "native/net/message_device.h"
#include "native/wire/constants.h"

namespace switchml::agent {

class MessageTransport : public JobTransport {
 public:
  // `switches` are those that the endpoint was opened with, in the same order.
  MessageTransport(std::unique_ptr<net::MessageEndpoint> endpoint, std::vector<sockaddr_in> switches)
      : endpoint_(std::move(endpoint)), switches_(std::move(switches)) {}

  unsigned sources() const override { return 1; }
  int fd(unsigned /*source*/) const override { return endpoint_->fd(); }
  bool prepare_sleep() override { return endpoint_->prepare_sleep(); }
  void send(net::SendBatch* batch, const sockaddr_in& switch_endpoint) override {
    const auto is_here = [&](const sockaddr_in& one) {
      return one.sin_addr.s_addr == switch_endpoint.sin_addr.s_addr && one.sin_port == switch_endpoint.sin_port;
    };
    const auto to = static_cast<size_t>(std::find_if(switches_.begin(), switches_.end(), is_here) - switches_.begin());
    batch->hand_over([&](const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes) {
      endpoint_->send(to, header, header_bytes, payload, payload_bytes);
    });
    endpoint_->flush();
  }
  bool receive(unsigned /*source*/, net::ReceiveBatch* /*batch*/) override {
    reading_ = 0;
    received_ = endpoint_->receive(&messages_);
    return received_ > 0;
  }
  bool next(net::ReceiveBatch* /*batch*/, net::Datagram* datagram) override {
    if (reading_ == received_) return false;
    const net::Message& message = messages_[reading_++];
    // A switch has one queue pair, which the endpoint has checked, and one UDP port.
    *datagram = {message.data, message.length, net::ipv4_endpoint(message.source, wire::protocol::udp_port)};
    return true;
  }
  void find_switches_again() override { endpoint_->find_switches_again(); }

 private:
  std::unique_ptr<net::MessageEndpoint> endpoint_;
  std::vector<sockaddr_in> switches_;
  std::array<net::Message, net::MessageEndpoint::kBurst> messages_{};
  size_t received_ = 0;
  size_t reading_ = 0;
};

}  // namespace switchml::agent
