#include "native/net/xdp/xdp_device.h"

#include <linux/ethtool.h>
#include <linux/if_xdp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "native/wire/frame_headers.h"

namespace switchml::net {
namespace {

constexpr uint32_t kRing = 2048;
constexpr uint32_t kFrameBytes = 4096;
constexpr uint32_t kFrames = 2 * kRing;  // half of them for receiving
constexpr size_t kMemoryBytes = size_t{kFrames} * kFrameBytes;
constexpr size_t kHeadroom = 256;  // XDP_PACKET_HEADROOM: bytes that the kernel keeps free in front of a frame
constexpr uint32_t kQueue = 0;
constexpr std::chrono::milliseconds kBusyInterface{500};  // the time until a closed socket releases its queue
constexpr std::chrono::milliseconds kRetryInterval{5};

std::system_error failure(int error, const std::string& what) { return {error, std::generic_category(), what}; }

// Reads properties of a network interface with ioctl(2).
class InterfaceQuery {
 public:
  explicit InterfaceQuery(const std::string& interface) : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (socket_ < 0) throw failure(errno, "cannot open a socket to query " + interface);
    interface.copy(request_.ifr_name, IFNAMSIZ - 1);
  }
  ~InterfaceQuery() { close(socket_); }
  InterfaceQuery(const InterfaceQuery&) = delete;
  InterfaceQuery& operator=(const InterfaceQuery&) = delete;

  uint64_t mac() {
    ask(SIOCGIFHWADDR, "the MAC address");
    return wire::load48(reinterpret_cast<const uint8_t*>(request_.ifr_hwaddr.sa_data));
  }
  size_t mtu() {
    ask(SIOCGIFMTU, "the MTU");
    return static_cast<size_t>(request_.ifr_mtu);
  }
  // Returns the number of receive queues; 1 if the driver does not report it.
  uint32_t queues() {
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    request_.ifr_data = reinterpret_cast<char*>(&channels);
    if (ioctl(socket_, SIOCETHTOOL, &request_) != 0) return 1;
    return std::max(1U, channels.combined_count + channels.rx_count);
  }

 private:
  void ask(unsigned long what, const char* name) {
    if (ioctl(socket_, what, &request_) != 0)
      throw failure(errno, std::string("cannot read ") + name + " of " + request_.ifr_name);
  }

  int socket_;
  ifreq request_{};
};

}  // namespace

XdpDevice::XdpDevice(const std::string& interface) : interface_(interface) {
  if (interface.empty() || interface.size() >= IFNAMSIZ || if_nametoindex(interface.c_str()) == 0) {
    throw std::invalid_argument("there is no network interface '" + interface + "'; `ip link` lists them");
  }
  InterfaceQuery query(interface);
  mac_ = query.mac();
  largest_frame_ = std::min(query.mtu() + wire::ethernet::bytes, kFrameBytes - kHeadroom);
  if (const uint32_t queues = query.queues(); queues != 1) {
    throw std::invalid_argument(interface + " spreads packets over " + std::to_string(queues) +
                                " receive queues, but AF_XDP needs a single one: run `ethtool -L " + interface +
                                " combined 1` (or rx 1 tx 1)");
  }
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

XdpDevice::~XdpDevice() { close(); }

void XdpDevice::open() {
  void* memory = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw failure(errno, "cannot allocate memory for frames");
  memory_ = static_cast<uint8_t*>(memory);
  xsk_umem_config config{};
  config.fill_size = kRing;
  config.comp_size = kRing;
  config.frame_size = kFrameBytes;
  if (const int error = xsk_umem__create(&umem_, memory_, kMemoryBytes, &fill_, &completion_, &config); error != 0) {
    throw failure(-error, "cannot register AF_XDP memory for " + interface_ +
                              "; this needs CAP_NET_RAW and, for users other than root, a sufficient RLIMIT_MEMLOCK");
  }
  bind();
  filter_ = std::make_unique<XdpFilter>(interface_, if_nametoindex(interface_.c_str()));
  filter_->connect(kQueue, xsk_socket__fd(socket_));
  for (uint32_t i = 0; i < kRing; ++i) received_.push_back(uint64_t{i} * kFrameBytes);
  for (uint32_t i = kRing; i < kFrames; ++i) free_.push_back(uint64_t{i} * kFrameBytes);
  refill();
}

// A socket that was closed a moment ago still holds its queue; binding then fails with EBUSY.
void XdpDevice::bind() {
  const auto give_up = std::chrono::steady_clock::now() + kBusyInterface;
  for (;;) {
    int error = 0;
    for (const uint16_t mode : {uint16_t{XDP_ZEROCOPY}, uint16_t{XDP_COPY}}) {
      xsk_socket_config config{};
      config.rx_size = kRing;
      config.tx_size = kRing;
      config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
      config.bind_flags = static_cast<uint16_t>(mode | XDP_USE_NEED_WAKEUP);
      error = xsk_socket__create(&socket_, interface_.c_str(), kQueue, umem_, &receive_, &transmit_, &config);
      zero_copy_ = mode == XDP_ZEROCOPY;
      if (error == 0) return;
      socket_ = nullptr;
      if (error == -EBUSY) break;
    }
    if (error != -EBUSY || std::chrono::steady_clock::now() >= give_up) {
      throw failure(-error, "cannot open an AF_XDP socket on " + interface_ +
                                (error == -EBUSY ? ": another AF_XDP socket uses its queue" : ""));
    }
    std::this_thread::sleep_for(kRetryInterval);
  }
}

void XdpDevice::close() {
  filter_.reset();
  if (socket_ != nullptr) xsk_socket__delete(socket_);
  if (umem_ != nullptr) xsk_umem__delete(umem_);
  if (memory_ != nullptr) munmap(memory_, kMemoryBytes);
}

std::string XdpDevice::description() const {
  return std::string(zero_copy_ ? "zero-copy" : "copy mode") + ", XDP program run by the " +
         (filter_->native() ? "driver" : "kernel (generic)");
}

FrameDeviceCounters XdpDevice::counters() const {
  FrameDeviceCounters counters = counters_;
  xdp_statistics statistics{};
  socklen_t length = sizeof statistics;
  if (getsockopt(xsk_socket__fd(socket_), SOL_XDP, XDP_STATISTICS, &statistics, &length) == 0) {
    counters.receive_overflow = statistics.rx_dropped + statistics.rx_ring_full;
    counters.receive_errors += statistics.rx_invalid_descs;
  }
  return counters;
}

void XdpDevice::refill() {
  uint32_t at = 0;
  const auto count = static_cast<uint32_t>(received_.size());
  // The ring has room for all receive frames, so this reserves either none or all of them.
  if (count == 0 || xsk_ring_prod__reserve(&fill_, count, &at) != count) return;
  for (const uint64_t address : received_) *xsk_ring_prod__fill_addr(&fill_, at++) = address;
  xsk_ring_prod__submit(&fill_, count);
  received_.clear();
  if (xsk_ring_prod__needs_wakeup(&fill_) != 0) {
    recvfrom(xsk_socket__fd(socket_), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
  }
}

size_t XdpDevice::receive(Datagram* frames) {
  refill();
  uint32_t at = 0;
  const uint32_t count = xsk_ring_cons__peek(&receive_, kBurst, &at);
  for (uint32_t i = 0; i < count; ++i) {
    const xdp_desc* descriptor = xsk_ring_cons__rx_desc(&receive_, at + i);
    frames[i] = {frame_at(descriptor->addr), descriptor->len, {}};
    received_.push_back(descriptor->addr / kFrameBytes * kFrameBytes);
  }
  if (count > 0) xsk_ring_cons__release(&receive_, count);
  counters_.received += count;
  return count;
}

void XdpDevice::reclaim() {
  uint32_t at = 0;
  const uint32_t count = xsk_ring_cons__peek(&completion_, kRing, &at);
  for (uint32_t i = 0; i < count; ++i) free_.push_back(*xsk_ring_cons__comp_addr(&completion_, at + i));
  if (count > 0) xsk_ring_cons__release(&completion_, count);
  counters_.sent += count;
  unsent_ -= count;
}

void XdpDevice::send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) {
  const size_t bytes = headers.bytes + payload_bytes;
  for (size_t i = 0; i < headers.count; ++i) {
    if (free_.empty()) flush();
    uint32_t at = 0;
    if (bytes > largest_frame_ || free_.empty() || xsk_ring_prod__reserve(&transmit_, 1, &at) != 1) {
      counters_.send_errors += 1;
      counters_.last_send_errno = bytes > largest_frame_ ? EMSGSIZE : EAGAIN;
      continue;
    }
    const uint64_t address = free_.back();
    free_.pop_back();
    uint8_t* frame = frame_at(address);
    std::memcpy(frame, headers.first + i * headers.bytes, headers.bytes);
    if (payload_bytes > 0) std::memcpy(frame + headers.bytes, payload, payload_bytes);
    if (checksums != Checksums::finished) wire::store_ipv4_checksum(frame + wire::ethernet::bytes);
    xdp_desc* descriptor = xsk_ring_prod__tx_desc(&transmit_, at);
    *descriptor = {address, static_cast<uint32_t>(bytes), 0};
    xsk_ring_prod__submit(&transmit_, 1);
    unsent_ += 1;
  }
}

// In copy mode a call sends a few frames and then fails with EAGAIN.
void XdpDevice::flush() {
  reclaim();
  for (uint32_t before = unsent_ + 1; unsent_ > 0 && unsent_ < before;) {
    before = unsent_;
    if (xsk_ring_prod__needs_wakeup(&transmit_) != 0 || !zero_copy_) {
      sendto(xsk_socket__fd(socket_), nullptr, 0, MSG_DONTWAIT, nullptr, 0);
    }
    reclaim();
  }
}

bool XdpDevice::prepare_sleep() {
  if (unsent_ > 0) flush();
  return true;  // the descriptor is readable as long as frames wait
}

}  // namespace switchml::net
