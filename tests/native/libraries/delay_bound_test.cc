// A sender on a simulated path: a link with a queue, and a delay after it.
#include "native/runtime/delay_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>

#include "native/runtime/window.h"

namespace switchml::runtime {
namespace {

using Seconds = DelayBound::Duration;
using TimePoint = DelayBound::TimePoint;

constexpr double kPacket = 8192;            // bytes
constexpr double kLeast = 128 << 10;        // bytes of the least bound
constexpr double kRate = 25e6;              // bytes per second
constexpr Seconds kReaction{0.001};         // of hosts, in the bound
constexpr uint32_t kUnlimited = 1U << 20U;  // packets

struct Path {
  double rate = kRate;                                     // bytes per second
  Seconds delay{0.02};                                     // from the link to the result, without a queue
  double queue = std::numeric_limits<double>::infinity();  // bytes that wait; more are dropped

  // The round trip of one packet, without a queue.
  Seconds round_trip() const { return delay + Seconds(kPacket / rate); }
  // The bytes that keep the path busy.
  double product() const { return rate * round_trip().count(); }
};

class Flow {
 public:
  explicit Flow(Path path, bool yields = false) : path_(path), yields_(yields) {}

  double bound() const { return yields_ ? bound_.bytes_of_yielding() : bound_.bytes(); }
  Path& path() { return path_; }  // may be changed

  // Sends for this time what the window allows, up to `application` packets in flight. Another rank completes what
  // is answered while it is `late`. Returns the bytes per second that were delivered.
  double run(Seconds time, uint32_t application = kUnlimited, bool late = false) {
    const TimePoint end = now_ + ticks(time);
    const uint64_t before = bound_.delivered();
    longest_ = {};
    for (send(application); !flights_.empty() && flights_.front().arrives <= end; send(application)) {
      now_ = std::max(now_, flights_.front().arrives);
      for (; !flights_.empty() && flights_.front().arrives <= now_; flights_.pop_front()) take(flights_.front(), late);
      bound_.end_batch(window_.size() * kPacket, now_);
      window_.bound(static_cast<uint32_t>(bound() / kPacket));
    }
    now_ = end;
    return static_cast<double>(bound_.delivered() - before) / time.count();
  }
  // The same, but takes results and sends only once per interval.
  double run_now_and_then(Seconds time, Seconds interval) {
    const TimePoint end = now_ + ticks(time);
    const uint64_t before = bound_.delivered();
    while (now_ < end) {
      now_ += ticks(interval);
      run(Seconds(1e-9));
    }
    return static_cast<double>(bound_.delivered() - before) / time.count();
  }

  // Sends, and takes all results together after a pause. With `small`, a small packet was sent a moment before, and its
  // result is one of them.
  void run_pause(bool small) {
    run(Seconds(0.1));
    now_ = flights_.back().arrives;
    const DelayBound::Departure departure = bound_.departure(now_, false);
    now_ += ticks(Seconds(2e-4));
    for (; !flights_.empty(); flights_.pop_front()) take(flights_.front(), false);
    if (small) bound_.sample(departure);
    bound_.end_batch(window_.size() * kPacket, now_);
  }

  Seconds longest() const { return longest_; }  // round trip of the last run
  uint64_t sent() const { return sent_; }       // packets
  uint64_t drops() const { return drops_; }     // packets

 private:
  struct Flight {
    DelayBound::Departure departure;
    TimePoint arrives;
    bool lost;  // its first transmission
  };

  void send(uint32_t application) {
    while (flights_.size() < std::min(window_.size(), application)) {
      flights_.push_back({bound_.departure(now_, flights_.empty()), {}, false});
      transmit(&flights_.back(), now_);
    }
  }
  void transmit(Flight* flight, TimePoint now) {
    sent_ += 1;
    const TimePoint begin = std::max(now, link_free_);
    if (Seconds(begin - now).count() * path_.rate > path_.queue) {
      drops_ += 1;
      flight->lost = true;
      flight->arrives = begin + ticks(2 * path_.round_trip());  // of a retransmission
      return;
    }
    link_free_ = begin + ticks(Seconds(kPacket / path_.rate));
    flight->arrives = link_free_ + ticks(path_.delay);
  }
  void take(const Flight& flight, bool late) {
    bound_.result(static_cast<uint64_t>(kPacket));
    window_.result(flight.lost);
    longest_ = std::max<Seconds>(longest_, now_ - flight.departure.time);
    if (flight.lost) return;
    bound_.sample(flight.departure);
    if (!late) bound_.round_trip(flight.departure.time, now_);
  }
  static TimePoint::duration ticks(Seconds time) { return std::chrono::duration_cast<TimePoint::duration>(time); }

  Path path_;
  bool yields_;
  DelayBound bound_{kPacket};
  Window window_{1U << 14U};
  std::deque<Flight> flights_;
  TimePoint now_{std::chrono::hours(1)};
  TimePoint link_free_;
  Seconds longest_{};
  uint64_t sent_ = 0;
  uint64_t drops_ = 0;
};

TEST(DelayBound, IsSixtyFourPacketsUntilTheWindowWasUsed) {
  Flow flow({});
  EXPECT_DOUBLE_EQ(flow.bound(), 64 * kPacket);
  flow.run(Seconds(2), 31);
  EXPECT_DOUBLE_EQ(flow.bound(), 64 * kPacket);
}

TEST(DelayBound, GrowsToTwiceTheProductOfRateAndRoundTrip) {
  Flow flow({});
  flow.run(Seconds(1));
  EXPECT_NEAR(flow.run(Seconds(5)), kRate, 0.01 * kRate);
  // A result that comes alone is a burst of one packet.
  EXPECT_NEAR(flow.bound(), 2 * (flow.path().product() + kRate * kReaction.count()), 3 * kPacket);
  EXPECT_NEAR(flow.longest().count(), 2 * (flow.path().round_trip() + kReaction).count(), 0.001);
}

TEST(DelayBound, DoublesInEachRoundTripAtFirst) {
  Flow flow({1e9, Seconds(0.01)});  // the path holds 1221 packets
  flow.run(Seconds(0.058));
  EXPECT_GE(flow.bound(), 16 * 64 * kPacket);
  EXPECT_NEAR(flow.run(Seconds(1)), 1e9, 0.05 * 1e9);
}

TEST(DelayBound, IsAtLeastTwoBatches) {
  Flow flow({kRate, Seconds(0.0001)});
  flow.run(Seconds(1));
  EXPECT_DOUBLE_EQ(flow.bound(), kLeast);
  EXPECT_NEAR(flow.run(Seconds(5)), kRate, 0.01 * kRate);
  EXPECT_LE(flow.longest().count(), 1.1 * kLeast / kRate);
}

TEST(DelayBound, KeepsTheQueueShort) {
  Flow flow({kRate, Seconds(0.001), 0.05 * kRate});
  flow.run(Seconds(10));
  EXPECT_EQ(flow.drops(), 0U);
}

TEST(DelayBound, StaysWhileTheApplicationSendsLittle) {
  Flow flow({});
  flow.run(Seconds(1));
  const double before = flow.bound();
  flow.run(Seconds(8), 4);
  EXPECT_DOUBLE_EQ(flow.bound(), before);
  EXPECT_NEAR(flow.run(Seconds(0.5)), kRate, 0.05 * kRate);
}

TEST(DelayBound, StaysWhileAnotherRankIsLate) {
  Flow flow({});
  flow.run(Seconds(1));
  const double before = flow.bound();
  for (int i = 0; i < 5; ++i) {
    flow.path().delay = Seconds(3);
    flow.run(Seconds(3), kUnlimited, true);
    flow.path().delay = Seconds(0.02);
    EXPECT_GE(flow.bound(), 0.95 * before);
    flow.run(Seconds(2));
  }
  EXPECT_NEAR(flow.bound(), before, 0.1 * before);
}

TEST(DelayBound, FollowsAFasterLink) {
  Flow flow({});
  flow.run(Seconds(1));
  flow.path().rate = 10 * kRate;
  flow.run(Seconds(10 * 0.02));
  EXPECT_NEAR(flow.run(Seconds(1)), 10 * kRate, 0.1 * kRate);
}

TEST(DelayBound, FollowsASlowerLink) {
  Flow flow({});
  flow.run(Seconds(1));
  flow.path().rate = kRate / 10;
  flow.run(Seconds(10));
  EXPECT_NEAR(flow.run(Seconds(5)), kRate / 10, 0.01 * kRate);
  EXPECT_LE(flow.bound(), 2.1 * flow.path().product() + 3 * kPacket);
}

TEST(DelayBound, FollowsALongerPath) {
  Flow flow({});
  flow.run(Seconds(1));
  flow.path().delay = Seconds(0.1);
  flow.run(Seconds(20));
  EXPECT_NEAR(flow.run(Seconds(5)), kRate, 0.1 * kRate);
}

TEST(DelayBound, DoesNotTakeItsOwnQueueForALongerPath) {
  Flow flow({kRate, Seconds(0.0005)});
  flow.run(Seconds(300));
  EXPECT_LE(flow.bound(), 1.1 * kLeast);
  EXPECT_NEAR(flow.run(Seconds(100)), kRate, 0.01 * kRate);
}

// A host with busy CPUs looks at the results now and then, and must have more in flight than the path holds.
TEST(DelayBound, AllowsTheBurstsInWhichResultsCome) {
  constexpr Seconds kInterval{0.01};
  Flow flow({4 * kRate, Seconds(0.0005)});
  flow.run(Seconds(1));
  const double before = flow.bound();
  flow.run_now_and_then(Seconds(1), kInterval);
  EXPECT_NEAR(flow.run_now_and_then(Seconds(1), kInterval), 4 * kRate, 0.02 * 4 * kRate);
  EXPECT_GT(flow.bound(), 2 * before);
  flow.run(Seconds(1));
  EXPECT_NEAR(flow.bound(), before, kPacket);
}

// A packet without values that is sent just before results are taken, and has its own result at once.
TEST(DelayBound, DoesNotTakeResultsThatHaveWaitedForARate) {
  Flow with(Path{kRate, Seconds(0.0005)});
  Flow without(with);
  for (int i = 0; i < 5; ++i) {
    with.run_pause(true);
    without.run_pause(false);
    EXPECT_NEAR(with.bound(), without.bound(), kPacket);
  }
}

// The queue in front of its link is then short when a more urgent job begins to send.
TEST(DelayBound, YieldingSenderKeepsThePathBusyWithoutBursts) {
  const Path path{4 * kRate, Seconds(0.0005)};
  Flow yielding(path, true);
  Flow greedy(path);
  for (Flow* flow : {&yielding, &greedy}) {
    flow->run(Seconds(1));
    EXPECT_NEAR(flow->run(Seconds(1)), 4 * kRate, 0.02 * 4 * kRate);
    flow->run_now_and_then(Seconds(0.1), Seconds(0.01));
  }
  EXPECT_LT(yielding.bound(), greedy.bound() / 2);
}

TEST(DelayBound, LossesOfAShortQueueShrinkTheWindow) {
  Flow flow({kRate, Seconds(0.02), 40 * kPacket});  // about 64 packets would wait
  flow.run(Seconds(5));
  const uint64_t sent = flow.sent();
  const uint64_t drops = flow.drops();
  EXPECT_GE(flow.run(Seconds(20)), 0.7 * kRate);
  EXPECT_GT(flow.drops(), drops);
  EXPECT_LT(static_cast<double>(flow.drops() - drops), static_cast<double>(flow.sent() - sent) / 16);
  flow.path().queue = std::numeric_limits<double>::infinity();
  flow.run(Seconds(5));
  EXPECT_NEAR(flow.run(Seconds(5)), kRate, 0.01 * kRate);
}

}  // namespace
}  // namespace switchml::runtime
