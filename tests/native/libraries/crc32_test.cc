#include "native/kernels/crc32.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace switchml::kernels {
namespace {

// The definition: one bit after the other, the lowest of a byte first.
uint32_t crc_by_bits(const uint8_t* data, size_t bytes) {
  uint32_t remainder = 0xFFFFFFFF;
  for (size_t i = 0; i < bytes; ++i) {
    remainder ^= data[i];
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1U) ^ ((remainder & 1U) != 0 ? 0xEDB88320U : 0);
  }
  return ~remainder;
}

std::vector<uint8_t> random_bytes(size_t count) {
  std::mt19937 generator(1);  // NOLINT: the same run each time
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

class Crc32 : public testing::TestWithParam<bool> {
 protected:
  Crc32() { use_crc_instructions(GetParam()); }
  ~Crc32() override { use_crc_instructions(true); }
};

TEST_P(Crc32, IsTheOneOfEthernet) {
  // The check value of the catalogue of CRC algorithms.
  EXPECT_EQ(crc32(0, reinterpret_cast<const uint8_t*>("123456789"), 9), 0xCBF43926U);
}

TEST_P(Crc32, OfEachLengthAndAlignment) {
  const std::vector<uint8_t> bytes = random_bytes(700 + 16);
  for (size_t length = 0; length <= 700; ++length) {
    const uint8_t* data = bytes.data() + length % 16;
    ASSERT_EQ(crc32(0, data, length), crc_by_bits(data, length)) << length;
  }
}

TEST_P(Crc32, OfATextInTwoParts) {
  const std::vector<uint8_t> bytes = random_bytes(9000);
  const uint32_t whole = crc32(0, bytes.data(), bytes.size());
  for (const size_t first : {0, 1, 15, 56, 127, 128, 1000, 8999, 9000}) {
    const size_t second = bytes.size() - first;
    const uint32_t crc = crc32(0, bytes.data(), first);
    EXPECT_EQ(crc32(crc, bytes.data() + first, second), whole) << first;
    EXPECT_EQ(Crc32Join(second).join(crc, crc32(0, bytes.data() + first, second)), whole) << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Instructions, Crc32, testing::Values(false, true),
                         [](const auto& one) { return one.param ? "Fastest" : "Portable"; });

}  // namespace
}  // namespace switchml::kernels
