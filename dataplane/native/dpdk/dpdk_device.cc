#include "dataplane/native/dpdk/dpdk_device.h"

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "dataplane/native/dpdk/eal.h"
#include "dataplane/native/dpdk/shared_region.h"
#include "dataplane/native/frame_headers.h"

namespace switchml {
namespace {

constexpr uint16_t kQueue = 0;
constexpr uint16_t kReceiveDescriptors = 1024;
constexpr uint16_t kTransmitDescriptors = 1024;
// A burst that finds the device's ring full waits for the next flush; more than so many frames are as good as lost.
constexpr size_t kLongestQueue = 2048;
// And so are all of them when the ring has been full for so long: nobody is there to empty it.
constexpr std::chrono::milliseconds kLongestStall{50};
constexpr std::chrono::milliseconds kLookAtLink{1000};
constexpr unsigned kPoolCache = 256;
constexpr size_t kHeaderRoom = 128;
constexpr size_t kSmallestFrameRoom = 2048;
constexpr size_t kBeyondMtu = ethernet::bytes + 8;  // and two VLAN tags

std::system_error failure(int error, const std::string& what) {
  return std::system_error(error != 0 ? error : EINVAL, std::generic_category(), what);
}

void require(int result, const std::string& what) {
  if (result < 0) throw failure(-result, what);
}

// Names of pools are of the process, and short.
rte_mempool* make_pool(uint16_t port, const char* kind, unsigned mbufs, size_t room, int socket) {
  const std::string name = "sml" + std::to_string(port) + kind;
  rte_mempool* pool = rte_pktmbuf_pool_create(name.c_str(), mbufs, kPoolCache, 0,
                                              static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + room), socket);
  if (pool == nullptr) {
    throw failure(rte_errno, "DPDK has no memory for " + std::to_string(mbufs) + " packets of " + std::to_string(room) +
                                 " bytes; give it more (--dpdk-eal '-m MEGABYTES', or more huge pages)");
  }
  return pool;
}

uint16_t find_port(const std::string& devargs) {
  rte_dev_iterator iterator;
  uint16_t port = RTE_MAX_ETHPORTS;
  RTE_ETH_FOREACH_MATCHING_DEV(port, devargs.c_str(), &iterator) {
    rte_eth_iterator_cleanup(&iterator);
    return port;
  }
  const std::string name = devargs.substr(0, devargs.find(','));
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port) == 0) return port;
  throw std::invalid_argument("DPDK found no Ethernet port for " + devargs);
}

}  // namespace

DpdkDevice::DpdkDevice(const Options& options) : name_(options.devargs) {
  const std::string name = options.devargs.substr(0, options.devargs.find(','));
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port_) == 0 && rte_eth_dev_is_valid_port(port_) != 0) {
    rte_eth_dev_info info{};
    // DPDK finds network cards by itself; one that is configured is somebody's.
    if (rte_eth_dev_info_get(port_, &info) == 0 && info.nb_rx_queues != 0) {
      throw std::invalid_argument("DPDK's " + name + " is open already in this process");
    }
  } else {
    const int probed = rte_dev_probe(options.devargs.c_str());
    if (probed < 0) {
      // Its number would mislead: most drivers return the same for whatever went wrong.
      throw std::invalid_argument("DPDK cannot open " + options.devargs +
                                  "; its own messages above say why. Give a PCI address, such as 0000:3b:00.0, whose "
                                  "card is bound to a driver such as vfio-pci (dpdk-devbind.py --status), or a virtual "
                                  "device, such as net_memif0 or net_af_packet0, with its options");
    }
    port_ = find_port(options.devargs);
  }
  try {
    configure(options);
  } catch (...) {
    close();
    throw;
  }
  close_before_stop(this, [this] { close(); });
}

DpdkDevice::~DpdkDevice() {
  take_back(this);
  close();
}

void DpdkDevice::close() {
  if (closed_) return;
  closed_ = true;
  release_received();
  rte_pktmbuf_free_bulk(queue_.data(), static_cast<unsigned>(queue_.size()));
  queue_.clear();
  rte_eth_dev_info info{};
  rte_device* device = rte_eth_dev_info_get(port_, &info) == 0 ? info.device : nullptr;
  rte_eth_dev_stop(port_);
  rte_eth_dev_close(port_);
  // So that a virtual device can be opened again under its name.
  if (device != nullptr && on_virtual_bus_) rte_dev_remove(device);
  for (const auto& [first, region] : regions_) region->let_go();
  regions_.clear();
  rte_mempool_free(frames_);
  rte_mempool_free(headers_);
}

void DpdkDevice::configure(const Options& options) {
  rte_eth_dev_info info{};
  require(rte_eth_dev_info_get(port_, &info), "DPDK says nothing about " + name_);
  const rte_bus* bus = info.device != nullptr ? rte_bus_find_by_device(info.device) : nullptr;
  on_virtual_bus_ = bus != nullptr && std::strcmp(rte_bus_name(bus), "vdev") == 0;
  transmit_offloads_ = info.tx_offload_capa &
                       (RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_MULTI_SEGS);
  uint16_t mtu = options.mtu;
  if (mtu == 0) require(rte_eth_dev_get_mtu(port_, &mtu), "DPDK does not tell the MTU of " + name_);
  const size_t room = std::max(kSmallestFrameRoom, mtu + kBeyondMtu);
  const unsigned waiting = kTransmitDescriptors + kLongestQueue + 2 * kPoolCache;
  frames_ = make_pool(port_, "frames", kReceiveDescriptors + waiting, room, rte_eth_dev_socket_id(port_));
  headers_ = make_pool(port_, "headers", 2 * waiting, kHeaderRoom, rte_eth_dev_socket_id(port_));
  try {
    start(info, true);
  } catch (const std::system_error&) {  // some drivers refuse to start with interrupts that they do not have
    start(info, false);
  }
  if (options.mtu != 0) require(rte_eth_dev_set_mtu(port_, mtu), name_ + " refuses an MTU of " + std::to_string(mtu));
  largest_frame_ = mtu + ethernet::bytes;
  reconnects_ = name_.rfind("net_memif", 0) == 0 && name_.find("role=server") == std::string::npos;
  looked_at_link_ = Clock::now();
  // Not every driver has the two; af_packet's interface and memif take all frames anyway.
  if (options.promiscuous) rte_eth_promiscuous_enable(port_);
  rte_ether_addr address{};
  require(rte_eth_macaddr_get(port_, &address), "DPDK does not tell the MAC address of " + name_);
  mac_ = wire::load48(address.addr_bytes);
  received_.reserve(kBurst);
  joined_.resize(kBurst);
  queue_.reserve(kLongestQueue);
}

void DpdkDevice::start(const rte_eth_dev_info& info, bool interrupts) {
  rte_eth_conf configuration{};  // NOLINT(bugprone-invalid-enum-default-initialization): DPDK wants zeros
  configuration.rxmode.offloads = info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM |
                                                          RTE_ETH_RX_OFFLOAD_SCATTER);
  configuration.txmode.offloads = transmit_offloads_;
  configuration.intr_conf.rxq = interrupts ? 1 : 0;
  require(rte_eth_dev_configure(port_, 1, 1, &configuration), name_ + " cannot be configured");
  uint16_t receive_descriptors = kReceiveDescriptors;
  uint16_t transmit_descriptors = kTransmitDescriptors;
  require(rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receive_descriptors, &transmit_descriptors),
          name_ + " takes no such number of descriptors");
  const unsigned socket = static_cast<unsigned>(std::max(rte_eth_dev_socket_id(port_), 0));
  require(rte_eth_rx_queue_setup(port_, kQueue, receive_descriptors, socket, nullptr, frames_),
          "a receive queue of " + name_);
  require(rte_eth_tx_queue_setup(port_, kQueue, transmit_descriptors, socket, nullptr), "a send queue of " + name_);
  if (const int error = rte_eth_dev_start(port_); error < 0) {
    if (name_.rfind("net_memif", 0) == 0) {
      throw std::invalid_argument(name_ + " cannot be started: nobody listens at its socket; start the server first, " +
                                  "which is the switch, and give both the same socket and socket-abstract");
    }
    throw failure(-error, name_ + " cannot be started");
  }
  interrupt_fd_ = -1;
  if (interrupts && info.device != nullptr && !on_virtual_bus_ && rte_eth_dev_rx_intr_enable(port_, kQueue) == 0) {
    rte_eth_dev_rx_intr_disable(port_, kQueue);
    interrupt_fd_ = rte_eth_dev_rx_intr_ctl_q_get_fd(port_, kQueue);
  }
}

std::string DpdkDevice::description() const {
  const auto has = [this](uint64_t offload) { return (transmit_offloads_ & offload) != 0; };
  return std::string(has(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) ? "hardware" : "software") + " checksums, " +
         (has(RTE_ETH_TX_OFFLOAD_MULTI_SEGS) ? "payloads sent from where they are" : "payloads copied") + ", " +
         (interrupt_fd_ >= 0 ? "receive interrupts" : "no receive interrupts");
}

FrameDeviceCounters DpdkDevice::counters() const {
  FrameDeviceCounters counters = counters_;
  rte_eth_stats stats{};
  if (rte_eth_stats_get(port_, &stats) == 0) {
    counters.receive_overflow = stats.imissed + stats.rx_nombuf;
    counters.receive_errors += stats.ierrors;
  }
  return counters;
}

void DpdkDevice::enter_thread() {
  if (rte_lcore_id() != LCORE_ID_ANY) return;
  // Where DPDK has no lcore left the thread works all the same, without a cache of packets.
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

bool DpdkDevice::connected() {
  if (!reconnects_) return true;
  const auto now = Clock::now();
  if (now - looked_at_link_ < kLookAtLink) return started_;
  looked_at_link_ = now;
  if (started_) {
    rte_eth_link link{};
    if (rte_eth_link_get_nowait(port_, &link) != 0 || link.link_status == RTE_ETH_LINK_UP) return true;
    rte_eth_dev_stop(port_);
  }
  started_ = rte_eth_dev_start(port_) == 0;
  return started_;
}

size_t DpdkDevice::receive(Datagram* frames) {
  release_received();
  if (!connected()) return 0;
  received_.resize(kBurst);
  received_.resize(rte_eth_rx_burst(port_, kQueue, received_.data(), kBurst));
  counters_.received += received_.size();
  size_t filled = 0;
  for (rte_mbuf* frame : received_) {
    const uint64_t ip = frame->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    const uint64_t udp = frame->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || udp == RTE_MBUF_F_RX_L4_CKSUM_BAD) {
      counters_.receive_errors += 1;
      continue;
    }
    const size_t bytes = rte_pktmbuf_pkt_len(frame);
    const uint8_t* data = rte_pktmbuf_mtod(frame, const uint8_t*);
    if (rte_pktmbuf_is_contiguous(frame) == 0) {
      std::vector<uint8_t>& whole = joined_[filled];
      whole.resize(bytes);
      data = static_cast<const uint8_t*>(rte_pktmbuf_read(frame, 0, static_cast<uint32_t>(bytes), whole.data()));
      if (data == nullptr) {
        counters_.receive_errors += 1;  // its segments are shorter than it says
        continue;
      }
    }
    frames[filled++] = {data, bytes, {}};
  }
  return filled;
}

DpdkDevice::SharedRegion* DpdkDevice::region_of(const uint8_t* payload, size_t bytes) const {
  auto after = regions_.upper_bound(payload);
  if (after == regions_.begin()) return nullptr;
  SharedRegion* region = std::prev(after)->second;
  return region->contains(payload, bytes) ? region : nullptr;
}

rte_mbuf* DpdkDevice::make_whole(const uint8_t* header, size_t header_bytes, const uint8_t* payload,
                                 size_t payload_bytes) {
  rte_mbuf* frame = rte_pktmbuf_alloc(payload_bytes == 0 && header_bytes <= kHeaderRoom ? headers_ : frames_);
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
  rte_mbuf* frame = rte_pktmbuf_alloc(headers_);
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
  rte_mbuf* piece = rte_pktmbuf_alloc(headers_);
  if (piece != nullptr) region->attach(piece, payload, bytes);
  return piece;
}

// With L3 and L4 in front of a device that computes both, the UDP field holds the sum of the pseudo-header.
void DpdkDevice::fill_checksums(rte_mbuf* frame, Checksums checksums) const {
  if (checksums == Checksums::finished) return;
  auto* ip = rte_pktmbuf_mtod_offset(frame, rte_ipv4_hdr*, ethernet::bytes);
  if ((transmit_offloads_ & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) == 0) {
    store_ipv4_checksum(reinterpret_cast<uint8_t*>(ip));
    return;
  }
  frame->l2_len = ethernet::bytes;
  frame->l3_len = ipv4::bytes;
  frame->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
  if (checksums == Checksums::ipv4_and_udp && (transmit_offloads_ & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0) {
    frame->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
    auto* udp = rte_pktmbuf_mtod_offset(frame, rte_udp_hdr*, ethernet::bytes + ipv4::bytes);
    udp->dgram_cksum = rte_ipv4_phdr_cksum(ip, frame->ol_flags);
  }
}

void DpdkDevice::enqueue(rte_mbuf* frame, Checksums checksums) {
  if (frame == nullptr) return count_lost(1, ENOBUFS);
  if (queue_.size() == kLongestQueue) flush();
  if (queue_.size() == kLongestQueue) {
    rte_pktmbuf_free(frame);
    return count_lost(1, EAGAIN);
  }
  fill_checksums(frame, checksums);
  queue_.push_back(frame);
}

void DpdkDevice::send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) {
  const bool chains = payload_bytes > 0 && (transmit_offloads_ & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
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
      piece = rte_pktmbuf_clone(once, headers_);
    }
    enqueue(piece != nullptr ? make_chain(header, headers.bytes, piece)
                             : make_whole(header, headers.bytes, payload, payload_bytes),
            checksums);
  }
  rte_pktmbuf_free(once);
}

void DpdkDevice::flush() {
  size_t sent = 0;
  while (started_ && sent < queue_.size()) {
    const auto burst = static_cast<uint16_t>(std::min(queue_.size() - sent, kBurst));
    const uint16_t taken = rte_eth_tx_burst(port_, kQueue, &queue_[sent], burst);
    sent += taken;
    if (taken < burst) break;
  }
  counters_.sending.sent += sent;
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
  counters_.sending.lost += frames;
  counters_.sending.last_error = error;
}

void DpdkDevice::share(const std::shared_ptr<void>& memory, size_t bytes) {
  if ((transmit_offloads_ & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) == 0) return;
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(port_, &info) != 0) return;
  SharedRegion* region = SharedRegion::make(memory, bytes, on_virtual_bus_ ? nullptr : info.device);
  if (region != nullptr) regions_.emplace(static_cast<const uint8_t*>(memory.get()), region);
}

void DpdkDevice::unshare(const void* memory) {
  const auto found = regions_.find(static_cast<const uint8_t*>(memory));
  if (found == regions_.end()) return;
  found->second->let_go();
  regions_.erase(found);
}

bool DpdkDevice::prepare_sleep() {
  if (!queue_.empty()) return false;
  // What came before the interrupt was enabled raises none.
  return interrupt_fd_ < 0 ||
         (rte_eth_dev_rx_intr_enable(port_, kQueue) == 0 && rte_eth_rx_queue_count(port_, kQueue) <= 0);
}

void DpdkDevice::end_sleep() {
  if (interrupt_fd_ < 0) return;
  rte_eth_dev_rx_intr_disable(port_, kQueue);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(interrupt_fd_, &count, sizeof count);
}

}  // namespace switchml
