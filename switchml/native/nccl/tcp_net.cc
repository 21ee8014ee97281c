#include "switchml/native/nccl/tcp_net.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "switchml/native/nccl/log.h"

namespace switchml::nccl {

namespace {

using std::chrono::steady_clock;

constexpr std::array<char, 8> kVersion{'s', 'w', 'm', 'l', 'n', 'e', 't', '1'};
constexpr uint64_t kHeaderBytes = sizeof(uint64_t);  // the number of the message's bytes
constexpr size_t kMostStrangers = 16;                // at a listener
constexpr std::chrono::seconds kStrangerTime{10};    // to show the secret
constexpr std::chrono::seconds kConnectTime{30};     // as for a collective group
constexpr uint8_t kMostRetransmissions = 6;  // of one segment: the sixth follows after 0.2 s * (2^6 - 1) at least

std::string in_words(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = address.any.sa_family == AF_INET;
  const void* const bytes =
      v4 ? static_cast<const void*>(&address.v4.sin_addr) : static_cast<const void*>(&address.v6.sin6_addr);
  if (inet_ntop(address.any.sa_family, bytes, text.data(), text.size()) == nullptr) return "an unknown address";
  return std::string(text.data()) + " port " + std::to_string(ntohs(v4 ? address.v4.sin_port : address.v6.sin6_port));
}

// Lets the kernel notice that the other host is gone while nothing is under way, and send small messages at once.
void set_options(int socket) {
  for (const auto& [level, option, value] : {std::array<int, 3>{SOL_SOCKET, SO_KEEPALIVE, 1},
                                             {IPPROTO_TCP, TCP_KEEPIDLE, 5},
                                             {IPPROTO_TCP, TCP_KEEPINTVL, 2},
                                             {IPPROTO_TCP, TCP_KEEPCNT, 3},
                                             {IPPROTO_TCP, TCP_NODELAY, 1}}) {
    setsockopt(socket, level, option, &value, sizeof value);
  }
}

// True if the kernel has sent a segment again and again without an acknowledgement. While data is under way there is no
// keepalive, and TCP itself gives up after a quarter of an hour. A host whose process is slow still acknowledges.
bool is_gone(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_retransmits >= kMostRetransmissions;
}

runtime::FileDescriptor new_socket(int family) {
  return runtime::FileDescriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

// ---- messages ---------------------------------------------------------------------------------------------------

Message* Connection::post(void* data, uint64_t bytes) {
  if (messages_.size() >= kMostRequests) return nullptr;
  messages_.push_back(std::make_unique<Message>(Message{this, static_cast<uint8_t*>(data), bytes}));
  messages_.back()->header = bytes;
  moving_.push_back(messages_.back().get());
  return moving_.back();
}

Result Connection::progress() {
  while (result_ == kSuccess && !moving_.empty()) {
    Message& message = *moving_.front();
    const ssize_t moved = move(message);
    if (moved <= 0) break;
    message.moved += static_cast<uint64_t>(moved);
    if (message.moved >= kHeaderBytes && message.moved == kHeaderBytes + message.bytes) {
      message.done = true;
      moving_.pop_front();
    }
  }
  return result_;
}

void Connection::release(Message* message) {
  const auto found = std::find_if(messages_.begin(), messages_.end(),
                                  [&](const std::unique_ptr<Message>& each) { return each.get() == message; });
  if (found != messages_.end()) messages_.erase(found);
}

ssize_t Connection::fail(Result result, const std::string& what) {
  result_ = warn(result, what);
  return -1;
}

ssize_t Connection::checked(ssize_t moved) {
  if (moved >= 0) return moved;
  if (errno == EAGAIN || errno == EINTR) return 0;
  return fail(kRemoteError, "the connection with " + peer() + " broke: " + std::strerror(errno));
}

std::string Connection::peer() const { return in_words(peer_); }

// ---- the sending end --------------------------------------------------------------------------------------------

std::unique_ptr<Sender> Sender::connect(const Handle& handle) {
  runtime::FileDescriptor socket = new_socket(handle.address.any.sa_family);
  if (socket.get() < 0) {
    warn(kSystemError, std::string("cannot make a TCP socket: ") + std::strerror(errno));
    return nullptr;
  }
  set_options(socket.get());
  if (::connect(socket.get(), &handle.address.any, handle.address.length()) != 0 && errno != EINPROGRESS) {
    warn(kSystemError, "cannot connect to " + in_words(handle.address) + ": " + std::strerror(errno));
    return nullptr;
  }
  return std::unique_ptr<Sender>(new Sender(std::move(socket), handle));
}

Sender::Sender(runtime::FileDescriptor socket, const Handle& handle)
    : Connection(std::move(socket), handle.address), secret_(handle.secret) {}

Result Sender::greet(bool* shown) {
  const auto* const secret = reinterpret_cast<const uint8_t*>(&secret_) + secret_bytes_;
  const ssize_t moved = checked(send(socket(), secret, sizeof secret_ - secret_bytes_, MSG_DONTWAIT | MSG_NOSIGNAL));
  if (moved > 0) secret_bytes_ += static_cast<uint64_t>(moved);
  *shown = secret_bytes_ == sizeof secret_;
  return result();
}

ssize_t Sender::move(Message& message) {
  const uint64_t header = std::min(message.moved, kHeaderBytes);
  const uint64_t data = message.moved - header;
  std::array<iovec, 2> parts{{{reinterpret_cast<uint8_t*>(&message.header) + header, kHeaderBytes - header},
                              {message.data + data, message.bytes - data}}};
  msghdr packet{};
  packet.msg_iov = parts.data();
  packet.msg_iovlen = parts.size();
  const ssize_t moved = checked(sendmsg(socket(), &packet, MSG_DONTWAIT | MSG_NOSIGNAL));
  if (moved == 0 && is_gone(socket())) return fail(kRemoteError, peer() + " acknowledges nothing; its host is gone");
  return moved;
}

Result Connector::connect(void* memory, std::unique_ptr<Sender>* sender) {
  Handle handle{};
  std::memcpy(&handle, memory, sizeof handle);
  if (handle.version != kVersion) {
    return warn(kInvalidArgument,
                "a rank's handle is not of this version; install one version of SwitchML on all hosts");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = steady_clock::now();
  auto found = attempts_.find(handle.attempt);
  if (found == attempts_.end()) {
    std::unique_ptr<Sender> begun = Sender::connect(handle);
    if (!begun) return kSystemError;
    handle.attempt = ++last_;
    std::memcpy(memory, &handle, sizeof handle);
    found = attempts_.emplace(handle.attempt, Attempt{std::move(begun), now + kConnectTime}).first;
  }
  bool shown = false;
  Result result = found->second.sender->greet(&shown);
  if (result == kSuccess && !shown && now > found->second.until) {
    result = warn(kRemoteError, "the rank at " + in_words(handle.address) + " has not answered for " +
                                    std::to_string(kConnectTime.count()) +
                                    " s; check that NCCL_SOCKET_IFNAME names a network that all hosts are on");
  }
  if (result == kSuccess && !shown) return kSuccess;
  if (result == kSuccess) *sender = std::move(found->second.sender);
  attempts_.erase(found);
  return result;
}

// ---- the receiving end ------------------------------------------------------------------------------------------

ssize_t Receiver::move(Message& message) {
  const bool in_header = message.moved < kHeaderBytes;
  uint8_t* const to = in_header ? reinterpret_cast<uint8_t*>(&message.header) + message.moved
                                : message.data + (message.moved - kHeaderBytes);
  const uint64_t wanted = (in_header ? kHeaderBytes : kHeaderBytes + message.bytes) - message.moved;
  const ssize_t received = recv(socket(), to, wanted, MSG_DONTWAIT);
  if (received == 0) return fail(kRemoteError, "the rank at " + peer() + " has ended its connection");
  const ssize_t moved = checked(received);
  if (in_header && moved > 0 && message.moved + static_cast<uint64_t>(moved) == kHeaderBytes) {
    if (message.header > message.bytes) {
      return fail(kInternalError, "a message of " + std::to_string(message.header) + " bytes came from " + peer() +
                                      ", where NCCL expected at most " + std::to_string(message.bytes));
    }
    message.bytes = message.header;
  }
  return moved;
}

std::unique_ptr<Listener> Listener::listen(const HostInterface& interface, void* bytes) {
  Handle handle{kVersion, 0, 0, interface.address};
  runtime::FileDescriptor socket = new_socket(handle.address.any.sa_family);
  socklen_t length = handle.address.length();
  if (socket.get() < 0 || bind(socket.get(), &handle.address.any, length) != 0 ||
      ::listen(socket.get(), kMostStrangers) != 0 || getsockname(socket.get(), &handle.address.any, &length) != 0 ||
      getrandom(&handle.secret, sizeof handle.secret, 0) != sizeof handle.secret) {
    warn(kSystemError, "cannot listen at " + interface.name + ": " + std::strerror(errno));
    return nullptr;
  }
  std::memset(bytes, 0, kHandleBytes);
  std::memcpy(bytes, &handle, sizeof handle);
  return std::unique_ptr<Listener>(new Listener(std::move(socket), handle.secret));
}

std::unique_ptr<Receiver> Listener::accept() {
  const auto now = steady_clock::now();
  while (strangers_.size() < kMostStrangers) {
    Stranger stranger{runtime::FileDescriptor(), {}, now + kStrangerTime};
    socklen_t length = sizeof stranger.address;
    stranger.socket =
        runtime::FileDescriptor(accept4(socket_.get(), &stranger.address.any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (stranger.socket.get() < 0) break;
    strangers_.push_back(std::move(stranger));
  }
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    uint64_t secret = 0;
    const ssize_t shown = recv(stranger->socket.get(), &secret, sizeof secret, MSG_DONTWAIT | MSG_PEEK);
    const bool shows_more =
        (shown < 0 && (errno == EAGAIN || errno == EINTR)) || (shown > 0 && shown < ssize_t{sizeof secret});
    if (shown == ssize_t{sizeof secret} && secret == secret_) {
      recv(stranger->socket.get(), &secret, sizeof secret, MSG_DONTWAIT);
      set_options(stranger->socket.get());
      return std::make_unique<Receiver>(std::move(stranger->socket), stranger->address);
    }
    stranger = shows_more && now < stranger->until ? stranger + 1 : strangers_.erase(stranger);
  }
  return nullptr;
}

}  // namespace switchml::nccl
