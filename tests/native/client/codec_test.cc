#include "switchml/native/codecs/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "native/kernels/half.h"
#include "switchml/native/codecs/make_codec.h"
#include "tests/native/client/codec_call.h"

namespace switchml::client {
namespace {

// Returns the codec of a call whose results replace its values.
std::unique_ptr<Codec> codec_of(CallKind kind, std::vector<uint8_t>* memory, uint64_t elements) {
  return make_codec(kind, {memory->data(), memory->data(), elements}, true, geometry(2));
}

// first, first + step, ...
std::vector<float> floats(size_t count, float first, float step) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = first + step * static_cast<float>(i);
  return all;
}

TEST(Codecs, FloatsAreSummedAtAllRanks) {
  constexpr size_t kCount = 3 * kValues - 5;
  CodecCall call(CallKind::float32_sum, kCount,
                 {bytes_of(floats(kCount, 1, 1)), bytes_of(floats(kCount, 0.5, 0)), bytes_of(floats(kCount, -2, 2))});
  call.run();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(elements_of<float>(call.memory(rank)), floats(kCount, -0.5, 3));
    EXPECT_EQ(call.codec(rank).non_finite().count, 0U);
  }
  EXPECT_EQ(call.phases(), 2 * 3);  // exponents, then values
}

TEST(Codecs, AveragesAreDividedByTheNumberOfRanks) {
  CodecCall call(CallKind::float32_average, kValues,
                 {bytes_of(floats(kValues, 0, 2)), bytes_of(floats(kValues, 8, 0))});
  call.run();
  EXPECT_EQ(elements_of<float>(call.memory(1)), floats(kValues, 4, 1));
}

TEST(Codecs, LargestMagnitudeOfAnyRankSetsThePrecision) {
  std::vector<float> large = floats(kValues, 0, 0);
  large[3] = 0x1p100F;
  CodecCall call(CallKind::float32_sum, kValues, {bytes_of(large), bytes_of(floats(kValues, 1, 0))});
  call.run();
  const std::vector<float> sums = elements_of<float>(call.memory(0));
  EXPECT_EQ(sums[3], 0x1p100F);
  EXPECT_EQ(sums[4], 0);  // 1 is far below the last bit of 2^100 in 30 bits
}

TEST(Codecs, SumsOfExtremeNumbersDoNotOverflowTheWords) {
  const float most = std::numeric_limits<float>::max();
  CodecCall call(
      CallKind::float32_average, kValues,
      {bytes_of(floats(kValues, most, 0)), bytes_of(floats(kValues, most, 0)), bytes_of(floats(kValues, most, 0))});
  call.run();
  for (const float value : elements_of<float>(call.memory(2))) EXPECT_NEAR(value / most, 1, 1e-6);
}

TEST(Codecs, PlacesThatAreNotFiniteAreNamedAndTheRestIsRight) {
  constexpr size_t kCount = 2 * kValues;
  std::vector<float> one = floats(kCount, 1, 0);
  std::vector<float> two = floats(kCount, 2, 0);
  one[5] = std::numeric_limits<float>::quiet_NaN();
  two[5] = 7;
  two[kValues + 1] = -std::numeric_limits<float>::infinity();
  CodecCall call(CallKind::float32_sum, kCount, {bytes_of(one), bytes_of(two)});
  call.run();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(call.codec(rank).non_finite().count, 2U);
    EXPECT_EQ(call.codec(rank).non_finite().indices, (std::vector<uint64_t>{5, kValues + 1}));
    const std::vector<float> sums = elements_of<float>(call.memory(rank));
    for (size_t i = 0; i < kCount; ++i) {
      if (i == 5 || i == kValues + 1) {
        EXPECT_TRUE(std::isnan(sums[i])) << i;
      } else {
        EXPECT_EQ(sums[i], 3) << i;
      }
    }
  }
  EXPECT_EQ(call.phases(), 2 * 3);  // exponents, flags, values
}

TEST(Codecs, SixteenLowestPlacesAreKept) {
  constexpr size_t kCount = 2 * kValues;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CodecCall call(CallKind::float32_sum, kCount, {bytes_of(floats(kCount, nan, 0)), bytes_of(floats(kCount, 1, 0))});
  call.run();
  EXPECT_EQ(call.codec().non_finite().count, kCount);
  ASSERT_EQ(call.codec().non_finite().indices.size(), NonFinite::kIndicesKept);
  for (uint64_t i = 0; i < NonFinite::kIndicesKept; ++i) EXPECT_EQ(call.codec().non_finite().indices[i], i);
}

template <class Half>
void expect_half_sums(CallKind kind) {
  std::vector<Half> one(kValues + 3);
  std::vector<Half> two(kValues + 3);
  for (size_t i = 0; i < one.size(); ++i) {
    kernels::narrow(static_cast<float>(i), &one[i]);
    kernels::narrow(0.5F, &two[i]);
  }
  CodecCall call(kind, one.size(), {bytes_of(one), bytes_of(two)});
  call.run();
  const std::vector<Half> sums = elements_of<Half>(call.memory(1));
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(kernels::widen(sums[i]), static_cast<float>(i) + 0.5F);
}

TEST(Codecs, HalvesAreSummed) {
  expect_half_sums<kernels::Float16>(CallKind::float16_sum);
  expect_half_sums<kernels::BFloat16>(CallKind::bfloat16_sum);
}

TEST(Codecs, IntegersAreSummedModulo32Bits) {
  std::vector<int32_t> one(kValues + 1, std::numeric_limits<int32_t>::max());
  std::vector<int32_t> two(kValues + 1, 2);
  CodecCall call(CallKind::int32_sum, one.size(), {bytes_of(one), bytes_of(two)});
  call.run();
  EXPECT_EQ(elements_of<int32_t>(call.memory(0)),
            std::vector<int32_t>(kValues + 1, std::numeric_limits<int32_t>::min() + 1));
  EXPECT_EQ(call.phases(), 2);
}

Lanes narrow(uint32_t bits, bool stochastic = false, uint64_t seed = 0) { return {bits, stochastic, seed, 0}; }

class NarrowLanes : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bits, NarrowLanes, testing::Values(16, 8));

TEST_P(NarrowLanes, SumsAreWithinTheirBound) {
  const size_t per_chunk = size_t{kValues} * 32 / GetParam();
  for (const size_t count : {size_t{1}, per_chunk - 1, per_chunk, 3 * per_chunk + 5}) {
    for (const uint32_t ranks : {1U, 2U, 3U, 8U, 64U}) {
      std::vector<std::vector<uint8_t>> memory;
      std::vector<double> sums(count);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) {
          values[i] = std::sin(static_cast<float>(i * 7 + rank * 3 + 1)) * 0.999F;
          sums[i] += values[i];
        }
        memory.push_back(bytes_of(values));
      }
      CodecCall call(CallKind::float32_sum, count, memory, SIZE_MAX, narrow(GetParam()));
      call.run();
      // The magnitudes are below 1: a level is at most 1 / levels.
      const double bound = 0.5 * ranks / kernels::levels_for(static_cast<int>(GetParam()), ranks) * 1.001;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(call.memory(rank), call.memory(0));
        const std::vector<float> found = elements_of<float>(call.memory(rank));
        for (size_t i = 0; i < count; ++i) ASSERT_NEAR(found[i], sums[i], bound) << i << " of " << count;
      }
      EXPECT_EQ(call.phases(), 2 * static_cast<int>(call.codec().chunks()));
    }
  }
}

TEST_P(NarrowLanes, LargestMagnitudesOfAllRanksDoNotBorrow) {
  constexpr size_t kCount = 3 * kValues + 1;
  const float most = std::numeric_limits<float>::max();
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = i % 3 == 0 ? most : -most;
  for (uint32_t ranks = 2; ranks <= 64; ++ranks) {
    for (const bool stochastic : {false, true}) {
      const std::vector<std::vector<uint8_t>> memory(ranks, bytes_of(values));
      CodecCall call(CallKind::float32_average, kCount, memory, SIZE_MAX, narrow(GetParam(), stochastic, 5));
      call.run();
      const std::vector<float> found = elements_of<float>(call.memory(ranks - 1));
      // The float32 number of levels is a little below the highest one, and may be rounded down.
      const double error = stochastic ? 1.0 / kernels::levels_for(static_cast<int>(GetParam()), ranks) : 1e-6;
      for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(found[i] / values[i], 1, error) << i << ", " << ranks << " ranks";
    }
  }
}

TEST_P(NarrowLanes, PlacesThatAreNotFiniteAreNamed) {
  constexpr size_t kCount = 6 * kValues + 3;
  std::vector<float> one = floats(kCount, 1, 0);
  std::vector<float> two = floats(kCount, 1, 0);
  one[5] = std::numeric_limits<float>::quiet_NaN();
  two[5] = std::numeric_limits<float>::infinity();
  two[kCount - 1] = -std::numeric_limits<float>::infinity();
  CodecCall call(CallKind::float32_sum, kCount, {bytes_of(one), bytes_of(two)}, SIZE_MAX, narrow(GetParam()));
  call.run();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(call.codec(rank).non_finite().indices, (std::vector<uint64_t>{5, kCount - 1}));
    const std::vector<float> sums = elements_of<float>(call.memory(rank));
    for (size_t i = 0; i < kCount; ++i) {
      if (i == 5 || i == kCount - 1) {
        EXPECT_TRUE(std::isnan(sums[i])) << i;
      } else {
        EXPECT_NEAR(sums[i], 2, 0.04) << i;
      }
    }
  }
}

TEST_P(NarrowLanes, SameSeedGivesTheSameBits) {
  constexpr size_t kCount = 5 * kValues;
  const std::vector<std::vector<uint8_t>> memory = {bytes_of(floats(kCount, 0.1F, 0.013F)),
                                                    bytes_of(floats(kCount, -3, 0.007F))};
  const auto sums = [&](bool stochastic, uint64_t seed) {
    CodecCall call(CallKind::float32_sum, kCount, memory, SIZE_MAX, narrow(GetParam(), stochastic, seed));
    call.run();
    return call.memory(1);
  };
  EXPECT_EQ(sums(true, 1), sums(true, 1));
  EXPECT_NE(sums(true, 1), sums(true, 2));
  EXPECT_NE(sums(true, 1), sums(false, 1));
}

TEST_P(NarrowLanes, HalvesTakeAsManyWords) {
  std::vector<kernels::BFloat16> one(4 * kValues + 1);
  for (size_t i = 0; i < one.size(); ++i) kernels::narrow(static_cast<float>(i % 5), &one[i]);
  CodecCall call(CallKind::bfloat16_average, one.size(), {bytes_of(one), bytes_of(one)}, SIZE_MAX, narrow(GetParam()));
  EXPECT_EQ(call.codec().words(), (one.size() * GetParam() + 31) / 32);
  call.run();
  const std::vector<kernels::BFloat16> found = elements_of<kernels::BFloat16>(call.memory(0));
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(kernels::widen(found[i]), static_cast<float>(i % 5), 0.07) << i;
  }
}

template <class Integer>
void expect_integer_sums(CallKind kind, uint32_t bits, size_t ranks, int least, int most) {
  constexpr size_t kCount = 5 * kValues + 3;
  std::vector<std::vector<uint8_t>> memory;
  std::vector<Integer> sums(kCount);
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<Integer> values(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<Integer>(i % 3 == 0   ? least
                                       : i % 3 == 1 ? most
                                                    : std::min(most, least + static_cast<int>(i % 7)));
      sums[i] = static_cast<Integer>(sums[i] + values[i]);
    }
    memory.push_back(bytes_of(values));
  }
  CodecCall call(kind, kCount, memory, SIZE_MAX, narrow(bits));
  call.run();
  EXPECT_EQ(elements_of<Integer>(call.memory(ranks - 1)), sums);
  EXPECT_EQ(call.phases(), static_cast<int>(call.codec().chunks()));
}

TEST(Codecs, SmallIntegersAreSummedExactlyInNarrowLanes) {
  for (const size_t ranks : {1, 2, 5, 64}) {
    expect_integer_sums<int8_t>(CallKind::int8_sum, 16, ranks, -128, 127);
    expect_integer_sums<uint8_t>(CallKind::uint8_sum, 16, ranks, 0, 255);
    expect_integer_sums<int8_t>(CallKind::int8_sum, 32, ranks, -128, 127);
    expect_integer_sums<int16_t>(CallKind::int16_sum, 32, ranks, -32768, 32767);
    expect_integer_sums<int16_t>(CallKind::int16_sum, 16, ranks, -511, 511);
    expect_integer_sums<int8_t>(CallKind::int8_sum, 8, ranks, -1, 1);
    expect_integer_sums<int32_t>(CallKind::int32_sum, 8, ranks, -1, 1);
  }
}

TEST(Codecs, TruthValuesFitEightBitsForAllRanks) {
  constexpr size_t kCount = 4 * kValues + 3;
  std::vector<std::vector<uint8_t>> memory(64, std::vector<uint8_t>(kCount, 0));
  std::vector<uint8_t> any(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    for (size_t rank = 0; rank < memory.size(); ++rank) {
      memory[rank][i] = i % 4 == 0 || (i % 4 == 1 && rank == 63) ? 1 : 0;
      any[i] |= memory[rank][i];
    }
  }
  CodecCall call(CallKind::bool_sum, kCount, memory, SIZE_MAX, narrow(8));
  call.run();
  EXPECT_EQ(call.memory(0), any);
}

TEST(Codecs, ValuesBeyondTheBoundAreFound) {
  const std::vector<uint8_t> memory = bytes_of(std::vector<int8_t>{1, -5, 3});
  EXPECT_TRUE(all_within(CallKind::int8_sum, memory.data(), memory.size(), 5));
  EXPECT_FALSE(all_within(CallKind::int8_sum, memory.data(), memory.size(), 4));
  EXPECT_THROW(all_within(CallKind::float32_sum, memory.data(), 0, 4), std::invalid_argument);
}

// Runs a call with the values of each rank, and expects their sum modulo 2^64 after `words` words for each value.
void expect_long_sums(const std::vector<std::vector<int64_t>>& values, int words) {
  std::vector<std::vector<uint8_t>> memory;
  std::vector<uint64_t> sums(values[0].size());
  for (const std::vector<int64_t>& of_rank : values) {
    memory.push_back(bytes_of(of_rank));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<uint64_t>(of_rank[i]);
  }
  CodecCall call(CallKind::int64_sum, sums.size(), memory);
  call.run();
  for (size_t rank = 0; rank < values.size(); ++rank) EXPECT_EQ(elements_of<uint64_t>(call.memory(rank)), sums);
  EXPECT_EQ(call.phases(), static_cast<int>(call.codec().chunks()) * (1 + words)) << values.size() << " ranks";
}

class LongIntegersOfRanks : public testing::TestWithParam<size_t> {
 protected:
  // Expects the sums of values that alternate between `least` and `most`, and are the same at all ranks.
  void expect_words(int64_t least, int64_t most, int words) const {
    std::vector<int64_t> of_rank(2 * kValues + 3);
    for (size_t i = 0; i < of_rank.size(); ++i) of_rank[i] = i % 2 == 0 ? least : most;
    expect_long_sums(std::vector<std::vector<int64_t>>(GetParam(), of_rank), words);
  }
  int headroom() const { return bits_for(static_cast<uint32_t>(GetParam())); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LongIntegersOfRanks, testing::Values(1, 2, 3, 4, 8, 33, 64, 65, 1024, 4096));

TEST_P(LongIntegersOfRanks, TakeOneWordUpToTheLargestSumThatFits) {
  const int64_t most = int64_t{1} << (31 - headroom());
  expect_words(0, 0, 1);
  expect_words(-1, 1, 1);
  expect_words(-most, most - 1, 1);
  expect_words(-most, most, 2);
  expect_words(-most - 1, most - 1, 2);
}

TEST_P(LongIntegersOfRanks, TakeTwoWordsUpToTheLargestSumThatFits) {
  if (headroom() == 0) {
    expect_words(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), 2);
    return;
  }
  const int64_t most = int64_t{1} << (63 - 2 * headroom());
  expect_words(-most, most - 1, 2);
  expect_words(-most, most, 3);
  expect_words(-most - 1, most - 1, 3);
  expect_words(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), 3);
}

TEST_P(LongIntegersOfRanks, SumValuesOfAnySizeAtAnyRank) {
  std::mt19937_64 random(GetParam());  // NOLINT: the same values each time
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::vector<std::vector<int64_t>> values(GetParam(), std::vector<int64_t>(kValues));
    for (std::vector<int64_t>& of_rank : values) {
      const uint64_t bits = random() % 64;
      for (int64_t& value : of_rank) value = static_cast<int64_t>(random()) >> bits;
    }
    values[random() % values.size()][random() % kValues] = std::numeric_limits<int64_t>::min();
    expect_long_sums(values, GetParam() == 1 ? 2 : 3);
  }
}

// ---- float64 --------------------------------------------------------------------------------------------------------

// Runs a call of float64 with the values of each rank; returns the result, which all ranks must have.
std::vector<double> doubles(const std::vector<std::vector<double>>& values, CallKind kind = CallKind::float64_sum) {
  std::vector<std::vector<uint8_t>> memory;
  for (const auto& of_rank : values) memory.push_back(bytes_of(of_rank));
  CodecCall call(kind, values[0].size(), memory);
  call.run();
  for (size_t rank = 1; rank < values.size(); ++rank) EXPECT_EQ(call.memory(rank), call.memory(0));
  return elements_of<double>(call.memory(0));
}

class DoublesOfRanks : public testing::TestWithParam<size_t> {
 protected:
  std::vector<std::vector<double>> all(double value) const {
    return std::vector<std::vector<double>>(GetParam(), std::vector<double>(kValues + 3, value));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, DoublesOfRanks, testing::Values(1, 2, 3, 4, 8, 33, 64, 65, 1024, 4096));

TEST_P(DoublesOfRanks, EveryMagnitudeAndSignIsSummed) {
  const auto ranks = static_cast<double>(GetParam());
  for (const double value : {0.0, 1.0, -1.0, 0.1, 1 - 0x1p-53, -(1 - 0x1p-53), 0x1.fffffffffffffp1000,
                             -0x1.fffffffffffffp1000, 0x1p-1074, -0x1p-1074, 0x1.8p-1022, 0x0.fffffffffffffp-1022}) {
    for (const double sum : doubles(all(value))) EXPECT_EQ(sum, value * ranks) << value;
    for (const double mean : doubles(all(value), CallKind::float64_average)) EXPECT_EQ(mean, value);
  }
  constexpr double kMost = std::numeric_limits<double>::max();
  for (const double sum : doubles(all(-kMost))) EXPECT_EQ(sum, -kMost * ranks) << "minus infinity from two ranks on";
  for (const double mean : doubles(all(kMost), CallKind::float64_average)) EXPECT_EQ(mean, kMost);
}

// Values are whole numbers, so that their sums are exact in 128 bits.
TEST_P(DoublesOfRanks, SumsAndAveragesAreRoundedOnce) {
  std::mt19937_64 random(GetParam());  // NOLINT: the same values each time
  for (int repetition = 0; repetition < 10; ++repetition) {
    std::vector<std::vector<double>> values(GetParam(), std::vector<double>(kValues));
    std::vector<__int128> sums(kValues);
    for (auto& of_rank : values) {
      for (size_t i = 0; i < kValues; ++i) {
        // The largest job keeps 51 bits of the largest magnitude of a block.
        const auto whole = static_cast<int64_t>(random()) >> (13 + random() % 40);
        of_rank[i] = static_cast<double>(whole);
        sums[i] += whole;
      }
    }
    const auto ranks = static_cast<__int128>(GetParam());
    const auto summed = doubles(values);
    const auto means = doubles(values, CallKind::float64_average);
    for (size_t i = 0; i < kValues; ++i) {
      EXPECT_EQ(summed[i], static_cast<double>(sums[i]));
      // A mean m is the nearest one: its neighbours are not nearer to sum / ranks.
      const auto away = [&](double mean) { return std::fabs(std::fma(mean, static_cast<double>(ranks), -summed[i])); };
      EXPECT_LE(away(means[i]), away(std::nextafter(means[i], 1e300)));
      EXPECT_LE(away(means[i]), away(std::nextafter(means[i], -1e300)));
    }
  }
}

TEST_P(DoublesOfRanks, DifferByTheBoundAtMost) {
  std::mt19937_64 random(GetParam() + 1);  // NOLINT: the same values each time
  const int bits = bits_for(static_cast<uint32_t>(GetParam()));
  const int kept = 2 * (32 - bits) + 31 - bits - 8;
  std::vector<std::vector<double>> values(GetParam(), std::vector<double>(kValues));
  std::vector<long double> sums(kValues);
  for (auto& of_rank : values) {
    for (size_t i = 0; i < kValues; ++i) {
      of_rank[i] = std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -static_cast<int>(random() % 200));
      sums[i] += of_rank[i];
    }
  }
  const auto summed = doubles(values);
  const long double unit = std::ldexp(1.0L, 64 - kept);  // every magnitude is below 2^64
  for (size_t i = 0; i < kValues; ++i) {
    const long double rounding = std::fabs(sums[i]) * 0x1p-52L;  // of the result and of the expected sum
    EXPECT_LE(std::fabs(summed[i] - sums[i]), static_cast<long double>(GetParam()) / 2 * unit + rounding);
  }
}

TEST(Codecs, DoublesThatAreNotFiniteAreNamed) {
  std::vector<std::vector<double>> values(3, std::vector<double>(2 * kValues, 0.5));
  values[1][4] = std::numeric_limits<double>::quiet_NaN();
  values[2][kValues + 1] = -std::numeric_limits<double>::infinity();
  std::vector<std::vector<uint8_t>> memory;
  for (const auto& of_rank : values) memory.push_back(bytes_of(of_rank));
  CodecCall call(CallKind::float64_sum, 2 * kValues, memory);
  call.run();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(call.codec(rank).non_finite().indices, (std::vector<uint64_t>{4, kValues + 1}));
    const auto sums = elements_of<double>(call.memory(rank));
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i == 4 || i == kValues + 1) {
        EXPECT_TRUE(std::isnan(sums[i]));
      } else {
        EXPECT_EQ(sums[i], 1.5) << i;
      }
    }
  }
}

TEST(Codecs, LongIntegersAreKeptUntilTheLastPhase) {
  std::vector<uint8_t> memory = bytes_of(std::vector<int64_t>(kValues, int64_t{1} << 40));
  const std::vector<uint8_t> before = memory;
  const std::unique_ptr<Codec> codec = codec_of(CallKind::int64_sum, &memory, kValues);
  Chunk chunk;
  chunk.told = {codec->exponent_of(0), codec->exponent_of(0)};
  ASSERT_TRUE(codec->begin(&chunk));
  std::vector<uint8_t> words(kValues * sizeof(uint32_t));
  ASSERT_FALSE(codec->encode(chunk, words.data()).tells_next);
  codec->decode(chunk, words.data());
  ASSERT_EQ(codec->advance(&chunk, words.data()), Step::next_phase);
  EXPECT_EQ(memory, before);
  ASSERT_TRUE(codec->encode(chunk, words.data()).tells_next);
  ASSERT_TRUE(codec->begin(&chunk));  // of the next chunk in the slot, which knows nothing of this one
  EXPECT_FALSE(codec->encode(chunk, words.data()).tells_next);
}

TEST(Codecs, LongIntegersTakeTheLargestExponentOfAllRanks) {
  std::vector<uint8_t> memory = bytes_of(std::vector<int64_t>(kValues, 7));
  const std::unique_ptr<Codec> codec = codec_of(CallKind::int64_sum, &memory, kValues);
  Chunk chunk;
  for (const uint16_t all : {uint16_t{3}, uint16_t{63}, uint16_t{255}}) {
    chunk.told = {codec->exponent_of(0), all};
    EXPECT_TRUE(codec->begin(&chunk));
    EXPECT_EQ(chunk.scaled_by, all);
    EXPECT_EQ(chunk.owns_scale, all == 3);
  }
  chunk.told.all = 2;
  EXPECT_FALSE(codec->begin(&chunk));
}

class BytesOfLength : public testing::TestWithParam<size_t> {};

TEST_P(BytesOfLength, ReachAllRanksAsTheyAre) {
  std::vector<uint8_t> message(GetParam());
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(0xA0 + i);
  const std::vector<uint8_t> rubbish(message.size(), 0x55);
  for (const bool optional_values : {true, false}) {
    CodecCall call(CallKind::bytes, message.size(), {rubbish, message, rubbish}, 1, {}, optional_values);
    call.run();
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(call.memory(rank), message);
    EXPECT_EQ(call.words(1), call.codec().words());
    EXPECT_EQ(call.words(0), optional_values ? 0 : call.codec().words());
  }
}

constexpr size_t kPacketBytes = kValues * sizeof(uint32_t);
INSTANTIATE_TEST_SUITE_P(Lengths, BytesOfLength,
                         testing::Values(1, 2, 3, 4, 5, kPacketBytes - 1, kPacketBytes, kPacketBytes + 1,
                                         2 * kPacketBytes + 7));

// Returns small values of a kind of sum, which are different for each seed.
std::vector<uint8_t> values_of(CallKind kind, size_t count, unsigned seed) {
  std::mt19937 random(seed);  // NOLINT: the same values each time
  const auto made = [&](auto value_of) {
    std::vector<decltype(value_of(0))> values(count);
    for (auto& value : values) value = value_of(static_cast<int>(random() % 3) - 1);
    return bytes_of(values);
  };
  const auto half = [&](auto type) {
    return made([&](int number) {
      decltype(type) value{};
      kernels::narrow(static_cast<float>(number) * 1.37F, &value);
      return value;
    });
  };
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
      return made([](int number) { return static_cast<float>(number) * 1.37F; });
    case CallKind::float16_sum:
    case CallKind::float16_average:
      return half(kernels::Float16{});
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return half(kernels::BFloat16{});
    case CallKind::int64_sum:
      return made([](int number) { return int64_t{number} * (int64_t{1} << 40); });
    case CallKind::int32_sum:
      return made([](int number) { return int32_t{number}; });
    case CallKind::int16_sum:
      return made([](int number) { return static_cast<int16_t>(number); });
    default:
      return made([](int number) { return static_cast<uint8_t>(std::abs(number)); });
  }
}

// Part `number` of an array that has a part for each of `parts` ranks.
std::vector<uint8_t> part_of(const std::vector<uint8_t>& array, size_t number, size_t parts) {
  const size_t bytes = array.size() / parts;
  const auto begin = array.begin() + static_cast<ptrdiff_t>(number * bytes);
  return {begin, begin + static_cast<ptrdiff_t>(bytes)};
}

struct Scattered {
  CallKind kind;
  uint32_t lane_bits;
};

class ScatteredSums : public testing::TestWithParam<Scattered> {
 protected:
  // A reduce-scatter of `part` elements for each rank gives each rank the bits that an all-reduce of its part gives:
  // their chunks hold the same elements.
  static void expect_parts(size_t ranks, size_t part) {
    const auto [kind, lane_bits] = GetParam();
    std::vector<std::vector<uint8_t>> values;
    for (size_t rank = 0; rank < ranks; ++rank) {
      values.push_back(values_of(kind, ranks * part, static_cast<unsigned>(rank)));
    }
    const size_t part_bytes = part * element_bytes(kind);
    const std::vector<std::vector<uint8_t>> outputs(ranks, std::vector<uint8_t>(part_bytes, 0xAA));
    CodecCall apart(kind, Division::scatter, ranks * part, values, outputs, narrow(lane_bits));
    apart.run();
    CodecCall in_place(kind, Division::scatter, ranks * part, values, {}, narrow(lane_bits));
    in_place.run();
    for (size_t owner = 0; owner < ranks; ++owner) {
      std::vector<std::vector<uint8_t>> parts;
      for (const std::vector<uint8_t>& array : values) parts.push_back(part_of(array, owner, ranks));
      CodecCall reduced(kind, part, parts, SIZE_MAX, narrow(lane_bits));
      reduced.run();
      EXPECT_EQ(apart.output(owner), reduced.memory(0));
      EXPECT_EQ(apart.memory(owner), values[owner]);  // the input is only read
      std::vector<uint8_t> expected = values[owner];
      std::copy_n(reduced.memory(0).begin(), part_bytes, expected.begin() + static_cast<ptrdiff_t>(owner * part_bytes));
      EXPECT_EQ(in_place.memory(owner), expected);
    }
  }
};

TEST_P(ScatteredSums, AreThoseOfAnAllReduceOfEachPart) {
  const size_t per_chunk = size_t{kValues} * 32 / GetParam().lane_bits;
  for (const size_t ranks : {1U, 2U, 3U, 5U}) {
    for (const size_t part : {size_t{0}, size_t{1}, per_chunk - 1, per_chunk, 2 * per_chunk + 3, 4 * per_chunk}) {
      expect_parts(ranks, part);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ScatteredSums,
                         testing::Values(Scattered{CallKind::float32_sum, 32}, Scattered{CallKind::float32_average, 32},
                                         Scattered{CallKind::float16_sum, 32},
                                         Scattered{CallKind::bfloat16_average, 32},
                                         Scattered{CallKind::float32_sum, 16}, Scattered{CallKind::bfloat16_sum, 8},
                                         Scattered{CallKind::int32_sum, 32}, Scattered{CallKind::int64_sum, 32},
                                         Scattered{CallKind::int16_sum, 32}, Scattered{CallKind::int8_sum, 16},
                                         Scattered{CallKind::uint8_sum, 16}, Scattered{CallKind::bool_sum, 8}));

TEST(Codecs, StochasticRoundingOfAPartIsChosenByItsPlaceInTheWhole) {
  constexpr size_t kPart = 2 * kValues;  // a chunk of lanes of 16 bits
  std::vector<float> values = floats(kPart, 0.1F, 0.013F);
  values.insert(values.end(), values.begin(), values.end());
  const std::vector<std::vector<uint8_t>> memory(2, bytes_of(values));
  CodecCall scattered(CallKind::float32_sum, Division::scatter, values.size(), memory, {}, narrow(16, true, 3));
  CodecCall reduced(CallKind::float32_sum, values.size(), memory, SIZE_MAX, narrow(16, true, 3));
  scattered.run();
  reduced.run();
  EXPECT_NE(part_of(reduced.memory(0), 0, 2), part_of(reduced.memory(0), 1, 2));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(part_of(scattered.memory(rank), rank, 2), part_of(reduced.memory(rank), rank, 2));
  }
}

TEST(Codecs, PlacesOfAllPartsThatAreNotFiniteAreNamedAtAllRanks) {
  constexpr size_t kPart = kValues + 3;
  std::vector<float> one = floats(2 * kPart, 1, 0);
  one[5] = one[kPart + kValues + 1] = std::numeric_limits<float>::quiet_NaN();
  CodecCall call(CallKind::float32_sum, Division::scatter, 2 * kPart,
                 {bytes_of(one), bytes_of(floats(2 * kPart, 1, 0))},
                 std::vector<std::vector<uint8_t>>(2, bytes_of(floats(kPart, 0, 0))));
  call.run();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(call.codec(rank).non_finite().indices, (std::vector<uint64_t>{5, kPart + kValues + 1}));
    const std::vector<float> sums = elements_of<float>(call.output(rank));
    for (size_t i = 0; i < kPart; ++i) {
      if (i == (rank == 0 ? 5 : kValues + 1)) {
        EXPECT_TRUE(std::isnan(sums[i]));
      } else {
        EXPECT_EQ(sums[i], 2) << i;
      }
    }
  }
}

TEST(Codecs, BytesOfAllRanksAreGathered) {
  constexpr size_t kPacket = kValues * sizeof(uint32_t);
  for (const bool optional_values : {true, false}) {
    for (const size_t ranks : {1U, 2U, 3U, 5U}) {
      for (const size_t part : {size_t{0}, size_t{1}, size_t{5}, kPacket - 1, kPacket, 2 * kPacket + 7}) {
        std::vector<std::vector<uint8_t>> inputs;
        std::vector<uint8_t> all;
        std::vector<std::vector<uint8_t>> in_place(ranks, std::vector<uint8_t>(ranks * part, 0x55));
        for (size_t rank = 0; rank < ranks; ++rank) {
          inputs.push_back(values_of(CallKind::float32_sum, part, static_cast<unsigned>(rank)));
          inputs[rank].resize(part);
          all.insert(all.end(), inputs[rank].begin(), inputs[rank].end());
          std::copy_n(inputs[rank].begin(), part, in_place[rank].begin() + static_cast<ptrdiff_t>(rank * part));
        }
        CodecCall call(CallKind::bytes, Division::gather, ranks * part, inputs, in_place, {}, optional_values);
        CodecCall within(CallKind::bytes, Division::gather, ranks * part, in_place, {}, {}, optional_values);
        call.run();
        within.run();
        for (size_t rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(call.output(rank), all);
          EXPECT_EQ(call.memory(rank), inputs[rank]);
          EXPECT_EQ(within.memory(rank), all);
          const size_t own = (part + 3) / 4;
          EXPECT_EQ(call.words(rank), optional_values ? own : ranks * own);
        }
      }
    }
  }
}

TEST(Codecs, PartsThatAKindCannotHaveAreRefused) {
  std::vector<uint8_t> memory(6 * sizeof(float));
  const auto make = [&](CallKind kind, Division division, uint64_t elements) {
    make_codec(kind, {memory.data(), memory.data(), elements, division}, true, geometry(2));
  };
  EXPECT_NO_THROW(make(CallKind::float32_sum, Division::scatter, 6));
  EXPECT_THROW(make(CallKind::float32_sum, Division::scatter, 5), std::invalid_argument);
  EXPECT_THROW(make(CallKind::float32_sum, Division::gather, 6), std::invalid_argument);
  EXPECT_THROW(make(CallKind::bytes, Division::scatter, 6), std::invalid_argument);
  EXPECT_THROW(make(CallKind::barrier, Division::gather, 0), std::invalid_argument);
}

TEST(Layout, ChunksOfPartsTakeTurns) {
  const Layout layout(2 * 20, Division::scatter, 16, geometry(2, 1));
  ASSERT_EQ(layout.chunks(), 4U);
  const std::vector<std::vector<uint64_t>> expected = {{0, 0, 16, 0}, {20, 0, 16, 1}, {16, 16, 4, 0}, {36, 16, 4, 1}};
  for (uint64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    const Place place = layout.place_of(chunk);
    EXPECT_EQ((std::vector<uint64_t>{place.first, place.in_part, place.count, place.own ? 1U : 0U}), expected[chunk]);
    EXPECT_EQ(layout.is_full(place), chunk < 2);
  }
}

TEST(Layout, WholeCallHasOnePartOfAllRanks) {
  const Layout layout(20, Division::whole, 16, geometry(2, 1));
  ASSERT_EQ(layout.chunks(), 2U);
  EXPECT_EQ(layout.place_of(1).first, 16U);
  EXPECT_EQ(layout.place_of(1).count, 4U);
  EXPECT_TRUE(layout.place_of(0).own);
  EXPECT_EQ(Layout(0, Division::gather, 16, geometry(2)).chunks(), 1U);
}

TEST(Codecs, CallWithoutValuesIsOneEmptyPacket) {
  for (const CallKind kind : {CallKind::barrier, CallKind::float32_sum, CallKind::bytes}) {
    CodecCall call(kind, 0, {{}, {}});
    EXPECT_EQ(call.codec().chunks(), 1U);
    EXPECT_EQ(call.codec().encode(Chunk{}, nullptr).count, 0);
    EXPECT_TRUE(call.codec().encode(Chunk{}, nullptr).tells_next);
  }
}

TEST(Codecs, ChunksAreWholePacketsButTheLast) {
  std::vector<uint8_t> memory(3 * kPacketBytes);
  const auto chunks = [&](CallKind kind, uint64_t elements) { return codec_of(kind, &memory, elements)->chunks(); };
  EXPECT_EQ(chunks(CallKind::float32_sum, kValues), 1U);
  EXPECT_EQ(chunks(CallKind::float32_sum, kValues + 1), 2U);
  EXPECT_EQ(chunks(CallKind::float16_sum, kValues + 1), 2U);  // one word for each
  EXPECT_EQ(chunks(CallKind::int64_sum, kValues), 1U);
  EXPECT_EQ(chunks(CallKind::int64_sum, kValues + 1), 2U);
  EXPECT_EQ(chunks(CallKind::bytes, kPacketBytes), 1U);
  EXPECT_EQ(chunks(CallKind::bytes, kPacketBytes + 1), 2U);
}

TEST(Codecs, ExponentBelowOurOwnIsAContradiction) {
  std::vector<uint8_t> memory = bytes_of(floats(kValues, 8, 0));
  const std::unique_ptr<Codec> codec = codec_of(CallKind::float32_sum, &memory, kValues);
  Chunk chunk;
  chunk.told.own = codec->exponent_of(0);
  chunk.told.all = chunk.told.own;
  EXPECT_TRUE(codec->begin(&chunk));
  EXPECT_EQ(chunk.phase, Chunk::Phase::values);
  EXPECT_TRUE(chunk.owns_scale);
  chunk.told.all = static_cast<uint16_t>(chunk.told.own - 1);
  EXPECT_FALSE(codec->begin(&chunk));
}

TEST(Codecs, NextChunkOfASlotBeginsWithoutNamedPlaces) {
  std::vector<uint8_t> memory = bytes_of(floats(kValues, 8, 0));
  const std::unique_ptr<Codec> codec = codec_of(CallKind::float32_sum, &memory, kValues);
  Chunk chunk;
  chunk.named = {3};  // of the previous chunk
  chunk.told.own = codec->exponent_of(0);
  chunk.told.all = chunk.told.own;
  ASSERT_TRUE(codec->begin(&chunk));
  std::vector<uint8_t> words(kPacketBytes);
  codec->encode(chunk, words.data());
  codec->decode(chunk, words.data());
  EXPECT_EQ(elements_of<float>(memory), floats(kValues, 8, 0));
}

TEST(Codecs, ElementsHaveTheirSizes) {
  EXPECT_EQ(element_bytes(CallKind::float32_average), 4U);
  EXPECT_EQ(element_bytes(CallKind::int32_sum), 4U);
  EXPECT_EQ(element_bytes(CallKind::int64_sum), 8U);
  EXPECT_EQ(element_bytes(CallKind::float16_sum), 2U);
  EXPECT_EQ(element_bytes(CallKind::bfloat16_average), 2U);
  EXPECT_EQ(element_bytes(CallKind::bytes), 1U);
}

}  // namespace
}  // namespace switchml::client
