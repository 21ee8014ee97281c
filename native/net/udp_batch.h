// Many datagrams per system call over one UDP socket, in both directions.
//
// The throughput of UDP on a host is limited by the system calls, one per packet. Linux sends and receives several
// datagrams of equal size as one buffer (UDP_SEGMENT and UDP_GRO, udp(7)), and sendmmsg and recvmmsg carry several such
// buffers. All of this is optional: without it the same calls work one datagram at a time.
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

// Returns the socket address; both parameters are in host byte order.
sockaddr_in ipv4_endpoint(uint32_t address, uint16_t port);

// Returns the address of a dotted quad in host byte order. Throws std::invalid_argument.
uint32_t parse_ipv4(const std::string& text);

// A nonblocking IPv4 UDP socket. It never fragments (DF is set): a switch cannot put fragments together, so a packet
// above the path's MTU fails with EMSGSIZE at the sender, where it is counted.
class UdpSocket {
 public:
  // Binds to `address` (dotted quad) and `port` (0: the kernel picks one) and asks for socket buffers of
  // `buffer_bytes` in each direction; receive_buffer() and send_buffer() return the sizes that the kernel gave. Several
  // sockets of this user may bind the same port if all of them are `shared`.
  // Throws std::invalid_argument for a bad address and std::system_error if the socket cannot be opened or bound.
  UdpSocket(const std::string& address, uint16_t port, size_t buffer_bytes, bool shared = false);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  // Takes over a socket that is open already and bound to a multicast group and port.
  UdpSocket(int fd, const sockaddr_in& group, size_t buffer_bytes);
  // Takes over a socket that is open already and bound, as it is. Throws std::system_error.
  explicit UdpSocket(int fd);

  int fd() const { return fd_; }
  uint32_t address() const { return address_; }  // host byte order; 0 when bound to every address
  uint16_t port() const { return port_; }
  size_t receive_buffer() const { return receive_buffer_; }  // bytes
  size_t send_buffer() const { return send_buffer_; }        // bytes
  bool gro() const { return gro_; }                          // the kernel passes several datagrams in one buffer
  // Sets the DSCP and ECN bits of the IPv4 headers that it sends. Throws std::system_error.
  void set_traffic_class(uint8_t traffic_class);
  // Keeps `guard` as long as this socket is open.
  void keep(std::shared_ptr<const UdpSocket> guard) { guard_ = std::move(guard); }

  // Returns the number (modulo 2^32) of datagrams that the kernel dropped because the receive buffer was full; 0 if it
  // does not report it.
  uint32_t receive_drops() const;

 private:
  void set_buffers(size_t buffer_bytes);

  int fd_ = -1;
  uint32_t address_ = 0;
  uint16_t port_ = 0;
  size_t receive_buffer_ = 0;
  size_t send_buffer_ = 0;
  bool gro_ = false;
  std::shared_ptr<const UdpSocket> guard_;
};

// Returns the size of the largest UDP payload that the path from `address` to `destination` takes without
// fragmentation, as far as the kernel knows: from the interface's MTU, or from a router's message. SIZE_MAX if there is
// no route. Throws as UdpSocket does.
size_t largest_datagram(const std::string& address, const sockaddr_in& destination);

// Binds `count` sockets, one per thread, to one address and port. The slot in the SwitchML header of a packet decides
// which socket gets it (part_of_slot() in slot_blocks.h). If the kernel has joined packets (GRO), the first one decides
// for all of them, so a thread may also get packets of other threads.
//
// While the sockets are open, the port cannot be bound on any other address of this machine (HeldPorts). Otherwise
// another user could bind it there and send packets with `address` as the source (IP_PKTINFO), which no receiver could
// recognize as forged. Throws as UdpSocket does, with EADDRINUSE if another program has the port on any address.
std::vector<UdpSocket> open_udp_sockets(const std::string& address, uint16_t port, size_t buffer_bytes, unsigned count);

// Returns a socket that receives the packets to an IPv4 multicast group on the interface with address `interface`, if
// their slots belong to `thread` of `threads`; without this filter every thread would get all of them. Other sockets on
// this machine may join the same group and port. Throws as UdpSocket does.
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
  // Reserves `buffers` buffers of 64 KB each; one holds a datagram or a GRO batch.
  explicit ReceiveBatch(size_t buffers = 8);
  ReceiveBatch(const ReceiveBatch&) = delete;
  ReceiveBatch& operator=(const ReceiveBatch&) = delete;

  // Discards the datagrams of the previous call and receives those that wait at the socket, without blocking. Returns
  // whether there were any; if every buffer was used (full()), more may wait. Does not throw.
  bool receive(const UdpSocket& socket);
  // Returns whether the last receive() used every buffer.
  bool full() const { return filled_ == messages_.size(); }
  // Sets `datagram` to the next one, in order of arrival. Returns false after the last one.
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

// The outcomes of sending the datagrams of a SendBatch.
struct SendCounters {
  uint64_t sent = 0;
  uint64_t send_errors = 0;  // refused by the kernel (EAGAIN, ENOBUFS, EMSGSIZE, ...), like lost on the way
  int last_send_errno = 0;   // of the last refusal; 0 if nothing was refused
};

// A queue of packets to send. It stores only pointers: the memory behind them must stay valid and unchanged until
// flush() or clear(). One thread uses a batch.
class SendBatch {
 public:
  // Returns the largest GSO batch of packets of `packet_bytes`: at most 64 packets and 65507 bytes.
  static size_t largest_gso_batch(size_t packet_bytes);

  // Queues one packet made of a header and a payload (which may be empty). Successive packets of equal size are sent as
  // one GSO batch.
  void add(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes);
  // Makes the next packet start a new GSO batch.
  void end_run() { ends_run_ = true; }
  size_t size() const { return packets_.size(); }
  bool empty() const { return packets_.empty(); }
  void clear();
  // Limits the packets in each later GSO batch to this number.
  void limit_gso_batches(size_t packets) { most_packets_ = packets; }
  // Calls send(header, header_bytes, payload, payload_bytes) for every queued packet, and empties the queue.
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
  // Returns whether GSO is used. It is switched off permanently when the kernel refuses a batch and then accepts its
  // packets one by one.
  bool gso() const { return gso_; }

 private:
  struct Packet {
    size_t first_piece;
    size_t bytes;
    bool begins_run;
  };
  // Successive packets of equal size, sent as one message if GSO is on.
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
