// A socket that carries one Ethernet frame in each message.
#pragma once

#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace switchml::soft {

// A nonblocking socket that owns its descriptor.
class FrameSocket {
 public:
  // Throws std::system_error, with `name` in its text, if the kernel does not open such a socket.
  FrameSocket(int domain, int type, const std::string& name);
  ~FrameSocket();
  FrameSocket(FrameSocket&& other) noexcept;
  FrameSocket& operator=(FrameSocket&& other) = delete;
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return fd_; }
  size_t receive_buffer() const { return receive_buffer_; }  // bytes
  size_t send_buffer() const { return send_buffer_; }        // bytes
  // Returns the number (modulo 2^32) of frames that the kernel dropped because the receive buffer was full; 0 if it
  // does not report it.
  uint32_t receive_drops() const;

  // The file that the socket is bound to, and that is removed with it; empty without one.
  std::string bound_path;
  // The destination of frames; empty if the socket is bound to an interface.
  std::optional<sockaddr_un> peer;
  // True if the kernel describes what is missing in a frame that it left to the interface to complete: the checksum in
  // a virtio header before every frame, in both directions, and the VLAN tag in auxiliary data. See PACKET_VNET_HDR and
  // PACKET_AUXDATA in packet(7).
  bool unfinished_frames = false;

 private:
  int fd_ = -1;
  size_t receive_buffer_ = 0;
  size_t send_buffer_ = 0;
};

}  // namespace switchml::soft
