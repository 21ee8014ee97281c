#include "switchml/native/membership/agent_connection.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "native/wire/constants.h"
#include "switchml/native/membership/deadline.h"
#include "switchml/native/membership/version.h"
#include "switchml/native/membership/words.h"

namespace switchml::client {

namespace {

using Clock = AgentConnection::Clock;

constexpr size_t kMessageBytes = size_t{64} * 1024;  // of an answer or event, which may name all ranks of a job
constexpr size_t kMostDescriptors = 3;
constexpr size_t kLossCharacters = 500;
constexpr uint32_t kUint32 = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kUint64 = std::numeric_limits<uint64_t>::max();
constexpr std::chrono::seconds kVerdictTime{10};  // for the controller to compare the calls after a failed check
constexpr std::chrono::seconds kSendTime{5};
constexpr std::chrono::seconds kCloseTime{5};
constexpr std::chrono::milliseconds kBetween{100};

// Sets the time after which a blocking connect, send or receive fails with EAGAIN.
void set_time_limit(int socket, int option, Clock::duration limit) {
  const auto microseconds = std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::microseconds>(limit).count());
  constexpr int64_t kMicroseconds = 1'000'000;
  const timeval time{microseconds / kMicroseconds, microseconds % kMicroseconds};
  setsockopt(socket, SOL_SOCKET, option, &time, sizeof time);
}

// Polls until `end`, again after signals; a negative timeout has no end.
int poll_until(pollfd* descriptors, nfds_t count, std::optional<Clock::time_point> end) {
  for (;;) {
    int timeout = -1;
    if (end) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count();
      timeout = static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
    }
    const int ready = ::poll(descriptors, count, timeout);
    if (ready >= 0 || errno != EINTR) return ready;
  }
}

int hexadecimal(char digit) {
  constexpr int kTen = 10;
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + kTen;
  return -1;
}

std::optional<SipKey> key_of(const std::optional<std::string>& text) {
  SipKey key;
  std::array<uint8_t, sizeof key> bytes{};
  if (!text || text->size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = hexadecimal((*text)[2 * i]);
    const int low = hexadecimal((*text)[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  std::memcpy(key.data(), bytes.data(), bytes.size());
  return key;
}

std::vector<uint32_t> ranks_in(const Json& message, std::string_view key) {
  return message.numbers(key, wire::protocol::max_world - 1);
}

std::optional<Attachment> attachment_of(const Json& message) {
  const auto job_id = message.number("job_id", kUint64);
  const auto name = message.text("name");
  const auto epoch = message.number("epoch", kUint32);
  const auto rank = message.number("rank", kUint32);
  const auto world_size = message.number("world_size", kUint32);
  const auto generation = message.number("generation", kUint32);
  const auto priority = message.number("priority", kUint32);
  const auto key = key_of(message.text("check_key"));
  if (!job_id || !name || !epoch || !rank || !world_size || !generation || !priority || !key) return std::nullopt;
  return Attachment{*job_id,
                    *name,
                    static_cast<uint32_t>(*epoch),
                    static_cast<uint32_t>(*rank),
                    static_cast<uint32_t>(*world_size),
                    *key,
                    static_cast<uint32_t>(*generation),
                    ranks_in(message, "joined"),
                    message.text("on_failure").value_or(""),
                    static_cast<uint32_t>(*priority)};
}

std::optional<RankDescriptors> rank_descriptors(std::vector<runtime::FileDescriptor> received) {
  if (received.size() != 2 && received.size() != kMostDescriptors) return std::nullopt;
  RankDescriptors descriptors{std::move(received[0]), std::move(received[1]), runtime::FileDescriptor()};
  if (received.size() == kMostDescriptors) descriptors.shared = std::move(received[2]);
  return descriptors;
}

JobFailure failure_in(const Json& message, const std::string& kind) {
  if (kind != "failed" && kind != "refused") {
    return {"AgentLost", {}, "the agent on this host ended without a message, or is of another version"};
  }
  return {message.text("error").value_or(""), ranks_in(message, "ranks"), message.text("message").value_or("")};
}

JsonObject to_message(const AttachRequest& request) {
  JsonObject message;
  message.add("type", "attach")
      .add("version", kVersion)
      .add("job", request.job)
      .add("rank", uint64_t{request.rank})
      .add("pid", static_cast<uint64_t>(getpid()));
  if (request.world_size) message.add("world_size", uint64_t{*request.world_size});
  if (request.create) {
    message.add("create", true)
        .add_seconds("timeout", request.create->timeout)
        .add("slots", uint64_t{request.create->slots})
        .add("on_failure", request.create->on_failure)
        .add("priority", uint64_t{request.create->priority})
        .add("aggregators", request.create->aggregators);
  }
  return message;
}

// Returns a text of at most 500 characters that the agent accepts as a reason.
std::string as_loss(const std::string& text) {
  std::string loss = text.substr(0, kLossCharacters);
  for (char& c : loss) {
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = ' ';
  }
  return loss;
}

}  // namespace

AgentConnection::AgentConnection(const std::string& path, const AttachRequest& request, double seconds,
                                 const std::function<void()>& between)
    : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (socket_.get() < 0 || wake_.get() < 0) {
    throw_connect_error(std::string("this process can open no more files: ") + std::strerror(errno) + " (ulimit -n)");
  }
  const auto end = after(seconds);
  connect(path, end);
  require_own(path);
  attach(path, request, seconds, end, between);
  set_time_limit(socket_.get(), SO_SNDTIMEO, kSendTime);
}

AgentConnection::~AgentConnection() {
  if (thread_.joinable()) close(attachment_.epoch, 0, "it was destroyed");
}

void AgentConnection::connect(const std::string& path, Clock::time_point end) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw_connect_error("the agent socket " + path + " cannot be used: its path has more than " +
                        std::to_string(sizeof address.sun_path - 1) + " bytes; correct SWITCHML_AGENT");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  set_time_limit(socket_.get(), SO_SNDTIMEO, end - Clock::now());
  int result;
  do {
    result = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR && Clock::now() < end);
  if (result == 0) return;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) {
    throw_connect_error("there is no agent socket at " + path +
                        "; start an agent on this host (`switchml-ctl up`, or `switchml-agent --socket ...`), or "
                        "correct SWITCHML_AGENT or SWITCHML_RUN_DIR");
  }
  if (error == EACCES || error == EPERM) {
    throw_connect_error("the agent socket " + path + " may not be opened by user " + std::to_string(geteuid()) +
                        "; an agent serves the user that it runs as: run this process, or the agent, as that user");
  }
  if (error == EAGAIN || error == EINTR) {
    throw_connect_error("the agent at " + path + " does not accept connections; it may be suspended: see its log");
  }
  const std::string what = error == ECONNREFUSED ? "its agent has ended" : std::strerror(error);
  throw_connect_error("the agent socket " + path + " cannot be used: " + what + "; start the agent again");
}

// Checked before anything is sent, because the agent gets the tensors.
void AgentConnection::require_own(const std::string& path) const {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  if (bytes == sizeof peer && (peer.uid == geteuid() || peer.uid == 0)) return;
  throw_connect_error("user " + std::to_string(peer.uid) + " listens at the agent socket " + path +
                      ", but this process is run by user " + std::to_string(geteuid()) +
                      ": nothing was sent; an agent serves the user that it runs as, so start one as this user, or "
                      "correct SWITCHML_AGENT");
}

void AgentConnection::attach(const std::string& path, const AttachRequest& request, double seconds,
                             Clock::time_point end, const std::function<void()>& between) {
  set_time_limit(socket_.get(), SO_SNDTIMEO, end - Clock::now());
  if (!send(to_message(request))) {
    throw_connect_error("the agent at " + path + " ended the connection: " + std::strerror(errno) + "; see its log");
  }
  pollfd waiting{socket_.get(), POLLIN, 0};
  while (poll_until(&waiting, 1, std::min(end, Clock::now() + kBetween)) == 0) {
    if (Clock::now() >= end) {
      throw_connect_error("the agent at " + path + " did not answer within " + seconds_in_words(seconds) +
                          " s; it may be suspended: see its log");
    }
    between();
  }
  bool whole = false;
  Message answer = receive(&whole);
  const std::string kind = answer.kind();
  if (!whole && answer.descriptors.empty()) {
    throw_connect_error("the agent at " + path + " closed the connection without an answer; see its log");
  }
  if (kind == "refused") {
    throw_connect_error(answer.json.text("message").value_or(""), answer.json.text("error").value_or(""));
  }
  auto attachment = kind == "attached" ? attachment_of(answer.json) : std::nullopt;
  auto descriptors = rank_descriptors(std::move(answer.descriptors));
  if (!whole || !attachment || !descriptors) {
    throw_connect_error("the program that listens at " + path +
                        " does not answer like an agent; check SWITCHML_AGENT, and that this process may open more "
                        "files (ulimit -n)");
  }
  attachment_ = std::move(*attachment);
  descriptors_ = std::move(*descriptors);
}

bool AgentConnection::send(const JsonObject& message) {
  const std::string text = message.text();
  for (;;) {
    if (::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

// Sets `whole` if all of a message came, and all descriptors that belong to it.
AgentConnection::Message AgentConnection::receive(bool* whole) {
  std::vector<char> buffer(kMessageBytes);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec piece{buffer.data(), buffer.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t bytes;
  do {
    bytes = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  Message message;
  *whole = bytes > 0 && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (bytes <= 0) return message;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof descriptor, sizeof descriptor);
      message.descriptors.emplace_back(descriptor);
    }
  }
  if (*whole) message.json = Json::parse({buffer.data(), static_cast<size_t>(bytes)}).value_or(Json());
  return message;
}

void AgentConnection::start(AgentListener* listener, int attention_fd) {
  listener_ = listener;
  // Blocks signals, which are for the threads of the program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(&AgentConnection::listen, this, attention_fd);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "switchml-ctrl");
}

void AgentConnection::check_failed(uint64_t position, const JsonObject& call) {
  send(JsonObject().add("type", "check_failed").add("position", position).add("call", call));
}

std::vector<uint32_t> AgentConnection::missing(double seconds) {
  const std::lock_guard<std::mutex> one(asking_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answered_ = false;
    missing_.clear();
  }
  if (!send(JsonObject().add("type", "missing"))) return {};
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, after(seconds), [this] { return answered_; });
  return missing_;
}

void AgentConnection::close(uint64_t epoch, uint64_t calls, const std::string& loss) {
  JsonObject message;
  message.add("type", "close").add("epoch", epoch).add("calls", calls);
  if (!loss.empty()) message.add("loss", as_loss(loss));
  const bool sent = socket_.get() >= 0 && send(message);
  if (thread_.joinable()) {
    if (sent) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, kCloseTime, [this] { return closed_; });
    }
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  socket_.close();
}

void AgentConnection::listen(int attention_fd) {
  enum Watched : size_t { socket, woken, attention, count };
  std::array<pollfd, count> descriptors{};
  descriptors[socket] = {socket_.get(), POLLIN, 0};
  descriptors[woken] = {wake_.get(), POLLIN, 0};
  descriptors[attention] = {attention_fd, POLLIN, 0};  // -1, which poll() leaves out, once a check has failed
  for (;;) {
    poll_until(descriptors.data(), descriptors.size(), verdict_due_);
    if (descriptors[woken].revents != 0) return;
    if (descriptors[attention].fd >= 0 && descriptors[attention].revents != 0) {
      descriptors[attention].fd = -1;
      listener_->on_attention();
      verdict_due_ = Clock::now() + kVerdictTime;
    }
    if (descriptors[socket].fd >= 0 && descriptors[socket].revents != 0) {
      bool whole = false;
      if (!take(receive(&whole), &descriptors[attention].fd)) descriptors[socket].fd = -1;
    }
    if (verdict_due_ && Clock::now() >= *verdict_due_) {
      verdict_due_.reset();
      const auto seconds = std::to_string(kVerdictTime.count());
      listener_->on_failure({"IntegrityError", {}, "no verdict came within " + seconds + " s"});
    }
  }
}

bool AgentConnection::take(Message message, int* attention_fd) {
  const std::string kind = message.kind();
  const auto calls = message.json.number("calls", kUint64);
  if (kind == "ranks_closed" && calls) {
    listener_->on_ranks_closed(ranks_in(message.json, "ranks"), *calls);
    return true;
  }
  if (kind == "moved") {
    verdict_due_.reset();
    if (const auto failure = move(std::move(message), attention_fd)) listener_->on_failure(*failure);
    return true;
  }
  if (kind != "missing" && kind != "closed") {
    verdict_due_.reset();
    listener_->on_failure(failure_in(message.json, kind));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kind == "missing") {
    missing_ = ranks_in(message.json, "ranks");
    answered_ = true;
  } else if (kind != "failed") {
    closed_ = true;  // the agent closes the connection next, or has ended
  }
  changed_.notify_all();
  return !closed_;
}

// Changes to another epoch; returns the reason if that failed.
std::optional<JobFailure> AgentConnection::move(Message message, int* attention_fd) {
  const auto attachment = attachment_of(message.json);
  const auto descriptors = rank_descriptors(std::move(message.descriptors));
  if (!attachment || !descriptors) {
    return JobFailure{"AgentLost", {}, "the agent's message about the new epoch is malformed"};
  }
  try {
    const JobFailure loss{"WorldChanged", ranks_in(message.json, "lost"), message.json.text("message").value_or("")};
    *attention_fd = listener_->on_move(*attachment, *descriptors, loss);
    return std::nullopt;
  } catch (const std::exception& error) {
    return JobFailure{"AgentLost", {}, std::string("the memory of the new epoch cannot be used: ") + error.what()};
  }
}

}  // namespace switchml::client
