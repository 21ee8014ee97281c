#include "host_agent/native/arp_cache.h"

#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "native/wire/frame_headers.h"

namespace switchml::agent {
namespace {

constexpr std::chrono::milliseconds kRetryInterval{20};  // while the address is unresolved
constexpr std::chrono::seconds kReachableTime{30};       // for which a resolved address is used without a new request
constexpr std::chrono::seconds kRefreshInterval{1};      // between requests after that time
constexpr uint64_t kBroadcast = 0xFFFFFFFFFFFF;
constexpr uint16_t kDiscard = 9;  // RFC 863: a harmless packet, for which the kernel resolves the address

}  // namespace

std::optional<uint64_t> ArpCache::resolve(uint32_t address, net::FrameDevice* device, Clock::time_point now) {
  if (next_hop_) return next_hop_;
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[address];
  if (!entry.mac) {
    if (entry.requested == Clock::time_point{} || now - entry.requested >= kRetryInterval) {
      request(address, &entry, device, now);
    }
  } else if (now - entry.confirmed >= kReachableTime && now - entry.requested >= kRefreshInterval) {
    request(address, &entry, device, now);
  }
  return entry.mac;
}

void ArpCache::request(uint32_t address, Entry* entry, net::FrameDevice* device, Clock::time_point now) const {
  entry->requested = now;
  const std::string& interface = device->kernel_interface();
  if (!interface.empty()) return request_from_kernel(address, entry, interface, now);
  send(wire::arp::request, 0, address, device);
}

void ArpCache::request_from_kernel(uint32_t address, Entry* entry, const std::string& interface,
                                   Clock::time_point now) {
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return;  // the next request tries again
  arpreq query{};
  const sockaddr_in asked = net::ipv4_endpoint(address, kDiscard);
  std::memcpy(&query.arp_pa, &asked, sizeof asked);
  interface.copy(query.arp_dev, sizeof query.arp_dev - 1);
  if (ioctl(descriptor, SIOCGARP, &query) == 0 && (query.arp_flags & ATF_COM) != 0) {
    entry->mac = wire::load48(reinterpret_cast<const uint8_t*>(query.arp_ha.sa_data));
    entry->confirmed = now;
  } else {
    sendto(descriptor, nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&asked), sizeof asked);
  }
  close(descriptor);
}

void ArpCache::send(uint16_t operation, uint64_t target_mac, uint32_t target_address, net::FrameDevice* device) const {
  std::array<uint8_t, wire::ethernet::bytes + wire::arp::bytes> frame{};
  wire::store48(&frame[wire::ethernet::dst], operation == wire::arp::request ? kBroadcast : target_mac);
  wire::store48(&frame[wire::ethernet::src], device->mac());
  wire::store16(&frame[wire::ethernet::type], wire::ethernet::type_arp);
  uint8_t* message = &frame[wire::ethernet::bytes];
  wire::store16(message + wire::arp::hardware_type, wire::arp::hardware_ethernet);
  wire::store16(message + wire::arp::protocol_type, wire::ethernet::type_ipv4);
  wire::store16(message + wire::arp::lengths, wire::arp::lengths_of_mac_and_ipv4);
  wire::store16(message + wire::arp::operation, operation);
  wire::store48(message + wire::arp::sender_mac, device->mac());
  wire::store32(message + wire::arp::sender_ip, own_address_);
  wire::store48(message + wire::arp::target_mac, target_mac);
  wire::store32(message + wire::arp::target_ip, target_address);
  device->send({frame.data(), frame.size(), 1}, nullptr, 0, net::Checksums::finished);
  device->flush();
}

void ArpCache::receive(const uint8_t* frame, size_t bytes, net::FrameDevice* device, Clock::time_point now) {
  if (bytes < wire::ethernet::bytes + wire::arp::bytes) return;
  const uint8_t* message = frame + wire::ethernet::bytes;
  if (wire::load16(message + wire::arp::hardware_type) != wire::arp::hardware_ethernet ||
      wire::load16(message + wire::arp::protocol_type) != wire::ethernet::type_ipv4 ||
      wire::load16(message + wire::arp::lengths) != wire::arp::lengths_of_mac_and_ipv4 ||
      wire::load32(message + wire::arp::target_ip) != own_address_) {
    return;
  }
  const uint32_t sender = wire::load32(message + wire::arp::sender_ip);
  const uint64_t mac = wire::load48(message + wire::arp::sender_mac);
  const uint16_t operation = wire::load16(message + wire::arp::operation);
  if (operation == wire::arp::request) return send(wire::arp::reply, mac, sender, device);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = entries_.find(sender);
  // Unsolicited replies are ignored.
  if (operation != wire::arp::reply || entry == entries_.end() || entry->second.confirmed >= entry->second.requested)
    return;
  entry->second.mac = mac;
  entry->second.confirmed = std::max(now, entry->second.requested);  // threads read the clock at different moments
}

}  // namespace switchml::agent
