#include "switchml/native/codecs/sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "native/kernels/half.h"
#include "switchml/native/codecs/lanes.h"
#include "switchml/native/codecs/make_codec.h"
#include "tests/native/client/codec_call.h"

namespace switchml::client {
namespace {

using Memory = std::vector<std::vector<uint8_t>>;  // of each rank

// The elements that the values of a test are made of.
template <class Element>
Element element_of(float value) {
  if constexpr (std::is_integral_v<Element>) {
    return static_cast<Element>(static_cast<int64_t>(value));
  } else if constexpr (std::is_same_v<Element, float>) {
    return value;
  } else {
    Element made;
    kernels::narrow(value, &made);
    return made;
  }
}

template <class Element>
bool is_zero(Element element) {
  if constexpr (std::is_integral_v<Element>) {
    return element == 0;
  } else {
    return kernels::widen(element) == 0.0F;
  }
}

struct Figures {
  double density = 0;       // the share of the blocks in which a rank has values
  double odd_values = 0;    // the share of the values there that are denormal or -0.0
  double not_finite = 0;    // the share of the values there that are NaN or infinite
  float largest = 0x1p20F;  // magnitude
};

// Makes the values of each rank, in blocks that are drawn for each rank. The blocks without values have a few -0.0.
template <class Element>
Memory random_values(size_t elements, size_t per_block, size_t ranks, const Figures& figures, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> share;
  const auto value_in_block = [&] {
    const double kind = share(random);
    if (kind < figures.not_finite) {
      return share(random) < 0.5 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    }
    if (kind < figures.not_finite + figures.odd_values) return share(random) < 0.5 ? -0.0F : 0x1p-149F;
    return static_cast<float>(share(random) - 0.5) * figures.largest;
  };
  Memory memory;
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<Element> values(elements);
    for (size_t begin = 0; begin < elements; begin += per_block) {
      const bool has_values = share(random) < figures.density;
      for (size_t i = begin; i < std::min(begin + per_block, elements); ++i) {
        if (has_values) {
          values[i] = element_of<Element>(value_in_block());
        } else if (share(random) < 0.02) {
          values[i] = element_of<Element>(-0.0F);
        }
      }
    }
    memory.push_back(bytes_of(values));
  }
  return memory;
}

// Returns the blocks in which a rank has values.
template <class Element>
std::set<uint64_t> blocks_of(const std::vector<uint8_t>& memory, size_t per_block) {
  std::set<uint64_t> blocks;
  const std::vector<Element> values = elements_of<Element>(memory);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_zero(values[i])) blocks.insert(i / per_block);
  }
  return blocks;
}

struct Kind {
  CallKind kind;
  Lanes lanes;
};

// Expects that a sparse call has the result of a dense one, bit by bit, and that it sends each block once.
template <class Element>
void expect_bits_of_dense_call(const Kind& of, const Memory& memory) {
  const size_t elements = memory[0].size() / sizeof(Element);
  const size_t per_block = size_t{kValues} * 32 / of.lanes.bits;
  CodecCall dense(of.kind, elements, memory, SIZE_MAX, of.lanes);
  dense.run();
  CodecCall sparse(of.kind, elements, memory, SIZE_MAX, of.lanes, true, true);
  sparse.run();
  if (testing::Test::HasFatalFailure()) return;
  ASSERT_TRUE(sparse.codec().is_sparse());
  std::set<uint64_t> any;
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    ASSERT_EQ(sparse.memory(rank), dense.memory(rank)) << "rank " << rank;
    EXPECT_EQ(sparse.codec(rank).non_finite().count, dense.codec(rank).non_finite().count);
    EXPECT_EQ(sparse.codec(rank).non_finite().indices, dense.codec(rank).non_finite().indices);
    const std::set<uint64_t> own = blocks_of<Element>(memory[rank], per_block);
    EXPECT_EQ(sparse.codec(rank).blocks().sent, own.size());
    any.insert(own.begin(), own.end());
  }
  EXPECT_EQ(std::vector<uint64_t>(any.begin(), any.end()), [&] {
    std::vector<uint64_t> summed = sparse.summed();
    std::sort(summed.begin(), summed.end());
    return summed;
  }());
  const Blocks blocks = sparse.codec().blocks();
  EXPECT_EQ(blocks.received, any.size());
  EXPECT_EQ(blocks.all, dense.codec().chunks());
  if (dense.codec().non_finite().count == 0) {
    EXPECT_EQ(static_cast<size_t>(sparse.phases()), any.size() + sparse.codec().positions());
  }
}

template <class Element>
void expect_bits_of_dense_calls(const Kind& of, float largest) {
  const size_t per_block = size_t{kValues} * 32 / of.lanes.bits;
  uint32_t seed = 0;
  for (const size_t ranks : {1, 2, 3, 8}) {
    for (const size_t elements : {size_t{1}, per_block - 1, per_block, per_block + 1, 3 * per_block, kSlots * per_block,
                                  10 * kSlots * per_block + 5}) {
      for (const double density : {0.0, 0.03, 0.3, 1.0}) {
        for (const double not_finite : {0.0, 0.02}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(elements) + " elements, density " +
                       std::to_string(density) + ", " + std::to_string(not_finite) + " not finite");
          const Figures figures{density, density == 0.3 ? 0.9 : 0.1, std::is_integral_v<Element> ? 0 : not_finite,
                                largest};
          expect_bits_of_dense_call<Element>(of, random_values<Element>(elements, per_block, ranks, figures, ++seed));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Sparse, FloatsHaveTheBitsOfADenseCall) {
  for (const float largest : {0x1p-130F, 1.0F, 0x1p120F}) {
    expect_bits_of_dense_calls<float>({CallKind::float32_sum, {}}, largest);
    expect_bits_of_dense_calls<float>({CallKind::float32_average, {}}, largest);
  }
}

TEST(Sparse, HalvesHaveTheBitsOfADenseCall) {
  expect_bits_of_dense_calls<kernels::Float16>({CallKind::float16_sum, {}}, 100);
  expect_bits_of_dense_calls<kernels::Float16>({CallKind::float16_average, {}}, 0x1p-14F);
  expect_bits_of_dense_calls<kernels::BFloat16>({CallKind::bfloat16_sum, {}}, 100);
  expect_bits_of_dense_calls<kernels::BFloat16>({CallKind::bfloat16_average, {}}, 0x1p-126F);
}

TEST(Sparse, NarrowLanesHaveTheBitsOfADenseCall) {
  for (const uint32_t bits : {16, 8}) {
    for (const bool stochastic : {false, true}) {
      const Lanes lanes{bits, stochastic, 11, 5};
      expect_bits_of_dense_calls<float>({CallKind::float32_sum, lanes}, 1);
      expect_bits_of_dense_calls<kernels::BFloat16>({CallKind::bfloat16_average, lanes}, 1);
    }
  }
}

TEST(Sparse, IntegersHaveTheBitsOfADenseCall) {
  expect_bits_of_dense_calls<int32_t>({CallKind::int32_sum, {}}, 0x1p31F);
  expect_bits_of_dense_calls<int16_t>({CallKind::int16_sum, {}}, 2000);
  expect_bits_of_dense_calls<int8_t>({CallKind::int8_sum, {16}}, 200);
  expect_bits_of_dense_calls<uint8_t>({CallKind::bool_sum, {8}}, 3);
}

// -0.0 that no rank sends would stay at the ranks that have it, and be +0.0 at others.
TEST(Sparse, NegativeZerosBecomePositive) {
  Memory memory(2, bytes_of(std::vector<float>(3 * kValues, 0.0F)));
  memory[0] = bytes_of(std::vector<float>(3 * kValues, -0.0F));
  expect_bits_of_dense_call<float>({CallKind::float32_sum, {}}, memory);
}

TEST(Sparse, CallWithoutBlocksIsOneAnnouncementForEachColumn) {
  CodecCall call(CallKind::float32_sum, 100 * kValues, Memory(3, bytes_of(std::vector<float>(100 * kValues))), SIZE_MAX,
                 {}, true, true);
  call.run();
  EXPECT_EQ(call.phases(), static_cast<int>(kSlots));
  EXPECT_EQ(call.words(0), 0U);
  EXPECT_EQ(call.codec().blocks().all, 100U);
}

// The first announcements of a large call come before all of its memory has been looked at.
TEST(Sparse, BlocksFarAwayAreAnnouncedLater) {
  const size_t blocks = (size_t{5} << 20) / (kValues * sizeof(float));
  Memory memory;
  for (size_t rank = 0; rank < 3; ++rank) {
    std::vector<float> values(blocks * kValues);
    values.front() = rank == 0 ? 1.0F : 0.0F;                           // column 0, in the first part
    values[(blocks - 1) * kValues] = 2.0F;                              // the last column, in the second part
    values[(blocks - kSlots + 1) * kValues] = rank == 1 ? 3.0F : 0.0F;  // column 1
    memory.push_back(bytes_of(values));
  }
  ASSERT_EQ(blocks % kSlots, 0U);
  CodecCall sparse(CallKind::float32_sum, blocks * kValues, memory, SIZE_MAX, {}, true, true);
  sparse.run();
  CodecCall dense(CallKind::float32_sum, blocks * kValues, memory);
  dense.run();
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(sparse.memory(rank), dense.memory(rank));
  // The last column comes first here, and is announced again when all of the memory has been looked at.
  EXPECT_EQ(sparse.phases(), static_cast<int>(kSlots + 3 + 1));
  EXPECT_EQ(sparse.codec(0).blocks().sent, 2U);
  EXPECT_EQ(sparse.codec(1).blocks().sent, 2U);
  EXPECT_EQ(sparse.codec(2).blocks().sent, 1U);
  EXPECT_EQ(sparse.codec(2).blocks().received, 3U);
}

TEST(Sparse, NumbersOfBlocksAreInOrder) {
  EXPECT_LT(next_block(3, 100), next_block(3, 99));
  EXPECT_LT(next_block(3, 256), next_block(3, 255));
  EXPECT_LT(next_block(3, 0), next_block(4, 256));
  EXPECT_EQ(ordinal_of(next_block(77, 12)), 77U);
  EXPECT_EQ(exponent_of_next(next_block(77, 12)), 12U);
  const uint64_t most = (uint64_t{1} << 23) - 1;
  EXPECT_LT(next_block(most - 1, 0), wire::next::none);
  EXPECT_TRUE(Sparse::can_name(most * kSlots, geometry(2)));
  EXPECT_FALSE(Sparse::can_name(most * kSlots + 1, geometry(2)));
}

TEST(Sparse, OtherCallsAreDense) {
  std::vector<uint8_t> memory(64 * kValues);
  const auto is_sparse = [&](CallKind kind, bool optional_values) {
    return make_codec(kind, {memory.data(), memory.data(), 8}, true, geometry(2, 0, optional_values), {}, Form::sparse)
        ->is_sparse();
  };
  EXPECT_TRUE(is_sparse(CallKind::float32_sum, true));
  EXPECT_FALSE(is_sparse(CallKind::float32_sum, false));
  EXPECT_FALSE(is_sparse(CallKind::int64_sum, true));
  const uint64_t more_than_ordinals = ((uint64_t{1} << 23) - 1) * kSlots * kValues + 1;
  const Arrays large{memory.data(), memory.data(), more_than_ordinals};  // no codec looks at memory before it begins
  EXPECT_FALSE(make_codec(CallKind::float32_sum, large, true, geometry(2), {}, Form::sparse)->is_sparse());
  const std::unique_ptr<Codec> dense =
      make_codec(CallKind::float32_sum, {memory.data(), memory.data(), 3 * kValues}, true, geometry(2));
  EXPECT_FALSE(dense->is_sparse());
  EXPECT_EQ(dense->blocks().sent, 3U);
  EXPECT_EQ(make_codec(CallKind::float32_sum, {memory.data(), memory.data(), 0}, true, geometry(2), {}, Form::sparse)
                ->blocks()
                .all,
            0U);
}

// One rank's column of 5 blocks, of which it has values in the second.
class ColumnOfARank : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(codec_->begin(&chunk_));
    ASSERT_EQ(chunk_.next.own, next_block(1, kExponent));
  }
  Step after(uint32_t next) {
    chunk_.next.all = next;
    const std::vector<uint8_t> words(kValues * sizeof(uint32_t));
    return codec_->advance(&chunk_, words.data());
  }
  static std::vector<float> values() {
    std::vector<float> made(5 * kSlots * kValues);
    made[kSlots * kValues] = 1.0F;
    return made;
  }

  static constexpr uint16_t kExponent = 127;
  std::vector<uint8_t> memory_ = bytes_of(values());
  std::unique_ptr<Codec> codec_ =
      make_codec(CallKind::float32_sum, {memory_.data(), memory_.data(), 5 * kSlots * kValues}, true, geometry(2), {},
                 Form::sparse);
  Chunk chunk_;
};

TEST_F(ColumnOfARank, EndsWithoutFurtherBlocks) { EXPECT_EQ(after(wire::next::none), Step::end); }

TEST_F(ColumnOfARank, SendsItsBlockOnly) {
  ASSERT_EQ(after(next_block(0, 100)), Step::next_phase);
  EXPECT_EQ(chunk_.phase, Chunk::Phase::values);
  EXPECT_FALSE(chunk_.owns_block);
  EXPECT_EQ(chunk_.next.own, next_block(1, kExponent));
  ASSERT_EQ(after(next_block(1, kExponent + 1)), Step::next_phase);
  EXPECT_TRUE(chunk_.owns_block);
  EXPECT_FALSE(chunk_.owns_scale);
  EXPECT_EQ(chunk_.next.own, wire::next::none);
}

TEST_F(ColumnOfARank, BlocksMustAscend) {
  ASSERT_EQ(after(next_block(0, 100)), Step::next_phase);
  EXPECT_EQ(after(next_block(0, 99)), Step::contradiction);
}

TEST_F(ColumnOfARank, AnnouncementsMustAdvance) {
  ASSERT_EQ(after(next_block(0, wire::exponent::unknown)), Step::next_phase);
  EXPECT_EQ(chunk_.phase, Chunk::Phase::announcement);
  EXPECT_EQ(after(next_block(0, wire::exponent::unknown)), Step::contradiction);
}

TEST_F(ColumnOfARank, FlagsAreFollowedByTheirBlock) {
  ASSERT_EQ(after(next_block(0, wire::exponent::non_finite)), Step::next_phase);
  EXPECT_EQ(chunk_.phase, Chunk::Phase::flags);
  EXPECT_EQ(after(next_block(0, wire::exponent::non_finite)), Step::contradiction);
  EXPECT_EQ(after(next_block(1, kExponent)), Step::contradiction);
  EXPECT_EQ(after(wire::next::none), Step::contradiction);
  ASSERT_EQ(after(next_block(0, 3)), Step::next_phase);
  EXPECT_EQ(chunk_.phase, Chunk::Phase::values);
}

TEST_F(ColumnOfARank, BlocksMustExist) {
  EXPECT_EQ(after(next_block(0, 257)), Step::contradiction);
  EXPECT_EQ(after(next_block(5, 100)), Step::contradiction);
}

TEST(Sparse, BlocksOfIntegersHaveNoExponent) {
  std::vector<uint8_t> memory = bytes_of(std::vector<int32_t>(kValues, 1));
  const std::unique_ptr<Codec> codec =
      make_codec(CallKind::int32_sum, {memory.data(), memory.data(), kValues}, true, geometry(2), {}, Form::sparse);
  for (const uint32_t exponent : {1U, 255U}) {
    Chunk chunk;
    ASSERT_TRUE(codec->begin(&chunk));
    chunk.next.all = next_block(0, exponent);
    EXPECT_EQ(codec->advance(&chunk, nullptr), Step::contradiction);
  }
}

}  // namespace
}  // namespace switchml::client
