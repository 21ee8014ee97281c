#include "dataplane/softswitch/native/ports/frame_batch.h"

#include <cerrno>
#include <cstring>

#include "native/wire/frame_headers.h"

namespace switchml::soft {
namespace {

constexpr size_t kMessages = 64;
constexpr size_t kVlanTagBytes = 4;
constexpr size_t kLargestFrame = 65536 + wire::ethernet::bytes;
// A VLAN tag is inserted after the addresses by moving the addresses down, so there must be room in front of the frame.
constexpr size_t kStride = (kVlanTagBytes + kLargestFrame + 63) / 64 * 64;

static_assert(sizeof(VirtioHeader) == 10, "the size of the kernel's structure");
constexpr VirtioHeader kFinishedFrame{};  // the interface has nothing to complete

// Sums the frame from `from` on. The checksum field, `checksum` bytes after that, holds the sum of the pseudo header,
// which is thus included.
void complete_checksum(uint8_t* frame, size_t bytes, size_t from, size_t checksum) {
  if (from > bytes || checksum + sizeof(uint16_t) > bytes - from) return;
  const auto sum = static_cast<uint16_t>(~wire::ones_complement_sum(frame + from, bytes - from));
  wire::store16(frame + from + checksum, sum != 0 ? sum : 0xFFFF);  // 0 would mean that there is no checksum (RFC 768)
}

}  // namespace

uint8_t* FrameReceiveBatch::buffer(size_t message) const { return memory_.get() + message * kStride + kVlanTagBytes; }

void FrameReceiveBatch::prepare(const FrameSocket& socket) {
  if (memory_ == nullptr) {
    memory_.reset(new uint8_t[kMessages * kStride]);  // make_unique would clear it
    messages_.resize(kMessages);
    pieces_.resize(2 * kMessages);
    offloads_.resize(kMessages);
    controls_.resize(kMessages);
    for (size_t i = 0; i < kMessages; ++i) {
      pieces_[2 * i] = {&offloads_[i], sizeof offloads_[i]};
      pieces_[2 * i + 1] = {buffer(i), kLargestFrame};
    }
  }
  unfinished_frames_ = socket.unfinished_frames;
  for (size_t i = 0; i < kMessages; ++i) {
    msghdr& message = messages_[i].msg_hdr;
    message = {};
    message.msg_iov = &pieces_[unfinished_frames_ ? 2 * i : 2 * i + 1];
    message.msg_iovlen = unfinished_frames_ ? 2 : 1;
    if (!unfinished_frames_) continue;
    message.msg_control = controls_[i].bytes;
    message.msg_controllen = sizeof controls_[i].bytes;
  }
}

bool FrameReceiveBatch::receive(const FrameSocket& socket) {
  filled_ = message_ = 0;
  lent_.clear();
  next_lent_ = 0;
  prepare(socket);
  int received = 0;
  do {
    received = recvmmsg(socket.fd(), messages_.data(), kMessages, MSG_DONTWAIT, nullptr);
  } while (received < 0 && errno == EINTR);
  if (received > 0) filled_ = static_cast<size_t>(received);
  return filled_ > 0;
}

bool FrameReceiveBatch::next(net::Datagram* frame) {
  if (next_lent_ < lent_.size()) {
    *frame = lent_[next_lent_++];
    return true;
  }
  while (message_ < filled_) {
    const mmsghdr& message = messages_[message_];
    const size_t before = unfinished_frames_ ? sizeof(VirtioHeader) : 0;
    const bool whole = (static_cast<unsigned>(message.msg_hdr.msg_flags) & MSG_TRUNC) == 0 && message.msg_len >= before;
    if (whole) {
      *frame = {buffer(message_), message.msg_len - before, {}};
      if (unfinished_frames_) finish(frame);
    }
    ++message_;
    if (whole) return true;
  }
  return false;
}

void FrameReceiveBatch::finish(net::Datagram* frame) {
  uint8_t* bytes = buffer(message_);
  const VirtioHeader& offload = offloads_[message_];
  if ((offload.flags & VirtioHeader::kNeedsChecksum) != 0) {
    complete_checksum(bytes, frame->length, offload.checksum_start, offload.checksum_offset);
  }
  msghdr& message = messages_[message_].msg_hdr;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_PACKET || control->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata auxiliary{};
    std::memcpy(&auxiliary, CMSG_DATA(control), sizeof auxiliary);
    if ((auxiliary.tp_status & TP_STATUS_VLAN_VALID) == 0 || frame->length < wire::ethernet::bytes) continue;
    uint8_t* tagged = bytes - kVlanTagBytes;
    std::memmove(tagged, bytes, wire::ethernet::type);
    const bool has_type = (auxiliary.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    wire::store16(tagged + wire::ethernet::type, has_type ? auxiliary.tp_vlan_tpid : wire::ethernet::type_vlan);
    wire::store16(tagged + wire::ethernet::type + 2, auxiliary.tp_vlan_tci);
    *frame = {tagged, frame->length + kVlanTagBytes, {}};
  }
}

uint8_t* FrameSendQueue::add(size_t bytes) {
  const size_t start = bytes_.size();
  bytes_.resize(start + bytes);
  ends_.push_back(bytes_.size());
  return bytes_.data() + start;
}

void FrameSendQueue::flush(const FrameSocket& socket) {
  pieces_.clear();
  messages_.clear();
  size_t start = 0;
  for (const size_t end : ends_) {
    // The kernel only reads what an iovec of sendmsg points to.
    if (socket.unfinished_frames)
      pieces_.push_back({const_cast<VirtioHeader*>(&kFinishedFrame), sizeof kFinishedFrame});
    pieces_.push_back({bytes_.data() + start, end - start});
    start = end;
  }
  const size_t pieces_each = socket.unfinished_frames ? 2 : 1;
  for (size_t i = 0; i < ends_.size(); ++i) {
    msghdr message{};
    if (socket.peer) {
      message.msg_name = const_cast<sockaddr_un*>(&*socket.peer);
      message.msg_namelen = sizeof *socket.peer;
    }
    message.msg_iov = &pieces_[i * pieces_each];
    message.msg_iovlen = pieces_each;
    messages_.push_back({message, 0});
  }
  size_t at = 0;
  while (at < messages_.size()) {
    const int sent = sendmmsg(socket.fd(), &messages_[at], static_cast<unsigned>(messages_.size() - at), MSG_DONTWAIT);
    if (sent > 0) {
      counters_.sent += static_cast<size_t>(sent);
      at += static_cast<size_t>(sent);
    } else if (errno != EINTR) {
      ++counters_.send_errors;
      counters_.last_send_errno = errno;
      ++at;
    }
  }
  bytes_.clear();
  ends_.clear();
}

}  // namespace switchml::soft
