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

// The header that PACKET_VNET_HDR puts before a frame: virtio_net_hdr of linux/virtio_net.h, which does not compile as
// C++. Host byte order.
struct VirtioHeader {
  static constexpr uint8_t kNeedsChecksum = 1;

  uint8_t flags;
  uint8_t gso_type;
  uint16_t header_bytes;
  uint16_t gso_bytes;
  uint16_t checksum_start;   // offset in the frame from which to sum
  uint16_t checksum_offset;  // offset of the checksum field after checksum_start
};

// Buffers for one recvmmsg call. One thread uses a batch. The first receive() allocates its memory.
class FrameReceiveBatch {
 public:
  FrameReceiveBatch() = default;
  FrameReceiveBatch(const FrameReceiveBatch&) = delete;
  FrameReceiveBatch& operator=(const FrameReceiveBatch&) = delete;

  // Discards the frames of the previous call and receives those that wait at the socket, without blocking. Returns
  // whether there were any. Does not throw.
  bool receive(const FrameSocket& socket);
  // Uses frames in memory of the caller instead, which must not change until the next call of lend() or receive().
  void lend(const net::Datagram* frames, size_t count) {
    filled_ = message_ = 0;
    lent_.assign(frames, frames + count);
    next_lent_ = 0;
  }
  // Sets `frame` to the next one, in order of arrival; it has no source address. Returns false after the last one. A
  // frame that does not fit a buffer (64 KiB) is skipped. Frames are complete: a checksum or VLAN tag that the kernel
  // left to the interface has been filled in.
  bool next(net::Datagram* frame);

 private:
  struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(tpacket_auxdata))];
  };

  uint8_t* buffer(size_t message) const;
  void prepare(const FrameSocket& socket);
  // Fills in the checksum and the VLAN tag of `*frame`, which is the frame of message_.
  void finish(net::Datagram* frame);

  std::unique_ptr<uint8_t[]> memory_;  // never cleared, so that unused pages are never touched
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

// A queue of frames to send, which copies them. One thread uses a queue.
class FrameSendQueue {
 public:
  static constexpr size_t kMostFrames = 64;  // enough for one system call

  // Appends room for a frame of `bytes`, which the caller must write before the next call.
  uint8_t* add(size_t bytes);
  size_t size() const { return ends_.size(); }

  // Sends the frames and empties the queue. Does not throw and does not block: a frame that the kernel refuses is
  // counted as lost.
  void flush(const FrameSocket& socket);

  const net::SendCounters& counters() const { return counters_; }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<size_t> ends_;  // the end of each frame in bytes_
  std::vector<iovec> pieces_;
  std::vector<mmsghdr> messages_;
  net::SendCounters counters_;
};

}  // namespace switchml::soft
