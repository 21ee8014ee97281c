#include "switchml/native/codecs/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "native/kernels/half.h"
#include "switchml/native/codecs/make_codec.h"

namespace switchml::client {
namespace {

constexpr uint32_t kValues = 16;
constexpr uint32_t kSlots = 4;

channel::Geometry geometry(uint32_t world_size) {
  channel::Geometry of{};
  of.slots = kSlots;
  of.values = kValues;
  of.world_size = world_size;
  return of;
}

// The same call at several ranks, and a switch that sums their contributions to a chunk.
class Call {
 public:
  Call(CallKind kind, uint64_t elements, std::vector<std::vector<uint8_t>> memory, size_t contributor = SIZE_MAX)
      : memory_(std::move(memory)) {
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      const bool contributes = contributor == SIZE_MAX || rank == contributor;
      codecs_.push_back(make_codec(kind, memory_[rank].data(), elements, contributes,
                                   geometry(static_cast<uint32_t>(memory_.size()))));
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
      ASSERT_LT(phase, 3) << "the ranks do not come to an end";
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
  EXPECT_EQ(element_bytes(CallKind::float16_sum), 2U);
  EXPECT_EQ(element_bytes(CallKind::bfloat16_average), 2U);
  EXPECT_EQ(element_bytes(CallKind::bytes), 1U);
}

}  // namespace
}  // namespace switchml::client
