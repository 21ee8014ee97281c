// The path of packets over messages, with a device in memory in the place of an RDMA card.
#include "host_agent/native/message_transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host_agent/native/engine.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/wire/rocev2.h"

namespace switchml::agent {
namespace {

constexpr uint32_t kNumber = 0x11;
constexpr uint32_t kSwitch = 0x0A0000FE;
constexpr uint32_t kSecret = 0x85EC2E70;
constexpr uint32_t kSlots = 16;
constexpr uint32_t kValues = 16;
constexpr std::chrono::seconds kDeadline{30};

// The test's end of the device.
struct Wire {
  std::mutex mutex;
  std::vector<std::vector<uint8_t>> sent;
  std::deque<std::vector<uint8_t>> arriving;
  net::EndpointOptions options;
  std::map<const void*, size_t> shared;
  int open = 0;
  int searches = 0;  // for the switches
  std::string lost;
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

  ~Wire() { close(event); }
  void arrive(std::vector<uint8_t> message) {
    const std::lock_guard<std::mutex> lock(mutex);
    arriving.push_back(std::move(message));
    eventfd_write(event, 1);
  }
};

class Endpoint : public net::MessageEndpoint {
 public:
  explicit Endpoint(Wire* wire) : wire_(wire) { ++wire->open; }
  ~Endpoint() override { --wire_->open; }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  uint32_t number() const override { return kNumber; }
  void send(size_t to, const uint8_t* header, size_t header_bytes, const uint8_t* payload,
            size_t payload_bytes) override {
    EXPECT_EQ(to, 0U);
    std::vector<uint8_t> message(header, header + header_bytes);
    message.insert(message.end(), payload, payload + payload_bytes);
    const std::lock_guard<std::mutex> lock(wire_->mutex);
    wire_->sent.push_back(std::move(message));
  }
  void flush() override {}
  void finish_sending() override {}
  size_t receive(std::array<net::Message, kBurst>* messages) override {
    const std::lock_guard<std::mutex> lock(wire_->mutex);
    eventfd_t count = 0;
    eventfd_read(wire_->event, &count);
    lent_.clear();
    while (!wire_->arriving.empty() && lent_.size() < kBurst) {
      lent_.push_back(std::move(wire_->arriving.front()));
      wire_->arriving.pop_front();
    }
    for (size_t i = 0; i < lent_.size(); ++i) (*messages)[i] = {lent_[i].data(), lent_[i].size(), kSwitch};
    return lent_.size();
  }
  int fd() const override { return wire_->event; }
  bool prepare_sleep() override {
    const std::lock_guard<std::mutex> lock(wire_->mutex);
    return wire_->arriving.empty();
  }
  void find_switches_again() override {
    const std::lock_guard<std::mutex> lock(wire_->mutex);
    ++wire_->searches;
  }

 private:
  Wire* wire_;
  std::vector<std::vector<uint8_t>> lent_;
};

class Device : public net::MessageDevice {
 public:
  explicit Device(Wire* wire, size_t largest) : wire_(wire), largest_(largest) {}

  const std::string& name() const override { return name_; }
  size_t largest_message() const override { return largest_; }
  counters::Device counters() const override { return {}; }
  counters::Link link_counters() const override { return {}; }
  std::unique_ptr<net::MessageEndpoint> open(const net::EndpointOptions& options) override {
    wire_->options = options;
    return std::make_unique<Endpoint>(wire_);
  }
  void share(const std::shared_ptr<void>& memory, size_t bytes) override { wire_->shared[memory.get()] = bytes; }
  void unshare(const void* memory) override { wire_->shared.erase(memory); }
  std::string lost() const override { return wire_->lost; }
  int lost_fd() const override { return wire_->event; }

 private:
  Wire* wire_;
  size_t largest_;
  std::string name_ = "card/1";
};

class MessagePath : public testing::Test {
 protected:
  static RankAssignment assignment() {
    RankAssignment one{"10.0.0.1", "10.0.0.254", wire::protocol::udp_port, 1, 0, 0, 1, 1, 0, kSlots, kValues, ""};
    one.secret = kSecret;
    one.dscp = 46;
    return one;
  }
  std::unique_ptr<Engine> engine(size_t largest, unsigned threads = 1) {
    return std::make_unique<Engine>(threads, std::make_unique<Device>(&wire_, largest));
  }
  // Waits until a condition on the wire is true, and returns whether it is.
  template <class Condition>
  bool comes_true(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < end) {
      {
        const std::lock_guard<std::mutex> lock(wire_.mutex);
        if (condition()) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // Returns the first message that was sent, once there is one.
  std::vector<uint8_t> sent() {
    return comes_true([this] { return !wire_.sent.empty(); }) ? wire_.sent.front() : std::vector<uint8_t>{};
  }
  // Submits the first contribution as the rank's process.
  static void contribute(const channel::Channel& process, int doorbell) {
    process.contribution_tickets()[0] = {0, 0, 0, 0, kValues, static_cast<uint16_t>(wire::Format::int32), 0, 0};
    process.submission_ring()[0] = 0;
    process.control().submitted.store(1, std::memory_order_release);
    eventfd_write(doorbell, 1);
  }

  Wire wire_;
};

TEST_F(MessagePath, AnEndpointKnowsItsJob) {
  const auto agent = engine(4096);
  const uint64_t handle = agent->open_rank(assignment());
  EXPECT_EQ(agent->rank(handle)->sender(), wire::kIsQueuePair | kNumber);
  EXPECT_EQ(wire_.options.queue_key, kSecret);
  EXPECT_EQ(wire_.options.traffic_class, 46U << 2U);
  EXPECT_EQ(wire_.options.switches, std::vector<uint32_t>{kSwitch});
  EXPECT_EQ(wire_.open, 1);
  agent->close_rank(handle);
  EXPECT_EQ(wire_.open, 0);
}

TEST_F(MessagePath, PacketsMustFitAMessage) {
  const auto agent = engine(wire::protocol::header_bytes + 4 * kValues - 1);
  EXPECT_THROW(agent->open_rank(assignment()), std::invalid_argument);
  RankAssignment group = assignment();
  group.multicast_address = "239.1.1.1";
  EXPECT_THROW(engine(4096)->open_rank(group), std::invalid_argument);
  EXPECT_THROW(engine(4096, 2), std::invalid_argument);
  EXPECT_EQ(wire_.open, 0);
}

TEST_F(MessagePath, ContributionsLeaveAndResultsArrive) {
  const auto agent = engine(4096);
  agent->start();
  const uint64_t handle = agent->open_rank(assignment());
  const std::vector<int> descriptors = agent->rank(handle)->open_channel();
  ASSERT_EQ(descriptors.size(), 3U);
  EXPECT_EQ(wire_.shared.size(), 1U);
  const auto memory = channel::SharedMemory::map(descriptors[0], channel::SharedMemory::Others::may_write);
  const auto results = channel::SharedMemory::map(descriptors[2], channel::SharedMemory::Others::may_read);
  const channel::Channel process(memory.data(), kSlots, kValues, results.data());

  std::memset(process.contribution(0), 7, 4 * kValues);
  contribute(process, descriptors[1]);
  std::vector<uint8_t> message = sent();
  ASSERT_EQ(message.size(), wire::protocol::header_bytes + 4 * kValues);
  EXPECT_EQ(message.back(), 7);

  wire::Header header = wire::load_header(message.data());
  EXPECT_EQ(header.slot >> 1U, 0U);
  header.kind = static_cast<uint8_t>(wire::Kind::result);
  wire::store_header(message.data(), header);
  message.back() = 9;
  wire_.arrive(message);
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (process.control().completed.load(std::memory_order_acquire) == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(process.control().completed.load(), 1U);
  EXPECT_EQ(process.result(0)[4 * kValues - 1], 9);
  for (const int descriptor : descriptors) close(descriptor);
  agent->close_rank(handle);
  EXPECT_TRUE(wire_.shared.empty());
  agent->stop();
}

TEST_F(MessagePath, ASilentSwitchIsLookedForAgain) {
  const auto agent = engine(4096);
  agent->start();
  const uint64_t handle = agent->open_rank(assignment());
  const std::vector<int> descriptors = agent->rank(handle)->open_channel();
  const auto memory = channel::SharedMemory::map(descriptors[0], channel::SharedMemory::Others::may_write);
  const auto results = channel::SharedMemory::map(descriptors[2], channel::SharedMemory::Others::may_read);
  contribute(channel::Channel(memory.data(), kSlots, kValues, results.data()), descriptors[1]);
  // Each timeout sends the contribution again, and the third one is the first that looks for the switch.
  size_t sent_before = 0;
  EXPECT_TRUE(comes_true([&] {
    if (wire_.searches == 0) sent_before = wire_.sent.size();
    return wire_.searches >= 2;
  }));
  EXPECT_GE(sent_before, 3U);
  for (const int descriptor : descriptors) close(descriptor);
  agent->close_rank(handle);
  agent->stop();
}

TEST_F(MessagePath, AnEngineSaysWhyItsDeviceIsLost) {
  const auto agent = engine(4096);
  EXPECT_EQ(agent->lost_fd(), wire_.event);
  EXPECT_EQ(agent->lost(), "");
  wire_.lost = "it was removed";
  EXPECT_EQ(agent->lost(), "it was removed");
  EXPECT_EQ(Engine(1).lost_fd(), -1);
  EXPECT_EQ(Engine(1).lost(), "");
}

}  // namespace
}  // namespace switchml::agent
