#include "host_agent/native/arp_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "native/wire/frame_headers.h"

namespace switchml::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kOurs = 0x0A000001;
constexpr uint32_t kSwitch = 0x0A0000FE;
constexpr uint32_t kStranger = 0x0A000063;
constexpr uint64_t kOurMac = 0x020000000001;
constexpr uint64_t kSwitchMac = 0x0200000000FE;
constexpr uint64_t kOtherMac = 0x020000000042;
constexpr uint64_t kBroadcast = 0xFFFFFFFFFFFF;
constexpr size_t kFrameBytes = wire::ethernet::bytes + wire::arp::bytes;

struct Message {
  uint64_t eth_dst;
  uint16_t operation;
  uint64_t sender_mac;
  uint32_t sender_ip;
  uint64_t target_mac;
  uint32_t target_ip;
};

// Keeps the ARP messages that are sent over it.
class FakeDevice : public net::FrameDevice {
 public:
  const std::string& name() const override { return name_; }
  uint64_t mac() const override { return kOurMac; }
  size_t largest_frame() const override { return 1514; }
  const std::string& kernel_interface() const override { return kernel_interface_; }
  void accept_udp_port(uint16_t /*port*/, bool /*accept*/) override {}
  net::FrameDeviceCounters counters() const override { return {}; }
  void enter_thread() override {}
  void leave_thread() override {}
  size_t receive(net::Datagram* /*frames*/) override { return 0; }
  uint64_t take_handed_to() override { return 0; }
  void send(const net::FrameHeaders& headers, const uint8_t* /*payload*/, size_t payload_bytes,
            net::Checksums checksums) override {
    ASSERT_EQ(headers.bytes, kFrameBytes);
    EXPECT_EQ(headers.count, 1U);
    EXPECT_EQ(payload_bytes, 0U);
    EXPECT_EQ(checksums, net::Checksums::finished);
    const uint8_t* message = headers.first + wire::ethernet::bytes;
    EXPECT_EQ(wire::load16(headers.first + wire::ethernet::type), wire::ethernet::type_arp);
    sent.push_back({wire::load48(headers.first + wire::ethernet::dst), wire::load16(message + wire::arp::operation),
                    wire::load48(message + wire::arp::sender_mac), wire::load32(message + wire::arp::sender_ip),
                    wire::load48(message + wire::arp::target_mac), wire::load32(message + wire::arp::target_ip)});
  }
  void flush() override {}
  void share(const std::shared_ptr<void>& /*memory*/, size_t /*bytes*/) override {}
  void unshare(const void* /*memory*/) override {}
  int fd() const override { return -1; }
  bool prepare_sleep() override { return true; }
  void end_sleep() override {}

  std::vector<Message> sent;

 private:
  std::string name_ = "fake";
  std::string kernel_interface_;
};

class Arp : public testing::Test {
 protected:
  std::optional<uint64_t> resolve() { return cache_.resolve(kSwitch, &device_, now_); }
  void receive(uint16_t operation, uint64_t sender_mac, uint32_t sender_ip, uint32_t target_ip = kOurs) {
    std::array<uint8_t, kFrameBytes> frame{};
    wire::store16(&frame[wire::ethernet::type], wire::ethernet::type_arp);
    uint8_t* message = &frame[wire::ethernet::bytes];
    wire::store16(message + wire::arp::hardware_type, wire::arp::hardware_ethernet);
    wire::store16(message + wire::arp::protocol_type, wire::ethernet::type_ipv4);
    wire::store16(message + wire::arp::lengths, wire::arp::lengths_of_mac_and_ipv4);
    wire::store16(message + wire::arp::operation, operation);
    wire::store48(message + wire::arp::sender_mac, sender_mac);
    wire::store32(message + wire::arp::sender_ip, sender_ip);
    wire::store32(message + wire::arp::target_ip, target_ip);
    cache_.receive(frame.data(), frame.size(), &device_, now_);
  }
  void resolve_switch() {
    resolve();
    receive(wire::arp::reply, kSwitchMac, kSwitch);
    ASSERT_EQ(resolve(), kSwitchMac);
    device_.sent.clear();
  }

  FakeDevice device_;
  ArpCache cache_{kOurs, std::nullopt};
  ArpCache::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(Arp, RequestsAnUnknownAddressFromAll) {
  EXPECT_EQ(resolve(), std::nullopt);
  ASSERT_EQ(device_.sent.size(), 1U);
  const Message& request = device_.sent.front();
  EXPECT_EQ(request.eth_dst, kBroadcast);
  EXPECT_EQ(request.operation, wire::arp::request);
  EXPECT_EQ(request.sender_mac, kOurMac);
  EXPECT_EQ(request.sender_ip, kOurs);
  EXPECT_EQ(request.target_ip, kSwitch);
}

TEST_F(Arp, ReplyResolvesTheAddress) {
  resolve();
  receive(wire::arp::reply, kSwitchMac, kSwitch);
  EXPECT_EQ(resolve(), kSwitchMac);
  EXPECT_EQ(device_.sent.size(), 1U);
}

TEST_F(Arp, RequestIsRetriedEveryTwentyMilliseconds) {
  resolve();
  now_ += milliseconds(19);
  resolve();
  EXPECT_EQ(device_.sent.size(), 1U);
  now_ += milliseconds(1);
  resolve();
  EXPECT_EQ(device_.sent.size(), 2U);
}

TEST_F(Arp, ResolvedAddressIsRefreshedAfterThirtySeconds) {
  resolve_switch();
  now_ += milliseconds(29'999);
  EXPECT_EQ(resolve(), kSwitchMac);
  EXPECT_TRUE(device_.sent.empty());
  now_ += milliseconds(1);
  EXPECT_EQ(resolve(), kSwitchMac);  // still used
  EXPECT_EQ(device_.sent.size(), 1U);
  EXPECT_EQ(resolve(), kSwitchMac);
  EXPECT_EQ(device_.sent.size(), 1U);
  now_ += seconds(1);
  resolve();
  EXPECT_EQ(device_.sent.size(), 2U);
  receive(wire::arp::reply, kOtherMac, kSwitch);
  EXPECT_EQ(resolve(), kOtherMac);
}

TEST_F(Arp, UnsolicitedRepliesAreIgnored) {
  receive(wire::arp::reply, kOtherMac, kSwitch);
  EXPECT_EQ(resolve(), std::nullopt);
  receive(wire::arp::reply, kOtherMac, kStranger);
  receive(wire::arp::reply, kSwitchMac, kSwitch);
  receive(wire::arp::reply, kOtherMac, kSwitch);  // the request has its reply
  EXPECT_EQ(resolve(), kSwitchMac);
}

TEST_F(Arp, ReplyToAnotherHostIsIgnored) {
  resolve();
  receive(wire::arp::reply, kSwitchMac, kSwitch, kStranger);
  EXPECT_EQ(resolve(), std::nullopt);
}

TEST_F(Arp, RequestForOurAddressIsAnswered) {
  receive(wire::arp::request, kOtherMac, kStranger);
  ASSERT_EQ(device_.sent.size(), 1U);
  const Message& reply = device_.sent.front();
  EXPECT_EQ(reply.operation, wire::arp::reply);
  EXPECT_EQ(reply.eth_dst, kOtherMac);
  EXPECT_EQ(reply.sender_mac, kOurMac);
  EXPECT_EQ(reply.target_ip, kStranger);
  receive(wire::arp::request, kOtherMac, kStranger, kSwitch);
  EXPECT_EQ(device_.sent.size(), 1U);
}

TEST_F(Arp, ShortFramesAreIgnored) {
  const std::array<uint8_t, kFrameBytes - 1> frame{};
  cache_.receive(frame.data(), frame.size(), &device_, now_);
  EXPECT_TRUE(device_.sent.empty());
}

TEST_F(Arp, NextHopIsEveryAddress) {
  ArpCache routed{kOurs, kOtherMac};
  EXPECT_EQ(routed.resolve(kSwitch, &device_, now_), kOtherMac);
  EXPECT_EQ(routed.resolve(kStranger, &device_, now_), kOtherMac);
  EXPECT_TRUE(device_.sent.empty());
}

}  // namespace
}  // namespace switchml::agent
