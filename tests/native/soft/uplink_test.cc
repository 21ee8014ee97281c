// The retransmission of a switch's contributions to its parent, with a clock that only the test moves.
#include "dataplane/softswitch/native/shared_memory/uplink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace switchml::soft {
namespace {

using Slots = std::vector<uint32_t>;

constexpr uint32_t kSlots = 256;
constexpr uint64_t kThreshold = 64;  // answers to later contributions
constexpr uint64_t kPacket = 8192;   // bytes
constexpr Uplink::Answer kOwn = {true, false, kPacket};
constexpr Uplink::Answer kOwnAgain = {true, true, kPacket};
constexpr Uplink::Answer kOfAnother = {false, false, kPacket};

// The path to the parent: a link with a queue, and a delay. Ranks submit a contribution to each position at once.
class Link {
 public:
  struct Path {
    double rate;   // bytes per second
    double delay;  // seconds from the link to the answer
    double queue;  // bytes that wait; more are dropped
  };

  Link(Uplink* uplink, Path path) : uplink_(uplink), path_(path) {}

  uint64_t answered() const { return answered_; }
  uint64_t dropped() const { return dropped_; }

  // Sends for this time what the window allows.
  void run(double seconds) {
    const TimePoint end = now_ + ticks(seconds);
    for (fill(); now_ < end; fill()) {
      const TimePoint arrival = flights_.empty() ? TimePoint::max() : flights_.front().arrives;
      now_ = std::max(now_, std::min(arrival, uplink_->next_deadline()));
      for (; !flights_.empty() && flights_.front().arrives <= now_; flights_.pop_front()) take(flights_.front());
      for (const uint32_t slot : uplink_->due(now_)) transmit(slot, true);
    }
  }

 private:
  using TimePoint = Uplink::Clock::time_point;
  struct Flight {
    uint32_t slot;
    bool again;
    TimePoint arrives;
  };

  static Uplink::Clock::duration ticks(double seconds) {
    return std::chrono::duration_cast<Uplink::Clock::duration>(std::chrono::duration<double>(seconds));
  }
  void fill() {
    uplink_->end_batch(now_);
    while (first_ != next_ && !uplink_->awaits(first_ % kSlots)) ++first_;
    for (; next_ - first_ < uplink_->window(); ++next_) {
      uplink_->sent(next_ % kSlots, now_);
      transmit(next_ % kSlots, false);
    }
  }
  void transmit(uint32_t slot, bool again) {
    idle_at_ = std::max(idle_at_, now_);
    const double waits = std::chrono::duration<double>(idle_at_ - now_).count() * path_.rate;
    if (waits + kPacket > path_.queue) {
      dropped_ += 1;
      return;
    }
    idle_at_ += ticks(kPacket / path_.rate);
    flights_.push_back({slot, again, idle_at_ + ticks(path_.delay)});
  }
  void take(const Flight& flight) {
    if (!uplink_->awaits(flight.slot)) return;
    uplink_->answered(flight.slot, {true, flight.again, kPacket}, now_);
    answered_ += 1;
  }

  Uplink* uplink_;
  Path path_;
  TimePoint now_{std::chrono::hours(1)};
  TimePoint idle_at_;
  std::deque<Flight> flights_;
  uint32_t first_ = 0;  // positions
  uint32_t next_ = 0;
  uint64_t answered_ = 0;
  uint64_t dropped_ = 0;
};

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

  Uplink uplink_{kSlots, kPacket};
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

TEST_F(UplinkTest, SwitchWithoutAParentDoesNotLimitItsRanks) {
  EXPECT_EQ(uplink_.window(), kSlots);
  send(0, 1);
  EXPECT_EQ(uplink_.window(), 64U);
}

TEST_F(UplinkTest, WindowFollowsTheRateOfTheLink) {
  Link link(&uplink_, {25e6, 0.002, 2e9});
  link.run(4);
  // Twice the bytes of a millisecond for the hosts and the link's 2.3.
  EXPECT_GE(uplink_.window(), 2 * 25e6 * 0.003 / kPacket);
  EXPECT_LE(uplink_.window(), 2 * 25e6 * 0.0045 / kPacket);
}

// The whole pool would be eight times the queue.
TEST_F(UplinkTest, ShallowQueueDoesNotOverflow) {
  Link link(&uplink_, {25e6, 0.0002, 250e3});
  link.run(1);  // the first window, which knows nothing of the path yet, is too large
  const uint64_t before = link.answered();
  const uint64_t dropped = link.dropped();
  link.run(4);
  EXPECT_EQ(link.dropped(), dropped);
  EXPECT_GE(static_cast<double>(link.answered() - before) * kPacket, 0.95 * 4 * 25e6);
}

// A lossy tree would otherwise work with the smallest window.
TEST_F(UplinkTest, OneLossInFourIsTolerated) {
  send(0, 64);
  pass(100);
  answer(0, 16, kOwnAgain);
  answer(16, 64);
  EXPECT_EQ(uplink_.window(), 128U);
}

TEST_F(UplinkTest, MoreLossesShrinkTheWindow) {
  send(0, 64);
  pass(100);
  answer(0, 17, kOwnAgain);
  answer(17, 64);
  EXPECT_EQ(uplink_.window(), 32U);
}

TEST_F(UplinkTest, LossesOfOtherSwitchesDoNot) {
  send(0, 64);
  pass(100);
  answer(0, 64, {false, true, kPacket});
  EXPECT_EQ(uplink_.window(), 128U);
}

// Half a window of later answers shows the loss: more may not come before it is repaired.
TEST_F(UplinkTest, OvertakenContributionOfASmallWindowIsRepeated) {
  send(0, 64);
  ASSERT_EQ(uplink_.window(), 64U);
  answer(1, 33);
  EXPECT_EQ(uplink_.due(now_), Slots{});
  answer(33, 34);
  EXPECT_EQ(uplink_.due(now_), Slots{0});
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
        if (missing.erase(slot) == 1) uplink_.answered(slot, {true, again, kPacket}, now_);
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
