// The codecs of jobs with as many ranks as one switch can have, one more, and as many as a tree can have.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "native/kernels/half.h"
#include "tests/native/client/codec_call.h"

namespace switchml::client {
namespace {

constexpr size_t kCount = kValues + 3;  // a full packet, and another one

class JobsOfRanks : public testing::TestWithParam<uint32_t> {
 protected:
  // Runs a call in which element i of a rank is value(rank, i).
  template <class Element, class Value>
  static CodecCall run(CallKind kind, const Value& value, const Lanes& lanes = {}, bool sparse = false) {
    std::vector<std::vector<uint8_t>> memory;
    for (uint32_t rank = 0; rank < GetParam(); ++rank) {
      std::vector<Element> elements(kCount);
      for (size_t i = 0; i < kCount; ++i) elements[i] = value(rank, i);
      memory.push_back(bytes_of(elements));
    }
    CodecCall call(kind, kCount, std::move(memory), SIZE_MAX, lanes, true, sparse);
    call.run();
    return call;
  }
  template <class Element>
  static std::vector<Element> sums_of(const CodecCall& call) {
    for (uint32_t rank = 1; rank < GetParam(); ++rank) EXPECT_EQ(call.memory(rank), call.memory(0)) << "rank " << rank;
    return elements_of<Element>(call.memory(0));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, JobsOfRanks, testing::Values(64, 65, 256, 1000, 1024, wire::protocol::max_world));

TEST_P(JobsOfRanks, FloatsKeepTheBitsThatTheirSumsLeave) {
  // 4,096 ranks leave 18 bits, of which whole numbers below 4 take two: there are 16 behind the point.
  const CodecCall call = run<float>(CallKind::float32_sum, [](uint32_t rank, size_t i) {
    return static_cast<float>(rank % 4) + static_cast<float>(i) * 0x1p-16F;
  });
  double whole = 0;
  for (uint32_t rank = 0; rank < GetParam(); ++rank) whole += rank % 4;
  const std::vector<float> sums = sums_of<float>(call);
  for (size_t i = 0; i < kCount; ++i) {
    const double exact = whole + static_cast<double>(GetParam()) * static_cast<double>(i) * 0x1p-16;
    EXPECT_EQ(sums[i], static_cast<float>(exact)) << i;
  }
}

TEST_P(JobsOfRanks, FloatsAreWithinTheirBound) {
  const auto value = [](uint32_t rank, size_t i) { return std::sin(static_cast<float>(rank * kCount + i + 1)); };
  const std::vector<float> sums = sums_of<float>(run<float>(CallKind::float32_sum, value));
  const double unit = std::ldexp(1.0, -(31 - headroom_for(GetParam())));  // the magnitudes are below 1
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    for (uint32_t rank = 0; rank < GetParam(); ++rank) exact += value(rank, i);
    EXPECT_NEAR(sums[i], exact, GetParam() / 2.0 * unit + std::abs(exact) * 0x1p-24);
  }
}

TEST_P(JobsOfRanks, LargestNumbersDoNotOverflowTheWords) {
  const float most = std::numeric_limits<float>::max();
  const auto value = [most](uint32_t /*rank*/, size_t i) { return i % 2 == 0 ? most : -most; };
  const std::vector<float> averages = sums_of<float>(run<float>(CallKind::float32_average, value));
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(averages[i] / value(0, i), 1, 1e-5);
  const std::vector<float> sums = sums_of<float>(run<float>(CallKind::float32_sum, value));
  for (size_t i = 0; i < kCount; ++i) EXPECT_TRUE(std::isinf(sums[i]) && (sums[i] > 0) == (i % 2 == 0));
}

TEST_P(JobsOfRanks, AveragesAreThoseOfAllRanks) {
  const auto value = [](uint32_t rank, size_t i) { return static_cast<float>(rank + i); };
  const std::vector<float> averages = sums_of<float>(run<float>(CallKind::float32_average, value));
  const double unit = std::ldexp(1.0, bits_for(GetParam() + kCount) - (31 - headroom_for(GetParam())));
  for (size_t i = 0; i < kCount; ++i) {
    const double exact = (GetParam() - 1) / 2.0 + static_cast<double>(i);
    EXPECT_NEAR(averages[i], exact, unit / 2 + exact * 0x1p-24);
  }
}

TEST_P(JobsOfRanks, HalvesAreAveraged) {
  const CodecCall call = run<kernels::Float16>(CallKind::float16_average, [](uint32_t rank, size_t i) {
    kernels::Float16 half;
    kernels::narrow(static_cast<float>(rank % 2) * static_cast<float>(i), &half);
    return half;
  });
  const std::vector<kernels::Float16> averages = sums_of<kernels::Float16>(call);
  for (size_t i = 0; i < kCount; ++i) {
    kernels::Float16 expected;
    const size_t sum = GetParam() / 2 * i;
    kernels::narrow(static_cast<float>(static_cast<double>(sum) / GetParam()), &expected);
    EXPECT_EQ(averages[i].bits, expected.bits) << i;
  }
}

TEST_P(JobsOfRanks, PlacesThatAreNotFiniteAreNamed) {
  const CodecCall call = run<float>(CallKind::float32_sum, [](uint32_t rank, size_t i) {
    return i == 5 || (i == kValues && rank == GetParam() - 1) ? NAN : 1.0F;
  });
  const std::vector<float> sums = sums_of<float>(call);
  for (size_t i = 0; i < kCount; ++i) {
    if (i == 5 || i == kValues) {
      EXPECT_TRUE(std::isnan(sums[i])) << i;
    } else {
      EXPECT_EQ(sums[i], static_cast<float>(GetParam())) << i;
    }
  }
}

TEST_P(JobsOfRanks, SparseCallsHaveTheBitsOfDenseOnes) {
  const auto value = [](uint32_t rank, size_t i) {  // the first packet: of some ranks; the second: of the last one
    const bool has = i < kValues ? rank % 5 == 1 : rank + 1 == GetParam();
    return has ? std::sin(static_cast<float>(rank + i + 1)) : 0.0F;
  };
  const CodecCall dense = run<float>(CallKind::float32_sum, value);
  const CodecCall sparse = run<float>(CallKind::float32_sum, value, {}, true);
  EXPECT_EQ(sparse.memory(0), dense.memory(0));
  EXPECT_EQ(sparse.memory(GetParam() - 1), dense.memory(0));
}

TEST_P(JobsOfRanks, LanesOf16BitsAreWithinTheirBound) {
  const auto value = [](uint32_t rank, size_t i) { return std::sin(static_cast<float>(rank * kCount + i + 1)); };
  const std::vector<float> sums = sums_of<float>(run<float>(CallKind::float32_sum, value, {16, false, 0, 0}));
  const int32_t levels = kernels::levels_for(16, GetParam());
  EXPECT_EQ(levels, 32767 / static_cast<int32_t>(GetParam()));
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    for (uint32_t rank = 0; rank < GetParam(); ++rank) exact += value(rank, i);
    EXPECT_NEAR(sums[i], exact, GetParam() / 2.0 / levels + std::abs(exact) * 0x1p-23);
  }
}

TEST_P(JobsOfRanks, LargestMagnitudesOfAllRanksFitLanesOf16Bits) {
  const auto value = [](uint32_t /*rank*/, size_t i) { return i % 2 == 0 ? -1.0F : 1.0F; };
  const std::vector<float> sums = sums_of<float>(run<float>(CallKind::float32_sum, value, {16, false, 0, 0}));
  // A level is 2/levels, as 1 is the lowest number with its exponent; halves are rounded to even levels.
  const double level = 2.0 / kernels::levels_for(16, GetParam());
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_NEAR(sums[i] / static_cast<float>(GetParam()), value(0, i), level / 2 + 1e-6);
}

TEST_P(JobsOfRanks, LanesOf8BitsAreRefusedWhereTheyCannotHoldTheSums) {
  std::vector<uint8_t> memory(4 * kCount);
  const auto make = [&] {
    return make_codec(CallKind::float32_sum, {memory.data(), memory.data(), kCount}, true, geometry(GetParam()),
                      {8, false, 0, 0});
  };
  if (GetParam() <= 127) {
    EXPECT_NE(make(), nullptr);
    return;
  }
  try {
    make();
    FAIL() << "there are no levels";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(),
              "lanes of 8 bits hold the sums of at most 127 ranks, and this job has " + std::to_string(GetParam()));
  }
}

TEST_P(JobsOfRanks, TruthValuesFit16Bits) {
  const CodecCall call = run<kernels::Boolean>(
      CallKind::bool_sum,
      [](uint32_t rank, size_t i) { return kernels::Boolean{static_cast<uint8_t>(i % 2 == 0 || rank == i ? 1 : 0)}; },
      {16, false, 0, 0});
  for (const uint8_t any : sums_of<uint8_t>(call)) EXPECT_EQ(any, 1);
}

TEST_P(JobsOfRanks, IntegersAreSummedModulo32Bits) {
  const auto value = [](uint32_t rank, size_t i) { return static_cast<int32_t>((rank + 1) * 0x9E3779B1U + i); };
  const std::vector<int32_t> sums = sums_of<int32_t>(run<int32_t>(CallKind::int32_sum, value));
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t exact = 0;
    for (uint32_t rank = 0; rank < GetParam(); ++rank) exact += static_cast<uint32_t>(value(rank, i));
    EXPECT_EQ(static_cast<uint32_t>(sums[i]), exact);
  }
}

}  // namespace
}  // namespace switchml::client
