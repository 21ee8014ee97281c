#include "native/kernels/accumulate_neon.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "native/wire/wire.h"

namespace switchml::kernels {

namespace {

constexpr size_t kLanes = 4;

inline uint32x4_t load(const uint8_t* words) { return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(words))); }

inline void store(uint8_t* words, uint32x4_t values) { vst1q_u8(words, vrev32q_u8(vreinterpretq_u8_u32(values))); }

}  // namespace

void add_neon(uint8_t* sums, const uint8_t* values, size_t count) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(sums + 4 * i, vaddq_u32(load(sums + 4 * i), load(values + 4 * i)));
  }
  for (; i < count; ++i) {
    wire::store32(sums + 4 * i, wire::load32(sums + 4 * i) + wire::load32(values + 4 * i));
  }
}

void sum_neon(const SumBuffers& buffers, size_t count) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    uint32x4_t sum = load(buffers.first[0] + 4 * i);
    for (size_t buffer = 1; buffer < buffers.sources; ++buffer) {
      sum = vaddq_u32(sum, load(buffers.first[buffer] + 4 * i));
    }
    for (size_t buffer = buffers.first_written; buffer < buffers.count; ++buffer) {
      store(buffers.first[buffer] + 4 * i, sum);
    }
  }
  for (; i < count; ++i) {
    uint32_t sum = 0;
    for (size_t buffer = 0; buffer < buffers.sources; ++buffer) sum += wire::load32(buffers.first[buffer] + 4 * i);
    for (size_t buffer = buffers.first_written; buffer < buffers.count; ++buffer) {
      wire::store32(buffers.first[buffer] + 4 * i, sum);
    }
  }
}

}  // namespace switchml::kernels

#endif
