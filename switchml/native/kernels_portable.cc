// The arithmetic without special instructions.
#include <cmath>
#include <cstring>

#include "dataplane/native/wire.h"
#include "switchml/native/kernel_functions.h"

namespace switchml::kernels {

namespace portable {

namespace {

int32_t round_to_integer(float value) {
  // Out of range is the caller's fault, but must not be undefined behaviour.
  return value >= 2147483648.0F || value < -2147483648.0F || std::isnan(value)
             ? INT32_MIN
             : static_cast<int32_t>(std::nearbyint(value));
}

}  // namespace

uint16_t block_exponent(const float* values, size_t first, size_t count) {
  uint32_t largest = 0;
  for (size_t i = first; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return static_cast<uint16_t>(largest >> 23);
}

uint32_t quantize(const float* values, size_t first, size_t count, Factors factors, uint8_t* words) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const auto word = static_cast<uint32_t>(round_to_integer(values[i] * factors.first * factors.second));
    sum += kWeights.of[i] * word;
    wire::store32(words + 4 * i, word);
  }
  return sum;
}

uint32_t dequantize(const uint8_t* words, size_t first, size_t count, int shift, float divisor, float* values) {
  const double factor = std::ldexp(1.0, -shift);
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t word = wire::load32(words + 4 * i);
    sum += kWeights.of[i] * word;
    // In double, an integer times a power of two is exact, so that float32 rounds once, among subnormals too.
    values[i] = static_cast<float>(static_cast<double>(static_cast<int32_t>(word)) * factor) / divisor;
  }
  return sum;
}

uint32_t pack(const uint8_t* values, size_t first, size_t count, uint8_t* words) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    uint32_t value;
    std::memcpy(&value, values + 4 * i, sizeof value);
    sum += kWeights.of[i] * value;
    wire::store32(words + 4 * i, value);
  }
  return sum;
}

uint32_t unpack(const uint8_t* words, size_t first, size_t count, uint8_t* values) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t value = wire::load32(words + 4 * i);
    sum += kWeights.of[i] * value;
    std::memcpy(values + 4 * i, &value, sizeof value);
  }
  return sum;
}

uint32_t weigh(const uint8_t* words, size_t first, size_t begin, size_t end) {
  uint32_t sum = 0;
  for (size_t i = begin; i < end; ++i) {
    sum += kWeights.of[first + i] * wire::load32(words + 4 * i);
  }
  return sum;
}

}  // namespace portable

namespace {

uint16_t block_exponent(const float* values, size_t count) { return portable::block_exponent(values, 0, count); }

uint32_t quantize(const float* values, size_t count, Factors factors, uint8_t* words, bool /*streaming*/,
                  const uint8_t* /*next*/) {
  return portable::quantize(values, 0, count, factors, words);
}

uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, float* values) {
  return portable::dequantize(words, 0, count, shift, divisor, values);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool /*streaming*/) {
  return portable::pack(values, 0, count, words);
}

uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) {
  return portable::unpack(words, 0, count, values);
}

uint32_t weigh(const uint8_t* words, size_t first, size_t count) { return portable::weigh(words, first, 0, count); }

}  // namespace

const Functions kPortable = {block_exponent, quantize, dequantize, pack, unpack, weigh};

}  // namespace switchml::kernels
