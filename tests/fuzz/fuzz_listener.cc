// Fuzzes the socket of a shm port, with a whole switch and its threads: agents send arbitrary messages, and ranks write
// into their memory while they are frozen, let fetch, and abandoned by their agents. Every answer must be well-formed,
// the ranks' counts must stay within the limits that they were told, and nothing may be left when all have
// disconnected.
#include <dirent.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/runtime/switch.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/channel/shm_messages.h"
#include "tests/fuzz/memory_port.h"

using namespace switchml;  // NOLINT: a program of one page

namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kValues = 16;
constexpr uint16_t kPort = 2;
constexpr uint32_t kAgent = 0x7F000001;
constexpr size_t kMostAgents = 6;
constexpr int kPatienceMs = 10'000;

// Counts sockets, eventfds and shared memory; the fuzzer itself opens descriptors of other kinds.
size_t open_descriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    std::array<char, 64> target{};
    if (readlinkat(dirfd(directory), entry->d_name, target.data(), target.size() - 1) < 0) continue;
    const std::string kind = target.data();
    count += kind.rfind("socket:", 0) == 0 || kind.rfind("/memfd:", 0) == 0 || kind == "anon_inode:[eventfd]" ? 1 : 0;
  }
  closedir(directory);
  return count;
}

// Created once: no rank is bound to it when an input begins and ends.
struct Target {
  std::string directory = make_directory();
  soft::Switch the_switch{kSlots, kValues};

  Target() {
    the_switch.add_port(kPort, soft::ShmPortSpec{directory + "/switch", 2});
    the_switch.start();
  }
  ~Target() { rmdir(directory.c_str()); }

  static std::string make_directory() {
    std::string name = "/tmp/swml-fuzz-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    return name;
  }
};

struct Answer {
  bool any = false;  // otherwise the switch has disconnected
  channel::ShmAnswer head{};
  std::vector<uint32_t> held;
  std::array<int, channel::kShmDescriptors> descriptors{-1, -1};
};

// One connection to the switch.
class Agent {
 public:
  explicit Agent(const Target& target) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (target.directory + "/switch").copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~Agent() {
    close(socket_);
    if (doorbell_ >= 0) close(doorbell_);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  bool bound() const { return memory_ != nullptr; }

  // Sends bytes, sometimes with an unrequested descriptor, and receives the answer.
  Answer say(const std::vector<uint8_t>& bytes, bool with_descriptor = false) {
    iovec piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (with_descriptor) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &socket_, sizeof socket_);
    }
    if (sendmsg(socket_, &message, MSG_NOSIGNAL) < 0) return {};
    return take();
  }

  // Handles the answer to a bind request: maps the memory.
  void bind(const Answer& answer, uint32_t slots) {
    if (answer.descriptors[0] < 0) return;
    memory_ = std::make_unique<channel::SharedMemory>(
        channel::SharedMemory::map(answer.descriptors[0], channel::SharedMemory::Others::may_write));
    close(answer.descriptors[0]);
    doorbell_ = answer.descriptors[1];
    slots_ = slots;
  }

  void submit(FuzzedDataProvider* input) {
    const channel::Channel process(memory_->data(), slots_, kValues);
    const auto index = static_cast<uint16_t>(input->ConsumeIntegralInRange<uint32_t>(0, slots_ - 1));
    channel::Ticket& ticket = process.contribution_tickets()[index];
    ticket.position = index + slots_ * (pools_[index] += input->ConsumeIntegralInRange<uint32_t>(0, 1));
    ticket.owner = input->ConsumeIntegralInRange<uint8_t>(0, 4);
    ticket.flags = input->ConsumeIntegralInRange<uint8_t>(0, 3);
    ticket.count = (ticket.flags & wire::flag::without_values) != 0 ? 0 : kValues;
    ticket.format = 1;
    process.submission_ring()[submitted_++ % slots_] = index;
    process.control().submitted.store(submitted_);
    eventfd_write(doorbell_, 1);
  }

  void scribble(FuzzedDataProvider* input) {
    const std::vector<uint8_t> bytes = input->ConsumeBytes<uint8_t>(input->ConsumeIntegralInRange<size_t>(1, 16));
    const size_t at = input->ConsumeIntegralInRange<size_t>(0, channel::Channel::bytes(slots_, kValues, true) - 16);
    if (bytes.empty()) return;
    std::memcpy(memory_->data() + at, bytes.data(), bytes.size());
    eventfd_write(doorbell_, 1);
  }

  // Checks the numbers of phases that the switch says a rank holds: one number per slot, never smaller than before, and
  // once the rank is frozen, never larger than what it then held or was told to fetch.
  void check_held(const std::vector<uint32_t>& held, const std::vector<uint32_t>& targets) {
    REQUIRE(held.size() == slots_);
    if (limits_.empty() || targets.empty()) limits_ = held;
    for (size_t slot = 0; slot < held.size(); ++slot) {
      if (!targets.empty()) limits_[slot] = std::max(limits_[slot], targets[slot]);
      REQUIRE(held_.empty() || held[slot] >= held_[slot]);
      REQUIRE(held[slot] <= limits_[slot]);
    }
    held_ = held;
  }

 private:
  Answer take() {
    Answer answer;
    pollfd polled{socket_, POLLIN, 0};
    int ready = -1;
    while ((ready = poll(&polled, 1, kPatienceMs)) < 0 && errno == EINTR) {  // the fuzzer's alarm
    }
    REQUIRE(ready == 1);
    std::vector<uint32_t> held(wire::protocol::max_slot_index + 1);
    std::array<iovec, 2> pieces{{{&answer.head, sizeof answer.head}, {held.data(), held.size() * sizeof(uint32_t)}}};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(channel::kShmDescriptors * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return answer;
    REQUIRE(static_cast<size_t>(got) >= sizeof answer.head && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0);
    REQUIRE(answer.head.magic == channel::ShmAnswer::kMagic && answer.head.port == kPort && answer.head.granted <= 1);
    REQUIRE(answer.head.reason.back() == '\0' && (answer.head.granted == 1) == (answer.head.reason.front() == '\0'));
    answer.any = true;
    held.resize((static_cast<size_t>(got) - sizeof answer.head) / sizeof(uint32_t));
    answer.held = std::move(held);
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      REQUIRE(header->cmsg_len == CMSG_LEN(sizeof answer.descriptors));
      std::memcpy(answer.descriptors.data(), CMSG_DATA(header), sizeof answer.descriptors);
    }
    return answer;
  }

  int socket_;
  std::unique_ptr<channel::SharedMemory> memory_;
  int doorbell_ = -1;
  uint32_t slots_ = 0;
  uint32_t submitted_ = 0;
  std::map<uint16_t, uint32_t> pools_;  // phases that each slot has passed in the stream
  std::vector<uint32_t> held_;          // the switch's last answer
  std::vector<uint32_t> limits_;        // since it was frozen
};

std::vector<uint8_t> bytes_of(const channel::ShmRequest& request, const std::vector<uint32_t>& targets = {}) {
  std::vector<uint8_t> bytes(sizeof request + targets.size() * sizeof(uint32_t));
  std::memcpy(bytes.data(), &request, sizeof request);
  if (!targets.empty()) std::memcpy(bytes.data() + sizeof request, targets.data(), targets.size() * sizeof(uint32_t));
  return bytes;
}

channel::ShmRequest request_of(uint32_t kind) {
  channel::ShmRequest request{};
  request.magic = channel::ShmRequest::kMagic;
  request.kind = kind;
  return request;
}

// A request for a rank of one of two jobs, usually one that is available.
channel::ShmRequest binding(FuzzedDataProvider* input) {
  channel::ShmRequest request = request_of(channel::ShmRequest::kBind);
  request.ipv4 = kAgent;
  request.job = input->ConsumeIntegralInRange<uint16_t>(1, 2);
  request.epoch = input->ConsumeIntegralInRange<uint16_t>(1, 2);
  request.slots = kSlots / 2;
  request.slot_base = static_cast<uint16_t>((request.job - 1) * request.slots);
  request.values = kValues;
  request.world_size = input->ConsumeIntegralInRange<uint8_t>(1, 3);
  request.workers = static_cast<uint8_t>(request.world_size);
  request.worker = input->ConsumeIntegralInRange<uint8_t>(0, 2);
  request.rank = request.worker;
  request.optional_values = input->ConsumeIntegralInRange<uint32_t>(0, 2);
  if (input->ConsumeIntegralInRange<int>(0, 3) != 0) return request;
  switch (input->ConsumeIntegralInRange<int>(0, 5)) {
    case 0:
      request.slots = input->ConsumeIntegral<uint32_t>();
      break;
    case 1:
      request.values = input->ConsumeIntegral<uint32_t>();
      break;
    case 2:
      request.slot_base = input->ConsumeIntegral<uint16_t>();
      break;
    case 3:
      request.job = input->ConsumeIntegral<uint16_t>();
      break;
    case 4:
      request.world_size = input->ConsumeIntegral<uint16_t>();
      break;
    default:
      request.kind = input->ConsumeIntegral<uint32_t>();
  }
  return request;
}

// Lets the switch take the rank's contributions: otherwise its slots stay in flight.
void admit(Target* target, const channel::ShmRequest& request, uint16_t connection) {
  target->the_switch.control([&](soft::Pipeline& pipeline) {
    const soft::SlotMatch match{static_cast<uint16_t>(2 * request.slot_base),
                                static_cast<uint16_t>(~(2 * request.slots - 1)), 1};
    pipeline.tables.set_job(request.job, {match.value, match.mask});
    pipeline.tables.set_rank(request.job, request.worker,
                             {0, kAgent, connection, wire::readers_of(wire::owner::first + request.worker)});
    pipeline.tables.workers.set(
        {kPort, 0, kAgent, connection, request.job, request.worker}, match,
        {uint64_t{1} << request.worker, ~uint64_t{0} >> (64 - request.workers), request.epoch, request.job});
    std::vector<soft::Replica> replicas;
    for (uint8_t rank = 0; rank < request.workers; ++rank) replicas.push_back({kPort, rank});
    pipeline.tables.set_group(request.job, replicas);
  });
}

// Returns whether the switch still serves the agent: it disconnects an agent that fetches nothing.
bool quiesce(Agent* agent, FuzzedDataProvider* input) {
  std::vector<uint32_t> targets;
  channel::ShmRequest request = request_of(channel::ShmRequest::kFreeze);
  if (input->ConsumeBool()) {
    request.kind = channel::ShmRequest::kFetch;
    targets.resize(input->ConsumeIntegralInRange<int>(0, 7) != 0
                       ? kSlots / 2
                       : input->ConsumeIntegralInRange<size_t>(0, 2 * kSlots));
    for (uint32_t& phase : targets) {
      phase = input->ConsumeBool() ? input->ConsumeIntegralInRange<uint32_t>(0, 3) : input->ConsumeIntegral<uint32_t>();
    }
  }
  const Answer answer = agent->say(bytes_of(request, targets));
  REQUIRE(answer.any);
  if (answer.head.granted == 1) agent->check_held(answer.held, targets);
  return request.kind == channel::ShmRequest::kFreeze || !targets.empty();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Target target;
  static const size_t idle = [] { return open_descriptors(); }();
  FuzzedDataProvider input(data, size);
  {
    std::vector<std::unique_ptr<Agent>> agents;
    while (input.remaining_bytes() > 0) {
      if (agents.empty() || (agents.size() < kMostAgents && input.ConsumeIntegralInRange<int>(0, 5) == 0)) {
        agents.push_back(std::make_unique<Agent>(target));
      }
      const size_t at = input.ConsumeIntegralInRange<size_t>(0, agents.size() - 1);
      Agent* agent = agents[at].get();
      bool alive = true;
      switch (input.ConsumeIntegralInRange<int>(0, 9)) {
        case 0:
          alive = false;  // it disconnects
          break;
        case 1: {
          const auto length = input.ConsumeIntegralInRange<size_t>(1, 300);
          std::vector<uint8_t> bytes = input.ConsumeBytes<uint8_t>(length);
          if (bytes.empty()) bytes.push_back(0);
          alive = agent->say(bytes, input.ConsumeBool()).any && false;  // none of these bytes is a request
          break;
        }
        case 2:
        case 3:
        case 4:
          if (agent->bound()) {
            alive = quiesce(agent, &input);
            break;
          }
          [[fallthrough]];
        case 5:
          if (!agent->bound()) {
            const channel::ShmRequest request = binding(&input);
            const Answer answer = agent->say(bytes_of(request), input.ConsumeBool());
            alive = answer.any && answer.head.granted == 1;
            if (alive && request.kind == channel::ShmRequest::kBind) {
              REQUIRE(answer.descriptors[0] >= 0);
              agent->bind(answer, request.slots);
              admit(&target, request, answer.head.connection);
            }
            break;
          }
          [[fallthrough]];
        case 6:
          if (agent->bound()) agent->scribble(&input);
          break;
        default:
          if (agent->bound()) agent->submit(&input);
      }
      if (!alive) agents.erase(agents.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  // The switch notices the ends of connections one after the other, and answers requests in between.
  for (int tries = 0; open_descriptors() > idle; ++tries) {
    REQUIRE(tries < kPatienceMs);
    REQUIRE(Agent(target).say(bytes_of(request_of(channel::ShmRequest::kWhoAreYou))).any);
    poll(nullptr, 0, 1);
  }
  target.the_switch.control([](soft::Pipeline& pipeline) {
    for (size_t half = 0; half < 2 * kSlots; ++half) {
      const soft::SlotValues values = pipeline.slots().state(half).values;
      REQUIRE(values == soft::SlotValues::none || values == soft::SlotValues::in_memory);
    }
  });
  return 0;
}
