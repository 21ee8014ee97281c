#include "native/runtime/window.h"

#include <gtest/gtest.h>

namespace switchml::runtime {
namespace {

// Handles results, `lost` of them with a loss.
void round(Window* window, uint32_t results, uint32_t lost = 0) {
  for (uint32_t i = 0; i < results; ++i) window->result(i < lost);
}

TEST(Window, BeginsWithSixtyFourOrThePool) {
  EXPECT_EQ(Window(1024).size(), 64U);
  EXPECT_EQ(Window(32).size(), 32U);
  EXPECT_EQ(Window(1).size(), 1U);
}

TEST(Window, DoublesEachRoundUntilThePool) {
  Window window(200);
  round(&window, 63);
  EXPECT_EQ(window.size(), 64U);
  round(&window, 1);
  EXPECT_EQ(window.size(), 128U);
  round(&window, 128);
  EXPECT_EQ(window.size(), 200U);
  round(&window, 200);
  EXPECT_EQ(window.size(), 200U);
}

TEST(Window, OneLossInSixteenIsTolerated) {
  Window window(1024);
  round(&window, 64, 4);
  EXPECT_EQ(window.size(), 128U);
}

TEST(Window, MoreThanOneLossInSixteenHalvesIt) {
  Window window(1024);
  round(&window, 64, 5);
  EXPECT_EQ(window.size(), 32U);
}

TEST(Window, ThreeLossesAreChanceInAnyRound) {
  Window window(8);
  round(&window, 8, 3);
  EXPECT_EQ(window.size(), 8U);
}

TEST(Window, LossesOfOneRoundDoNotCountInTheNext) {
  Window window(1024);
  round(&window, 64, 4);
  round(&window, 128, 8);
  EXPECT_EQ(window.size(), 256U);
}

TEST(Window, GrowsByAnEighthAfterTheFirstLoss) {
  Window window(1024);
  round(&window, 64, 64);
  ASSERT_EQ(window.size(), 32U);
  round(&window, 127);  // a round now has at least 128 results
  EXPECT_EQ(window.size(), 32U);
  round(&window, 1);
  EXPECT_EQ(window.size(), 36U);
  round(&window, 128);
  EXPECT_EQ(window.size(), 40U);
}

TEST(Window, GrowsByOneWhereAnEighthIsNothing) {
  Window window(1024);
  round(&window, 64, 64);
  for (const uint32_t size : {16U, 8U, 4U}) {
    round(&window, 128, 128);
    ASSERT_EQ(window.size(), size);
  }
  round(&window, 128);
  EXPECT_EQ(window.size(), 5U);
}

TEST(Window, StaysAtFourOrThePoolWhateverIsLost) {
  Window window(1024);
  for (int i = 0; i < 20; ++i) round(&window, 128, 128);
  EXPECT_EQ(window.size(), 4U);
  Window small(2);
  for (int i = 0; i < 200; ++i) round(&small, 2, 2);
  EXPECT_EQ(small.size(), 2U);
}

TEST(Window, NeverExceedsThePoolWhenItGrowsSlowly) {
  Window window(65);
  round(&window, 128, 128);
  for (int i = 0; i < 20; ++i) round(&window, 128);
  EXPECT_EQ(window.size(), 65U);
}

TEST(Window, IsNeverAboveItsBound) {
  Window window(1024);
  window.bound(16);
  EXPECT_EQ(window.size(), 16U);
  round(&window, 200);
  EXPECT_EQ(window.size(), 16U);
  window.bound(1024);
  EXPECT_GT(window.size(), 64U);
}

TEST(Window, LossesHalveWhatCouldBeInFlight) {
  Window window(1024);
  round(&window, 2000);
  ASSERT_EQ(window.size(), 1024U);
  window.bound(40);
  round(&window, 40, 5);
  window.bound(1024);
  EXPECT_EQ(window.size(), 20U);
}

}  // namespace
}  // namespace switchml::runtime
