#include "switchml/native/counted_ranks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "native/wire/constants.h"

namespace switchml::client {
namespace {

constexpr uint32_t kNamed = 0xD3A2646D;  // any odd numbers
constexpr uint32_t kScaled = 0xB55A4F09;

class CountedRanksOf : public testing::TestWithParam<uint32_t> {
 protected:
  const CountedRanks ranks_{GetParam(), kScaled, kNamed};
  std::mt19937 generator_{GetParam()};  // NOLINT: the same run each time

  uint32_t next() { return static_cast<uint32_t>(generator_()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CountedRanksOf, testing::Values(1, 2, 3, 64, 65, 1024, wire::protocol::max_world));

TEST_P(CountedRanksOf, EveryNumberUpToTheWorldSizeIsOne) {
  for (uint32_t number = 1; number <= GetParam(); ++number) {
    EXPECT_TRUE(ranks_.are_named(number * kNamed));
    EXPECT_TRUE(ranks_.are_scaled(number * kScaled));
  }
  for (const uint32_t number : {0U, GetParam() + 1, UINT32_MAX}) {
    EXPECT_FALSE(ranks_.are_named(number * kNamed));
    EXPECT_FALSE(ranks_.are_scaled(number * kScaled));
  }
}

TEST_P(CountedRanksOf, PairsAreFoundAndTheirNeighboursAreNot) {
  const uint32_t most = GetParam();
  for (int i = 0; i < 20000; ++i) {
    const uint32_t named = i < 4 ? (i % 2 == 0 ? 1 : most) : 1 + next() % most;
    const uint32_t scaled = i < 4 ? (i / 2 == 0 ? 1 : most) : 1 + next() % most;
    EXPECT_TRUE(ranks_.are_named_and_scaled(named * kNamed + scaled * kScaled)) << named << " and " << scaled;
    EXPECT_FALSE(ranks_.are_named_and_scaled(named * kNamed)) << named;
    EXPECT_FALSE(ranks_.are_named_and_scaled(named * kNamed + (most + 1) * kScaled)) << named;
    EXPECT_FALSE(ranks_.are_named_and_scaled(scaled * kScaled)) << scaled;
    EXPECT_FALSE(ranks_.are_named_and_scaled((most + 1) * kNamed + scaled * kScaled)) << scaled;
  }
}

TEST_P(CountedRanksOf, CarriesAreFewerThanRanks) {
  const uint32_t most = GetParam();
  for (uint32_t carries = 0; carries < most; ++carries) {
    EXPECT_TRUE(ranks_.are_carries(0U - carries));
    EXPECT_TRUE(ranks_.are_scaled_less_carries(kScaled - carries));
    EXPECT_TRUE(ranks_.are_scaled_less_carries(most * kScaled - carries));
  }
  EXPECT_FALSE(ranks_.are_carries(1));
  EXPECT_FALSE(ranks_.are_carries(0U - most));
  EXPECT_FALSE(ranks_.are_scaled_less_carries(0));
  EXPECT_FALSE(ranks_.are_scaled_less_carries(kScaled + 1));
  EXPECT_FALSE(ranks_.are_scaled_less_carries((most + 1) * kScaled));
}

TEST_P(CountedRanksOf, OtherRestsAreFoundAsBySearching) {
  const uint32_t most = GetParam();
  for (int i = 0; i < 2000; ++i) {
    const uint32_t rest = next();
    bool expected = false;
    for (uint32_t named = 1; named <= most; ++named) expected |= ranks_.are_scaled(rest - named * kNamed);
    EXPECT_EQ(ranks_.are_named_and_scaled(rest), expected) << rest;
    expected = false;
    for (uint32_t scaled = 1; scaled <= most; ++scaled) expected |= ranks_.are_carries(rest - scaled * kScaled);
    EXPECT_EQ(ranks_.are_scaled_less_carries(rest), expected) << rest;
  }
}

}  // namespace
}  // namespace switchml::client
