// Many Ethernet frames per system call over one FrameSocket, in both directions.
#pragma once

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/softswitch/native/ports/frame_socket.h"
#include "native/net/udp_batch.h"

namespace switchml::soft {

// What PACKET_VNET_HDR puts before a frame: virtio_net_hdr of linux/virtio_net.h, which is not C++. Host byte order.
struct VirtioHeader {
  static constexpr uint8_t kNeedsChecksum = 1;

  uint8_t flags;
  uint8_t gso_type;
  uint16_t header_bytes;
  uint16_t gso_bytes;
  uint16_t checksum_start;   // what is to be summed begins here in the frame
  uint16_t checksum_offset;  // and the sum belongs this many bytes after that
};

// Buffers for one recvmmsg call. One thread uses a batch. Takes its memory at the first receive().
class FrameReceiveBatch {
 public:
  FrameReceiveBatch() = default;
  FrameReceiveBatch(const FrameReceiveBatch&) = delete;
  FrameReceiveBatch& operator=(const FrameReceiveBatch&) = delete;

  // Forgets the frames of the call before and takes what waits at the socket, without blocking. Returns whether there
  // was anything. Does not throw.
  bool receive(const FrameSocket& socket);
  // Takes frames of somebody else's memory instead, which stay as they are until the next call of either.
  void lend(const net::Datagram* frames, size_t count) {
    filled_ = message_ = 0;
    lent_.assign(frames, frames + count);
    next_lent_ = 0;
  }
  // Steps to the next frame, in order of arrival; it has no source address. False at the end. A frame that does not fit
  // a buffer (64 KiB) is left out. Frames are whole: a checksum or VLAN tag that was left to an interface is there.
  bool next(net::Datagram* frame);

 private:
  struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(tpacket_auxdata))];
  };

  uint8_t* buffer(size_t message) const;
  void prepare(const FrameSocket& socket);
  // Finishes the frame of message_, which is `*frame`.
  void finish(net::Datagram* frame);

  std::unique_ptr<uint8_t[]> memory_;  // never cleared, so that only what is used is ever touched
  std::vector<mmsghdr> messages_;
  std::vector<iovec> pieces_;  // two for each message: the virtio header, and the frame
  std::vector<VirtioHeader> offloads_;
  std::vector<Control> controls_;
  bool unfinished_frames_ = false;
  size_t filled_ = 0;   // messages received
  size_t message_ = 0;  // message being read
  std::vector<net::Datagram> lent_;
  size_t next_lent_ = 0;
};

// Frames on their way out. They are copied. One thread uses a queue.
class FrameSendQueue {
 public:
  static constexpr size_t kMostFrames = 64;  // it is worth a system call

  // Appends room for a frame of `bytes`, to be written before the next call.
  uint8_t* add(size_t bytes);
  size_t size() const { return ends_.size(); }

  // Sends and empties. Does not throw and does not block: a frame that the kernel refuses is counted as lost.
  void flush(const FrameSocket& socket);

  const net::SendCounters& counters() const { return counters_; }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<size_t> ends_;  // of each frame in bytes_
  std::vector<iovec> pieces_;
  std::vector<mmsghdr> messages_;
  net::SendCounters counters_;
};

}  // namespace switchml::soft
