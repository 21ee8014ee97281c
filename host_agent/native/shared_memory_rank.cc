#include "host_agent/native/shared_memory_rank.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>
#include <system_error>

#include "native/channel/channel.h"
#include "native/net/udp_batch.h"
#include "native/wire/epoch_limit.h"

namespace switchml::agent {

namespace {

// Enough for a switch on a busy machine to make the rank's memory, and less than the controller waits for the agent.
constexpr timeval kPatience{8, 0};

// Makes a system call again as long as signals interrupt it. If a socket has a time limit, the kernel does not make it
// again by itself, not even after SIGSTOP and SIGCONT (signal(7)).
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

std::system_error failure(const std::string& what) { return {errno, std::generic_category(), what}; }

// Requires that this process's user or root listens at the other end, because the switch gets the ranks' tensors.
void require_own_listener(int connected, const std::string& path) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    throw failure("cannot find out which user listens at " + path);
  }
  if (peer.uid != geteuid() && peer.uid != 0) {
    throw std::system_error(EACCES, std::generic_category(),
                            "user " + std::to_string(peer.uid) + " listens at " + path +
                                ", but the switch must be run by the agent's user or root");
  }
}

void close_all(const std::array<int, channel::kShmDescriptors>& descriptors) {
  for (const int descriptor : descriptors) {
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
}

}  // namespace

ShmConnector::ShmConnector(const std::string& path) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_ >= 0 && path.size() >= sizeof address.sun_path) {
    close(socket_);
    throw std::invalid_argument("the path of the switch's socket is too long: " + path);
  }
  path.copy(address.sun_path, path.size());
  const bool connected =
      socket_ >= 0 && setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) == 0 &&
      setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience) == 0 &&
      uninterrupted([&] { return connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address); }) == 0;
  if (!connected) {
    const std::system_error no_switch = failure("no switch listens at " + path);
    close(socket_);
    throw no_switch;
  }
  try {
    require_own_listener(socket_, path);
  } catch (...) {
    close(socket_);
    throw;
  }
}

ShmConnector::~ShmConnector() { close(socket_); }

bool ShmConnector::ended() const {
  std::byte first{};
  const ssize_t got = recv(socket_, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void ShmConnector::end() const { shutdown(socket_, SHUT_RDWR); }

ShmConnector::Reply ShmConnector::ask(const channel::ShmRequest& request) const {
  if (uninterrupted([&] { return send(socket_, &request, sizeof request, MSG_NOSIGNAL); }) < 0) {
    throw failure("the switch does not take requests");
  }
  Reply reply;
  iovec piece{&reply.answer, sizeof reply.answer};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(channel::kShmDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = uninterrupted([&] { return recvmsg(socket_, &message, MSG_CMSG_CLOEXEC); });
  if (got < 0) {
    throw failure("the switch does not answer");
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(reply.descriptors.data(), CMSG_DATA(header),
                std::min(header->cmsg_len - CMSG_LEN(0), sizeof reply.descriptors));
  }
  const bool bind = request.kind == channel::ShmRequest::kBind;
  if (static_cast<size_t>(got) != sizeof reply.answer || reply.answer.magic != channel::ShmAnswer::kMagic) {
    close_all(reply.descriptors);
    throw std::invalid_argument("the program that listens there is not a switch of this version");
  }
  if (reply.answer.granted == 0 || (bind && reply.descriptors[1] < 0)) {
    close_all(reply.descriptors);
    reply.answer.reason.back() = '\0';
    throw std::invalid_argument(std::string("the switch refuses: ") + reply.answer.reason.data());
  }
  return reply;
}

std::vector<uint32_t> ShmConnector::ask(uint32_t kind, uint32_t slots, const std::vector<uint32_t>& targets) const {
  channel::ShmRequest request{};
  request.magic = channel::ShmRequest::kMagic;
  request.kind = kind;
  std::vector<uint32_t> phases = targets;
  std::array<iovec, 2> pieces{{{&request, sizeof request}, {phases.data(), phases.size() * sizeof(uint32_t)}}};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  if (uninterrupted([&] { return sendmsg(socket_, &message, MSG_NOSIGNAL); }) < 0) {
    throw failure("the switch does not take requests");
  }
  channel::ShmAnswer answer{};
  phases.resize(slots);
  pieces = {{{&answer, sizeof answer}, {phases.data(), phases.size() * sizeof(uint32_t)}}};
  const ssize_t got = uninterrupted([&] { return recvmsg(socket_, &message, 0); });
  if (got < 0) {
    throw failure("the switch does not answer");
  }
  if (static_cast<size_t>(got) < sizeof answer || answer.magic != channel::ShmAnswer::kMagic) {
    throw std::invalid_argument("the switch no longer serves the rank");
  }
  if (answer.granted == 0 || static_cast<size_t>(got) != sizeof answer + phases.size() * sizeof(uint32_t)) {
    answer.reason.back() = '\0';
    throw std::invalid_argument(std::string("the switch refuses: ") + answer.reason.data());
  }
  return phases;
}

SharedMemoryRank::SharedMemoryRank(const std::string& path, const RankAssignment& given)
    : connector_(path), slots_(given.slots), slot_uses_(given.slot_uses) {
  const RankAssignment assignment = checked(given);
  const uint32_t workers = assignment.workers == 0 ? assignment.world_size : assignment.workers;
  if (workers > wire::protocol::max_workers) {
    throw std::invalid_argument("more than 64 ranks cannot share memory with one switch");
  }
  const channel::ShmRequest request{channel::ShmRequest::kMagic,
                                    channel::ShmRequest::kBind,
                                    net::parse_ipv4(assignment.address),
                                    assignment.slots,
                                    assignment.values,
                                    assignment.slot_base,
                                    assignment.job,
                                    assignment.epoch,
                                    assignment.rank,
                                    static_cast<uint16_t>(assignment.world_size),
                                    assignment.worker,
                                    static_cast<uint8_t>(workers),
                                    assignment.secret,
                                    assignment.optional_values ? 1U : 0U,
                                    assignment.owned_results ? 1U : 0U,
                                    assignment.formats,
                                    assignment.priority,
                                    assignment.tenant,
                                    assignment.one_port ? 1U : 0U,
                                    owner_numbers(assignment)};
  const ShmConnector::Reply reply = connector_.ask(request);
  connection_ = reply.answer.connection;
  descriptors_ = reply.descriptors;
  try {
    memory_ = channel::SharedMemory::map(descriptors_.front(), channel::SharedMemory::Others::may_read);
    if (memory_.bytes() < channel::Channel::bytes(assignment.slots, assignment.values, true)) {
      throw std::invalid_argument("the switch gave less memory than the rank needs");
    }
  } catch (...) {
    close_all(descriptors_);
    throw;
  }
}

SharedMemoryRank::~SharedMemoryRank() {
  if (!taken_) {
    close_all(descriptors_);
  }
}

void SharedMemoryRank::close() {
  closed_ = true;
  connector_.end();
}

void SharedMemoryRank::require_open() const {
  if (closed_) {
    throw std::out_of_range("the rank is closed");
  }
}

std::vector<int> SharedMemoryRank::open_channel() {
  require_open();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (taken_) {
    throw std::logic_error("the rank has a channel already");
  }
  std::vector<int> descriptors;
  std::copy_if(descriptors_.begin(), descriptors_.end(), std::back_inserter(descriptors),
               [](int descriptor) { return descriptor >= 0; });
  taken_ = true;
  return descriptors;
}

std::vector<uint32_t> SharedMemoryRank::ask(uint32_t kind, const std::vector<uint32_t>& targets) {
  require_open();
  const std::lock_guard<std::mutex> lock(mutex_);
  return connector_.ask(kind, slots_, targets);
}

RankStatus SharedMemoryRank::status() const {
  const auto* control = std::launder(reinterpret_cast<const channel::ChannelControl*>(memory_.data()));
  RankStatus status;
  status.position = control->server.position.load(std::memory_order_relaxed);
  // A switch that waits for another rank sleeps, and has not taken this rank's submissions since then.
  const uint32_t waiting = control->submitted.load(std::memory_order_relaxed) - static_cast<uint32_t>(status.position);
  if (waiting <= slots_) {
    status.position += waiting;
  }
  // Chunks of direct calls count as contributions and results.
  const uint64_t put = control->process.direct_put.load(std::memory_order_relaxed);
  status.position += put;
  status.sent = control->server.sent.load(std::memory_order_relaxed) + put;
  status.sent_without_values = control->server.sent_without_values.load(std::memory_order_relaxed);
  status.received = control->server.received.load(std::memory_order_relaxed) +
                    control->process.direct_taken.load(std::memory_order_relaxed);
  status.retransmissions = control->server.retransmissions.load(std::memory_order_relaxed);
  status.ignored = control->server.ignored.load(std::memory_order_relaxed);
  status.uses = control->server.uses.load(std::memory_order_relaxed);
  status.epoch_spent = wire::epoch_is_spent(status.uses, slot_uses_);
  return status;
}

RankProfile SharedMemoryRank::profile(uint64_t calls) const {
  return profile_of(*std::launder(reinterpret_cast<const channel::ChannelControl*>(memory_.data())), calls);
}

uint16_t shm_port_at(const std::string& path) {
  channel::ShmRequest question{};
  question.magic = channel::ShmRequest::kMagic;
  question.kind = channel::ShmRequest::kWhoAreYou;
  return ShmConnector(path).ask(question).answer.port;
}

}  // namespace switchml::agent
