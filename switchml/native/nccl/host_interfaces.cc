#include "switchml/native/nccl/host_interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

namespace switchml::nccl {

namespace {

constexpr int kUnknownSpeed = 10'000;  // Mb/s, as NCCL assumes

int speed_of(const std::string& name) {
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int speed = 0;
  return file >> speed && speed > 0 ? speed : kUnknownSpeed;
}

std::string pci_path_of(const std::string& name) {
  const std::unique_ptr<char, void (*)(void*)> path(realpath(("/sys/class/net/" + name + "/device").c_str(), nullptr),
                                                    std::free);
  return path ? path.get() : "";
}

// An address that other hosts can connect to without knowing an interface of theirs.
bool is_usable(const sockaddr* address) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET) return true;
  if (address->sa_family != AF_INET6) return false;
  SocketAddress copy{};
  std::memcpy(&copy.v6, address, sizeof copy.v6);
  return !IN6_IS_ADDR_LINKLOCAL(&copy.v6.sin6_addr);
}

std::vector<HostInterface> admitted(const ifaddrs* first, const std::string& rule) {
  std::vector<HostInterface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
      const std::string name = each->ifa_name;
      if (!is_usable(each->ifa_addr) || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0 || !is_admitted(name, rule)) continue;
      if (std::any_of(found.begin(), found.end(), [&](const HostInterface& known) { return known.name == name; })) {
        continue;
      }
      HostInterface interface{name, {}, speed_of(name), pci_path_of(name)};
      std::memcpy(&interface.address, each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      found.push_back(std::move(interface));
    }
  }
  return found;
}

}  // namespace

bool is_admitted(const std::string& name, const std::string& rule) {
  size_t begin = 0;
  const bool excludes = rule.compare(0, 1, "^") == 0;
  if (excludes) ++begin;
  const bool whole = rule.compare(begin, 1, "=") == 0;
  if (whole) ++begin;
  std::istringstream listed(rule.substr(begin));
  std::string entry;
  bool found = false;
  while (std::getline(listed, entry, ',')) {
    found = found || (!entry.empty() && (whole ? name == entry : name.compare(0, entry.size(), entry) == 0));
  }
  return found != excludes;
}

std::vector<HostInterface> host_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  const char* const rule = std::getenv("NCCL_SOCKET_IFNAME");
  if (rule != nullptr && *rule != '\0') return admitted(list, rule);
  std::vector<HostInterface> found = admitted(list, "^lo,docker,virbr");
  return found.empty() ? admitted(list, "=lo") : found;
}

}  // namespace switchml::nccl
