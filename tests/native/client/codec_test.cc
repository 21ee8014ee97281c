#include "switchml/native/codecs/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "native/kernels/half.h"
#include "switchml/native/codecs/make_codec.h"

namespace switchml::client {
namespace {

constexpr uint32_t kValues = 16;
constexpr uint32_t kSlots = 4;

channel::Geometry geometry(uint32_t world_size, uint32_t rank = 0) {
  channel::Geometry of{};
  of.slots = kSlots;
  of.values = kValues;
  of.world_size = world_size;
  of.rank = rank;
  return of;
}

// The same call at several ranks, and a switch that sums their contributions to a chunk.
class Call {
 public:
  Call(CallKind kind, uint64_t elements, std::vector<std::vector<uint8_t>> memory, size_t contributor = SIZE_MAX,
       const Lanes& lanes = {})
      : memory_(std::move(memory)) {
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      const bool contributes = contributor == SIZE_MAX || rank == contributor;
      codecs_.push_back(make_codec(kind, memory_[rank].data(), elements, contributes,
                                   geometry(static_cast<uint32_t>(memory_.size()), static_cast<uint32_t>(rank)),
                                   lanes));
    }
  }

  // Runs all chunks, the last one first, because they may arrive in any order.
  void run() {
    for (uint64_t chunk = codecs_[0]->chunks(); chunk-- > 0;) run_chunk(chunk);
  }

  Codec& codec(size_t rank = 0) { return *codecs_[rank]; }
  const std::vector<uint8_t>& memory(size_t rank) const { return memory_[rank]; }
  int phases() const { return phases_; }

 private:
  void run_chunk(uint64_t number) {
    std::vector<Chunk> chunks(codecs_.size());
    for (size_t rank = 0; rank < codecs_.size(); ++rank) {
      chunks[rank].number = number;
      chunks[rank].told.own = codecs_[rank]->exponent_of(number);
      ASSERT_TRUE(codecs_[rank]->begin(&chunks[rank]));
    }
    bool last = false;
    for (int phase = 0; !last; ++phase) {
      ASSERT_LT(phase, 4) << "the ranks do not come to an end";
      ++phases_;
      run_phase(&chunks, &last);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  void run_phase(std::vector<Chunk>* chunks, bool* last) {
    std::vector<uint32_t> sums(kValues);
    uint32_t weighed = 0;
    uint16_t largest = 0;
    std::vector<Contribution> made;
    for (size_t rank = 0; rank < codecs_.size(); ++rank) {
      std::vector<uint8_t> words(kValues * sizeof(uint32_t), 0xEE);
      made.push_back(codecs_[rank]->encode((*chunks)[rank], words.data()));
      ASSERT_EQ(made[rank].last, made[0].last);
      ASSERT_EQ(made[rank].count, made[0].count);
      weighed += made[rank].weighed;
      largest = std::max(largest, made[rank].exponent);
      if (made[rank].count == 0) continue;
      for (uint32_t lane = 0; lane < kValues; ++lane) sums[lane] += wire::load32(&words[lane * sizeof(uint32_t)]);
    }
    std::vector<uint8_t> result(kValues * sizeof(uint32_t));
    for (uint32_t lane = 0; lane < kValues; ++lane) wire::store32(&result[lane * sizeof(uint32_t)], sums[lane]);
    *last = made[0].last;
    for (size_t rank = 0; rank < codecs_.size(); ++rank) {
      if (made[0].count > 0) {
        ASSERT_EQ(codecs_[rank]->decode((*chunks)[rank], result.data()), weighed);
      }
      if (*last) continue;
      (*chunks)[rank].told = {made[rank].exponent, largest};
      ASSERT_TRUE(codecs_[rank]->agree(&(*chunks)[rank], result.data()));
    }
  }

  std::vector<std::vector<uint8_t>> memory_;
  std::vector<std::unique_ptr<Codec>> codecs_;
  int phases_ = 0;
};

template <class Element>
std::vector<uint8_t> bytes_of(const std::vector<Element>& elements) {
  std::vector<uint8_t> bytes(elements.size() * sizeof(Element));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

template <class Element>
std::vector<Element> elements_of(const std::vector<uint8_t>& bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// first, first + step, ...
std::vector<float> floats(size_t count, float first, float step) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = first + step * static_cast<float>(i);
  return all;
}

TEST(Codecs, FloatsAreSummedAtAllRanks) {
  constexpr size_t kCount = 3 * kValues - 5;
  Call call(CallKind::float32_sum, kCount,
            {bytes_of(floats(kCount, 1, 1)), bytes_of(floats(kCount, 0.5, 0)), bytes_of(floats(kCount, -2, 2))});
  call.run();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(elements_of<float>(call.memory(rank)), floats(kCount, -0.5, 3));
    EXPECT_EQ(call.codec(rank).non_finite().count, 0U);
  }
  EXPECT_EQ(call.phases(), 2 * 3);  // exponents, then values
}

TEST(Codecs, AveragesAreDividedByTheNumberOfRanks) {
  Call call(CallKind::float32_average, kValues, {bytes_of(floats(kValues, 0, 2)), bytes_of(floats(kValues, 8, 0))});
  call.run();
  EXPECT_EQ(elements_of<float>(call.memory(1)), floats(kValues, 4, 1));
}

TEST(Codecs, LargestMagnitudeOfAnyRankSetsThePrecision) {
  std::vector<float> large = floats(kValues, 0, 0);
  large[3] = 0x1p100F;
  Call call(CallKind::float32_sum, kValues, {bytes_of(large), bytes_of(floats(kValues, 1, 0))});
  call.run();
  const std::vector<float> sums = elements_of<float>(call.memory(0));
  EXPECT_EQ(sums[3], 0x1p100F);
  EXPECT_EQ(sums[4], 0);  // 1 is far below the last bit of 2^100 in 30 bits
}

TEST(Codecs, SumsOfExtremeNumbersDoNotOverflowTheWords) {
  const float most = std::numeric_limits<float>::max();
  Call call(
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
  Call call(CallKind::float32_sum, kCount, {bytes_of(one), bytes_of(two)});
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
  Call call(CallKind::float32_sum, kCount, {bytes_of(floats(kCount, nan, 0)), bytes_of(floats(kCount, 1, 0))});
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
  Call call(kind, one.size(), {bytes_of(one), bytes_of(two)});
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
  Call call(CallKind::int32_sum, one.size(), {bytes_of(one), bytes_of(two)});
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
      Call call(CallKind::float32_sum, count, memory, SIZE_MAX, narrow(GetParam()));
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
      Call call(CallKind::float32_average, kCount, memory, SIZE_MAX, narrow(GetParam(), stochastic, 5));
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
  Call call(CallKind::float32_sum, kCount, {bytes_of(one), bytes_of(two)}, SIZE_MAX, narrow(GetParam()));
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
    Call call(CallKind::float32_sum, kCount, memory, SIZE_MAX, narrow(GetParam(), stochastic, seed));
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
  Call call(CallKind::bfloat16_average, one.size(), {bytes_of(one), bytes_of(one)}, SIZE_MAX, narrow(GetParam()));
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
  Call call(kind, kCount, memory, SIZE_MAX, narrow(bits));
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
  Call call(CallKind::bool_sum, kCount, memory, SIZE_MAX, narrow(8));
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
  Call call(CallKind::int64_sum, sums.size(), memory);
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
INSTANTIATE_TEST_SUITE_P(Ranks, LongIntegersOfRanks, testing::Values(1, 2, 3, 4, 8, 33, 64));

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

TEST(Codecs, LongIntegersAreKeptUntilTheLastPhase) {
  std::vector<uint8_t> memory = bytes_of(std::vector<int64_t>(kValues, int64_t{1} << 40));
  const std::vector<uint8_t> before = memory;
  const std::unique_ptr<Codec> codec = make_codec(CallKind::int64_sum, memory.data(), kValues, true, geometry(2));
  Chunk chunk;
  chunk.told = {codec->exponent_of(0), codec->exponent_of(0)};
  ASSERT_TRUE(codec->begin(&chunk));
  std::vector<uint8_t> words(kValues * sizeof(uint32_t));
  ASSERT_FALSE(codec->encode(chunk, words.data()).last);
  codec->decode(chunk, words.data());
  ASSERT_TRUE(codec->agree(&chunk, words.data()));
  EXPECT_EQ(memory, before);
  ASSERT_TRUE(codec->encode(chunk, words.data()).last);
  ASSERT_TRUE(codec->begin(&chunk));  // of the next chunk in the slot, which knows nothing of this one
  EXPECT_FALSE(codec->encode(chunk, words.data()).last);
}

TEST(Codecs, LongIntegersTakeTheLargestExponentOfAllRanks) {
  std::vector<uint8_t> memory = bytes_of(std::vector<int64_t>(kValues, 7));
  const std::unique_ptr<Codec> codec = make_codec(CallKind::int64_sum, memory.data(), kValues, true, geometry(2));
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
  Call call(CallKind::bytes, message.size(), {rubbish, message, rubbish}, 1);
  call.run();
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(call.memory(rank), message);
}

constexpr size_t kPacketBytes = kValues * sizeof(uint32_t);
INSTANTIATE_TEST_SUITE_P(Lengths, BytesOfLength,
                         testing::Values(1, 2, 3, 4, 5, kPacketBytes - 1, kPacketBytes, kPacketBytes + 1,
                                         2 * kPacketBytes + 7));

TEST(Codecs, CallWithoutValuesIsOneEmptyPacket) {
  for (const CallKind kind : {CallKind::barrier, CallKind::float32_sum, CallKind::bytes}) {
    Call call(kind, 0, {{}, {}});
    EXPECT_EQ(call.codec().chunks(), 1U);
    EXPECT_EQ(call.codec().encode(Chunk{}, nullptr).count, 0);
    EXPECT_TRUE(call.codec().encode(Chunk{}, nullptr).last);
  }
}

TEST(Codecs, ChunksAreWholePacketsButTheLast) {
  std::vector<uint8_t> memory(3 * kPacketBytes);
  const auto chunks = [&](CallKind kind, uint64_t elements) {
    return make_codec(kind, memory.data(), elements, true, geometry(2))->chunks();
  };
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
  const std::unique_ptr<Codec> codec = make_codec(CallKind::float32_sum, memory.data(), kValues, true, geometry(2));
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
  const std::unique_ptr<Codec> codec = make_codec(CallKind::float32_sum, memory.data(), kValues, true, geometry(2));
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
