#include "host_agent/native/neighbours.h"

#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "native/wire/frame_headers.h"

namespace switchml::agent {
namespace {

constexpr std::chrono::milliseconds kAskAgain{20};
constexpr std::chrono::seconds kBelieve{30};  // an answer, before it is asked again
constexpr std::chrono::seconds kAskInVain{1};
constexpr uint64_t kBroadcast = 0xFFFFFFFFFFFF;
constexpr uint16_t kDiscard = 9;  // RFC 863: a packet that nobody minds makes the kernel resolve an address

}  // namespace

std::optional<uint64_t> Neighbours::mac_of(uint32_t address, net::FrameDevice* device, Clock::time_point now) {
  if (next_hop_) return next_hop_;
  const std::lock_guard<std::mutex> lock(mutex_);
  Neighbour& neighbour = known_[address];
  if (!neighbour.mac) {
    if (neighbour.asked == Clock::time_point{} || now - neighbour.asked >= kAskAgain) {
      ask(address, &neighbour, device, now);
    }
  } else if (now - neighbour.told >= kBelieve && now - neighbour.asked >= kAskInVain) {
    ask(address, &neighbour, device, now);
  }
  return neighbour.mac;
}

void Neighbours::ask(uint32_t address, Neighbour* neighbour, net::FrameDevice* device, Clock::time_point now) const {
  neighbour->asked = now;
  const std::string& interface = device->kernel_interface();
  if (!interface.empty()) return ask_kernel(address, neighbour, interface, now);
  send_arp(wire::arp::request, 0, address, device);
}

void Neighbours::ask_kernel(uint32_t address, Neighbour* neighbour, const std::string& interface,
                            Clock::time_point now) {
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return;  // asked again soon
  arpreq question{};
  const sockaddr_in asked = net::ipv4_endpoint(address, kDiscard);
  std::memcpy(&question.arp_pa, &asked, sizeof asked);
  interface.copy(question.arp_dev, sizeof question.arp_dev - 1);
  if (ioctl(descriptor, SIOCGARP, &question) == 0 && (question.arp_flags & ATF_COM) != 0) {
    neighbour->mac = wire::load48(reinterpret_cast<const uint8_t*>(question.arp_ha.sa_data));
    neighbour->told = now;
  } else {
    sendto(descriptor, nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&asked), sizeof asked);
  }
  close(descriptor);
}

void Neighbours::send_arp(uint16_t operation, uint64_t target_mac, uint32_t target_address,
                          net::FrameDevice* device) const {
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

void Neighbours::take_arp(const uint8_t* frame, size_t bytes, net::FrameDevice* device, Clock::time_point now) {
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
  if (operation == wire::arp::request) return send_arp(wire::arp::reply, mac, sender, device);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto asked = known_.find(sender);
  // Nobody tells us what we did not ask.
  if (operation != wire::arp::reply || asked == known_.end() || asked->second.told >= asked->second.asked) return;
  asked->second.mac = mac;
  asked->second.told = std::max(now, asked->second.asked);  // threads look at the clock at different moments
}

}  // namespace switchml::agent
