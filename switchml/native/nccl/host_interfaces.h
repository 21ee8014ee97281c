// The network interfaces of this host that NCCL's traffic may use.
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace switchml::nccl {

// An IPv4 or IPv6 address with a port.
union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;

  socklen_t length() const { return any.sa_family == AF_INET ? sizeof v4 : sizeof v6; }
};

struct HostInterface {
  std::string name;
  SocketAddress address;  // port 0
  int megabits_per_second;
  std::string pci_path;  // of its card, in /sys; empty without one
};

// Whether NCCL_SOCKET_IFNAME's `rule` admits an interface: a list of prefixes of names, "^" before it excludes them,
// "=" before it makes them whole names.
bool is_admitted(const std::string& name, const std::string& rule);

// Returns the interfaces that are up and that NCCL_SOCKET_IFNAME admits; without the variable all but those of loopback
// and of containers, if there are any. Each once, by its IPv4 address if it has one.
std::vector<HostInterface> host_interfaces();

}  // namespace switchml::nccl
