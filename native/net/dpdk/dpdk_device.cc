#include "native/net/dpdk/dpdk_device.h"

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "native/wire/frame_headers.h"
#include "native/wire/frame_slot.h"
#include "native/wire/slot_blocks.h"

namespace switchml::net {
namespace {

// If the device's ring has been full for this long, the other end does not empty it, and all waiting frames are
// dropped.
constexpr std::chrono::milliseconds kLongestStall{50};

}  // namespace

std::vector<std::unique_ptr<FrameDevice>> queues_of(const std::shared_ptr<DpdkPort>& port) {
  std::vector<std::unique_ptr<FrameDevice>> queues;
  queues.reserve(port->queues());
  for (uint16_t queue = 0; queue < port->queues(); ++queue) queues.push_back(std::make_unique<DpdkDevice>(port, queue));
  return queues;
}

DpdkDevice::DpdkDevice(std::shared_ptr<DpdkPort> port, uint16_t queue)
    : port_(std::move(port)), index_(queue), interrupt_fd_(port_->interrupt_fd(queue)), others_(port_->queues()) {
  received_.reserve(kBurst);
  joined_.resize(kBurst);
  queue_.reserve(DpdkPort::kLongestQueue);
  port_->add(this);
}

DpdkDevice::~DpdkDevice() {
  port_->remove(this);
  release_frames();
  release_regions();
}

void DpdkDevice::release_frames() {
  release_received();
  rte_pktmbuf_free_bulk(queue_.data(), static_cast<unsigned>(queue_.size()));
  queue_.clear();
}

void DpdkDevice::release_regions() {
  for (const auto& [first, region] : regions_) region->let_go();
  regions_.clear();
}

FrameDeviceCounters DpdkDevice::counters() const {
  FrameDeviceCounters counters = counters_;
  if (index_ == 0) port_->add_counters(&counters);
  return counters;
}

void DpdkDevice::enter_thread() {
  if (rte_lcore_id() != LCORE_ID_ANY) return;
  // If DPDK has no lcore left, the thread works as well, but without a packet cache.
  registered_lcore_ = rte_thread_register() == 0;
}

void DpdkDevice::leave_thread() {
  if (registered_lcore_) rte_thread_unregister();
  registered_lcore_ = false;
}

void DpdkDevice::release_received() {
  rte_pktmbuf_free_bulk(received_.data(), static_cast<unsigned>(received_.size()));
  received_.clear();
}

size_t DpdkDevice::receive(Datagram* frames) {
  release_received();
  if (index_ == 0) port_->look_at_link();
  take_handed_over();
  receive_burst();
  size_t filled = 0;
  for (const rte_mbuf* frame : received_) {
    const uint8_t* data = contents_of(frame, filled);
    if (data == nullptr) {
      counters_.receive_errors += 1;
    } else {
      frames[filled++] = {data, rte_pktmbuf_pkt_len(frame), {}};
    }
  }
  return filled;
}

void DpdkDevice::take_handed_over() {
  rte_ring* ring = port_->handed_to(index_);
  if (ring == nullptr) return;
  constexpr size_t kMost = kBurst / 2;  // leaves room for frames from the device's own ring
  std::array<void*, kMost> taken;
  const unsigned count = rte_ring_dequeue_burst(ring, taken.data(), kMost, nullptr);
  for (unsigned i = 0; i < count; ++i) received_.push_back(static_cast<rte_mbuf*>(taken[i]));
}

void DpdkDevice::receive_burst() {
  const auto use = port_->use(index_);
  if (!use) return;
  const size_t before = received_.size();
  received_.resize(kBurst);
  const auto room = static_cast<uint16_t>(kBurst - before);
  const uint16_t count = rte_eth_rx_burst(port_->number(), index_, &received_[before], room);
  received_.resize(before + count);
  counters_.received += count;
  if (port_->queues() > 1) hand_over(before);
}

void DpdkDevice::hand_over(size_t first) {
  uint64_t owners = 0;
  size_t kept = first;
  for (size_t i = first; i < received_.size(); ++i) {
    const uint16_t owner = owner_of(received_[i]);
    if (owner == index_) {
      received_[kept++] = received_[i];
    } else {
      others_[owner].push_back(received_[i]);
      owners |= uint64_t{1} << owner;
    }
  }
  received_.resize(kept);
  handed_to_ |= owners;
  for (; owners != 0; owners &= owners - 1) {
    const auto owner = static_cast<uint16_t>(__builtin_ctzll(owners));
    std::vector<rte_mbuf*>& frames = others_[owner];
    const auto count = static_cast<unsigned>(frames.size());
    const unsigned taken =
        rte_ring_enqueue_burst(port_->handed_to(owner), reinterpret_cast<void**>(frames.data()), count, nullptr);
    rte_pktmbuf_free_bulk(frames.data() + taken, count - taken);
    counters_.handed_over += taken;
    counters_.receive_overflow += count - taken;
    frames.clear();
  }
}

uint16_t DpdkDevice::owner_of(const rte_mbuf* frame) const {
  std::array<uint8_t, wire::kBytesToSlot> joined;
  const auto bytes = std::min<uint32_t>(rte_pktmbuf_pkt_len(frame), joined.size());
  const void* start = rte_pktmbuf_read(frame, 0, bytes, joined.data());
  if (start == nullptr) return index_;  // its segments are shorter than its length says
  const auto slot = wire::slot_of_frame(static_cast<const uint8_t*>(start), bytes);
  return slot ? static_cast<uint16_t>(wire::part_of_slot(*slot, port_->queues())) : index_;
}

uint64_t DpdkDevice::take_handed_to() { return std::exchange(handed_to_, 0); }

const uint8_t* DpdkDevice::contents_of(const rte_mbuf* frame, size_t index) {
  const uint64_t ip = frame->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
  const uint64_t udp = frame->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
  if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || udp == RTE_MBUF_F_RX_L4_CKSUM_BAD) return nullptr;
  if (rte_pktmbuf_is_contiguous(frame) != 0) return rte_pktmbuf_mtod(frame, const uint8_t*);
  std::vector<uint8_t>& whole = joined_[index];
  whole.resize(rte_pktmbuf_pkt_len(frame));
  // Null if the segments are shorter than the frame's length field.
  return static_cast<const uint8_t*>(rte_pktmbuf_read(frame, 0, rte_pktmbuf_pkt_len(frame), whole.data()));
}

SharedRegion* DpdkDevice::region_of(const uint8_t* payload, size_t bytes) const {
  auto after = regions_.upper_bound(payload);
  if (after == regions_.begin()) return nullptr;
  SharedRegion* region = std::prev(after)->second;
  return region->contains(payload, bytes) ? region : nullptr;
}

rte_mbuf* DpdkDevice::make_whole(const uint8_t* header, size_t header_bytes, const uint8_t* payload,
                                 size_t payload_bytes) {
  rte_mbuf* frame = rte_pktmbuf_alloc(payload_bytes == 0 && header_bytes <= DpdkPort::kHeaderRoom ? port_->headers()
                                                                                                  : port_->frames());
  if (frame == nullptr) return nullptr;
  char* room = rte_pktmbuf_append(frame, static_cast<uint16_t>(header_bytes + payload_bytes));
  if (room == nullptr) {  // longer than the device's largest frame
    rte_pktmbuf_free(frame);
    return nullptr;
  }
  std::memcpy(room, header, header_bytes);
  if (payload_bytes > 0) std::memcpy(room + header_bytes, payload, payload_bytes);
  return frame;
}

rte_mbuf* DpdkDevice::make_chain(const uint8_t* header, size_t header_bytes, rte_mbuf* payload) {
  rte_mbuf* frame = rte_pktmbuf_alloc(port_->headers());
  char* room = frame == nullptr ? nullptr : rte_pktmbuf_append(frame, static_cast<uint16_t>(header_bytes));
  if (room == nullptr) {
    rte_pktmbuf_free(frame);
    rte_pktmbuf_free(payload);
    return nullptr;
  }
  std::memcpy(room, header, header_bytes);
  frame->next = payload;
  frame->nb_segs = 2;
  frame->pkt_len = static_cast<uint32_t>(header_bytes) + payload->data_len;
  return frame;
}

rte_mbuf* DpdkDevice::attach(SharedRegion* region, const uint8_t* payload, size_t bytes) {
  rte_mbuf* piece = rte_pktmbuf_alloc(port_->headers());
  if (piece != nullptr) region->attach(piece, payload, bytes);
  return piece;
}

// If the device computes the UDP checksum, DPDK requires the sum of the pseudo-header in its field.
void DpdkDevice::fill_checksums(rte_mbuf* frame, Checksums checksums) const {
  if (checksums == Checksums::finished) return;
  auto* ip = rte_pktmbuf_mtod_offset(frame, rte_ipv4_hdr*, wire::ethernet::bytes);
  if (!offloads(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM)) {
    wire::store_ipv4_checksum(reinterpret_cast<uint8_t*>(ip));
    return;
  }
  frame->l2_len = wire::ethernet::bytes;
  frame->l3_len = wire::ipv4::bytes;
  frame->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
  if (checksums == Checksums::ipv4_and_udp && offloads(RTE_ETH_TX_OFFLOAD_UDP_CKSUM)) {
    frame->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
    auto* udp = rte_pktmbuf_mtod_offset(frame, rte_udp_hdr*, wire::ethernet::bytes + wire::ipv4::bytes);
    udp->dgram_cksum = rte_ipv4_phdr_cksum(ip, frame->ol_flags);
  }
}

void DpdkDevice::enqueue(rte_mbuf* frame, Checksums checksums) {
  if (frame == nullptr) return count_lost(1, ENOBUFS);
  if (queue_.size() == DpdkPort::kLongestQueue) flush();
  if (queue_.size() == DpdkPort::kLongestQueue) {
    rte_pktmbuf_free(frame);
    return count_lost(1, EAGAIN);
  }
  fill_checksums(frame, checksums);
  queue_.push_back(frame);
}

void DpdkDevice::send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) {
  const bool chains = payload_bytes > 0 && offloads(RTE_ETH_TX_OFFLOAD_MULTI_SEGS);
  SharedRegion* region = chains ? region_of(payload, payload_bytes) : nullptr;
  // One copy of the payload, for several frames that end with it.
  rte_mbuf* once = nullptr;
  if (chains && region == nullptr && headers.count > 1) once = make_whole(payload, payload_bytes, nullptr, 0);
  for (size_t i = 0; i < headers.count; ++i) {
    const uint8_t* header = headers.first + i * headers.bytes;
    rte_mbuf* piece = nullptr;
    if (region != nullptr) {
      piece = attach(region, payload, payload_bytes);
      counters_.uncopied += piece != nullptr ? 1 : 0;
    } else if (once != nullptr) {
      piece = rte_pktmbuf_clone(once, port_->headers());
    }
    enqueue(piece != nullptr ? make_chain(header, headers.bytes, piece)
                             : make_whole(header, headers.bytes, payload, payload_bytes),
            checksums);
  }
  rte_pktmbuf_free(once);
}

void DpdkDevice::flush() {
  const auto use = port_->use(index_);
  size_t sent = 0;
  while (use && sent < queue_.size()) {
    const auto burst = static_cast<uint16_t>(std::min(queue_.size() - sent, kBurst));
    const uint16_t taken = rte_eth_tx_burst(port_->number(), index_, &queue_[sent], burst);
    sent += taken;
    if (taken < burst) break;
  }
  counters_.sent += sent;
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(sent));
  if (sent > 0 || queue_.empty()) {
    stalled_since_ = Clock::time_point::max();
  } else {
    drop_stalled(Clock::now());
  }
}

void DpdkDevice::drop_stalled(Clock::time_point now) {
  stalled_since_ = std::min(stalled_since_, now);
  if (now - stalled_since_ < kLongestStall) return;
  count_lost(queue_.size(), ENETDOWN);
  rte_pktmbuf_free_bulk(queue_.data(), static_cast<unsigned>(queue_.size()));
  queue_.clear();
}

void DpdkDevice::count_lost(size_t frames, int error) {
  counters_.send_errors += frames;
  counters_.last_send_errno = error;
}

void DpdkDevice::share(const std::shared_ptr<void>& memory, size_t bytes) {
  if (!offloads(RTE_ETH_TX_OFFLOAD_MULTI_SEGS)) return;
  SharedRegion* region = port_->reach(memory, bytes);
  if (region != nullptr) regions_.emplace(static_cast<const uint8_t*>(memory.get()), region);
}

void DpdkDevice::unshare(const void* memory) {
  const auto found = regions_.find(static_cast<const uint8_t*>(memory));
  if (found == regions_.end()) return;
  found->second->let_go();
  regions_.erase(found);
}

bool DpdkDevice::prepare_sleep() {
  const rte_ring* ring = port_->handed_to(index_);
  if (!queue_.empty() || (ring != nullptr && rte_ring_empty(ring) == 0)) return false;
  // Frames that came before the interrupt was enabled do not raise it.
  return interrupt_fd_ < 0 || (rte_eth_dev_rx_intr_enable(port_->number(), index_) == 0 &&
                               rte_eth_rx_queue_count(port_->number(), index_) <= 0);
}

void DpdkDevice::end_sleep() {
  if (interrupt_fd_ < 0) return;
  rte_eth_dev_rx_intr_disable(port_->number(), index_);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(interrupt_fd_, &count, sizeof count);
}

}  // namespace switchml::net
