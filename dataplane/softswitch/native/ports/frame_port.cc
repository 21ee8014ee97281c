#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "dataplane/softswitch/native/ports/ethernet_port.h"

namespace switchml::soft {
namespace {

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos) {
    throw std::invalid_argument("a socket path has 1 to " + std::to_string(sizeof address.sun_path - 1) +
                                " bytes, none of them zero; '" + path + "' is not one");
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

int try_bind(int fd, const sockaddr_un& address) {
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// Returns whether `address` is the name of a socket that no process has open any more.
bool is_left_behind(const sockaddr_un& address) {
  struct stat status{};
  if (lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const FrameSocket probe(AF_UNIX, SOCK_DGRAM, address.sun_path);
  return connect(probe.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
}

FrameSocket open_socket(const std::string& path, const std::string& peer) {
  const sockaddr_un address = unix_address(path);
  FrameSocket socket(AF_UNIX, SOCK_DGRAM, path);
  socket.peer = unix_address(peer);
  fchmod(socket.fd(),
         S_IRUSR | S_IWUSR);  // before bind() creates the file, which then gets this mode regardless of the umask
  int error = try_bind(socket.fd(), address);
  if (error == EADDRINUSE && is_left_behind(address)) {
    unlink(address.sun_path);
    error = try_bind(socket.fd(), address);
  }
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "cannot bind a Unix datagram socket to " + path);
  }
  socket.bound_path = path;
  return socket;
}

}  // namespace

PortParts open_port(uint16_t number, const FramePortSpec& spec, size_t shards) {
  require_one_shard(shards);
  PortParts parts;
  parts.push_back(std::make_unique<EthernetPort>(number, open_socket(spec.path, spec.peer)));
  return parts;
}

}  // namespace switchml::soft
