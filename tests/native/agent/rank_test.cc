// The behaviour that ranks of an agent share on all transports, tested with a switch in this process.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "dataplane/softswitch/native/runtime/switch.h"
#include "host_agent/native/engine.h"
#include "host_agent/native/shared_memory_rank.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/channel/shm_messages.h"

namespace switchml::agent {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kValues = 64;
constexpr uint32_t kSlotUses = 1 << 20;
constexpr std::chrono::seconds kDeadline{20};

void wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string make_directory() {
  std::string name = "/tmp/swml-ranks-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp");
  return name;
}

class Ranks : public testing::TestWithParam<const char*> {
 protected:
  Ranks() {
    udp_port_ = switch_->add_port(1, soft::UdpPortSpec{"127.0.0.1"});
    switch_->add_port(2, soft::ShmPortSpec{path_});
    switch_->start();
    engine_.start();
  }
  ~Ranks() override {
    engine_.stop();
    switch_.reset();
    rmdir(directory_.c_str());
  }

  uint64_t open(uint16_t job = 1) {
    const auto slot_base = static_cast<uint16_t>((job - 1) * kSlots);
    const RankAssignment assignment{"127.0.0.1", "127.0.0.1", udp_port_, job,    0,       0,
                                    1,           1,           slot_base, kSlots, kValues, ""};
    return shared_memory() ? engine_.open_shm_rank(path_, assignment) : engine_.open_rank(assignment);
  }
  bool shared_memory() const { return std::string(GetParam()) == "shared_memory"; }

  std::string directory_ = make_directory();
  std::string path_ = directory_ + "/switch";
  std::unique_ptr<soft::Switch> switch_ = std::make_unique<soft::Switch>(4 * kSlots, kValues);
  uint16_t udp_port_ = 0;
  Engine engine_{1, {}, kSlotUses};
};

INSTANTIATE_TEST_SUITE_P(Transports, Ranks, testing::Values("udp", "shared_memory"),
                         [](const auto& each) { return each.param; });

TEST_P(Ranks, HaveANumberForTheWorkerTable) { EXPECT_NE(engine_.rank(open())->sender(), 0); }

TEST_P(Ranks, KnowThatTheirSwitchIsThere) {
  const auto rank = engine_.rank(open());
  EXPECT_FALSE(rank->switch_ended());
  EXPECT_EQ(rank->switch_socket() >= 0, shared_memory());
}

TEST_P(Ranks, OpenOneChannel) {
  const auto rank = engine_.rank(open());
  const std::vector<int> descriptors = rank->open_channel();
  ASSERT_GE(descriptors.size(), 2U);
  EXPECT_THROW(rank->open_channel(), std::logic_error);
  const auto memory = channel::SharedMemory::map(descriptors[0], channel::SharedMemory::Others::may_write);
  const channel::Channel process(memory.data(), kSlots, kValues);
  EXPECT_EQ(process.control().geometry.magic, channel::Geometry::kMagic);
  EXPECT_EQ(process.control().geometry.slots, kSlots);
  EXPECT_EQ(process.control().geometry.values, kValues);
  for (const int descriptor : descriptors) EXPECT_EQ(close(descriptor), 0);
}

// Submits one contribution without values, as the process that has these descriptors.
void submit(const std::vector<int>& descriptors) {
  const auto memory = channel::SharedMemory::map(descriptors[0], channel::SharedMemory::Others::may_write);
  const channel::Channel process(memory.data(), kSlots, kValues);
  process.contribution_tickets()[3] = {3, 3, 0, 0, 0, 1, wire::owner::everyone, wire::flag::without_values};
  process.submission_ring()[0] = 3;
  process.control().submitted.store(1);
  channel::ring(descriptors[1]);
}

TEST_P(Ranks, SendWhatTheirProcessSubmits) {
  const auto rank = engine_.rank(open());
  EXPECT_EQ(rank->status().position, 0U);
  const std::vector<int> descriptors = rank->open_channel();
  submit(descriptors);
  wait_until([&] { return rank->status().sent > 0; });
  EXPECT_EQ(rank->status().position, 1U);
  EXPECT_EQ(rank->status().received, 0U);  // the switch has no entry for it
  EXPECT_FALSE(rank->status().epoch_spent);
  EXPECT_GT(rank->profile(0).taken_at, 0U);
  for (const int descriptor : descriptors) close(descriptor);
}

TEST_P(Ranks, SendNoPacketWhileTheirJobIsPaused) {
  const auto rank = engine_.rank(open());
  const std::vector<int> descriptors = rank->open_channel();
  rank->pause(true);
  submit(descriptors);
  if (!shared_memory()) {
    for (int round = 0; round < 3; ++round) rank->pause(true);  // the data thread makes a round between two of these
    EXPECT_EQ(rank->status().sent, 0U);
    rank->pause(false);
  }
  wait_until([&] { return rank->status().sent > 0; });
  for (const int descriptor : descriptors) close(descriptor);
}

TEST_P(Ranks, FetchOnceTheyAreFrozen) {
  const auto rank = engine_.rank(open());
  const std::vector<uint32_t> nothing(kSlots);
  EXPECT_THROW(rank->fetch(nothing), std::invalid_argument);
  EXPECT_EQ(rank->freeze(), nothing);
  EXPECT_EQ(rank->fetch(nothing), nothing);
  EXPECT_THROW(rank->fetch(std::vector<uint32_t>(kSlots - 1)), std::invalid_argument);
}

TEST_P(Ranks, AreOpenOnce) {
  const uint64_t handle = open();
  EXPECT_THROW(open(), std::invalid_argument);
  const uint64_t other = open(2);
  EXPECT_NE(other, handle);
  EXPECT_NO_THROW(engine_.rank(other));
}

TEST_P(Ranks, CanBeOpenedAgainOnceTheyAreClosed) {
  engine_.close_rank(open());
  // The switch notices the end of a connection in a separate thread.
  wait_until([&] {
    try {
      open();
      return true;
    } catch (const std::invalid_argument&) {
      return false;
    }
  });
}

TEST_P(Ranks, HaveNoHandleOnceTheyAreClosed) {
  const uint64_t handle = open();
  engine_.close_rank(handle);
  EXPECT_THROW(engine_.rank(handle), std::out_of_range);
  EXPECT_THROW(engine_.close_rank(handle), std::out_of_range);
  EXPECT_THROW(engine_.rank(handle + 1), std::out_of_range);
}

// Another thread may still use a rank that is being closed.
TEST_P(Ranks, OnlyTellWhatTheyCountedOnceTheyAreClosed) {
  const uint64_t handle = open();
  const auto rank = engine_.rank(handle);
  engine_.close_rank(handle);
  EXPECT_EQ(rank->status().sent, 0U);
  EXPECT_THROW(rank->open_channel(), std::out_of_range);
  EXPECT_THROW(rank->freeze(), std::out_of_range);
  EXPECT_THROW(rank->fetch(std::vector<uint32_t>(kSlots)), std::out_of_range);
  rank->close();
}

TEST_P(Ranks, OverSharedMemorySeeTheirSwitchEnd) {
  const auto rank = engine_.rank(open());
  switch_.reset();
  EXPECT_EQ(rank->switch_ended(), shared_memory());
  EXPECT_NO_THROW(rank->status());
}

std::atomic<int> interruptions{0};

// A stopped process that continues has the same effect on a call with a time limit as a signal handler.
TEST(ShmConnectors, AskUntilTheSwitchAnswersAlthoughSignalsInterruptThem) {
  const std::string directory = make_directory();
  const std::string path = directory + "/switch";
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  struct sigaction action{};
  action.sa_handler = [](int) { ++interruptions; };
  struct sigaction before{};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);

  uint16_t port = 0;
  std::thread asker([&] { EXPECT_NO_THROW(port = shm_port_at(path)); });
  const int agent = accept(listener, nullptr, nullptr);
  channel::ShmRequest request{};
  EXPECT_EQ(recv(agent, &request, sizeof request, 0), static_cast<ssize_t>(sizeof request));
  for (int number = 1; number <= 20 && !HasFailure(); ++number) {  // most of them come while it waits for the answer
    EXPECT_EQ(pthread_kill(asker.native_handle(), SIGUSR1), 0);
    wait_until([&] { return interruptions >= number; });
  }
  const channel::ShmAnswer answer{channel::ShmAnswer::kMagic, 1, 7, 0, {}};
  EXPECT_EQ(send(agent, &answer, sizeof answer, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof answer));
  asker.join();
  EXPECT_EQ(port, 7);

  sigaction(SIGUSR1, &before, nullptr);
  close(agent);
  close(listener);
  unlink(path.c_str());
  rmdir(directory.c_str());
}

}  // namespace
}  // namespace switchml::agent
