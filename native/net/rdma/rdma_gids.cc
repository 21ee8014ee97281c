#include "native/net/rdma/rdma_gids.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace switchml::net {
namespace {

constexpr uint32_t kMostEntries = 256;
// An IPv4 address stands in a GID as an IPv6 address does that is mapped from it.
constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

}  // namespace

std::vector<ibv_gid_entry> rocev2_gids(ibv_context* context, uint8_t port) {
  std::vector<ibv_gid_entry> found;
  for (uint32_t index = 0; index < kMostEntries; ++index) {
    ibv_gid_entry entry{};
    const bool is_there = ibv_query_gid_ex(context, port, index, &entry, 0) == 0;
    if (is_there && entry.gid_type == IBV_GID_TYPE_ROCE_V2) found.push_back(entry);
  }
  return found;
}

std::optional<ibv_gid_entry> rocev2_gid_of(ibv_context* context, uint8_t port, uint32_t address) {
  const std::vector<ibv_gid_entry> gids = rocev2_gids(context, port);
  const auto found =
      std::find_if(gids.begin(), gids.end(), [&](const ibv_gid_entry& one) { return ipv4_of(one.gid) == address; });
  if (found == gids.end()) return std::nullopt;
  return *found;
}

std::optional<uint32_t> ipv4_of(const ibv_gid& gid) {
  if (std::memcmp(gid.raw, kMapped.data(), kMapped.size()) != 0) return std::nullopt;
  uint32_t in_order = 0;
  std::memcpy(&in_order, gid.raw + kMapped.size(), sizeof in_order);
  return ntohl(in_order);
}

ibv_gid gid_of(uint32_t address) {
  ibv_gid gid{};
  std::memcpy(gid.raw, kMapped.data(), kMapped.size());
  const uint32_t in_order = htonl(address);
  std::memcpy(gid.raw + kMapped.size(), &in_order, sizeof in_order);
  return gid;
}

std::string text_of(uint32_t address) {
  const in_addr in{htonl(address)};
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &in, text.data(), text.size());
  return text.data();
}

std::string text_of(const ibv_gid& gid) {
  if (const auto address = ipv4_of(gid)) return text_of(*address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return text.data();
}

}  // namespace switchml::net
