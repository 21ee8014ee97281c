// The retransmission of a switch's contributions to its parent, with a clock that only the test moves.
#include "dataplane/softswitch/native/shared_memory/uplink.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace switchml::soft {
namespace {

using Slots = std::vector<uint32_t>;

constexpr uint32_t kSlots = 256;
constexpr uint64_t kThreshold = 64;  // answers to later contributions
constexpr Uplink::Answer kOwn = {true, false};
constexpr Uplink::Answer kOwnAgain = {true, true};
constexpr Uplink::Answer kOfAnother = {false, false};

class UplinkTest : public testing::Test {
 protected:
  using Clock = Uplink::Clock;

  void pass(double milliseconds) {
    now_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
  }
  void send(uint32_t first, uint32_t end) {
    for (uint32_t slot = first; slot < end; ++slot) uplink_.sent(slot, now_);
  }
  void answer(uint32_t first, uint32_t end, const Uplink::Answer& answer = kOwn) {
    for (uint32_t slot = first; slot < end; ++slot) uplink_.answered(slot, answer, now_);
  }
  // Gives round trips of one millisecond, after which the timeout is two.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      send(0, 1);
      pass(1);
      answer(0, 1);
    }
  }
  double milliseconds_left() const {
    return std::chrono::duration<double, std::milli>(uplink_.next_deadline() - now_).count();
  }

  Uplink uplink_{kSlots};
  Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(UplinkTest, WaitsForNothingAtFirstAndWhenAllIsAnswered) {
  EXPECT_EQ(uplink_.next_deadline(), Clock::time_point::max());
  send(0, 3);
  EXPECT_TRUE(uplink_.awaits(2));
  answer(0, 2);
  EXPECT_NE(uplink_.next_deadline(), Clock::time_point::max());
  answer(2, 3);
  EXPECT_FALSE(uplink_.awaits(2));
  EXPECT_EQ(uplink_.next_deadline(), Clock::time_point::max());
  pass(1e6);
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

TEST_F(UplinkTest, MissingAnswerIsAskedForAfterTheTimeout) {
  settle();
  send(5, 6);
  EXPECT_NEAR(milliseconds_left(), 2, 0.01);
  pass(1.9);
  EXPECT_EQ(uplink_.due(now_), Slots{});
  pass(0.2);
  EXPECT_EQ(uplink_.due(now_), Slots{5});
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

TEST_F(UplinkTest, EachTimeoutInARowDoublesTheNextUpToALimit) {
  settle();
  send(5, 6);
  for (const double expected : {2, 4, 8, 16, 32, 64, 128, 200, 200}) {
    EXPECT_NEAR(milliseconds_left(), expected, expected / 100);
    pass(expected * 1.01);
    EXPECT_EQ(uplink_.due(now_), Slots{5});
  }
  answer(5, 6, kOwnAgain);
  send(6, 7);
  EXPECT_LT(milliseconds_left(), 5);
}

TEST_F(UplinkTest, AnswerPutsTheTimeoutOff) {
  settle();
  send(0, 2);
  pass(1.5);
  answer(0, 1);
  pass(1.5);
  EXPECT_EQ(uplink_.due(now_), Slots{});
  pass(1);
  EXPECT_EQ(uplink_.due(now_), Slots{1});
}

TEST_F(UplinkTest, TimeoutRepeatsTheTwoOldestAndEachAnswerTwoMore) {
  settle();
  send(0, 8);
  pass(10);
  EXPECT_EQ(uplink_.due(now_), (Slots{0, 1}));
  answer(0, 1, kOwnAgain);
  EXPECT_EQ(uplink_.due(now_), (Slots{2, 3}));
  answer(1, 2, kOwnAgain);
  answer(2, 3, kOwnAgain);
  EXPECT_EQ(uplink_.due(now_), (Slots{4, 5, 6, 7}));
  answer(3, 4, kOwnAgain);
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

TEST_F(UplinkTest, StragglerEndsTheRepetition) {
  settle();
  send(0, 8);
  pass(10);
  EXPECT_EQ(uplink_.due(now_), (Slots{0, 1}));
  answer(0, 1, kOwnAgain);
  answer(1, 2, kOfAnother);  // by the first transmission: the other switch was late
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

TEST_F(UplinkTest, ContributionsAfterATimeoutAreNotRepeatedByIt) {
  settle();
  send(0, 1);
  pass(10);
  EXPECT_EQ(uplink_.due(now_), Slots{0});
  send(1, 4);
  answer(0, 1, kOwnAgain);
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

TEST_F(UplinkTest, OvertakenContributionIsRepeatedBeforeTheTimeout) {
  settle();
  send(0, kSlots);
  answer(1, 1 + kThreshold - 1);
  EXPECT_EQ(uplink_.due(now_), Slots{});
  answer(1 + kThreshold - 1, 1 + kThreshold);
  EXPECT_EQ(uplink_.due(now_), Slots{0});
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

TEST_F(UplinkTest, SpuriousRepetitionDoublesTheThreshold) {
  settle();
  send(0, kSlots);
  answer(1, 1 + kThreshold);
  EXPECT_EQ(uplink_.due(now_), Slots{0});
  answer(0, 1);
  answer(1 + kThreshold, kSlots);
  send(0, kSlots);
  answer(1, 2 * kThreshold);
  EXPECT_EQ(uplink_.due(now_), Slots{});
  answer(2 * kThreshold, 2 * kThreshold + 1);
  EXPECT_EQ(uplink_.due(now_), Slots{0});
}

TEST_F(UplinkTest, OnlyItsOwnRoundTripsCount) {
  settle();
  send(0, 1);
  pass(50);
  answer(0, 1, kOfAnother);
  send(0, 1);
  EXPECT_NEAR(milliseconds_left(), 2, 0.01);
}

TEST_F(UplinkTest, RepeatedContributionsGiveNoRoundTrip) {
  settle();
  send(0, 1);
  pass(50);
  EXPECT_EQ(uplink_.due(now_), Slots{0});
  answer(0, 1, kOwnAgain);
  send(0, 1);
  EXPECT_LT(milliseconds_left(), 5);
}

TEST_F(UplinkTest, StopForgetsWhatIsInFlight) {
  send(0, 10);
  uplink_.stop();
  EXPECT_FALSE(uplink_.awaits(3));
  EXPECT_EQ(uplink_.next_deadline(), Clock::time_point::max());
  pass(1e6);
  EXPECT_EQ(uplink_.due(now_), Slots{});
}

// A pool over a path that loses a fifth of the contributions: each is answered in the end, by timeouts alone if need
// be.
TEST_F(UplinkTest, EverySlotIsAnsweredOverALossyPath) {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same sequence in each run
  for (int round = 0; round < 20; ++round) {
    std::set<uint32_t> missing;
    Slots arrived;
    const auto carry = [&](uint32_t slot) {
      if (random() % 5 != 0) arrived.push_back(slot);
    };
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      uplink_.sent(slot, now_);
      missing.insert(slot);
      carry(slot);
    }
    bool again = false;
    const auto end = now_ + std::chrono::seconds(60);
    while (!missing.empty()) {
      ASSERT_LT(now_, end);
      pass(0.5);
      for (const uint32_t slot : std::exchange(arrived, {})) {
        if (missing.erase(slot) == 1) uplink_.answered(slot, {true, again}, now_);
      }
      again = true;
      for (const uint32_t slot : uplink_.due(now_)) {
        ASSERT_EQ(missing.count(slot), 1U);
        carry(slot);
      }
    }
    EXPECT_EQ(uplink_.next_deadline(), Clock::time_point::max());
  }
}

}  // namespace
}  // namespace switchml::soft
