#include "host_agent/native/gso_batch_size.h"

#include <gtest/gtest.h>

#include <functional>

namespace switchml::agent {
namespace {

constexpr size_t kPackets = 256;  // packets that leave at once, enough for a sample

// Sends until a size is chosen; `nanoseconds(size)` is the time per packet in batches of that size.
size_t settle(GsoBatchSize* batches, const std::function<uint64_t(size_t)>& nanoseconds) {
  for (int sends = 0; sends < 10'000 && batches->chosen() == 0; ++sends) {
    batches->sent(kPackets, kPackets * nanoseconds(batches->for_packets(kPackets)));
  }
  return batches->chosen();
}

TEST(GsoBatchSize, TriesEachSizeInTurns) {
  GsoBatchSize batches(44);
  for (const size_t size : {44, 22, 11, 5, 2, 1, 44}) {
    EXPECT_EQ(batches.for_packets(kPackets), size);
    batches.sent(kPackets, kPackets);
  }
  EXPECT_EQ(batches.chosen(), 0U);
}

TEST(GsoBatchSize, TakesTheLargestWhereSizesAreAlike) {
  GsoBatchSize batches(64);
  EXPECT_EQ(settle(&batches, [](size_t) { return 1000; }), 64U);
  EXPECT_EQ(batches.for_packets(kPackets), 64U);
}

TEST(GsoBatchSize, TakesTheLargestWhereABatchHasItsPrice) {
  GsoBatchSize batches(64);
  EXPECT_EQ(settle(&batches, [](size_t size) { return 500 + 2000 / size; }), 64U);
}

TEST(GsoBatchSize, TakesASmallerSizeThatIsMuchFaster) {
  GsoBatchSize batches(64);
  EXPECT_EQ(settle(&batches, [](size_t size) { return size == 8 ? 600 : 1000; }), 8U);
  EXPECT_EQ(batches.for_packets(1), 8U);
}

TEST(GsoBatchSize, ThreeQuartersOfTheTimeIsNotMuchFaster) {
  GsoBatchSize batches(64);
  EXPECT_EQ(settle(&batches, [](size_t size) { return size == 8 ? 750 : 1000; }), 64U);
}

TEST(GsoBatchSize, TakesTheFastestOfSeveralThatAreMuchFaster) {
  GsoBatchSize batches(64);
  EXPECT_EQ(settle(&batches, [](size_t size) { return size == 32 ? 600 : size == 4 ? 300 : 1000; }), 4U);
}

TEST(GsoBatchSize, InterruptionsDoNotDecide) {
  GsoBatchSize batches(64);
  size_t sends = 0;
  // Three samples in ten of the largest size are a hundred times too long.
  const size_t chosen = settle(&batches, [&](size_t size) {
    if (size != 64) return 1000;
    return ++sends % 10 < 3 ? 100'000 : 1000;
  });
  EXPECT_EQ(chosen, 64U);
}

TEST(GsoBatchSize, FewPacketsLeaveInTheLargestSizeAndAreNotJudged) {
  GsoBatchSize batches(64);
  batches.sent(kPackets, kPackets);
  ASSERT_EQ(batches.for_packets(kPackets), 32U);
  EXPECT_EQ(batches.for_packets(31), 64U);
  for (int i = 0; i < 10'000; ++i) batches.sent(31, 1);
  EXPECT_EQ(batches.for_packets(kPackets), 32U);
  EXPECT_EQ(batches.chosen(), 0U);
}

TEST(GsoBatchSize, TwoSmallBatchesAreEnoughToJudgeBy) {
  GsoBatchSize batches(4);
  batches.sent(7, 1);
  EXPECT_EQ(batches.for_packets(8), 4U);
  batches.sent(8, 1);
  EXPECT_EQ(batches.for_packets(8), 2U);
}

TEST(GsoBatchSize, NothingChangesOnceASizeIsChosen) {
  GsoBatchSize batches(16);
  ASSERT_EQ(settle(&batches, [](size_t) { return 1000; }), 16U);
  for (int i = 0; i < 1000; ++i) batches.sent(kPackets, batches.for_packets(kPackets) == 16 ? 1'000'000 : 1);
  EXPECT_EQ(batches.chosen(), 16U);
}

TEST(GsoBatchSize, BatchesOfOnePacketNeedNoChoice) {
  for (const size_t largest : {0, 1}) {
    GsoBatchSize batches(largest);
    EXPECT_EQ(batches.for_packets(kPackets), 1U);
    EXPECT_EQ(settle(&batches, [](size_t) { return 10; }), 1U);
  }
}

}  // namespace
}  // namespace switchml::agent
