#include "native/net/udp_batch.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "native/net/held_ports.h"
#include "native/wire/slot_blocks.h"

namespace switchml::net {
namespace {

constexpr size_t kMaxUdpPayload = 65507;  // IPv4's 65535 less the smallest IPv4 header and the UDP header
constexpr size_t kReceiveBuffer = 65536;  // a GRO batch never exceeds one IPv4 datagram
constexpr size_t kMaxPacketsPerGso = 64;  // UDP_MAX_SEGMENTS of kernels before 6.9
constexpr size_t kMaxMessages = 1024;     // the limit of one sendmmsg call (UIO_MAXIOV)
constexpr size_t kPiecesPerPacket = 2;    // header and payload
constexpr size_t kTypicalPackets = 64;    // packets for which memory is reserved
constexpr unsigned kSlotFieldOffset = 8;  // in a SwitchML header

// Returns whether the kernel may still send the packets of this batch one by one after this error: the interface has no
// checksum offload, a segment exceeds the MTU (EMSGSIZE since Linux 6.14), or the kernel has no UDP_SEGMENT.
bool refuses_gso(int error) {
  return error == EIO || error == EINVAL || error == EMSGSIZE || error == ENOPROTOOPT || error == EOPNOTSUPP;
}

std::system_error socket_error(int error, const std::string& what) {
  return std::system_error(error, std::generic_category(), what);
}

// Asks for a socket buffer, beyond the system's limit if this process may, and returns the size that the kernel gave.
size_t set_buffer(int fd, int force_option, int option, size_t bytes) {
  const int wanted = static_cast<int>(std::min<size_t>(bytes, INT_MAX / 2));
  if (setsockopt(fd, SOL_SOCKET, force_option, &wanted, sizeof wanted) != 0) {
    // Without the privilege the kernel reduces the request to its limit, without an error.
    setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof wanted);
  }
  int got = 0;
  socklen_t length = sizeof got;
  getsockopt(fd, SOL_SOCKET, option, &got, &length);
  return static_cast<size_t>(got) / 2;  // the kernel reports twice the usable size, socket(7)
}

}  // namespace

sockaddr_in ipv4_endpoint(uint32_t address, uint16_t port) {
  sockaddr_in endpoint{};
  endpoint.sin_family = AF_INET;
  endpoint.sin_port = htons(port);
  endpoint.sin_addr.s_addr = htonl(address);
  return endpoint;
}

uint32_t parse_ipv4(const std::string& text) {
  in_addr parsed{};
  if (inet_pton(AF_INET, text.c_str(), &parsed) != 1) {
    throw std::invalid_argument("'" + text + "' is not an IPv4 address such as 127.0.0.1");
  }
  return ntohl(parsed.s_addr);
}

UdpSocket::UdpSocket(const std::string& address, uint16_t port, size_t buffer_bytes, bool shared)
    : address_(parse_ipv4(address)) {
  const std::string name = address + ":" + std::to_string(port);
  fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw socket_error(errno, "cannot open a UDP socket for " + name);
  sockaddr_in local = ipv4_endpoint(address_, port);
  socklen_t length = sizeof local;
  const int never_fragment = IP_PMTUDISC_DO;
  const int share = shared ? 1 : 0;
  if (setsockopt(fd_, SOL_SOCKET, SO_REUSEPORT, &share, sizeof share) != 0 ||
      setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &never_fragment, sizeof never_fragment) != 0 ||
      bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0 ||
      getsockname(fd_, reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    const int error = errno;
    close(fd_);
    throw socket_error(error, "cannot bind UDP " + name);
  }
  port_ = ntohs(local.sin_port);
  if (address_ != 0) {
    // Packets to a multicast group leave through the same interface as the others. If this cannot be set, the routing
    // table decides.
    const in_addr interface{htonl(address_)};
    setsockopt(fd_, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface);
  }
  set_buffers(buffer_bytes);
}

UdpSocket::UdpSocket(int fd, const sockaddr_in& group, size_t buffer_bytes)
    : fd_(fd), address_(ntohl(group.sin_addr.s_addr)), port_(ntohs(group.sin_port)) {
  set_buffers(buffer_bytes);
}

UdpSocket::UdpSocket(int fd) : fd_(fd) {
  sockaddr_in local{};
  socklen_t length = sizeof local;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    const int error = errno;
    close(fd_);
    throw socket_error(error, "the address of a UDP socket is not known");
  }
  address_ = ntohl(local.sin_addr.s_addr);
  port_ = ntohs(local.sin_port);
}

void UdpSocket::set_buffers(size_t buffer_bytes) {
  receive_buffer_ = set_buffer(fd_, SO_RCVBUFFORCE, SO_RCVBUF, buffer_bytes);
  send_buffer_ = set_buffer(fd_, SO_SNDBUFFORCE, SO_SNDBUF, buffer_bytes);
  const int on = 1;
  gro_ = setsockopt(fd_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
}

void UdpSocket::set_traffic_class(uint8_t traffic_class) {
  const int value = traffic_class;
  if (setsockopt(fd_, IPPROTO_IP, IP_TOS, &value, sizeof value) != 0) {
    throw socket_error(errno, "cannot set the DSCP of UDP packets");
  }
}

UdpSocket::~UdpSocket() {
  if (fd_ >= 0) close(fd_);
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      address_(other.address_),
      port_(other.port_),
      receive_buffer_(other.receive_buffer_),
      send_buffer_(other.send_buffer_),
      gro_(other.gro_),
      guard_(std::move(other.guard_)) {}

UdpSocket& UdpSocket::operator=(UdpSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  address_ = other.address_;
  port_ = other.port_;
  receive_buffer_ = other.receive_buffer_;
  send_buffer_ = other.send_buffer_;
  gro_ = other.gro_;
  guard_ = std::move(other.guard_);
  return *this;
}

size_t largest_datagram(const std::string& address, const sockaddr_in& destination) {
  constexpr size_t kIpv4AndUdpHeaders = 28;
  const UdpSocket socket(address, 0, 0);  // a separate socket, because a connected one receives only from its peer
  int mtu = 0;
  socklen_t length = sizeof mtu;
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&destination), sizeof destination) != 0 ||
      getsockopt(socket.fd(), IPPROTO_IP, IP_MTU, &mtu, &length) != 0) {
    return SIZE_MAX;
  }
  return static_cast<size_t>(mtu) - kIpv4AndUdpHeaders;
}

std::vector<UdpSocket> open_udp_sockets(const std::string& address, uint16_t port, size_t buffer_bytes,
                                        unsigned count) {
  std::shared_ptr<const UdpSocket> guard = HeldPorts::of_process().hold(address, port);
  std::vector<UdpSocket> sockets;
  sockets.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    sockets.emplace_back(address, guard->port(), buffer_bytes, true);
  }
  sockets.front().keep(std::move(guard));
  // On every address, the socket that holds the port is the first of those that the kernel chooses from.
  const unsigned first = sockets.front().address() == 0 ? 1 : 0;
  if (count > 1 || first > 0) {
    // Takes the slot field of the header without its lowest bit, which is the half of the pool. Packets too short to
    // have the field go to number 0.
    std::array<sock_filter, 5> program{{{BPF_LD | BPF_H | BPF_ABS, 0, 0, kSlotFieldOffset},
                                        {BPF_ALU | BPF_RSH | BPF_K, 0, 0, wire::kSlotBlockBits + 1},
                                        {BPF_ALU | BPF_MOD | BPF_K, 0, 0, count},
                                        // NOLINTNEXTLINE(misc-redundant-expression): two of these names are 0.
                                        {BPF_ALU | BPF_ADD | BPF_K, 0, 0, first},
                                        {BPF_RET | BPF_A, 0, 0, 0}}};
    const sock_fprog attached{static_cast<unsigned short>(program.size()), program.data()};
    if (setsockopt(sockets.front().fd(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &attached, sizeof attached) != 0) {
      throw socket_error(errno, "cannot divide UDP port " + std::to_string(sockets.front().port()) + " among threads");
    }
  }
  return sockets;
}

UdpSocket join_multicast_group(const sockaddr_in& group, const std::string& interface, size_t buffer_bytes,
                               unsigned thread, unsigned threads) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw socket_error(errno, "cannot open a UDP socket for a multicast group");
  const int on = 1;
  const int off = 0;
  const ip_mreq membership{group.sin_addr, {htonl(parse_ipv4(interface))}};
  // Keeps all bytes of a packet whose slot belongs to this thread, and none of other packets.
  constexpr unsigned kUdpHeader = 8;
  std::array<sock_filter, 6> program{{{BPF_LD | BPF_H | BPF_ABS, 0, 0, kUdpHeader + kSlotFieldOffset},
                                      {BPF_ALU | BPF_RSH | BPF_K, 0, 0, wire::kSlotBlockBits + 1},
                                      {BPF_ALU | BPF_MOD | BPF_K, 0, 0, threads},
                                      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, thread},
                                      {BPF_RET | BPF_K, 0, 0, UINT32_MAX},
                                      {BPF_RET | BPF_K, 0, 0, 0}}};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off) != 0 ||
      (threads > 1 && setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0) ||
      bind(fd, reinterpret_cast<const sockaddr*>(&group), sizeof group) != 0 ||
      setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0) {
    const int error = errno;
    close(fd);
    throw socket_error(
        error, "cannot join the multicast group of the job's results on the interface with address " + interface);
  }
  return {fd, group, buffer_bytes};
}

uint32_t UdpSocket::receive_drops() const {
  uint32_t figures[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof figures;
  if (getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, figures, &length) != 0) return 0;
  return figures[SK_MEMINFO_DROPS];
}

ReceiveBatch::ReceiveBatch(size_t buffers)
    : memory_(buffers * kReceiveBuffer), messages_(buffers), pieces_(buffers), sources_(buffers), controls_(buffers) {
  for (size_t i = 0; i < buffers; ++i) pieces_[i] = {memory_.data() + i * kReceiveBuffer, kReceiveBuffer};
}

bool ReceiveBatch::receive(const UdpSocket& socket) {
  filled_ = message_ = offset_ = segment_ = 0;
  for (size_t i = 0; i < messages_.size(); ++i) {
    msghdr& message = messages_[i].msg_hdr;
    message.msg_name = &sources_[i];
    message.msg_namelen = sizeof sources_[i];
    message.msg_iov = &pieces_[i];
    message.msg_iovlen = 1;
    message.msg_control = controls_[i].bytes;
    message.msg_controllen = sizeof controls_[i].bytes;
    message.msg_flags = 0;
  }
  int received = 0;
  do {
    received = recvmmsg(socket.fd(), messages_.data(), static_cast<unsigned>(messages_.size()), MSG_DONTWAIT, nullptr);
  } while (received < 0 && errno == EINTR);
  if (received > 0) filled_ = static_cast<size_t>(received);
  return filled_ > 0;
}

bool ReceiveBatch::next(Datagram* datagram) {
  while (message_ < filled_) {
    mmsghdr& message = messages_[message_];
    const size_t length = message.msg_len;
    if (segment_ == 0) {
      segment_ = std::max<size_t>(length, 1);  // an empty datagram counts as one
      cmsghdr* control = CMSG_FIRSTHDR(&message.msg_hdr);
      if (control != nullptr && control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
        int size = 0;
        std::memcpy(&size, CMSG_DATA(control), sizeof size);
        if (size > 0) segment_ = static_cast<size_t>(size);
      }
    }
    if (offset_ < length || (offset_ == 0 && length == 0)) {
      const auto* start = static_cast<const uint8_t*>(pieces_[message_].iov_base);
      *datagram = {start + offset_, std::min(segment_, length - offset_), sources_[message_]};
      offset_ += segment_;
      return true;
    }
    ++message_;
    offset_ = segment_ = 0;
  }
  return false;
}

size_t SendBatch::largest_gso_batch(size_t packet_bytes) {
  if (packet_bytes == 0) return 1;
  return std::clamp<size_t>(kMaxUdpPayload / packet_bytes, 1, kMaxPacketsPerGso);
}

void SendBatch::add(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes) {
  if (pieces_.capacity() == 0) {
    pieces_.reserve(kTypicalPackets * kPiecesPerPacket);
    packets_.reserve(kTypicalPackets);
  }
  packets_.push_back({pieces_.size(), header_bytes + payload_bytes, ends_run_});
  ends_run_ = false;
  // The kernel only reads what an iovec of sendmsg points to.
  pieces_.push_back({const_cast<uint8_t*>(header), header_bytes});
  if (payload_bytes > 0) pieces_.push_back({const_cast<uint8_t*>(payload), payload_bytes});
}

void SendBatch::clear() {
  pieces_.clear();
  packets_.clear();
}

void SendBatch::flush(const UdpSocket& socket, const sockaddr_in* destinations, size_t destination_count) {
  if (!packets_.empty() && destination_count > 0) {
    find_runs();
    build_messages(destinations, destination_count);
    size_t at = 0;
    while (at < messages_.size()) {
      const auto count = static_cast<unsigned>(std::min(messages_.size() - at, kMaxMessages));
      const int sent = sendmmsg(socket.fd(), &messages_[at], count, MSG_DONTWAIT);
      if (sent > 0) {
        for (const size_t end = at + static_cast<size_t>(sent); at < end; ++at) {
          counters_.sent += runs_[at % runs_.size()].packet_count;
        }
        continue;
      }
      const int error = errno;
      if (error == EINTR) continue;
      const Run& run = runs_[at % runs_.size()];
      if (run.packet_count > 1 && refuses_gso(error)) {
        send_singly(socket, run, destinations[at / runs_.size()]);
      } else {
        count_lost(run.packet_count, error);
      }
      ++at;
    }
  }
  clear();
}

void SendBatch::find_runs() {
  runs_.clear();
  for (size_t i = 0; i < packets_.size(); ++i) {
    const bool joins = gso_ && !runs_.empty() && !packets_[i].begins_run &&
                       packets_[runs_.back().first_packet].bytes == packets_[i].bytes &&
                       runs_.back().packet_count < std::min(largest_gso_batch(packets_[i].bytes), most_packets_);
    if (joins) {
      ++runs_.back().packet_count;
    } else {
      runs_.push_back({i, 1});
    }
  }
}

void SendBatch::build_messages(const sockaddr_in* destinations, size_t destination_count) {
  controls_.resize(runs_.size());
  messages_.resize(runs_.size() * destination_count);
  for (size_t r = 0; r < runs_.size(); ++r) {
    const Run& run = runs_[r];
    const size_t end = run.first_packet + run.packet_count;
    const size_t first_piece = packets_[run.first_packet].first_piece;
    const size_t end_piece = end < packets_.size() ? packets_[end].first_piece : pieces_.size();
    msghdr message{};
    message.msg_namelen = sizeof(sockaddr_in);
    message.msg_iov = &pieces_[first_piece];
    message.msg_iovlen = end_piece - first_piece;
    if (run.packet_count > 1) {
      message.msg_control = controls_[r].bytes;
      message.msg_controllen = sizeof controls_[r].bytes;
      cmsghdr* control = CMSG_FIRSTHDR(&message);
      control->cmsg_level = SOL_UDP;
      control->cmsg_type = UDP_SEGMENT;
      control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
      const auto segment = static_cast<uint16_t>(packets_[run.first_packet].bytes);
      std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
    }
    for (size_t d = 0; d < destination_count; ++d) {
      message.msg_name = const_cast<sockaddr_in*>(&destinations[d]);
      messages_[d * runs_.size() + r] = {message, 0};
    }
  }
}

void SendBatch::send_singly(const UdpSocket& socket, const Run& run, const sockaddr_in& destination) {
  for (size_t i = run.first_packet; i < run.first_packet + run.packet_count; ++i) {
    const size_t end_piece = i + 1 < packets_.size() ? packets_[i + 1].first_piece : pieces_.size();
    msghdr message{};
    message.msg_name = const_cast<sockaddr_in*>(&destination);
    message.msg_namelen = sizeof destination;
    message.msg_iov = &pieces_[packets_[i].first_piece];
    message.msg_iovlen = end_piece - packets_[i].first_piece;
    if (sendmsg(socket.fd(), &message, MSG_DONTWAIT) >= 0) {
      ++counters_.sent;
      gso_ = false;  // the kernel refused the batch, not the destination or the packet
    } else {
      count_lost(1, errno);
    }
  }
}

void SendBatch::count_lost(size_t packets, int error) {
  counters_.send_errors += packets;
  counters_.last_send_errno = error;
}

}  // namespace switchml::net
