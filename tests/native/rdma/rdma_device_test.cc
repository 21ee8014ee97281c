// The use of libibverbs, with a card in memory in its place.
#include "native/net/rdma/rdma_device.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "native/net/rdma/rdma_gids.h"
#include "native/wire/rocev2.h"
#include "tests/native/rdma/fake_verbs.h"

namespace switchml::net {
namespace {

constexpr uint32_t kAddress = 0x0A000001;
constexpr uint32_t kSwitch = 0x0A0000FE;
constexpr uint32_t kSecret = 0x85EC2E70;
constexpr size_t kBuffers = 1024;
constexpr std::chrono::seconds kDeadline{30};

// Waits until a condition is true, and returns whether it is.
template <class Condition>
bool comes_true(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Returns what the exception says that a function throws, or nothing.
template <class Function>
std::string refusal(Function&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

EndpointOptions options(uint32_t secret = kSecret) { return {secret, 0, {kSwitch}}; }

class RdmaCard : public testing::Test {
 protected:
  std::unique_ptr<RdmaDevice> opened() { return std::make_unique<RdmaDevice>("card0", 1, kAddress); }
  std::string refused_device() {
    return refusal([&] { opened(); });
  }
  // Returns what receive() returns, and copies of the messages.
  static std::vector<std::vector<uint8_t>> received(MessageEndpoint* endpoint) {
    std::array<Message, MessageEndpoint::kBurst> messages;
    std::vector<std::vector<uint8_t>> found;
    const size_t count = endpoint->receive(&messages);
    for (size_t i = 0; i < count; ++i) found.emplace_back(messages[i].data, messages[i].data + messages[i].length);
    return found;
  }
  static void send(MessageEndpoint* endpoint, uint8_t value = 1) {
    endpoint->send(0, &value, 1, nullptr, 0);
    endpoint->flush();
  }
  template <class Value>
  Value of_card(Value FakeCard::* member) {
    const std::lock_guard<std::mutex> lock(card_.mutex);
    return card_.*member;
  }
  template <class Value>
  void set(Value FakeCard::* member, Value value) {
    const std::lock_guard<std::mutex> lock(card_.mutex);
    card_.*member = std::move(value);
  }
  size_t ways_made() { return of_card(&FakeCard::ways).size(); }

  FakeCard card_;
  const std::vector<uint8_t> message_ = std::vector<uint8_t>(96, 5);
};

TEST_F(RdmaCard, IsRefusedOnInfiniBand) {
  card_.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_EQ(refused_device(), "RDMA device card0/1 is on InfiniBand; only RoCEv2, over Ethernet, is supported");
  EXPECT_EQ(list_ports().at(0).state, "InfiniBand");
}

TEST_F(RdmaCard, IsRefusedWithoutAccessToItsFile) {
  card_.open_error = EACCES;
  EXPECT_EQ(refused_device(),
            "RDMA device card0 cannot be opened; it takes access to /dev/infiniband/uverbs*: Permission denied");
  EXPECT_EQ(list_ports().at(0).state, refused_device());
}

TEST_F(RdmaCard, IsRefusedWhileItsLinkIsDown) {
  card_.state = IBV_PORT_DOWN;
  EXPECT_EQ(refused_device(), "port card0/1 is down; set its network interface up, and check the cable");
}

TEST_F(RdmaCard, IsRefusedWithoutTheAddress) {
  card_.gids[1].gid = gid_of(0x0A000009);
  card_.gids[2].gid.raw[15] = 1;
  card_.gids[2].gid_type = IBV_GID_TYPE_ROCE_V2;
  const std::string missing = "port card0/1 has no RoCEv2 address (GID) for 10.0.0.1, the agent's --address; it has ";
  EXPECT_EQ(refused_device(), missing + "10.0.0.9, ::1");
  card_.gids[1] = card_.gids[2];
  card_.gids[1].gid = gid_of(kAddress);
  card_.gids[1].gid_type = IBV_GID_TYPE_ROCE_V1;
  EXPECT_EQ(refused_device(), missing + "::1");
  card_.gids.clear();
  EXPECT_EQ(refused_device(), missing + "none");
}

TEST_F(RdmaCard, NamesTheLimitOfLockedMemory) {
  const auto device = opened();
  card_.may_lock = size_t{64} << 10U;
  const std::string reason =
      " bytes cannot be registered with card0/1; raise the limit of locked memory (ulimit -l, LimitMEMLOCK=): Cannot "
      "allocate memory";
  EXPECT_EQ(refusal([&] { device->open(options()); }), std::to_string(kBuffers * (40 + 1024)) + reason);
  const auto memory = std::make_shared<std::vector<uint8_t>>(card_.may_lock + 1);
  EXPECT_EQ(refusal([&] { device->share({memory, memory->data()}, memory->size()); }), "65537" + reason);
}

TEST_F(RdmaCard, NamesTheSwitchThatDoesNotAnswer) {
  const auto device = opened();
  card_.way_error = ETIMEDOUT;
  EXPECT_EQ(refusal([&] { device->open(options()); }),
            "there is no way from card0/1 to the switch at 10.0.0.254; it, or the router to it, must answer ARP: "
            "Connection timed out");
}

TEST_F(RdmaCard, EachEpochHasAnotherKey) {
  const auto device = opened();
  auto endpoint = device->open(options());
  send(endpoint.get());
  EXPECT_EQ(card_.queue_key, kSecret & 0x7FFFFFFFU);
  EXPECT_EQ(card_.sent.back().queue_key, kSecret & 0x7FFFFFFFU);
  endpoint = device->open(options(kSecret + 1));
  EXPECT_EQ(card_.queue_key, (kSecret & 0x7FFFFFFFU) + 1);
}

TEST_F(RdmaCard, TakesOnlyWhatASwitchHasSent) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  card_.arrive(kSwitch + 1, message_);
  card_.arrive(kSwitch, message_, [](ibv_wc* one) { one->src_qp += 1; });
  EXPECT_TRUE(received(endpoint.get()).empty());
  EXPECT_EQ(device->link_counters().not_for_us, 2U);
  card_.arrive(kSwitch, message_, [](ibv_wc* one) { one->wc_flags = 0; });
  card_.arrive(kSwitch, message_, [](ibv_wc* one) { one->byte_len = 39; });
  EXPECT_TRUE(received(endpoint.get()).empty());
  EXPECT_EQ(device->link_counters().malformed, 2U);
  card_.arrive(kSwitch, {});
  card_.arrive(kSwitch, message_);
  EXPECT_EQ(received(endpoint.get()), (std::vector<std::vector<uint8_t>>{{}, message_}));
  EXPECT_EQ(device->counters().received, 2U);
}

// All errors that a request can end with.
class RdmaStatus : public RdmaCard, public testing::WithParamInterface<int> {
 protected:
  // The queue pair works, as it did before the error.
  void expect_works(MessageEndpoint* endpoint, uint32_t number) {
    EXPECT_EQ(card_.pair_state, IBV_QPS_RTS);
    EXPECT_EQ(endpoint->number(), number);
    EXPECT_EQ(card_.buffers.size(), kBuffers);
    card_.arrive(kSwitch, message_);
    EXPECT_EQ(received(endpoint).size(), 1U);
    card_.sent.clear();
    send(endpoint);
    EXPECT_EQ(card_.sent.size(), 1U);
    EXPECT_EQ(card_.pair_state, IBV_QPS_RTS);
  }
  static ibv_wc_status status() { return static_cast<ibv_wc_status>(GetParam()); }
};

TEST_P(RdmaStatus, OfASendStartsTheQueuePairAgain) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  const uint32_t number = endpoint->number();
  card_.send_status = status();
  send(endpoint.get());
  card_.send_status = IBV_WC_SUCCESS;
  EXPECT_EQ(card_.pair_state, IBV_QPS_ERR);
  EXPECT_TRUE(received(endpoint.get()).empty());
  EXPECT_EQ(device->counters().send_errors, 1U);
  expect_works(endpoint.get(), number);
}

TEST_P(RdmaStatus, OfAReceiveStartsTheQueuePairAgain) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  const uint32_t number = endpoint->number();
  card_.fail_receive(status());
  EXPECT_TRUE(received(endpoint.get()).empty());  // finds out
  EXPECT_TRUE(received(endpoint.get()).empty());  // starts again
  EXPECT_GE(device->counters().receive_errors, 1U);
  expect_works(endpoint.get(), number);
}

INSTANTIATE_TEST_SUITE_P(Each, RdmaStatus, testing::Range<int>(IBV_WC_SUCCESS + 1, IBV_WC_TM_RNDV_INCOMPLETE + 1));

TEST_F(RdmaCard, AWayIsRenewedWhenTheSwitchIsSilent) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  set(&FakeCard::holds_completions, true);
  send(endpoint.get());
  endpoint->find_switches_again();
  ASSERT_TRUE(comes_true([&] { return ways_made() == 2; }));
  ASSERT_TRUE(comes_true([&] {
    received(endpoint.get());
    send(endpoint.get());
    return card_.sent.back().way != card_.sent.front().way;
  }));
  EXPECT_EQ(card_.living_ways, 2);  // the first message has not left
  set(&FakeCard::holds_completions, false);
  received(endpoint.get());
  EXPECT_EQ(card_.living_ways, 1);
}

TEST_F(RdmaCard, ASwitchThatDoesNotAnswerKeepsItsWay) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  set(&FakeCard::way_error, ETIMEDOUT);
  for (const int refused : {1, 2}) {  // at the second time the first one has ended
    endpoint->find_switches_again();
    ASSERT_TRUE(comes_true([&] { return of_card(&FakeCard::ways_refused) == refused; }));
  }
  received(endpoint.get());
  send(endpoint.get());
  EXPECT_NE(card_.sent.back().way, nullptr);
  EXPECT_EQ(card_.living_ways, 1);
  set(&FakeCard::way_error, 0);
  endpoint->find_switches_again();
  EXPECT_TRUE(comes_true([&] { return ways_made() == 2; }));
}

TEST_F(RdmaCard, EventsOfThePortRenewTheWay) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  card_.report(IBV_EVENT_PORT_ERR);
  card_.report(IBV_EVENT_PORT_ACTIVE);
  ASSERT_TRUE(comes_true([&] { return ways_made() == 2; }));
  {
    const std::lock_guard<std::mutex> lock(card_.mutex);
    card_.gids[5] = card_.gids[1];
    card_.gids.erase(1);
  }
  card_.report(IBV_EVENT_GID_CHANGE);
  ASSERT_TRUE(comes_true([&] { return ways_made() == 3; }));
  EXPECT_EQ(of_card(&FakeCard::ways).back().grh.sgid_index, 5);
  EXPECT_EQ(device->lost(), "");
}

class LostRdmaCard : public RdmaCard {
 protected:
  static bool says_lost(const MessageDevice& device) {
    pollfd one{device.lost_fd(), POLLIN, 0};
    const bool readable = poll(&one, 1, 0) == 1;
    EXPECT_EQ(device.lost().empty(), !readable);
    return readable;
  }
};

TEST_F(LostRdmaCard, SaysThatItWasRemoved) {
  const auto device = opened();
  EXPECT_FALSE(says_lost(*device));
  card_.report(IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(comes_true([&] { return !device->lost().empty(); }));
  EXPECT_TRUE(says_lost(*device));
  EXPECT_EQ(device->lost(), "RDMA device card0/1 was removed, or has failed");
}

TEST_F(LostRdmaCard, SaysThatAQueuePairCannotStartAgain) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  card_.remove();
  ASSERT_TRUE(comes_true([&] {
    received(endpoint.get());
    return !device->lost().empty();
  }));
  EXPECT_EQ(device->lost(),
            "a queue pair of RDMA device card0/1 has failed and cannot start again: Input/output error");
}

TEST_F(LostRdmaCard, WaitsForItsAddressToReturn) {
  const auto device = opened();
  const auto endpoint = device->open(options());
  set(&FakeCard::gids, {});
  card_.report(IBV_EVENT_GID_CHANGE);
  ASSERT_TRUE(comes_true([&] { return !device->lost().empty(); }));
  EXPECT_EQ(device->lost(), "RDMA port card0/1 has lost its RoCEv2 address (GID) for 10.0.0.1");
}

}  // namespace
}  // namespace switchml::net
