#include "switchml/native/check.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "native/wire/constants.h"

namespace switchml::client {
namespace {

constexpr size_t kValues = 64;
constexpr SipKey kKeyOfPaper{0x0706050403020100, 0x0f0e0d0c0b0a0908};

using Values = std::vector<int64_t>;  // integers before they wrap around to words

TEST(SipHash, GivesTheNumbersOfItsPublication) {
  EXPECT_EQ(siphash<0>(kKeyOfPaper, {}), 0x726fdb47dd0e0e31U);
  EXPECT_EQ(siphash<1>(kKeyOfPaper, {0x0706050403020100}), 0x93f5f5799a932462U);
  EXPECT_EQ(siphash<2>(kKeyOfPaper, {0x0706050403020100, 0x0f0e0d0c0b0a0908}), 0x3f2acc7f57c29bdbU);
}

uint64_t weighed(const kernels::Weights& weights, const Values& values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += kernels::weighed_word(weights.of[i], static_cast<uint32_t>(values[i]));
  return sum;
}

Values sum_of(const std::vector<Values>& all) {
  Values sum(all[0].size());
  for (const Values& values : all) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

// The contributions of all ranks to a phase, as everyone in the network can read them.
struct Seen {
  Phase phase;
  std::vector<Values> values;
  std::vector<uint32_t> checks;

  uint32_t check() const { return std::accumulate(checks.begin(), checks.end(), 0U); }
};

// The ranks of a job in one epoch.
class Ranks {
 public:
  Ranks(uint32_t size, std::mt19937_64* random) {
    const SipKey key{(*random)(), (*random)()};
    for (uint32_t rank = 0; rank < size; ++rank) checks_.emplace_back(key, rank, size);
  }

  Seen contribute(const Phase& phase, const std::vector<Values>& values, bool sums_fit = true,
                  uint32_t owners_of_scale = 0) const {
    Seen seen{phase, values, {}};
    for (uint32_t rank = 0; rank < values.size(); ++rank) {
      const Words words{weighed(checks_[rank].weights(), values[rank]), sums_fit};
      seen.checks.push_back(checks_[rank].of(phase, words, {rank < owners_of_scale, false}));
    }
    return seen;
  }

  // Returns whether the ranks take these sums for the RESULT of a phase; all decide alike.
  bool accept(const Phase& phase, const Values& sums, uint32_t check, bool sums_fit = true, bool scaled = false) const {
    const bool first = accepts(checks_.front(), phase, sums, check, sums_fit, scaled);
    EXPECT_EQ(accepts(checks_.back(), phase, sums, check, sums_fit, scaled), first);
    return first;
  }
  const kernels::Weights& weights() const { return checks_.front().weights(); }

 private:
  static bool accepts(const Check& check, const Phase& phase, const Values& sums, uint32_t number, bool sums_fit,
                      bool scaled) {
    return check.holds(number, phase, {weighed(check.weights(), sums), sums_fit}, {scaled, false});
  }

  std::vector<Check> checks_;
};

class CheckOf : public testing::TestWithParam<uint32_t> {
 protected:
  // Returns values whose sums over all ranks fit a word.
  std::vector<Values> values() {
    const int64_t most = INT32_MAX / GetParam();
    std::uniform_int_distribution<int64_t> any(-most, most);
    std::vector<Values> all(GetParam(), Values(kValues));
    for (Values& of_rank : all) {
      for (int64_t& value : of_rank) value = any(random_);
    }
    return all;
  }
  Phase next_phase() { return {++position_, 1, 0x12345678, 0, 130}; }

  std::mt19937_64 random_{GetParam()};  // NOLINT: the same run each time
  uint64_t position_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Ranks, CheckOf, testing::Values(1, 2, 3, 8, 64, 65));

TEST_P(CheckOf, ASumOfAllRanksHolds) {
  const Ranks ranks(GetParam(), &random_);
  for (int i = 0; i < 200; ++i) {
    const Seen seen = ranks.contribute(next_phase(), values());
    EXPECT_TRUE(ranks.accept(seen.phase, sum_of(seen.values), seen.check()));
    for (const uint32_t owners : {1U, GetParam()}) {
      const Seen scaled = ranks.contribute(next_phase(), values(), true, owners);
      EXPECT_TRUE(ranks.accept(scaled.phase, sum_of(scaled.values), scaled.check(), true, true));
    }
  }
}

TEST_P(CheckOf, ASumThatWrapsAroundHolds) {
  const Ranks ranks(GetParam(), &random_);
  std::vector<Values> large(GetParam(), Values(kValues, INT32_MAX));
  const Seen seen = ranks.contribute(next_phase(), large, false);
  EXPECT_TRUE(ranks.accept(seen.phase, sum_of(seen.values), seen.check(), false));
}

TEST_P(CheckOf, ARankThatIsMissingOrCountedTwiceIsFound) {
  const Ranks ranks(GetParam(), &random_);
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    const Seen seen = ranks.contribute(next_phase(), std::vector<Values>(GetParam(), Values(kValues)));
    EXPECT_FALSE(ranks.accept(seen.phase, Values(kValues), seen.check() - seen.checks[rank]));
    EXPECT_FALSE(ranks.accept(seen.phase, Values(kValues), seen.check() + seen.checks[rank]));
    const uint32_t other = seen.checks[(rank + 1) % GetParam()];
    EXPECT_EQ(ranks.accept(seen.phase, Values(kValues), seen.check() - seen.checks[rank] + other), GetParam() == 1);
  }
}

// The exponent that scales the words was raised on the way: it is that of no rank.
TEST_P(CheckOf, AnExponentOfNoRankIsFound) {
  const Ranks ranks(GetParam(), &random_);
  const Seen seen = ranks.contribute(next_phase(), values(), true, 0);
  for (uint32_t added = 0; added < 1000; ++added) {
    EXPECT_FALSE(ranks.accept(seen.phase, sum_of(seen.values), seen.check() + added, true, true));
  }
}

TEST_P(CheckOf, RanksThatDifferInAnythingAreFound) {
  if (GetParam() == 1) return;
  const Ranks ranks(GetParam(), &random_);
  const Phase phase = next_phase();
  const std::vector<std::function<void(Phase*)>> changes{
      [](Phase* of) { of->position += 1; }, [](Phase* of) { of->round += 1; }, [](Phase* of) { of->fingerprint ^= 1; },
      [](Phase* of) { of->ordinal += 1; }, [](Phase* of) { of->scaled_by += 1; }};
  for (const auto& change : changes) {
    Phase other = phase;
    change(&other);
    const std::vector<Values> all = values();
    const Seen seen = ranks.contribute(phase, all);
    const uint32_t check = seen.check() - seen.checks[1] + ranks.contribute(other, all).checks[1];
    EXPECT_FALSE(ranks.accept(phase, sum_of(all), check));
    EXPECT_FALSE(ranks.accept(other, sum_of(all), check));
    EXPECT_FALSE(ranks.accept(other, sum_of(all), seen.check())) << "the RESULT of another phase";
  }
}

// ---- an adversary that reads all contributions, and makes the RESULTs
// ------------------------------------------------

// Without a key, anyone can compute how a check changes with a value.
TEST_P(CheckOf, AChangeThatFitsPublicWeightsIsFound) {
  const Ranks ranks(GetParam(), &random_);
  const Seen seen = ranks.contribute(next_phase(), values());
  Values sums = sum_of(seen.values);
  uint32_t check = seen.check();
  for (uint32_t i = 0; i < kValues; ++i) {
    sums[i] += 666;
    check += (((i + 1) * 0x9E3779B1U) | 1U) * 666U;
  }
  EXPECT_FALSE(ranks.accept(seen.phase, sums, check));
}

// Any linear combination of what was seen has a check that is the same combination, but for the pads.
TEST_P(CheckOf, CombinationsOfContributionsAreFound) {
  if (GetParam() == 1) return;
  const Ranks ranks(GetParam(), &random_);
  const Seen first = ranks.contribute(next_phase(), values());
  const Seen second = ranks.contribute(next_phase(), values());
  const Values sums = sum_of(first.values);
  const auto forged = [&](const Values& added, int64_t factor, uint32_t check) {
    Values changed = sums;
    for (size_t i = 0; i < kValues; ++i) changed[i] = static_cast<int32_t>(changed[i] + factor * added[i]);
    return ranks.accept(first.phase, changed, check);
  };
  EXPECT_FALSE(forged(first.values[0], 1, first.check() + first.checks[0]));
  EXPECT_FALSE(forged(first.values[1], -1, first.check() - first.checks[1]));
  EXPECT_FALSE(forged(second.values[0], 1, first.check() + second.checks[0]));
  Values difference(kValues);
  for (size_t i = 0; i < kValues; ++i) difference[i] = first.values[0][i] - first.values[1][i];
  EXPECT_FALSE(forged(difference, 1, first.check() + first.checks[0] - first.checks[1]));
  EXPECT_FALSE(ranks.accept(second.phase, sums, first.check())) << "an earlier RESULT";
}

// The same values were sent in an earlier epoch, whose key was another one.
TEST_P(CheckOf, ResultsOfAnotherEpochAreFound) {
  const Ranks before(GetParam(), &random_);
  const Ranks ranks(GetParam(), &random_);
  const Seen seen = before.contribute(next_phase(), values());
  EXPECT_FALSE(ranks.accept(seen.phase, sum_of(seen.values), seen.check()));
}

// Pairs of the highest bits cancel each other with odd weights modulo 2^32, whatever the weights are.
TEST_P(CheckOf, HighBitsAreFoundLikeOthers) {
  int accepted = 0;
  for (int epoch = 0; epoch < 300; ++epoch) {
    const Ranks ranks(GetParam(), &random_);
    const Seen seen = ranks.contribute(next_phase(), values());
    for (const std::vector<size_t>& places : {std::vector<size_t>{5}, {5, 9}}) {
      for (int bit = 24; bit < 32; ++bit) {
        Values sums = sum_of(seen.values);
        for (const size_t place : places) sums[place] = static_cast<int32_t>(sums[place] ^ int64_t{1} << bit);
        for (const uint32_t guess : {0U, 1U << 31}) accepted += ranks.accept(seen.phase, sums, seen.check() + guess);
      }
    }
  }
  EXPECT_EQ(accepted, 0);
}

// For an adversary, the change of the check that would fit a changed word is any, with equal probability.
TEST(Check, TheChangeThatFitsIsUniform) {
  constexpr int kEpochs = 4096;
  constexpr int kClasses = 16;
  std::mt19937_64 random{7};  // NOLINT: the same run each time
  for (int bit = 0; bit < 32; ++bit) {
    std::array<int, kClasses> high{};
    std::array<int, kClasses> low{};
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const Check check({random(), random()}, 0, 2);
      const uint64_t change = static_cast<uint64_t>(check.weights().of[3]) << bit;
      const uint32_t fits = check.of({}, {change, true}, {}) - check.of({}, {0, true}, {});
      high[fits >> 28] += 1;
      low[fits & (kClasses - 1)] += 1;
    }
    for (const auto& counts : {high, low}) {
      double chi_square = 0;
      for (const int count : counts) {
        const double more = count - double{kEpochs} / kClasses;
        chi_square += more * more * kClasses / kEpochs;
      }
      EXPECT_LT(chi_square, 50) << "bit " << bit;  // with 15 degrees of freedom 1 of 100,000 is larger
    }
  }
}

// A linear system in the weights' lowest bits, from the contributions to many phases. Without pads it has one solution,
// which predicts the lowest bit of every check; with pads, whatever it says is right for half of them.
TEST(Check, ManyContributionsTellNothingAboutTheWeights) {
  std::mt19937_64 random{11};  // NOLINT: the same run each time
  const Ranks ranks(2, &random);
  const auto any_values = [&] {
    std::vector<Values> all(2, Values(kValues));
    for (Values& of_rank : all) {
      for (int64_t& value : of_rank) value = static_cast<int32_t>(random()) / 2;
    }
    return all;
  };
  const auto bits_of = [](const Values& values) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kValues; ++i) bits |= (static_cast<uint64_t>(values[i]) & 1) << i;
    return bits;
  };
  for (const bool padded : {false, true}) {
    struct Equation {
      uint64_t values;
      bool check;
    };
    std::array<Equation, kValues> solved{};
    const auto equation = [&](uint64_t position) {
      const Seen seen = ranks.contribute({position, 1, 0, 0, 0}, any_values(), false);
      const auto check = static_cast<uint32_t>(padded ? seen.checks[0] : weighed(ranks.weights(), seen.values[0]));
      return Equation{bits_of(seen.values[0]), (check & 1) != 0};
    };
    const auto reduced = [&](Equation one) {
      for (size_t i = 0; i < kValues; ++i) {
        if ((one.values >> i & 1) != 0 && solved[i].values != 0) {
          one = {one.values ^ solved[i].values, one.check != solved[i].check};
        }
      }
      return one;
    };
    for (uint64_t position = 0; position < 4 * kValues; ++position) {
      const Equation one = reduced(equation(position));
      if (one.values != 0) solved[static_cast<size_t>(__builtin_ctzll(one.values))] = one;
    }
    int right = 0;
    constexpr int kGuesses = 2000;
    for (int i = 0; i < kGuesses; ++i) right += reduced(equation(1000 + static_cast<uint64_t>(i))).check ? 0 : 1;
    if (padded) {
      EXPECT_NEAR(right, kGuesses / 2.0, 130);  // three times its standard deviation, twice
    } else {
      EXPECT_EQ(right, kGuesses);
    }
  }
}

}  // namespace
}  // namespace switchml::client
