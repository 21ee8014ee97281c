#include "dataplane/softswitch/native/shared_memory/shm_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dataplane/softswitch/native/shared_memory/shared_memory_service.h"
#include "native/channel/channel.h"
#include "native/runtime/precedence.h"

namespace switchml::soft {
namespace {

constexpr size_t kMostClients = 4096;
constexpr int kBacklog = 128;
constexpr const char* kOtherVersion = "the request is not from an agent of this version";
constexpr int kPauseMs = 100;  // while there are no descriptors or no memory for the clients in the backlog

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw std::system_error(ENAMETOOLONG, std::generic_category(), "socket " + path);
  }
  path.copy(address.sun_path, path.size());
  return address;
}

bool somebody_listens(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return true;
  const bool connected = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const bool full = !connected && errno == EAGAIN;
  close(probe);
  return connected || full;
}

// Grants a request, or refuses it for a reason.
channel::ShmAnswer answer_of(const ShmPort* port, const std::string& reason) {
  channel::ShmAnswer answer{};
  answer.magic = channel::ShmAnswer::kMagic;
  answer.granted = reason.empty() ? 1 : 0;
  answer.port = port->number();
  reason.copy(answer.reason.data(), answer.reason.size() - 1);
  return answer;
}

// Sends an answer, followed by `held`. With `connection`, its memory and its doorbell go with it, and the job's memory
// for direct calls if it has some.
void send_answer(int socket, channel::ShmAnswer answer, std::vector<uint32_t> held, ShmConnection* connection) {
  std::array<iovec, 2> pieces{{{&answer, sizeof answer}, {held.data(), held.size() * sizeof(uint32_t)}}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(channel::kShmDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  if (connection != nullptr) {
    const std::array<int, channel::kShmDescriptors> descriptors{connection->memory().fd(), connection->doorbell(),
                                                                connection->job().direct().fd()};
    const size_t bytes = (descriptors.back() < 0 ? descriptors.size() - 1 : descriptors.size()) * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  // An error is ignored: a client that does not read its answer has ended, or will notice that no answer comes.
  sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Checks a request as far as possible without the switch. Throws std::invalid_argument.
RankBinding rank_of(const channel::ShmRequest& request) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  require(request.job > 0 && request.job < wire::protocol::max_jobs, "the job's id is out of range");
  require(request.epoch != 0, "the epoch must not be 0");
  require(request.world_size >= 1 && request.world_size <= wire::protocol::max_world, "a job has 1 to 4096 ranks");
  require(request.rank < request.world_size, "the rank must be smaller than the number of ranks");
  require(request.workers >= 1 && request.workers <= wire::protocol::max_workers, "a switch tells 1 to 64 ranks apart");
  require(request.worker < request.workers, "the rank's number at the switch must be smaller than their number");
  require(request.slots >= 1 && request.slots <= wire::protocol::max_slot_index + 1 &&
              (request.slots & (request.slots - 1)) == 0,
          "the number of slots must be a power of two");
  require(request.slot_base % request.slots == 0, "the first slot must be a multiple of the number of slots");
  require(request.values >= 1 && request.values <= wire::protocol::max_values, "a packet has 1 to 2048 values");
  require(request.priority < runtime::Precedence::kPriorities, "a job has a priority from 0 to 7");
  return {{request.job, request.epoch, request.slot_base, request.world_size, request.slots, request.values},
          request.rank,
          request.worker,
          request.workers,
          request.ipv4,
          request.secret,
          request.optional_values != 0,
          request.owned_results != 0,
          request.formats,
          static_cast<uint8_t>(request.priority),
          request.tenant,
          request.one_port != 0,
          request.owners};
}

}  // namespace

ShmListener::ShmListener(std::string path, ShmPort* port, SharedMemoryService* service)
    : path_(std::move(path)), port_(port), service_(service) {
  const sockaddr_un address = address_of(path_);
  const auto failure = [this] { return std::system_error(errno, std::generic_category(), "socket " + path_); };
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) throw failure();
  fchmod(socket_,
         S_IRUSR | S_IWUSR);  // before bind() creates the file, which then gets this mode regardless of the umask
  const auto bind_path = [&] {
    return ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  bool bound = bind_path();
  if (!bound && errno == EADDRINUSE) {
    if (somebody_listens(address)) {
      errno = EADDRINUSE;
    } else {
      unlink(path_.c_str());
      bound = bind_path();
    }
  }
  if (bound && listen(socket_, kBacklog) == 0) stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_ < 0) {
    const std::system_error why = failure();
    close(socket_);
    throw why;
  }
}

ShmListener::~ShmListener() {
  channel::ring(stop_);
  if (thread_.joinable()) thread_.join();
  for (const Client& client : clients_) drop(client);
  close(socket_);
  close(stop_);
  unlink(path_.c_str());
}

void ShmListener::start() {
  thread_ = std::thread([this] { run(); });
}

void ShmListener::run() {
  std::vector<pollfd> polled;
  bool accepts = true;
  for (;;) {
    polled.assign({{stop_, POLLIN, 0}, {socket_, static_cast<short>(accepts ? POLLIN : 0), 0}});
    for (const Client& client : clients_) polled.push_back({client.socket, POLLIN, 0});
    if (poll(polled.data(), polled.size(), accepts ? -1 : kPauseMs) < 0) continue;  // a signal
    if (polled[0].revents != 0) return;
    // Begins with the last client, because a removal moves the clients after it, which are served already.
    for (size_t i = clients_.size(); i-- > 0;) {
      if (polled[i + 2].revents != 0 && !serve(&clients_[i])) {
        drop(clients_[i]);
        clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    accepts = polled[1].revents == 0 || accept_client();
  }
}

bool ShmListener::accept_client() {
  const int accepted = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (accepted < 0) return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = getsockopt(accepted, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  if (!known || (peer.uid != geteuid() && peer.uid != 0)) {
    send_answer(accepted, answer_of(port_, "the switch serves its own user's agents only"), {}, nullptr);
    close(accepted);
  } else if (clients_.size() >= kMostClients) {
    send_answer(accepted, answer_of(port_, "the switch has too many connections"), {}, nullptr);
    close(accepted);
  } else {
    clients_.push_back({accepted, 0});
  }
  return true;
}

bool ShmListener::serve(Client* client) {
  channel::ShmRequest request{};
  std::vector<uint32_t> targets(client->connection != 0 ? wire::protocol::max_slot_index + 1 : 0);
  std::array<iovec, 2> pieces{{{&request, sizeof request}, {targets.data(), targets.size() * sizeof(uint32_t)}}};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t got = recvmsg(client->socket, &message, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const auto bytes = static_cast<size_t>(got);
  const bool whole = bytes >= sizeof request && (message.msg_flags & MSG_TRUNC) == 0;
  if (whole && request.magic == channel::ShmRequest::kMagic && client->connection != 0) {
    targets.resize((bytes - sizeof request) / sizeof(uint32_t));
    return serve_bound(*client, request, targets);
  }
  const bool known = request.kind == channel::ShmRequest::kWhoAreYou || request.kind == channel::ShmRequest::kBind;
  if (!whole || bytes != sizeof request || request.magic != channel::ShmRequest::kMagic || !known ||
      client->connection != 0) {
    send_answer(client->socket, answer_of(port_, kOtherVersion), {}, nullptr);
    return false;
  }
  channel::ShmAnswer granted = answer_of(port_, "");
  if (request.kind == channel::ShmRequest::kWhoAreYou) {
    send_answer(client->socket, granted, {}, nullptr);
    return true;
  }
  try {
    const auto [number, connection] = service_->bind(port_, rank_of(request));
    client->connection = granted.connection = number;
    send_answer(client->socket, granted, {}, connection);
    connection->memory().close_descriptor();
    return true;
  } catch (const std::exception& refusal) {
    send_answer(client->socket, answer_of(port_, refusal.what()), {}, nullptr);
    return false;
  }
}

bool ShmListener::serve_bound(const Client& client, const channel::ShmRequest& request,
                              const std::vector<uint32_t>& targets) const {
  const bool known = request.kind == (targets.empty() ? channel::ShmRequest::kFreeze : channel::ShmRequest::kFetch);
  channel::ShmAnswer answer = answer_of(port_, known ? "" : kOtherVersion);
  std::vector<uint32_t> held;
  if (known) {
    try {
      const runtime::Turns::Control turn(&service_->turns());
      held = port_->quiesce(client.connection, targets);
    } catch (const std::exception& refusal) {
      answer = answer_of(port_, refusal.what());
    }
  }
  send_answer(client.socket, answer, std::move(held), nullptr);
  return known;
}

void ShmListener::drop(const Client& client) {
  if (client.connection != 0) service_->unbind(port_, client.connection);
  close(client.socket);
}

}  // namespace switchml::soft
