#include "switchml/native/lockstep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "switchml/native/codecs/make_codec.h"
#include "tests/native/client/codec_call.h"

namespace switchml::client {
namespace {

using Memory = std::vector<std::vector<uint8_t>>;

// Runs the rounds of a call of all ranks, and returns the number of elements that were not finite.
uint64_t run_rounds(CallKind kind, std::vector<Arrays> arrays, const Lanes& lanes, Form form, uint32_t values) {
  std::vector<std::unique_ptr<Lockstep>> calls;
  for (uint32_t rank = 0; rank < arrays.size(); ++rank) {
    const Job job{rank, static_cast<uint32_t>(arrays.size()), values, true};
    calls.push_back(std::make_unique<Lockstep>(CallDescription{kind, arrays[rank], lanes, form}, job));
  }
  while (!calls[0]->has_ended()) {
    for (auto& call : calls) call->contribute();
    std::vector<uint8_t> largest = calls[0]->exponents();
    std::vector<int32_t> sums = calls[0]->words();
    for (size_t rank = 1; rank < calls.size(); ++rank) {
      EXPECT_EQ(calls[rank]->exponents().size(), largest.size());
      EXPECT_EQ(calls[rank]->words().size(), sums.size());
      for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], calls[rank]->exponents()[i]);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(calls[rank]->words()[i]));
      }
    }
    for (auto& call : calls) {
      call->exponents() = largest;
      call->words() = sums;
      call->take();
    }
    if (testing::Test::HasFailure()) break;
  }
  return calls[0]->non_finite().count;
}

std::vector<Arrays> in_place(Memory* memory, uint64_t elements) {
  std::vector<Arrays> arrays;
  for (auto& of_rank : *memory) arrays.push_back({of_rank.data(), of_rank.data(), elements});
  return arrays;
}

// Returns random bits for each rank: among floats, values of all magnitudes, NaN and infinity.
Memory random_memory(CallKind kind, size_t ranks, uint64_t elements, uint32_t seed) {
  std::mt19937 random(seed);
  Memory memory(ranks, std::vector<uint8_t>(elements * element_bytes(kind)));
  for (auto& of_rank : memory) {
    for (auto& byte : of_rank) byte = static_cast<uint8_t>(random());
    if (kind == CallKind::bool_sum) {
      for (auto& byte : of_rank) byte &= 1;
    }
  }
  return memory;
}

class SameBits : public testing::TestWithParam<std::tuple<CallKind, uint32_t, size_t>> {};
INSTANTIATE_TEST_SUITE_P(Floats, SameBits,
                         testing::Combine(testing::Values(CallKind::float32_sum, CallKind::float32_average,
                                                          CallKind::float16_sum, CallKind::float16_average,
                                                          CallKind::bfloat16_sum, CallKind::bfloat16_average),
                                          testing::Values(32, 16, 8), testing::Values(2, 4, 8)));
INSTANTIATE_TEST_SUITE_P(Integers, SameBits,
                         testing::Combine(testing::Values(CallKind::int32_sum, CallKind::int16_sum, CallKind::int64_sum,
                                                          CallKind::bool_sum),
                                          testing::Values(32), testing::Values(2, 8)));

TEST_P(SameBits, AsThroughASwitch) {
  const auto [kind, bits, ranks] = GetParam();
  constexpr uint64_t kCount = 9 * kValues - 3;
  const Memory memory = random_memory(kind, ranks, kCount, 7);
  for (const bool stochastic : {false, true}) {
    const Lanes lanes{bits, stochastic && bits != 32, 3, 0};
    CodecCall call(kind, kCount, memory, SIZE_MAX, lanes);
    call.run();
    Memory sums = memory;
    const uint64_t non_finite = run_rounds(kind, in_place(&sums, kCount), lanes, Form::dense, kValues);
    for (size_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(sums[rank], call.memory(rank)) << "rank " << rank;
    EXPECT_EQ(non_finite, call.codec().non_finite().count);
  }
}

TEST(Lockstep, PartsAreThoseOfAScatter) {
  constexpr size_t kRanks = 4;
  constexpr uint64_t kPart = 3 * kValues + 1;
  const Memory memory = random_memory(CallKind::float32_sum, kRanks, kRanks * kPart, 8);
  const Memory nothing(kRanks, std::vector<uint8_t>(kPart * sizeof(float)));
  CodecCall call(CallKind::float32_sum, Division::scatter, kRanks * kPart, memory, nothing);
  call.run();
  Memory parts = nothing;
  std::vector<Arrays> arrays;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    arrays.push_back({memory[rank].data(), parts[rank].data(), kRanks * kPart, Division::scatter});
  }
  run_rounds(CallKind::float32_sum, arrays, {}, Form::dense, kValues);
  for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(parts[rank], call.output(rank));
}

// In large packets a sparse call has other blocks, and so perhaps other last bits, than a dense one.
TEST(Lockstep, SparseCallsInLargePacketsSumBlocksThatHaveValues) {
  constexpr uint32_t kLarge = 1024;
  constexpr uint64_t kCount = 20 * kLarge;
  std::vector<std::vector<float>> values(2, std::vector<float>(kCount));
  for (size_t i = 0; i < 256; ++i) {
    values[0][i] = 1;
    values[1][5 * kLarge + i] = 0x1p-40F;  // too small for the unit of a packet that has a 1
  }
  Memory memory{bytes_of(values[0]), bytes_of(values[1])};
  run_rounds(CallKind::float32_sum, in_place(&memory, kCount), {}, Form::sparse, kLarge);
  const std::vector<float> sums = elements_of<float>(memory[0]);
  EXPECT_EQ(sums[0], 1);
  EXPECT_EQ(sums[5 * kLarge], 0);
  EXPECT_EQ(memory[0], memory[1]);
  memory = {bytes_of(values[0]), bytes_of(values[1])};
  run_rounds(CallKind::float32_sum, in_place(&memory, kCount), {}, Form::dense, kLarge);
  EXPECT_EQ(elements_of<float>(memory[0])[5 * kLarge], 0x1p-40F);
}

TEST(Lockstep, CallsOfManyWordsHaveSeveralRounds) {
  constexpr uint64_t kCount = (uint64_t{1} << 22) + 100;
  std::vector<int32_t> ones(kCount, 1);
  std::vector<int32_t> more(kCount, 2);
  more.back() = 5;
  Memory memory{bytes_of(ones), bytes_of(more)};
  run_rounds(CallKind::int32_sum, in_place(&memory, kCount), {}, Form::dense, 256);
  const std::vector<int32_t> sums = elements_of<int32_t>(memory[1]);
  EXPECT_EQ(std::count(sums.begin(), sums.end(), 3), static_cast<int64_t>(kCount - 1));
  EXPECT_EQ(sums.back(), 6);
}

TEST(Lockstep, ACallWithoutElementsHasNoRounds) {
  EXPECT_EQ(run_rounds(CallKind::float32_sum, {{}, {}}, {}, Form::dense, kValues), 0U);
}

TEST(Lockstep, RanksWithOtherExponentsThanTheResultsAreNoticed) {
  std::vector<float> values(kValues, 1);
  auto* const memory = reinterpret_cast<uint8_t*>(values.data());
  Lockstep call({CallKind::float32_sum, {memory, memory, kValues}, {}}, {0, 2, kValues, false});
  call.contribute();
  ASSERT_EQ(call.exponents().size(), 1U);
  call.exponents()[0] = 0;  // below this rank's own
  EXPECT_THROW(call.take(), std::runtime_error);
}

TEST(Lockstep, CallsThatCannotBeAreRefused) {
  std::vector<float> values(kValues);
  auto* const memory = reinterpret_cast<uint8_t*>(values.data());
  const Arrays arrays{memory, memory, kValues};
  const Job job{0, 2, kValues, false};
  const auto make = [](CallKind kind, const Arrays& of, const Lanes& lanes, const Job& in) {
    Lockstep({kind, of, lanes}, in);
  };
  EXPECT_THROW(make(CallKind::bytes, arrays, {}, job), std::invalid_argument);
  EXPECT_THROW(make(CallKind::float32_sum, {memory + 1, memory + 1, 3}, {}, job), std::invalid_argument);
  EXPECT_THROW(make(CallKind::float32_sum, {nullptr, nullptr, 3}, {}, job), std::invalid_argument);
  EXPECT_THROW(make(CallKind::float32_sum, arrays, {12}, job), std::invalid_argument);
  EXPECT_THROW(make(CallKind::float32_sum, arrays, {}, {2, 2, kValues, false}), std::invalid_argument);
  EXPECT_THROW(make(CallKind::float32_sum, arrays, {}, {0, 2, 0, false}), std::invalid_argument);
}

}  // namespace
}  // namespace switchml::client
