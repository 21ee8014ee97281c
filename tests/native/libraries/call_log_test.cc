#include "native/channel/call_log.h"

#include <gtest/gtest.h>

#include "native/runtime/durations.h"

namespace switchml::channel {
namespace {

constexpr uint64_t kNow = 1'000'000'000;

// A call that took `took` nanoseconds.
CallTimes call(uint64_t sequence, uint64_t took = 100) {
  CallTimes times;
  times.sequence = sequence;
  times.bytes = 64;
  times.submitted = 1000;
  times.begun = 1010;
  times.answered = 1000 + took - 10;
  times.ended = 1000 + took;
  return times;
}

TEST(CallLog, KeepsTotalsOfAllCalls) {
  CallLog log;
  log.note(call(0, 100));
  log.note(call(1, 5000));
  const counters::Process totals = log.totals();
  EXPECT_EQ(totals.calls, 2U);
  EXPECT_EQ(totals.bytes, 128U);
  EXPECT_EQ(totals.call_time_ns, 5100U);
  EXPECT_EQ(totals.calls_by_duration[0], 1U);
  EXPECT_EQ(totals.calls_by_duration[runtime::duration_bucket(5000)], 1U);
}

TEST(CallLog, LatestCallsComeOldestFirst) {
  CallLog log;
  for (uint64_t sequence = 0; sequence < 10; ++sequence) log.note(call(sequence));
  const std::vector<CallTimes> latest = log.latest(3, kNow);
  ASSERT_EQ(latest.size(), 3U);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(latest[i].sequence, 7 + i);
  EXPECT_EQ(log.latest(100, kNow).size(), 10U);
}

TEST(CallLog, RecordThatMayBeInTheMakingIsNotRead) {
  CallLog log;
  for (uint64_t sequence = 0; sequence < 3 * CallLog::kRecords; ++sequence) log.note(call(sequence));
  const std::vector<CallTimes> latest = log.latest(1000, kNow);
  ASSERT_EQ(latest.size(), CallLog::kRecords - 1);
  EXPECT_EQ(latest.back().sequence, 3 * CallLog::kRecords - 1);
}

TEST(CallLog, TimesThatCannotBeAreLeftOut) {
  CallLog log;
  CallTimes backwards = call(1);
  backwards.answered = backwards.ended + 1;
  CallTimes future = call(2);
  future.ended = kNow + 1;
  CallTimes busier_than_long = call(3);
  busier_than_long.quantize_ns = 60;
  busier_than_long.wait_ns = 60;
  log.note(call(0));
  log.note(backwards);
  log.note(future);
  log.note(busier_than_long);
  const std::vector<CallTimes> latest = log.latest(10, kNow);
  ASSERT_EQ(latest.size(), 1U);
  EXPECT_EQ(latest[0].sequence, 0U);
}

TEST(Durations, BucketsDouble) {
  EXPECT_EQ(runtime::duration_bucket(0), 0U);
  EXPECT_EQ(runtime::duration_bucket(1023), 0U);
  EXPECT_EQ(runtime::duration_bucket(1024), 1U);
  EXPECT_EQ(runtime::duration_bucket(2047), 1U);
  EXPECT_EQ(runtime::duration_bucket(2048), 2U);
  EXPECT_EQ(runtime::duration_bucket(UINT64_MAX), runtime::kDurationBuckets - 1);
}

}  // namespace
}  // namespace switchml::channel
