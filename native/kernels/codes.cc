#include "native/kernels/codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "native/kernels/kernel_functions.h"
#include "native/kernels/kernels.h"
#include "native/wire/codes.h"
#include "native/wire/wire.h"

namespace switchml::kernels {

namespace {

constexpr size_t kPart = 256;  // values that are coded at a time: their numbers stay in the nearest cache

// The tables as they are in memory when a word is stored.
constexpr wire::CodeTable big_endian(const wire::CodeTable& table) {
  wire::CodeTable swapped{};
  for (size_t code = 0; code < table.size(); ++code) {
    swapped[code] = __builtin_bswap32(table[code]);
  }
  return swapped;
}
constexpr wire::CodeTable kNatural8Words = big_endian(wire::kNatural8);
constexpr wire::CodeTable kDynamic8Words = big_endian(wire::kDynamic8);

// Bounds between neighbouring magnitudes of dynamic8: from kBounds[n] on, the number n + 1 is nearer than n.
constexpr size_t kNumbers = wire::kCodeSign;
constexpr auto kBounds = [] {
  std::array<float, kNumbers - 1> bounds{};
  for (size_t n = 0; n < bounds.size(); ++n) {
    bounds[n] = static_cast<float>(uint64_t{wire::kDynamic8[n]} + wire::kDynamic8[n + 1]) / 2;
  }
  return bounds;
}();

template <typename Value>
void write_scaled(const Value* values, size_t count, const Factors& factors, float* scaled) {
  for (size_t i = 0; i < count; ++i) {
    scaled[i] = widen(values[i]) * factors.first * factors.second;
  }
}

uint8_t sign_of(uint32_t bits) { return static_cast<uint8_t>(bits >> 24 & wire::kCodeSign); }

}  // namespace

void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words) {
  const wire::CodeTable& table = format == wire::Format::natural8 ? kNatural8Words : kDynamic8Words;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(words + 4 * i, &table[codes[i]], sizeof(uint32_t));
  }
}

uint32_t weigh_codes(const uint8_t* codes, size_t count, wire::Format format) {
  const wire::CodeTable& table = wire::code_table_of(format);
  uint32_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += kWeights.of[i] * table[codes[i]];
  }
  return sum;
}

// The exponent field of a float is that of the power of two below it. The fraction and a threshold, added up, carry
// into the exponent with a probability that is the fraction. A number below 1 gets a fraction by the addition of 1.
template <typename Value>
void write_natural8(const Value* values, size_t count, int shift, const Rounding& rounding, uint8_t* codes) {
  constexpr uint32_t kOne = 127;         // the exponent field of 1
  constexpr unsigned kThresholdBit = 7;  // of a fraction of 23 bits, in which a threshold of 16 bits ends
  constexpr uint32_t kHalfThreshold = 1U << (kThresholdBit - 1);
  constexpr uint32_t kMagnitude = 0x7FFFFFFF;
  Thresholds thresholds;
  portable::write_thresholds(rounding, count, thresholds.of.data());
  const Factors factors(shift);
  std::array<float, kPart> scaled;
  for (size_t first = 0; first < count; first += kPart) {
    const size_t part = std::min(kPart, count - first);
    write_scaled(values + first, part, factors, scaled.data());
    for (size_t i = 0; i < part; ++i) {
      const uint32_t bits = bits_of(scaled[i]);
      const float magnitude = float_of(bits & kMagnitude);
      const uint32_t below_one = magnitude < 1.0F ? 1 : 0;
      const uint32_t fraction = bits_of(magnitude + static_cast<float>(below_one));
      const uint32_t threshold = thresholds.of[first + i];
      const uint32_t power = (fraction + (threshold << kThresholdBit) + kHalfThreshold) >> 23;
      codes[first + i] =
          static_cast<uint8_t>(sign_of(bits) | ((power - kOne + 1 - below_one) & ~wire::kCodeSign & 0xFF));
    }
  }
}

template <typename Value>
void write_dynamic8(const Value* values, size_t count, int shift, uint8_t* codes) {
  const Factors factors(shift);
  std::array<float, kPart> scaled;
  for (size_t first = 0; first < count; first += kPart) {
    const size_t part = std::min(kPart, count - first);
    write_scaled(values + first, part, factors, scaled.data());
    for (size_t i = 0; i < part; ++i) {
      const float magnitude = std::fabs(scaled[i]);
      uint32_t number = 0;
      for (uint32_t step = kNumbers / 2; step > 0; step /= 2) {
        number += magnitude >= kBounds[number + step - 1] ? step : 0;
      }
      codes[first + i] = static_cast<uint8_t>(sign_of(bits_of(scaled[i])) | number);
    }
  }
}

template void write_natural8(const float*, size_t, int, const Rounding&, uint8_t*);
template void write_natural8(const Float16*, size_t, int, const Rounding&, uint8_t*);
template void write_natural8(const BFloat16*, size_t, int, const Rounding&, uint8_t*);
template void write_dynamic8(const float*, size_t, int, uint8_t*);
template void write_dynamic8(const Float16*, size_t, int, uint8_t*);
template void write_dynamic8(const BFloat16*, size_t, int, uint8_t*);

}  // namespace switchml::kernels
