// A socket that carries one Ethernet frame in each message.
#pragma once

#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace switchml::soft {

// Nonblocking. Owns its descriptor.
class FrameSocket {
 public:
  // Throws std::system_error, with `name` in its text, when the kernel has no such socket for us.
  FrameSocket(int domain, int type, const std::string& name);
  ~FrameSocket();
  FrameSocket(FrameSocket&& other) noexcept;
  FrameSocket& operator=(FrameSocket&& other) = delete;
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return fd_; }
  size_t receive_buffer() const { return receive_buffer_; }  // bytes
  size_t send_buffer() const { return send_buffer_; }        // bytes
  // Frames (modulo 2^32) that the kernel dropped because the receive buffer was full; 0 where it does not tell.
  uint32_t receive_drops() const;

  // Where frames are sent to; none when the socket is bound to an interface.
  std::optional<sockaddr_un> peer;
  // Whether the kernel was told to say what is missing in a frame that it did not finish, because it left the rest to
  // an interface: a virtio header before every frame, in both directions, for the checksum, and auxiliary data for
  // the VLAN tag. See PACKET_VNET_HDR and PACKET_AUXDATA in packet(7).
  bool unfinished_frames = false;

 private:
  int fd_ = -1;
  size_t receive_buffer_ = 0;
  size_t send_buffer_ = 0;
};

}  // namespace switchml::soft
