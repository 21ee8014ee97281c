// Chooses among the sets of instructions, once.
#include "switchml/native/kernels.h"

#include <stdexcept>

#include "switchml/native/kernel_functions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml::kernels {

namespace {

const Functions* functions_for(Instructions instructions) {
  switch (instructions) {
#if defined(__x86_64__)
    case Instructions::avx512:
      return &kAvx512;
    case Instructions::avx2:
      return &kAvx2;
#elif defined(__aarch64__)
    case Instructions::neon:
      return &kNeon;
#endif
    default:
      return &kPortable;
  }
}

const Functions* in_use = functions_for(best_of_processor());

}  // namespace

Instructions best_instructions() { return best_of_processor(); }

void use_instructions(Instructions instructions) {
  if (!processor_has(instructions)) {
    throw std::invalid_argument("this processor does not have these instructions");
  }
  in_use = functions_for(instructions);
}

uint16_t block_exponent(const float* values, size_t count) { return in_use->block_exponent(values, count); }

uint32_t quantize(const float* values, size_t count, int shift, uint8_t* words, bool streaming, const float* next) {
  const auto* fetched = reinterpret_cast<const uint8_t*>(next != nullptr ? next : values);
  return in_use->quantize(values, count, Factors(shift), words, streaming, fetched);
}

void fence_streaming_stores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, float* values) {
  const Functions& functions = shift <= kLargestFactor ? *in_use : kPortable;
  return functions.dequantize(words, count, shift, divisor, values);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool streaming) {
  return in_use->pack(values, count, words, streaming);
}

uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) { return in_use->unpack(words, count, values); }

uint32_t weigh(const uint8_t* words, size_t first, size_t count) { return in_use->weigh(words, first, count); }

}  // namespace switchml::kernels
