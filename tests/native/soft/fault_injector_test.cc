#include "dataplane/softswitch/native/ports/fault_injector.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace switchml::soft {
namespace {

using Clock = std::chrono::steady_clock;
using Fate = FaultInjector::Fate;

constexpr size_t kHeaderBytes = 8;
constexpr size_t kPayloadBytes = 24;

FaultRates rates(double drop, double duplicate, double delay, double flip = 0) {
  FaultRates all;
  all.drop = drop;
  all.duplicate = duplicate;
  all.delay = delay;
  all.flip = flip;
  return all;
}

// Packets are distinguished by their first byte.
class Faults : public testing::Test {
 protected:
  Faults() : packet_(kHeaderBytes + kPayloadBytes) { std::iota(packet_.begin(), packet_.end(), uint8_t{0}); }

  Fate decide(uint8_t number = 0, size_t sheltered = 0) {
    packet_[0] = number;
    return injector_.decide(packet_.data(), kHeaderBytes, packet_.data() + kHeaderBytes, kPayloadBytes, peer_,
                            sheltered);
  }
  std::vector<HeldPacket> reordered() {
    std::vector<HeldPacket> due;
    injector_.take_reordered(&due);
    return due;
  }
  std::vector<HeldPacket> expired(Clock::time_point now) {
    std::vector<HeldPacket> due;
    injector_.take_expired(now, &due);
    return due;
  }

  FaultInjector injector_;
  std::vector<uint8_t> packet_;
  sockaddr_in peer_{};
};

TEST_F(Faults, NothingHappensWithoutRates) {
  EXPECT_FALSE(injector_.active());
  injector_.configure(rates(0, 0, 0), 1);
  EXPECT_FALSE(injector_.active());
  EXPECT_EQ(decide(), Fate::pass_once);
  EXPECT_FALSE(injector_.next_deadline().has_value());
}

TEST_F(Faults, EveryPacketIsDroppedAtRateOne) {
  injector_.configure(rates(1, 1, 1, 1), 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(decide(), Fate::dropped);
  EXPECT_EQ(injector_.counters().injected_drop, 100U);
  EXPECT_EQ(injector_.counters().injected_duplicate, 0U);
  EXPECT_TRUE(reordered().empty());
}

TEST_F(Faults, EveryPacketIsDuplicatedAtRateOne) {
  injector_.configure(rates(0, 1, 0), 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(decide(), Fate::pass_twice);
  EXPECT_EQ(injector_.counters().injected_duplicate, 100U);
}

TEST_F(Faults, BothCopiesOfADuplicateAreHeld) {
  injector_.configure(rates(0, 1, 1), 1);
  EXPECT_EQ(decide(), Fate::held);
  EXPECT_EQ(injector_.counters().injected_delay, 2U);
  EXPECT_EQ(expired(Clock::time_point::max()).size(), 2U);
}

TEST_F(Faults, RatesAreShares) {
  injector_.configure(rates(0.25, 0, 0), 7);
  int dropped = 0;
  for (int i = 0; i < 10'000; ++i) dropped += decide() == Fate::dropped ? 1 : 0;
  EXPECT_NEAR(dropped, 2500, 430);  // ten standard deviations
}

TEST_F(Faults, OneSeedGivesOneSequence) {
  const auto fates = [this](uint64_t seed) {
    injector_.configure(rates(0.3, 0.3, 0), seed);
    std::vector<Fate> all;
    for (int i = 0; i < 200; ++i) all.push_back(decide());
    return all;
  };
  const std::vector<Fate> first = fates(1);
  EXPECT_EQ(fates(1), first);
  EXPECT_NE(fates(2), first);
}

TEST_F(Faults, HeldPacketGoesAfterAtMostSixtyFourOthers) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    injector_.configure(rates(0, 0, 1), seed);
    ASSERT_EQ(decide(42), Fate::held);
    injector_.configure(rates(0, 0, 0), seed);
    int others = 0;
    std::vector<HeldPacket> due;
    for (; due.empty() && others < 65; ++others) {
      EXPECT_TRUE(injector_.active());  // a packet is held back
      ASSERT_EQ(decide(1), Fate::pass_once);
      due = reordered();
    }
    ASSERT_EQ(due.size(), 1U);
    EXPECT_EQ(due[0].bytes[0], 42);
    EXPECT_GE(others, 1);
    EXPECT_LE(others, 64);
    EXPECT_FALSE(injector_.active());
  }
}

TEST_F(Faults, HeldPacketGoesAfterFiveMillisecondsWhereNothingFollows) {
  injector_.configure(rates(0, 0, 1), 1);
  const auto before = Clock::now();
  ASSERT_EQ(decide(42), Fate::held);
  const auto after = Clock::now();
  const auto deadline = injector_.next_deadline();
  ASSERT_TRUE(deadline.has_value());
  EXPECT_GE(*deadline, before + std::chrono::milliseconds(5));
  EXPECT_LE(*deadline, after + std::chrono::milliseconds(5));
  EXPECT_TRUE(reordered().empty());
  EXPECT_TRUE(expired(*deadline - std::chrono::nanoseconds(1)).empty());
  EXPECT_EQ(expired(*deadline).size(), 1U);
  EXPECT_FALSE(injector_.next_deadline().has_value());
}

TEST_F(Faults, ExpiredPacketsLeaveInOrderAndOthersStay) {
  injector_.configure(rates(0, 0, 1), 1);
  for (uint8_t number = 0; number < 3; ++number) decide(number);
  const auto middle = injector_.next_deadline();
  ASSERT_TRUE(middle.has_value());
  const std::vector<HeldPacket> all = expired(Clock::time_point::max());
  ASSERT_EQ(all.size(), 3U);
  for (uint8_t number = 0; number < 3; ++number) EXPECT_EQ(all[number].bytes[0], number);
  EXPECT_EQ(all[0].deadline, *middle);
}

TEST_F(Faults, HeldPacketKeepsBytesAndPeer) {
  injector_.configure(rates(0, 0, 1), 1);
  peer_.sin_addr.s_addr = htonl(0x0A000001);
  peer_.sin_port = htons(4242);
  decide(9);
  packet_.assign(packet_.size(), 0xEE);  // the caller may change its buffer
  const std::vector<HeldPacket> due = expired(Clock::time_point::max());
  ASSERT_EQ(due.size(), 1U);
  std::vector<uint8_t> expected(kHeaderBytes + kPayloadBytes);
  std::iota(expected.begin(), expected.end(), uint8_t{0});
  expected[0] = 9;
  EXPECT_EQ(due[0].bytes, expected);
  EXPECT_EQ(due[0].peer.sin_addr.s_addr, htonl(0x0A000001));
  EXPECT_EQ(due[0].peer.sin_port, htons(4242));
}

TEST_F(Faults, OneBitIsFlippedBehindWhatIsSheltered) {
  injector_.configure(rates(0, 0, 0, 1), 3);
  std::vector<int> places(kHeaderBytes + kPayloadBytes);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(decide(0, kHeaderBytes), Fate::held);
    const std::vector<HeldPacket> due = reordered();  // due at once
    ASSERT_EQ(due.size(), 1U);
    int bits = 0;
    for (size_t at = 0; at < packet_.size(); ++at) {
      const int changed = __builtin_popcount(static_cast<unsigned>(due[0].bytes[at] ^ packet_[at]));
      bits += changed;
      places[at] += changed;
    }
    ASSERT_EQ(bits, 1);
  }
  EXPECT_EQ(injector_.counters().injected_flip, 2000U);
  for (size_t at = 0; at < places.size(); ++at) EXPECT_EQ(places[at] == 0, at < kHeaderBytes) << at;
}

TEST_F(Faults, PacketThatIsShelteredAsAWholeIsNotFlipped) {
  injector_.configure(rates(0, 0, 0, 1), 3);
  EXPECT_EQ(decide(0, kHeaderBytes + kPayloadBytes), Fate::pass_once);
  EXPECT_EQ(injector_.counters().injected_flip, 0U);
}

class BadRate : public testing::TestWithParam<double> {};

TEST_P(BadRate, IsRefusedAndChangesNothing) {
  FaultInjector injector;
  EXPECT_THROW(injector.configure(rates(GetParam(), 0, 0), 1), std::invalid_argument);
  EXPECT_THROW(injector.configure(rates(0, GetParam(), 0), 1), std::invalid_argument);
  EXPECT_THROW(injector.configure(rates(0, 0, GetParam()), 1), std::invalid_argument);
  EXPECT_THROW(injector.configure(rates(0, 0, 0, GetParam()), 1), std::invalid_argument);
  EXPECT_FALSE(injector.active());
}

INSTANTIATE_TEST_SUITE_P(Rates, BadRate, testing::Values(-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()));

}  // namespace
}  // namespace switchml::soft
