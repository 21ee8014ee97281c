#include "dataplane/softswitch/native/ports/device_port.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "dataplane/softswitch/native/ports/result_frame.h"
#include "native/wire/constants.h"

namespace switchml::soft {

DevicePort::DevicePort(uint16_t number, std::unique_ptr<net::FrameDevice> device, bool busy)
    : Port(number, true), device_(std::move(device)), schedule_(busy) {
  device_->accept_udp_port(wire::protocol::udp_port, true);
}

PortCounters DevicePort::counters() const {
  PortCounters counters = common_counters();
  const net::FrameDeviceCounters device = device_->counters();
  counters.receive_overflow = device.receive_overflow;
  counters.receive_errors = device.receive_errors;
  counters.handed_over = device.handed_over;
  counters.sent = device.sent;
  counters.send_errors = device.send_errors;
  counters.last_send_errno = device.last_send_errno;
  return counters;
}

bool DevicePort::receive(ReceiveBuffers* buffers) const {
  std::array<net::Datagram, net::FrameDevice::kBurst> frames;
  const size_t count = device_->receive(frames.data());
  buffers->frames.lend(frames.data(), count);
  return count > 0;
}

void DevicePort::send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                              const SwitchAddress& own, Counter* injected_loss) {
  for (const OutgoingPacket& packet : packets) {
    if (has_egress_faults() || packet.trailer_bytes > 0) {
      for (const RankAddress& rank : ranks) {
        make_result(packet, rank, own, &result_);
        send_frame(result_.data(), result_.size(), injected_loss);
      }
      continue;
    }
    const size_t bytes = wire::kHeadersBeforeUdpPayload + packet.header_bytes;
    headers_.resize(ranks.size() * bytes);
    uint8_t* header = headers_.data();
    for (const RankAddress& rank : ranks) {
      store_result_headers(packet, rank, own, header);
      std::memcpy(header + wire::kHeadersBeforeUdpPayload, packet.header, packet.header_bytes);
      header += bytes;
    }
    device_->send({headers_.data(), bytes, ranks.size()}, packet.payload, packet.payload_bytes, net::Checksums::ipv4);
  }
}

bool DevicePort::send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) {
  const int copies = has_egress_faults() ? copies_to_send(frame, bytes, nullptr, 0, {}, injected_loss) : 1;
  for (int copy = 0; copy < copies; ++copy) send(frame, bytes);
  for (const HeldPacket& packet : egress_due()) send(packet.bytes.data(), packet.bytes.size());
  egress_due().clear();
  return true;
}

void DevicePort::send_due() {
  for (const HeldPacket& packet : egress_due()) send(packet.bytes.data(), packet.bytes.size());
  egress_due().clear();
  flush();
}

bool DevicePort::prepare_sleep() {
  if (!schedule_.may_sleep() || !device_->prepare_sleep()) return false;
  if (device_->fd() < 0) schedule_.start_pause();
  return true;
}

void DevicePort::end_sleep() {
  device_->end_sleep();
  schedule_.end_pause();
}

PortParts open_port(uint16_t number, DevicePortSpec spec, size_t shards) {
  if (spec.queues.size() != shards) {
    throw std::invalid_argument("a device with " + std::to_string(spec.queues.size()) +
                                " queues needs the same number of shards, not " + std::to_string(shards));
  }
  PortParts parts;
  for (auto& queue : spec.queues) parts.push_back(std::make_unique<DevicePort>(number, std::move(queue), spec.busy));
  return parts;
}

}  // namespace switchml::soft
