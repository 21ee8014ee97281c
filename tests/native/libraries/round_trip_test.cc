// The numbers are those of RFC 6298, section 2, in milliseconds; its clock granularity is far below them.
#include "native/runtime/round_trip.h"

#include <gtest/gtest.h>

#include <numeric>

namespace switchml::runtime {
namespace {

RoundTrip::Duration ms(double milliseconds) { return RoundTrip::Duration(milliseconds * 1e-3); }
double in_ms(RoundTrip::Duration duration) { return duration.count() * 1e3; }

TEST(RoundTrip, WaitsTwentyMillisecondsBeforeTheFirstSample) {
  const RoundTrip trip;
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 20);
  EXPECT_EQ(trip.smoothed().count(), 0);
}

TEST(RoundTrip, FirstSampleGivesThreeTimesItself) {
  RoundTrip trip;
  trip.sample(ms(10));  // SRTT = R, RTTVAR = R / 2, RTO = SRTT + 4 RTTVAR
  EXPECT_DOUBLE_EQ(in_ms(trip.smoothed()), 10);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 30);
}

TEST(RoundTrip, LaterSamplesAreSmoothed) {
  RoundTrip trip;
  trip.sample(ms(10));
  trip.sample(ms(20));  // RTTVAR = 3/4 * 5 + 1/4 * |10 - 20| = 6.25; SRTT = 7/8 * 10 + 1/8 * 20 = 11.25
  EXPECT_DOUBLE_EQ(in_ms(trip.smoothed()), 11.25);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 11.25 + 4 * 6.25);
  trip.sample(ms(3.25));  // RTTVAR = 3/4 * 6.25 + 1/4 * 8 = 6.6875; SRTT = 7/8 * 11.25 + 1/8 * 3.25 = 10.25
  EXPECT_DOUBLE_EQ(in_ms(trip.smoothed()), 10.25);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 10.25 + 4 * 6.6875);
}

TEST(RoundTrip, SteadySamplesLeaveAMarginOfOneMillisecond) {
  for (const double round_trip : {0.02, 5.0, 100.0}) {
    RoundTrip trip;
    for (int i = 0; i < 200; ++i) trip.sample(ms(round_trip));
    EXPECT_NEAR(in_ms(trip.smoothed()), round_trip, 1e-9);
    EXPECT_NEAR(in_ms(trip.timeout(0)), round_trip + 1, 1e-6);
  }
}

TEST(RoundTrip, TimeoutIsAtMostTwoHundredMilliseconds) {
  RoundTrip trip;
  trip.sample(ms(500));
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 200);
}

TEST(RoundTrip, EachTimeoutInARowDoublesTheNext) {
  RoundTrip trip;
  trip.sample(ms(2));
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 6);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(1)), 12);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(4)), 96);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(6)), 200);
}

TEST(RoundTrip, AnyNumberOfTimeoutsIsBounded) {
  RoundTrip trip;
  trip.sample(ms(0.001));
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(8)), 200);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(1'000'000)), 200);
}

TEST(RoundTrip, SpuriousTimeoutsRaiseTheMarginToFourMilliseconds) {
  for (const double round_trip : {0.1, 6.0, 100.0}) {
    RoundTrip trip;
    for (int i = 0; i < 200; ++i) trip.sample(ms(round_trip));
    trip.adapt_margin(true);
    EXPECT_NEAR(in_ms(trip.timeout(0)), round_trip + 2, 1e-6);
    trip.adapt_margin(true);
    trip.adapt_margin(true);
    EXPECT_NEAR(in_ms(trip.timeout(0)), round_trip + 4, 1e-6);
  }
}

TEST(RoundTrip, LossesLowerTheMarginAgain) {
  RoundTrip trip;
  trip.sample(ms(0.1));
  trip.adapt_margin(true);
  trip.adapt_margin(true);
  trip.adapt_margin(false);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 2.1);
  trip.adapt_margin(false);
  trip.adapt_margin(false);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 1.1);
}

TEST(RoundTrip, MarginDoesNotShortenALongTimeout) {
  RoundTrip trip;
  trip.sample(ms(50));
  trip.adapt_margin(true);
  EXPECT_DOUBLE_EQ(in_ms(trip.timeout(0)), 150);
}

TEST(RoundTrip, SamplesAreCountedBySize) {
  RoundTrip trip;
  trip.sample(ms(0.0005));  // below 1.024 microseconds
  trip.sample(ms(0.0015));  // the next bucket, up to 2.048
  trip.sample(ms(0.0016));
  EXPECT_EQ(trip.histogram()[0], 1U);
  EXPECT_EQ(trip.histogram()[1], 2U);
  EXPECT_EQ(std::accumulate(trip.histogram().begin(), trip.histogram().end(), uint64_t{0}), 3U);
  EXPECT_NEAR(static_cast<double>(trip.nanoseconds()), 3600, 3);
}

}  // namespace
}  // namespace switchml::runtime
