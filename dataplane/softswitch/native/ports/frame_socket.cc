#include "dataplane/softswitch/native/ports/frame_socket.h"

#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace switchml::soft {
namespace {

constexpr int kSocketBufferBytes = 32 * 1024 * 1024;  // as for a UDP port

// Asks for a socket buffer, beyond the system's limit if this process may, and returns the size that the kernel gave.
size_t set_buffer(int fd, int force_option, int option) {
  if (setsockopt(fd, SOL_SOCKET, force_option, &kSocketBufferBytes, sizeof kSocketBufferBytes) != 0) {
    // Without the privilege the kernel reduces the request to its limit, without an error.
    setsockopt(fd, SOL_SOCKET, option, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  }
  int got = 0;
  socklen_t length = sizeof got;
  getsockopt(fd, SOL_SOCKET, option, &got, &length);
  return static_cast<size_t>(got) / 2;  // the kernel reports twice the usable size, socket(7)
}

}  // namespace

FrameSocket::FrameSocket(int domain, int type, const std::string& name)
    // NOLINTNEXTLINE(bugprone-signed-bitwise): the system's flags are signed
    : fd_(socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open a socket for " + name);
  receive_buffer_ = set_buffer(fd_, SO_RCVBUFFORCE, SO_RCVBUF);
  send_buffer_ = set_buffer(fd_, SO_SNDBUFFORCE, SO_SNDBUF);
}

FrameSocket::~FrameSocket() {
  if (fd_ < 0) return;
  if (!bound_path.empty()) unlink(bound_path.c_str());  // first, because another process replaces a closed one
  close(fd_);
}

FrameSocket::FrameSocket(FrameSocket&& other) noexcept
    : bound_path(std::move(other.bound_path)),
      peer(other.peer),
      unfinished_frames(other.unfinished_frames),
      fd_(std::exchange(other.fd_, -1)),
      receive_buffer_(other.receive_buffer_),
      send_buffer_(other.send_buffer_) {}

uint32_t FrameSocket::receive_drops() const {
  uint32_t figures[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof figures;
  if (getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, figures, &length) != 0) return 0;
  return figures[SK_MEMINFO_DROPS];
}

}  // namespace switchml::soft
