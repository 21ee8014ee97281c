// The two 16-bit floating-point types, stored as bits, and their conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace switchml::kernels {

struct Float16 {  // IEEE 754 binary16: sign, 5 bits of exponent, 10 of significand
  uint16_t bits;
};

struct BFloat16 {  // the upper half of a float32
  uint16_t bits;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Converts to float32 exactly. A signalling NaN of Float16 becomes a quiet one, as in the conversions of CPUs.
inline float widen(float value) { return value; }

inline float widen(BFloat16 value) { return float_of(static_cast<uint32_t>(value.bits) << 16); }

inline float widen(Float16 value) {
  const uint32_t sign = (value.bits & 0x8000U) << 16;
  const uint32_t magnitude = value.bits & 0x7FFFU;
  if (magnitude > 0x7C00) {
    return float_of(sign | 0x7FC00000 | (magnitude << 13));
  }
  if (magnitude == 0x7C00) {
    return float_of(sign | 0x7F800000);
  }
  if (magnitude < 0x0400) {  // subnormal: a multiple of 2^-24
    const float value_of = static_cast<float>(magnitude) * 0x1p-24F;
    return float_of(sign | bits_of(value_of));
  }
  return float_of(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

inline bool is_finite(float value) { return std::isfinite(value); }
inline bool is_finite(Float16 value) { return (value.bits & 0x7C00) != 0x7C00; }
inline bool is_finite(BFloat16 value) { return (value.bits & 0x7F80) != 0x7F80; }

// Rounds to nearest even; values beyond the largest number become infinity. A NaN keeps its sign and the upper bits of
// its payload, and becomes quiet.
inline void narrow(float value, BFloat16* to) {
  const uint32_t bits = bits_of(value);
  to->bits = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16) | 0x40
                                                                    : (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline void narrow(float value, Float16* to) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude > 0x7F800000) {
    half = 0x7E00 | ((magnitude >> 13) & 0x3FF);
  } else if (magnitude >= 0x47800000) {  // 2^16, or infinity
    half = 0x7C00;
  } else if (magnitude < 0x38800000) {  // below 2^-14: adding 2^-1 leaves whole multiples of 2^-24
    half = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
  } else {
    half = (magnitude + 0xFFF + ((magnitude >> 13) & 1) - ((127U - 15U) << 23)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | half);
}

inline void narrow(float value, float* to) { *to = value; }

// Rounds to float32 such that a second rounding, to fewer bits, gives the same result as rounding once: a value that
// float32 cannot represent becomes its neighbour whose last bit is 1, which is never halfway between two numbers of the
// shorter type.
inline float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const uint32_t bits = bits_of(nearest);
  if (static_cast<double>(nearest) == value || (bits & 1) != 0) {
    return nearest;
  }
  return float_of(std::abs(static_cast<double>(nearest)) < std::abs(value) ? bits + 1 : bits - 1);
}

}  // namespace switchml::kernels
