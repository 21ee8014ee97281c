#include "switchml/native/membership/memory_in_flight.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace switchml::client {
namespace {

class MemoryInFlightTest : public testing::Test {
 protected:
  bool claim(MemoryRange written, uint64_t call, MemoryRange read = {}) {
    try {
      memory_.claim(written, read, call);
      return true;
    } catch (const std::invalid_argument&) {
      return false;
    }
  }

  std::set<uint64_t> ended_;
  MemoryInFlight memory_{[this](uint64_t call) { return ended_.count(call) > 0; }};
};

TEST_F(MemoryInFlightTest, OverlappingRangesAreRefusedUntilTheCallHasEnded) {
  EXPECT_TRUE(claim({100, 110}, 1));
  for (const MemoryRange range : {MemoryRange{100, 110}, {99, 101}, {109, 110}, {90, 190}, {103, 105}}) {
    EXPECT_FALSE(claim(range, 2));
  }
  EXPECT_TRUE(claim({90, 100}, 3));
  EXPECT_TRUE(claim({110, 120}, 4));
  EXPECT_TRUE(claim({105, 105}, 5)) << "memory of no elements";
  ended_.insert(1);
  EXPECT_TRUE(claim({103, 105}, 6));
  memory_.release({100, 110}, 1);  // already removed
  EXPECT_FALSE(claim({104, 105}, 7));
}

TEST_F(MemoryInFlightTest, MemoryMayBeReadBySeveralCallsButNotWrittenMeanwhile) {
  EXPECT_TRUE(claim({0, 10}, 1, {100, 150}));
  EXPECT_TRUE(claim({10, 20}, 2, {100, 150}));
  EXPECT_TRUE(claim({200, 210}, 3, {200, 250})) << "the result is in the memory that is read";
  EXPECT_FALSE(claim({149, 150}, 4));
  EXPECT_FALSE(claim({}, 4, {5, 6}));
  EXPECT_FALSE(claim({300, 305}, 4, {19, 20}));
  EXPECT_FALSE(claim({240, 241}, 4));
  EXPECT_TRUE(claim({300, 305}, 4)) << "the refused calls have claimed nothing";
  memory_.release({0, 10}, 1);
  EXPECT_FALSE(claim({120, 125}, 5));
  ended_.insert(2);
  EXPECT_TRUE(claim({120, 125}, 5));
}

TEST_F(MemoryInFlightTest, IsLikeASetOfAddresses) {
  std::mt19937 random(4);  // NOLINT(bugprone-random-generator-seed): the same sequence in each run
  std::map<uintptr_t, uint64_t> owners;
  std::map<uint64_t, MemoryRange> claims;
  for (uint64_t call = 0; call < 3000; ++call) {
    const uintptr_t begin = random() % 200;
    const MemoryRange range{begin, begin + 1 + random() % 11};
    bool free = true;
    for (uintptr_t address = range.begin; address < range.end; ++address) {
      const auto owner = owners.find(address);
      free = free && (owner == owners.end() || ended_.count(owner->second) > 0);
    }
    ASSERT_EQ(claim(range, call), free) << call;
    if (free) {
      for (uintptr_t address = range.begin; address < range.end; ++address) owners[address] = call;
      claims.emplace(call, range);
    }
    if (!claims.empty() && random() % 10 < 6) {
      const auto chosen = std::next(claims.begin(), static_cast<long>(random() % claims.size()));
      if (random() % 2 == 0) {
        ended_.insert(chosen->first);
      } else {
        memory_.release(chosen->second, chosen->first);
        for (auto owner = owners.begin(); owner != owners.end();) {
          owner = owner->second == chosen->first ? owners.erase(owner) : std::next(owner);
        }
      }
      claims.erase(chosen);
    }
  }
}

}  // namespace
}  // namespace switchml::client
