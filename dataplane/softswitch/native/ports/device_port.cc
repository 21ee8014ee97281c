#include "dataplane/softswitch/native/ports/device_port.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "native/wire/constants.h"

namespace switchml::soft {

DevicePort::DevicePort(uint16_t number, std::unique_ptr<net::FrameDevice> device, bool busy)
    : Port(number, true), device_(std::move(device)), schedule_(busy) {
  device_->accept_udp_port(wire::protocol::udp_port, true);
  device_->accept_udp_port(wire::rocev2::udp_port, true);
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
    const bool each_whole = has_egress_faults() || packet.trailer_bytes > 0;
    const size_t bytes = wire::kHeadersBeforeUdpPayload + packet.header_bytes;
    headers_.resize(ranks.size() * bytes);
    size_t copies = 0;
    results_.start(packet);
    for (const RankAddress& rank : ranks) {
      if (each_whole || rank.queue_pair) {
        const std::vector<uint8_t>& frame = results_.frame_to(rank, own);
        send_frame(frame.data(), frame.size(), injected_loss);
        continue;
      }
      uint8_t* header = headers_.data() + copies++ * bytes;
      store_result_headers(packet, rank, own, header);
      std::memcpy(header + wire::kHeadersBeforeUdpPayload, packet.header, packet.header_bytes);
    }
    if (copies == 0) continue;
    device_->send({headers_.data(), bytes, copies}, packet.payload, packet.payload_bytes, net::Checksums::ipv4);
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
