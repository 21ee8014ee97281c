#include "native/net/held_ports.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

namespace switchml::net {
namespace {

constexpr int kFirstLeft = 3;  // SD_LISTEN_FDS_START

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the descriptors that the service manager has given to this process, and not to one that started it.
std::vector<int> given_descriptors() {
  std::vector<int> given;
  if (variable("LISTEN_PID") == std::to_string(getpid())) {
    const long count = std::strtol(variable("LISTEN_FDS").c_str(), nullptr, 10);
    for (int fd = kFirstLeft; fd < kFirstLeft + count; ++fd) given.push_back(fd);
  }
  return given;
}

bool is_udp(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_UDP;
}

// Returns a socket that has the port on every address of this machine, and receives nothing. Sockets of this user may
// bind the port after it with SO_REUSEPORT. It fails if any user has bound the port before.
UdpSocket bind_everywhere(const std::string& address, uint16_t port) {
  std::optional<UdpSocket> socket;
  try {
    socket.emplace("0.0.0.0", port, 0);
  } catch (const std::system_error& error) {
    const bool taken = error.code().value() == EADDRINUSE;
    throw std::system_error(error.code(),
                            "cannot bind UDP " + address + ":" + std::to_string(port) +
                                (taken ? ": the port must be free on all addresses of this machine" : ""));
  }
  std::array<sock_filter, 1> drop_all{{{BPF_RET | BPF_K, 0, 0, 0}}};
  const sock_fprog filter{static_cast<unsigned short>(drop_all.size()), drop_all.data()};
  const int on = 1;
  if (setsockopt(socket->fd(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0 ||
      setsockopt(socket->fd(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot keep UDP port " + std::to_string(socket->port()) + " from others");
  }
  return *std::move(socket);
}

}  // namespace

HeldPorts::HeldPorts(std::string manager, const std::vector<int>& left) : manager_(std::move(manager)) {
  for (const int fd : left) {
    if (is_udp(fd)) left_.push_back(std::make_shared<const UdpSocket>(fd));
  }
}

HeldPorts& HeldPorts::of_process() {
  static HeldPorts ports(variable("NOTIFY_SOCKET"), given_descriptors());
  return ports;
}

std::shared_ptr<const UdpSocket> HeldPorts::hold(const std::string& address, uint16_t port) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto unused = std::find_if(left_.begin(), left_.end(), [port](const auto& socket) {
    return socket.use_count() == 1 && (port == 0 || socket->port() == port);
  });
  if (unused != left_.end()) return *unused;
  auto socket = std::make_shared<const UdpSocket>(bind_everywhere(address, port));
  if (!manager_.empty()) {
    leave_with_manager(*socket);
    left_.push_back(socket);
  }
  return socket;
}

void HeldPorts::leave_with_manager(const UdpSocket& socket) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string message = "FDSTORE=1\nFDNAME=udp-" + std::to_string(socket.port());
  iovec text{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr sent{};
  sent.msg_name = &address;
  sent.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + manager_.size());
  sent.msg_iov = &text;
  sent.msg_iovlen = 1;
  sent.msg_control = control.data();
  sent.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&sent);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int held = socket.fd();
  std::memcpy(CMSG_DATA(rights), &held, sizeof held);

  int error = ENAMETOOLONG;
  if (manager_.size() < sizeof address.sun_path) {
    std::memcpy(address.sun_path, manager_.data(), manager_.size());
    if (address.sun_path[0] == '@') address.sun_path[0] = 0;  // an address without a file
    const timeval patience{1, 0};
    const int manager = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (manager < 0) {
      error = errno;
    } else {
      setsockopt(manager, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
      error = sendmsg(manager, &sent, MSG_NOSIGNAL) < 0 ? errno : 0;
      close(manager);
    }
  }
  if (error != 0) {
    throw std::system_error(error, std::generic_category(),
                            "cannot leave UDP port " + std::to_string(socket.port()) +
                                " with the service manager at NOTIFY_SOCKET=" + manager_ +
                                "; without one, unset the variable");
  }
}

}  // namespace switchml::net
