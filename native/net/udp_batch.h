// Many datagrams per system call over one UDP socket, in both directions.
//
// A system call per packet is what limits UDP on a host. Linux takes and gives runs of equal datagrams as one buffer
// (UDP_SEGMENT and UDP_GRO, udp(7)), and sendmmsg and recvmmsg carry several such buffers. All of it is optional:
// without it the same calls work one datagram at a time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace switchml::net {

// Both in host byte order.
sockaddr_in ipv4_endpoint(uint32_t address, uint16_t port);

// The dotted quad in host byte order. Throws std::invalid_argument.
uint32_t parse_ipv4(const std::string& text);

// A nonblocking IPv4 UDP socket. It never fragments (DF is set): a switch cannot put fragments together, so a packet
// above the path's MTU fails with EMSGSIZE at the sender, where it is counted.
class UdpSocket {
 public:
  // Binds to `address` (dotted quad) and `port` (0: the kernel picks one) and asks for socket buffers of
  // `buffer_bytes` in each direction; receive_buffer() and send_buffer() tell what the kernel gave. A `shared` port may
  // be bound by several sockets of this user, each of which must be.
  // Throws std::invalid_argument for a bad address and std::system_error when the socket cannot be had.
  UdpSocket(const std::string& address, uint16_t port, size_t buffer_bytes, bool shared = false);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  // A socket that is open already, bound to a multicast group and port.
  UdpSocket(int fd, const sockaddr_in& group, size_t buffer_bytes);

  int fd() const { return fd_; }
  uint32_t address() const { return address_; }  // host byte order; 0 when bound to every address
  uint16_t port() const { return port_; }
  size_t receive_buffer() const { return receive_buffer_; }  // bytes
  size_t send_buffer() const { return send_buffer_; }        // bytes
  bool gro() const { return gro_; }                          // the kernel hands over runs of datagrams in one buffer
  // Keeps `guard` open as long as this socket.
  void keep(std::unique_ptr<UdpSocket> guard) { guard_ = std::move(guard); }

  // Datagrams (modulo 2^32) that the kernel dropped because the receive buffer was full; 0 where it does not tell.
  uint32_t receive_drops() const;

 private:
  void set_buffers(size_t buffer_bytes);

  int fd_ = -1;
  uint32_t address_ = 0;
  uint16_t port_ = 0;
  size_t receive_buffer_ = 0;
  size_t send_buffer_ = 0;
  bool gro_ = false;
  std::unique_ptr<UdpSocket> guard_;
};

// The most bytes of a datagram that the way from `address` to `destination` takes in one piece, by what the kernel
// knows of it: its interface's MTU, or what a router has said. SIZE_MAX where it knows no way. Throws as UdpSocket
// does.
size_t largest_datagram(const std::string& address, const sockaddr_in& destination);

// Binds `count` sockets to one address and port, a thread's each: the slot in a SwitchML header decides which of them
// gets a packet, as part_of_slot() says (slot_blocks.h). Of packets that the kernel has put together on the way (GRO)
// the first decides, so a thread may get those of others, too.
//
// As long as they live, the port cannot be bound on any other address of this machine. Another user could otherwise
// bind it there and send with `address` as the source (IP_PKTINFO), which no receiver could tell apart. Throws as
// UdpSocket does, with EADDRINUSE where another program has the port on any address.
std::vector<UdpSocket> open_udp_sockets(const std::string& address, uint16_t port, size_t buffer_bytes, unsigned count);

// A socket that gets what is sent to an IPv4 multicast group on the segment of the interface with address `interface`:
// of the slots that belong to `thread` of `threads`, for every thread gets all of it otherwise. Others on this machine
// may join the same group and port. Throws as UdpSocket does.
UdpSocket join_multicast_group(const sockaddr_in& group, const std::string& interface, size_t buffer_bytes,
                               unsigned thread, unsigned threads);

// One datagram inside a ReceiveBatch; valid until the next receive().
struct Datagram {
  const uint8_t* data;
  size_t length;
  sockaddr_in source;
};

// Buffers for one recvmmsg call. One thread uses a batch.
class ReceiveBatch {
 public:
  // Room for `buffers` runs of datagrams of up to 64 KB each.
  explicit ReceiveBatch(size_t buffers = 8);
  ReceiveBatch(const ReceiveBatch&) = delete;
  ReceiveBatch& operator=(const ReceiveBatch&) = delete;

  // Forgets the datagrams of the call before and takes what waits at the socket, without blocking. Returns whether
  // there was anything; when every buffer was used (full()) more may wait. Does not throw.
  bool receive(const UdpSocket& socket);
  // Whether the last receive() used every buffer.
  bool full() const { return filled_ == messages_.size(); }
  // Steps to the next datagram, in order of arrival. False at the end.
  bool next(Datagram* datagram);

 private:
  struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
  };

  std::vector<uint8_t> memory_;
  std::vector<mmsghdr> messages_;
  std::vector<iovec> pieces_;
  std::vector<sockaddr_in> sources_;
  std::vector<Control> controls_;
  size_t filled_ = 0;   // messages received
  size_t message_ = 0;  // message being read
  size_t offset_ = 0;   // bytes of it already handed out
  size_t segment_ = 0;  // bytes of each datagram in it but the last; 0 before its control data was read
};

// What became of datagrams that a SendBatch was told to send.
struct SendCounters {
  uint64_t sent = 0;
  uint64_t lost = 0;   // refused by the kernel (EAGAIN, ENOBUFS, EMSGSIZE, ...): as good as lost on the way
  int last_error = 0;  // errno of the last refusal; 0 when there was none
};

// Packets on their way out. Only pointers are queued: the memory behind them must stay valid and unchanged until
// flush() or clear(). One thread uses a batch.
class SendBatch {
 public:
  // The most packets of `packet_bytes` in one GSO batch: at most 64, at most 65507 bytes.
  static size_t largest_gso_batch(size_t packet_bytes);

  // Queues one packet made of a header and a payload (which may be empty). Packets of equal size that follow each
  // other leave together.
  void add(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes);
  // The next packet does not leave together with those before.
  void end_run() { ends_run_ = true; }
  size_t size() const { return packets_.size(); }
  bool empty() const { return packets_.empty(); }
  void clear();
  // From now on a GSO batch has no more packets than this.
  void limit_gso_batches(size_t packets) { most_packets_ = packets; }
  // Calls send(header, header_bytes, payload, payload_bytes) for every queued packet, instead of sending it here, and
  // empties the queue.
  template <class Send>
  void hand_over(Send&& send) {
    for (size_t i = 0; i < packets_.size(); ++i) {
      const size_t first = packets_[i].first_piece;
      const size_t end = i + 1 < packets_.size() ? packets_[i + 1].first_piece : pieces_.size();
      const iovec payload = end - first > 1 ? pieces_[first + 1] : iovec{};
      send(static_cast<const uint8_t*>(pieces_[first].iov_base), pieces_[first].iov_len,
           static_cast<const uint8_t*>(payload.iov_base), payload.iov_len);
    }
    clear();
  }

  // Sends every queued packet to `destination`, or to each of `destinations`, and empties the queue. Does not throw
  // and does not block: a datagram that the kernel refuses is counted as lost.
  void flush(const UdpSocket& socket, const sockaddr_in& destination) { flush(socket, &destination, 1); }
  void flush(const UdpSocket& socket, const sockaddr_in* destinations, size_t destination_count);

  const SendCounters& counters() const { return counters_; }
  // Whether runs leave as one buffer. Goes off for good when the kernel refuses one and takes its parts.
  bool gso() const { return gso_; }

 private:
  struct Packet {
    size_t first_piece;
    size_t bytes;
    bool begins_run;
  };
  // Packets of equal size that follow each other: one message when GSO is on.
  struct Run {
    size_t first_packet;
    size_t packet_count;
  };
  struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(uint16_t))];
  };

  void find_runs();
  void build_messages(const sockaddr_in* destinations, size_t destination_count);
  void send_singly(const UdpSocket& socket, const Run& run, const sockaddr_in& destination);
  void count_lost(size_t packets, int error);

  std::vector<iovec> pieces_;
  std::vector<Packet> packets_;
  std::vector<Run> runs_;
  std::vector<Control> controls_;
  std::vector<mmsghdr> messages_;
  SendCounters counters_;
  size_t most_packets_ = SIZE_MAX;
  bool gso_ = true;
  bool ends_run_ = false;
};

}  // namespace switchml::net
