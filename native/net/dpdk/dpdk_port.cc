#include "native/net/dpdk/dpdk_port.h"

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "native/net/dpdk/dpdk_device.h"
#include "native/net/dpdk/eal.h"
#include "native/net/dpdk/interrupt_thread.h"
#include "native/wire/frame_headers.h"

namespace switchml::net {
namespace {

constexpr uint16_t kReceiveDescriptors = 1024;
constexpr uint16_t kTransmitDescriptors = 1024;
constexpr std::chrono::milliseconds kLookAtLink{1000};
constexpr std::chrono::milliseconds kConnects{10000};  // a client of net_memif whose server listens
constexpr std::chrono::milliseconds kLookAtConnection{1};
constexpr unsigned kPoolCache = 256;
constexpr size_t kSmallestFrameRoom = 2048;
constexpr size_t kBeyondMtu = wire::ethernet::bytes + 8;  // with two VLAN tags

std::system_error failure(int error, const std::string& what) {
  return std::system_error(error != 0 ? error : EINVAL, std::generic_category(), what);
}

void require(int result, const std::string& what) {
  if (result < 0) throw failure(-result, what);
}

// A pool's name must be unique in the process, and short.
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

bool is_memif(const std::string& devargs) { return devargs.rfind("net_memif", 0) == 0; }

}  // namespace

DpdkPort::DpdkPort(const Options& options) : name_(options.devargs), queues_(options.queues), in_use_(options.queues) {
  probe(options.devargs);
  try {
    configure(options);
  } catch (...) {
    close();
    throw;
  }
  close_before_stop(this, [this] { close(); });
}

DpdkPort::~DpdkPort() {
  take_back(this);
  close();
}

void DpdkPort::probe(const std::string& devargs) {
  const std::string name = devargs.substr(0, devargs.find(','));
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port_) == 0 && rte_eth_dev_is_valid_port(port_) != 0) {
    rte_eth_dev_info info{};
    // DPDK finds network cards by itself; one that has queues already was configured by another DpdkPort.
    if (rte_eth_dev_info_get(port_, &info) == 0 && info.nb_rx_queues != 0) {
      throw std::invalid_argument("DPDK's " + name + " is open already in this process");
    }
    return;
  }
  if (rte_dev_probe(devargs.c_str()) < 0) {
    // The error number would mislead: most drivers return the same one for every failure.
    throw std::invalid_argument("DPDK cannot open " + devargs +
                                "; DPDK's own messages above say why. Name a network card by its PCI address, such as "
                                "0000:3b:00.0, after binding it to a driver such as vfio-pci (dpdk-devbind.py "
                                "--status), or a virtual device, such as net_memif0 or net_af_packet0, with its "
                                "options");
  }
  port_ = find_port(devargs);
}

void DpdkPort::remove(DpdkDevice* queue) {
  devices_.erase(std::remove(devices_.begin(), devices_.end(), queue), devices_.end());
}

void DpdkPort::close() {
  if (closed_) return;
  closed_ = true;
  for (DpdkDevice* queue : devices_) queue->release_frames();
  free_rings();
  {
    const std::lock_guard<QueueLocks> lock(in_use_);
    rte_eth_dev_info info{};
    rte_device* device = rte_eth_dev_info_get(port_, &info) == 0 ? info.device : nullptr;
    rte_eth_dev_stop(port_);
    rte_eth_dev_close(port_);
    // After this a virtual device can be opened again under its name.
    if (device != nullptr && on_virtual_bus_) rte_dev_remove(device);
  }
  if (shares_memory_) InterruptThread::of_process().remove(&in_use_);
  for (DpdkDevice* queue : devices_) queue->release_regions();
  rte_mempool_free(frames_);
  rte_mempool_free(headers_);
}

void DpdkPort::free_rings() {
  for (rte_ring* ring : rings_) {
    void* frame = nullptr;
    while (rte_ring_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
    rte_ring_free(ring);
  }
  rings_.clear();
}

void DpdkPort::configure(const Options& options) {
  rte_eth_dev_info info{};
  require(rte_eth_dev_info_get(port_, &info), "DPDK reports no properties of " + name_);
  const rte_bus* bus = info.device != nullptr ? rte_bus_find_by_device(info.device) : nullptr;
  on_virtual_bus_ = bus != nullptr && std::strcmp(rte_bus_name(bus), "vdev") == 0;
  require_queues(info);
  transmit_offloads_ = info.tx_offload_capa &
                       (RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_MULTI_SEGS);
  uint16_t mtu = options.mtu;
  if (mtu == 0) require(rte_eth_dev_get_mtu(port_, &mtu), "DPDK does not report the MTU of " + name_);
  make_memory(mtu);
  try {
    start(info, true);
  } catch (const std::system_error&) {  // some drivers without interrupts refuse to start if these are requested
    start(info, false);
  }
  if (options.mtu != 0) require(rte_eth_dev_set_mtu(port_, mtu), name_ + " refuses an MTU of " + std::to_string(mtu));
  largest_frame_ = mtu + wire::ethernet::bytes;
  reconnects_ = is_memif(name_) && name_.find("role=server") == std::string::npos;
  if (reconnects_) await_connection();
  if (is_memif(name_)) {
    InterruptThread::of_process().add(&in_use_);
    shares_memory_ = true;
  }
  looked_at_link_ = Clock::now();
  // Not every driver can do this; those of af_packet and memif receive all frames anyway.
  if (options.promiscuous) rte_eth_promiscuous_enable(port_);
  rte_ether_addr address{};
  require(rte_eth_macaddr_get(port_, &address), "DPDK does not report the MAC address of " + name_);
  mac_ = wire::load48(address.addr_bytes);
}

void DpdkPort::require_queues(const rte_eth_dev_info& info) const {
  if (queues_ <= info.max_rx_queues && queues_ <= info.max_tx_queues) return;
  throw std::invalid_argument(name_ + " has " + std::to_string(info.max_rx_queues) + " receive and " +
                              std::to_string(info.max_tx_queues) + " send queues, and " + std::to_string(queues_) +
                              " threads need one of each: use fewer threads (--threads, --shards)");
}

void DpdkPort::make_memory(uint16_t mtu) {
  const size_t room = std::max(kSmallestFrameRoom, mtu + kBeyondMtu);
  const unsigned sent = kTransmitDescriptors + kLongestQueue + 2 * kPoolCache;
  const unsigned received = kReceiveDescriptors + (queues_ > 1 ? kMostHandedOver : 0);
  const int socket = rte_eth_dev_socket_id(port_);
  frames_ = make_pool(port_, "frames", queues_ * (received + sent), room, socket);
  headers_ = make_pool(port_, "headers", queues_ * 2 * sent, kHeaderRoom, socket);
  for (unsigned queue = 0; queues_ > 1 && queue < queues_; ++queue) {
    const std::string name = "sml" + std::to_string(port_) + "for" + std::to_string(queue);
    // The default kind of ring spins until a preempted thread has finished; this kind does not, because our threads are
    // not pinned and may be preempted.
    rte_ring* ring = rte_ring_create(name.c_str(), kMostHandedOver, socket, RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);
    if (ring == nullptr) throw failure(rte_errno, "DPDK has no memory for the rings between the threads of " + name_);
    rings_.push_back(ring);
  }
}

void DpdkPort::start(const rte_eth_dev_info& info, bool interrupts) {
  rte_eth_conf configuration{};  // NOLINT(bugprone-invalid-enum-default-initialization): DPDK needs zeros
  configuration.rxmode.offloads = info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM |
                                                          RTE_ETH_RX_OFFLOAD_SCATTER);
  configuration.txmode.offloads = transmit_offloads_;
  configuration.intr_conf.rxq = interrupts ? 1 : 0;
  // RSS by addresses and ports, which are the same in all packets of one job and host: it spreads jobs and hosts.
  const uint64_t spread_by = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
  spreads_ = queues_ > 1 && spread_by != 0;
  if (spreads_) {
    configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    configuration.rx_adv_conf.rss_conf.rss_hf = spread_by;
  }
  require(rte_eth_dev_configure(port_, queues_, queues_, &configuration), name_ + " cannot be configured");
  uint16_t receive_descriptors = kReceiveDescriptors;
  uint16_t transmit_descriptors = kTransmitDescriptors;
  require(rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receive_descriptors, &transmit_descriptors),
          name_ + " refuses the numbers of descriptors");
  const unsigned socket = static_cast<unsigned>(std::max(rte_eth_dev_socket_id(port_), 0));
  for (uint16_t queue = 0; queue < queues_; ++queue) {
    require(rte_eth_rx_queue_setup(port_, queue, receive_descriptors, socket, nullptr, frames_),
            "cannot set up a receive queue of " + name_);
    require(rte_eth_tx_queue_setup(port_, queue, transmit_descriptors, socket, nullptr),
            "cannot set up a send queue of " + name_);
  }
  if (const int error = rte_eth_dev_start(port_); error < 0) {
    if (is_memif(name_)) {
      throw std::invalid_argument(name_ +
                                  " cannot be started: no server listens at its socket. Start the switch, which " +
                                  "is the server, first, and give both the same socket and socket-abstract options");
    }
    throw failure(-error, name_ + " cannot be started");
  }
  interrupts_ = interrupts && info.device != nullptr && !on_virtual_bus_;
}

// A thread of DPDK negotiates the connection with the other end; it reports no error if they do not agree.
void DpdkPort::await_connection() const {
  const auto give_up = Clock::now() + kConnects;
  rte_eth_link link{};
  while (rte_eth_link_get_nowait(port_, &link) != 0 || link.link_status != RTE_ETH_LINK_UP) {
    if (Clock::now() >= give_up) {
      throw std::invalid_argument(name_ +
                                  " does not connect: the switch needs a port with this id and secret that no " +
                                  "other process uses, and as many shards (--shards) as there are threads here " +
                                  "(--threads), which is " + std::to_string(queues_));
    }
    std::this_thread::sleep_for(kLookAtConnection);
  }
}

int DpdkPort::interrupt_fd(uint16_t queue) const {
  if (!interrupts_ || rte_eth_dev_rx_intr_enable(port_, queue) != 0) return -1;
  rte_eth_dev_rx_intr_disable(port_, queue);
  return rte_eth_dev_rx_intr_ctl_q_get_fd(port_, queue);
}

std::string DpdkPort::description() const {
  const auto has = [this](uint64_t offload) { return (transmit_offloads_ & offload) != 0; };
  std::string text = std::string(has(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) ? "hardware" : "software") + " checksums, " +
                     (has(RTE_ETH_TX_OFFLOAD_MULTI_SEGS) ? "payloads sent from where they are" : "payloads copied") +
                     ", " + (interrupt_fd(0) >= 0 ? "receive interrupts" : "no receive interrupts");
  if (queues_ > 1) text += ", " + std::to_string(queues_) + " queues" + (spreads_ ? " with RSS" : " without RSS");
  return text;
}

void DpdkPort::look_at_link() {
  if (!reconnects_) return;
  const auto now = Clock::now();
  if (now - looked_at_link_ < kLookAtLink) return;
  looked_at_link_ = now;
  if (started_) {
    rte_eth_link link{};
    if (rte_eth_link_get_nowait(port_, &link) != 0 || link.link_status == RTE_ETH_LINK_UP) return;
  }
  const std::lock_guard<QueueLocks> lock(in_use_);
  if (started_) rte_eth_dev_stop(port_);
  started_ = rte_eth_dev_start(port_) == 0;
}

void DpdkPort::add_counters(FrameDeviceCounters* counters) const {
  rte_eth_stats stats{};
  if (rte_eth_stats_get(port_, &stats) != 0) return;
  counters->receive_overflow += stats.imissed + stats.rx_nombuf;
  counters->receive_errors += stats.ierrors;
}

SharedRegion* DpdkPort::reach(const std::shared_ptr<void>& memory, size_t bytes) {
  if (on_virtual_bus_) return SharedRegion::make(memory, memory.get(), bytes);  // the driver copies
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(port_, &info) != 0 || info.device == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(mappings_mutex_);
  for (auto each = mappings_.begin(); each != mappings_.end();) {
    each = each->second.expired() ? mappings_.erase(each) : std::next(each);
  }
  std::weak_ptr<DmaMapping>& known = mappings_[memory.get()];
  std::shared_ptr<DmaMapping> mapping = known.lock();
  if (mapping == nullptr) known = mapping = DmaMapping::make(memory, bytes, info.device);
  if (mapping == nullptr) {
    mappings_.erase(memory.get());
    return nullptr;
  }
  return SharedRegion::make(mapping, memory.get(), mapping->bytes());
}

}  // namespace switchml::net
