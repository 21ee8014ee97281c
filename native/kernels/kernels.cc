// Chooses the instruction set, once per process.
#include "native/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "native/kernels/codes.h"
#include "native/kernels/kernel_functions.h"

namespace switchml::kernels {

namespace {

// The functions for one instruction set.
struct Choice {
  const Functions* blocks;
  const LaneFunctions* lanes;
  const CodeFunctions* codes;
};

Choice functions_for(Instructions instructions) {
  switch (instructions) {
#if defined(__x86_64__)
    case Instructions::avx512:
      return {&kAvx512, &kAvx512Lanes, &kAvx512Codes};
    case Instructions::avx2:
      return {&kAvx2, &kAvx2Lanes, &kAvx2Codes};
#elif defined(__aarch64__)
    case Instructions::neon:
      return {&kNeon, &kNeonLanes, &kNeonCodes};
#endif
    default:
      return {&kPortable, &kPortableLanes, &kPortableCodes};
  }
}

Instructions chosen = best_of_processor();
Choice in_use = functions_for(chosen);

// Makes a division by a power of two part of the shift, because it costs nothing there. Returns whether the functions
// for instruction sets round a quotient with this shift and divisor once.
template <typename Value>
bool rounds_once(int* shift, float* divisor) {
  int divisor_bits = 0;
  if (std::frexp(*divisor, &divisor_bits) == 0.5F) {
    *shift += divisor_bits - 1;
    *divisor = 1.0F;
    divisor_bits = 0;
  }
  return *shift <= largest_shift<Value>(divisor_bits) && *divisor <= kLargestDivisor<Value>;
}

bool are_zeros(const uint8_t* words, size_t count) {
  const size_t bytes = count * sizeof(uint32_t);
  return bytes == 0 || (words[0] == 0 && std::memcmp(words, words + 1, bytes - 1) == 0);
}

}  // namespace

Instructions best_instructions() { return best_of_processor(); }

Instructions instructions_in_use() { return chosen; }

void use_instructions(Instructions instructions) {
  if (!cpu_has(instructions)) {
    throw std::invalid_argument("this CPU does not have these instructions");
  }
  chosen = instructions;
  in_use = functions_for(instructions);
}

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count) {
  return in_use.blocks->of(values).largest_magnitude(values, count);
}

template <>
uint16_t exponent_of<float>(uint32_t magnitude) {
  return static_cast<uint16_t>(magnitude >> 24);
}

template <>
uint16_t exponent_of<BFloat16>(uint32_t magnitude) {
  return static_cast<uint16_t>(magnitude >> 8);
}

template <>
uint16_t exponent_of<Float16>(uint32_t magnitude) {
  return static_cast<uint16_t>(bits_of(widen(Float16{static_cast<uint16_t>(magnitude >> 1)})) >> 23);
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, int shift, uint8_t* words,
                  const Value* next, bool alone) {
  const auto* fetched = reinterpret_cast<const uint8_t*>(next != nullptr ? next : values);
  return in_use.blocks->of(values).quantize(weights, values, count, Factors(shift), words, fetched, alone);
}

template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor, Value* values,
                    bool alone) {
  if (rounds_once<Value>(&shift, &divisor)) {
    return in_use.blocks->of(values).dequantize(weights, words, count, shift, divisor, values, alone);
  }
  if (are_zeros(words, count)) {  // nearly all blocks with such a shift, because the exponent of zeros is the lowest
    std::fill_n(values, count, Value{});
    return 0;
  }
  return kPortable.of(values).dequantize(weights, words, count, shift, divisor, values, alone);
}

template <typename Value>
void sum_parts(const Parts<Value>& parts, size_t count, int shift, float divisor, Value* sums) {
  const Factors factors(shift);
  const bool once = rounds_once<Value>(&shift, &divisor);
  const Functions& functions = once ? *in_use.blocks : kPortable;
  functions.of(sums).sum(parts, count, {factors, shift, divisor}, sums);
}

template <typename Half>
void widen(const Half* values, size_t count, float* floats) {
  in_use.blocks->of(values).widen(values, count, floats);
}

template <typename Half>
void narrow(const float* floats, size_t count, Half* values) {
  in_use.blocks->of(values).narrow(floats, count, values);
}

template uint32_t largest_magnitude(const float*, size_t);
template uint64_t quantize(const Weights&, const float*, size_t, int, uint8_t*, const float*, bool);
template uint64_t dequantize(const Weights&, const uint8_t*, size_t, int, float, float*, bool);
template uint32_t largest_magnitude(const Float16*, size_t);
template uint64_t quantize(const Weights&, const Float16*, size_t, int, uint8_t*, const Float16*, bool);
template uint64_t dequantize(const Weights&, const uint8_t*, size_t, int, float, Float16*, bool);
template uint32_t largest_magnitude(const BFloat16*, size_t);
template uint64_t quantize(const Weights&, const BFloat16*, size_t, int, uint8_t*, const BFloat16*, bool);
template uint64_t dequantize(const Weights&, const uint8_t*, size_t, int, float, BFloat16*, bool);
template void sum_parts(const Parts<float>&, size_t, int, float, float*);
template void sum_parts(const Parts<Float16>&, size_t, int, float, Float16*);
template void sum_parts(const Parts<BFloat16>&, size_t, int, float, BFloat16*);
template void widen(const Float16*, size_t, float*);
template void widen(const BFloat16*, size_t, float*);
template void narrow(const float*, size_t, Float16*);
template void narrow(const float*, size_t, BFloat16*);

uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words) {
  return in_use.blocks->pack(weights, values, count, words);
}

uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values) {
  return in_use.blocks->unpack(weights, words, count, values);
}

void copy(uint8_t* to, const uint8_t* from, size_t bytes, bool streamed) {
  in_use.blocks->copy(to, from, bytes, streamed);
}

uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count) {
  return in_use.blocks->weigh(weights, words, first, count);
}

template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t count, int lane_bits, int shift,
                        int32_t levels, const Rounding& rounding, uint8_t* words, const Value* next) {
  const auto* fetched = reinterpret_cast<const uint8_t*>(next != nullptr ? next : values);
  const LaneScale scale(shift, levels, rounding.stochastic);
  return in_use.lanes->of(values).quantize(weights, values, count, lane_bits, scale, rounding, words, fetched);
}

template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, int shift,
                          int32_t divisor, Value* values) {
  return in_use.lanes->of(values).dequantize(weights, words, count, lane_bits, LaneUnit(shift, divisor), values);
}

template <typename Integer>
uint64_t pack_lanes(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words) {
  return in_use.lanes->of(values).pack(weights, values, count, lane_bits, words);
}

template <typename Integer>
uint64_t unpack_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  return in_use.lanes->of(values).unpack(weights, words, count, lane_bits, values);
}

template <typename Integer>
bool all_within(const Integer* values, size_t count, int32_t bound) {
  return in_use.lanes->of(values).all_within(values, count, bound);
}

template uint64_t quantize_lanes(const Weights&, const float*, size_t, int, int, int32_t, const Rounding&, uint8_t*,
                                 const float*);
template uint64_t dequantize_lanes(const Weights&, const uint8_t*, size_t, int, int, int32_t, float*);
template uint64_t quantize_lanes(const Weights&, const Float16*, size_t, int, int, int32_t, const Rounding&, uint8_t*,
                                 const Float16*);
template uint64_t dequantize_lanes(const Weights&, const uint8_t*, size_t, int, int, int32_t, Float16*);
template uint64_t quantize_lanes(const Weights&, const BFloat16*, size_t, int, int, int32_t, const Rounding&, uint8_t*,
                                 const BFloat16*);
template uint64_t dequantize_lanes(const Weights&, const uint8_t*, size_t, int, int, int32_t, BFloat16*);
template uint64_t pack_lanes(const Weights&, const Boolean*, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, int, Boolean*);
template uint64_t pack_lanes(const Weights&, const int8_t*, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, int, int8_t*);
template uint64_t pack_lanes(const Weights&, const uint8_t*, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, int, uint8_t*);
template uint64_t pack_lanes(const Weights&, const int16_t*, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, int, int16_t*);
template uint64_t pack_lanes(const Weights&, const int32_t*, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, int, int32_t*);
template bool all_within(const Boolean*, size_t, int32_t);
template bool all_within(const int8_t*, size_t, int32_t);
template bool all_within(const uint8_t*, size_t, int32_t);
template bool all_within(const int16_t*, size_t, int32_t);
template bool all_within(const int32_t*, size_t, int32_t);

template <typename Value>
void write_natural8(const Value* values, size_t count, int shift, const Rounding& rounding, uint8_t* codes) {
  in_use.codes->of(values).natural8(values, count, Factors(shift), rounding, codes);
}

template <typename Value>
void write_dynamic8(const Value* values, size_t count, int shift, uint8_t* codes) {
  in_use.codes->of(values).dynamic8(values, count, Factors(shift), codes);
}

template void write_natural8(const float*, size_t, int, const Rounding&, uint8_t*);
template void write_natural8(const Float16*, size_t, int, const Rounding&, uint8_t*);
template void write_natural8(const BFloat16*, size_t, int, const Rounding&, uint8_t*);
template void write_dynamic8(const float*, size_t, int, uint8_t*);
template void write_dynamic8(const Float16*, size_t, int, uint8_t*);
template void write_dynamic8(const BFloat16*, size_t, int, uint8_t*);

void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words) {
  in_use.codes->expand(codes, count, format, words);
}

}  // namespace switchml::kernels
