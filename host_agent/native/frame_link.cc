#include "host_agent/native/frame_link.h"

#include <stdexcept>
#include <system_error>
#include <utility>

#include "native/net/held_ports.h"
#include "native/wire/udp_frame.h"

namespace switchml::agent {
class FrameLink::JobLink : public JobTransport {
 public:
  JobLink(FrameLink* link, const RankAssignment& assignment, uint16_t udp_port) : link_(link) {
    addresses_.eth_src = link->device_->mac();
    addresses_.ipv4_src = link->options_.address;
    addresses_.traffic_class = wire::ipv4::traffic_class_of(assignment.dscp);
    if (udp_port == 0) {
      // Other programs that use the kernel's UDP cannot have the port, whether or not the kernel has the address.
      guard_ = net::HeldPorts::of_process().hold(assignment.address, 0);
      udp_port = guard_->port();
    }
    addresses_.udp_src = udp_port;
    link->listen_at(addresses_.udp_src, this);
    for (const sockaddr_in& endpoint : switch_endpoints(assignment)) {
      resolve(endpoint);  // so that it is known when the first packet is sent
    }
  }
  ~JobLink() override {
    link_->jobs_.erase(udp_port());
    try {
      link_->device_->accept_udp_port(udp_port(), false);
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): what still comes is counted as unknown_port
    }
  }
  JobLink(const JobLink&) = delete;
  JobLink& operator=(const JobLink&) = delete;

  uint16_t udp_port() const { return addresses_.udp_src; }
  std::optional<uint64_t> resolve(const sockaddr_in& endpoint) {
    return link_->arp_cache_->resolve(ntohl(endpoint.sin_addr.s_addr), link_->device_.get(), Clock::now());
  }
  unsigned sources() const override { return 1; }
  int fd(unsigned /*source*/) const override { return -1; }
  void send(net::SendBatch* batch, const sockaddr_in& switch_endpoint) override;
  bool receive(unsigned /*source*/, net::ReceiveBatch* /*batch*/) override {
    reading_ = 0;
    taken_.clear();
    taken_.swap(inbox_);
    return !taken_.empty();
  }
  bool next(net::ReceiveBatch* /*batch*/, net::Datagram* datagram) override {
    if (reading_ == taken_.size()) return false;
    *datagram = taken_[reading_++];
    return true;
  }

  void deliver(const net::Datagram& datagram) { inbox_.push_back(datagram); }
  void forget() { inbox_.clear(); }

 private:
  FrameLink* link_;
  std::shared_ptr<const net::UdpSocket> guard_;
  wire::FrameAddresses addresses_;
  std::vector<net::Datagram> inbox_;
  std::vector<net::Datagram> taken_;
  size_t reading_ = 0;
};

void FrameLink::JobLink::send(net::SendBatch* batch, const sockaddr_in& switch_endpoint) {
  const auto mac = resolve(switch_endpoint);
  if (!mac) {
    link_->counters_.unresolved += batch->size();
    batch->clear();
    return;
  }
  addresses_.eth_dst = *mac;
  addresses_.ipv4_dst = ntohl(switch_endpoint.sin_addr.s_addr);
  addresses_.udp_dst = ntohs(switch_endpoint.sin_port);
  std::array<uint8_t, wire::kHeadersBeforeUdpPayload + wire::protocol::header_bytes> headers;
  batch->hand_over([&](const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes) {
    wire::store_frame_headers(headers.data(), addresses_, header_bytes + payload_bytes);
    std::memcpy(&headers[wire::kHeadersBeforeUdpPayload], header, wire::protocol::header_bytes);
    link_->device_->send({headers.data(), headers.size(), 1}, payload, payload_bytes, net::Checksums::ipv4_and_udp);
  });
  link_->device_->flush();
}

std::vector<std::unique_ptr<FrameLink>> links_of(std::vector<std::unique_ptr<net::FrameDevice>> queues,
                                                 const FrameLinkOptions& options) {
  const auto arp_cache = std::make_shared<ArpCache>(options.address, options.next_hop);
  std::vector<std::unique_ptr<FrameLink>> links;
  links.reserve(queues.size());
  for (auto& queue : queues) links.push_back(std::make_unique<FrameLink>(std::move(queue), options, arp_cache));
  return links;
}

FrameLink::FrameLink(std::unique_ptr<net::FrameDevice> device, const FrameLinkOptions& options,
                     std::shared_ptr<ArpCache> arp_cache)
    : device_(std::move(device)), options_(options), schedule_(options.busy), arp_cache_(std::move(arp_cache)) {}

FrameLink::~FrameLink() = default;

std::unique_ptr<JobTransport> FrameLink::open(const RankAssignment& assignment, size_t packet_bytes,
                                              uint16_t* udp_port) {
  const size_t frame = wire::kHeadersBeforeUdpPayload + packet_bytes;
  if (frame > device_->largest_frame()) {
    throw std::invalid_argument("frames of " + std::to_string(frame) + " bytes do not fit " + device_->name() +
                                ", which takes " + std::to_string(device_->largest_frame()) +
                                ": raise its MTU, or use fewer values per packet");
  }
  auto job = std::make_unique<JobLink>(this, assignment, *udp_port);
  *udp_port = job->udp_port();
  return job;
}

void FrameLink::listen_at(uint16_t port, JobLink* job) {
  device_->accept_udp_port(port, true);
  jobs_[port] = job;
}

bool FrameLink::receive(Clock::time_point now) {
  device_->flush();                                     // sends frames that the device had no room for
  for (const auto& [port, job] : jobs_) job->forget();  // frames of a job that its thread does not have yet
  const size_t count = device_->receive(frames_.data());
  for (size_t i = 0; i < count; ++i) take_frame(frames_[i], now);
  return count > 0;
}

void FrameLink::take_frame(const net::Datagram& frame, Clock::time_point now) {
  const auto drop = [](uint64_t* counter) { *counter += 1; };
  if (frame.length < wire::ethernet::bytes) return drop(&counters_.malformed);
  const uint16_t type = wire::load16(frame.data + wire::ethernet::type);
  if (type == wire::ethernet::type_arp) {
    return arp_cache_->receive(frame.data, frame.length, device_.get(), now);
  }
  if (type != wire::ethernet::type_ipv4 || wire::load48(frame.data + wire::ethernet::dst) != device_->mac()) {
    return drop(&counters_.not_for_us);
  }
  const size_t there = frame.length - wire::ethernet::bytes;
  const uint8_t* ip = frame.data + wire::ethernet::bytes;
  if (there < wire::ipv4::bytes) return drop(&counters_.malformed);
  if (ip[wire::ipv4::version_and_length] != wire::ipv4::version_4_without_options ||
      ip[wire::ipv4::protocol] != wire::ipv4::protocol_udp ||
      (wire::load16(ip + wire::ipv4::fragment) & wire::ipv4::more_fragments_or_offset) != 0 ||
      wire::load32(ip + wire::ipv4::dst) != options_.address) {
    return drop(&counters_.not_for_us);
  }
  if (wire::ones_complement_sum(ip, wire::ipv4::bytes) != 0xFFFF) return drop(&counters_.bad_checksum);
  // A short frame is padded, so there may be more than the lengths say, but never less.
  const size_t ip_length = wire::load16(ip + wire::ipv4::total_length);
  const uint8_t* datagram = ip + wire::ipv4::bytes;
  if (ip_length < wire::ipv4::bytes + wire::udp::bytes || ip_length > there ||
      wire::load16(datagram + wire::udp::length) != ip_length - wire::ipv4::bytes) {
    return drop(&counters_.malformed);
  }
  const auto job = jobs_.find(wire::load16(datagram + wire::udp::dst));
  if (job == jobs_.end()) return drop(&counters_.unknown_port);
  const sockaddr_in source =
      net::ipv4_endpoint(wire::load32(ip + wire::ipv4::src), wire::load16(datagram + wire::udp::src));
  job->second->deliver({datagram + wire::udp::bytes, ip_length - wire::ipv4::bytes - wire::udp::bytes, source});
}

bool FrameLink::prepare_sleep() {
  if (!schedule_.may_sleep() || !device_->prepare_sleep()) return false;
  if (device_->fd() < 0) schedule_.start_pause();
  return true;
}

void FrameLink::end_sleep() {
  device_->end_sleep();
  schedule_.end_pause();
}

}  // namespace switchml::agent
