// The RoCEv2 addresses (GIDs) of a port.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace switchml::net {

std::vector<ibv_gid_entry> rocev2_gids(ibv_context* context, uint8_t port);
// Returns the GID that stands for an IPv4 address (host byte order), if the port has it.
std::optional<ibv_gid_entry> rocev2_gid_of(ibv_context* context, uint8_t port, uint32_t address);
// Returns the IPv4 address that a GID stands for; none for an IPv6 address.
std::optional<uint32_t> ipv4_of(const ibv_gid& gid);
// Returns the GID that stands for an IPv4 address.
ibv_gid gid_of(uint32_t address);

// Return the usual notation of an address.
std::string text_of(uint32_t address);
std::string text_of(const ibv_gid& gid);

}  // namespace switchml::net
