// The arithmetic without special instructions.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "native/kernels/kernel_functions.h"
#include "native/wire/wire.h"

namespace switchml::kernels {

namespace portable {

namespace {

int32_t round_to_integer(float value) {
  // A value out of range is the caller's error, but must not be undefined behaviour.
  return value >= 2147483648.0F || value < -2147483648.0F || std::isnan(value)
             ? INT32_MIN
             : static_cast<int32_t>(std::nearbyint(value));
}

template <typename Value>
uint32_t scaled_word(Value value, const Factors& factors) {
  return static_cast<uint32_t>(round_to_integer(kernels::widen(value) * factors.first * factors.second));
}

// Stores word * factor / divisor, where `factor` is a power of two, rounded once.
template <typename Value>
void store_quotient(uint32_t word, double factor, float divisor, Value* value) {
  // In double, an integer times a power of two is exact, so the conversion to float32 is the only rounding, also for
  // subnormal results.
  const double exact = static_cast<double>(static_cast<int32_t>(word)) * factor;
  // The double quotient of a 31-bit by a 12-bit integer is so close to the exact one that no midpoint between two
  // float32 numbers lies between them: unless a midpoint is the quotient, it is at least 2^-37 of it away.
  const double quotient = exact / static_cast<double>(divisor);
  if constexpr (std::is_same_v<Value, float>) {
    *value = static_cast<float>(quotient);
  } else {
    kernels::narrow(round_to_odd(quotient), value);
  }
}

// Returns the bits of a value after its sign has moved from the highest place to the lowest.
uint32_t with_sign_moved(float value) { return bits_of(value) << 1 | bits_of(value) >> 31; }

template <typename Half>
uint32_t with_sign_moved(Half value) {
  return static_cast<uint16_t>(value.bits << 1 | value.bits >> 15);
}

}  // namespace

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t first, size_t count) {
  uint32_t largest = 0;
  for (size_t i = first; i < count; ++i) {
    largest = std::max(largest, with_sign_moved(values[i]));
  }
  return largest;
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t first, size_t count, Factors factors,
                  uint8_t* words) {
  uint64_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t word = scaled_word(values[i], factors);
    sum += weighed_word(weights.of[i], word);
    wire::store32(words + 4 * i, word);
  }
  return sum;
}

template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t first, size_t count, int shift, float divisor,
                    Value* values) {
  const double factor = std::ldexp(1.0, -shift);
  uint64_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t word = wire::load32(words + 4 * i);
    sum += weighed_word(weights.of[i], word);
    store_quotient(word, factor, divisor, values + i);
  }
  return sum;
}

template <typename Value>
void sum(const Parts<Value>& parts, size_t first, size_t count, const SumScale& scale, Value* sums) {
  const double factor = std::ldexp(1.0, -scale.shift);
  for (size_t i = first; i < count; ++i) {
    uint32_t word = 0;
    for (size_t part = 0; part < parts.count; ++part) {
      word += scaled_word(parts.first[part][i], scale.factors);
    }
    store_quotient(word, factor, scale.divisor, sums + i);
  }
}

template <typename Half>
void widen(const Half* values, size_t first, size_t count, float* floats) {
  for (size_t i = first; i < count; ++i) {
    floats[i] = kernels::widen(values[i]);
  }
}

template <typename Half>
void narrow(const float* floats, size_t first, size_t count, Half* values) {
  for (size_t i = first; i < count; ++i) {
    kernels::narrow(floats[i], values + i);
  }
}

template uint32_t largest_magnitude(const float*, size_t, size_t);
template uint64_t quantize(const Weights&, const float*, size_t, size_t, Factors, uint8_t*);
template uint64_t dequantize(const Weights&, const uint8_t*, size_t, size_t, int, float, float*);
template uint32_t largest_magnitude(const Float16*, size_t, size_t);
template uint64_t quantize(const Weights&, const Float16*, size_t, size_t, Factors, uint8_t*);
template uint64_t dequantize(const Weights&, const uint8_t*, size_t, size_t, int, float, Float16*);
template uint32_t largest_magnitude(const BFloat16*, size_t, size_t);
template uint64_t quantize(const Weights&, const BFloat16*, size_t, size_t, Factors, uint8_t*);
template uint64_t dequantize(const Weights&, const uint8_t*, size_t, size_t, int, float, BFloat16*);
template void sum(const Parts<float>&, size_t, size_t, const SumScale&, float*);
template void sum(const Parts<Float16>&, size_t, size_t, const SumScale&, Float16*);
template void sum(const Parts<BFloat16>&, size_t, size_t, const SumScale&, BFloat16*);
template void widen(const Float16*, size_t, size_t, float*);
template void narrow(const float*, size_t, size_t, Float16*);
template void widen(const BFloat16*, size_t, size_t, float*);
template void narrow(const float*, size_t, size_t, BFloat16*);

uint64_t pack(const Weights& weights, const uint8_t* values, size_t first, size_t count, uint8_t* words) {
  uint64_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    uint32_t value;
    std::memcpy(&value, values + 4 * i, sizeof value);
    sum += weighed_word(weights.of[i], value);
    wire::store32(words + 4 * i, value);
  }
  return sum;
}

uint64_t unpack(const Weights& weights, const uint8_t* words, size_t first, size_t count, uint8_t* values) {
  uint64_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t value = wire::load32(words + 4 * i);
    sum += weighed_word(weights.of[i], value);
    std::memcpy(values + 4 * i, &value, sizeof value);
  }
  return sum;
}

uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t begin, size_t end) {
  uint64_t sum = 0;
  for (size_t i = begin; i < end; ++i) {
    sum += weighed_word(weights.of[first + i], wire::load32(words + 4 * i));
  }
  return sum;
}

}  // namespace portable

namespace {

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count) {
  return portable::largest_magnitude(values, 0, count);
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                  const uint8_t* /*next*/, bool /*alone*/) {
  return portable::quantize(weights, values, 0, count, factors, words);
}

template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor, Value* values,
                    bool /*alone*/) {
  return portable::dequantize(weights, words, 0, count, shift, divisor, values);
}

template <typename Value>
void sum(const Parts<Value>& parts, size_t count, const SumScale& scale, Value* sums) {
  portable::sum(parts, 0, count, scale, sums);
}

template <typename Half>
void widen(const Half* values, size_t count, float* floats) {
  portable::widen(values, 0, count, floats);
}

template <typename Half>
void narrow(const float* floats, size_t count, Half* values) {
  portable::narrow(floats, 0, count, values);
}

uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words) {
  return portable::pack(weights, values, 0, count, words);
}

uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values) {
  return portable::unpack(weights, words, 0, count, values);
}

uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count) {
  return portable::weigh(weights, words, first, 0, count);
}

void copy(uint8_t* to, const uint8_t* from, size_t bytes, bool /*streamed*/) { std::memcpy(to, from, bytes); }

}  // namespace

const Functions kPortable = {
    {largest_magnitude<float>, quantize<float>, dequantize<float>, sum<float>, nullptr, nullptr},
    {largest_magnitude<Float16>, quantize<Float16>, dequantize<Float16>, sum<Float16>, widen<Float16>, narrow<Float16>},
    {largest_magnitude<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, sum<BFloat16>, widen<BFloat16>,
     narrow<BFloat16>},
    pack,
    unpack,
    weigh,
    copy,
};

}  // namespace switchml::kernels
