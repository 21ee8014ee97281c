#include "native/kernels/accumulate.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "native/kernels/accumulate_neon.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml::kernels {
namespace {

using AddFunction = void (*)(uint8_t* sums, const uint8_t* values, size_t count);
using SumFunction = void (*)(const SumBuffers& buffers, size_t count);

uint32_t word_at(const uint8_t* words, size_t index) {
  uint32_t word;
  std::memcpy(&word, words + 4 * index, sizeof word);
  return __builtin_bswap32(word);
}

// Compilers vectorize this loop with SSE2 by themselves.
void add_portable(uint8_t* sums, const uint8_t* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t sum = __builtin_bswap32(word_at(sums, i) + word_at(values, i));
    std::memcpy(sums + 4 * i, &sum, sizeof sum);
  }
}

// Adds up the words from number `begin` on.
void sum_from(const SumBuffers& buffers, size_t begin, size_t count) {
  for (size_t i = begin; i < count; ++i) {
    uint32_t sum = 0;
    for (size_t buffer = 0; buffer < buffers.sources; ++buffer) sum += word_at(buffers.first[buffer], i);
    sum = __builtin_bswap32(sum);
    for (size_t buffer = buffers.first_written; buffer < buffers.count; ++buffer) {
      std::memcpy(buffers.first[buffer] + 4 * i, &sum, sizeof sum);
    }
  }
}

void sum_portable(const SumBuffers& buffers, size_t count) { sum_from(buffers, 0, count); }

#if defined(__x86_64__)

__attribute__((target("avx2"))) void add_avx2(uint8_t* sums, const uint8_t* values, size_t count) {
  const __m256i swap = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    auto* at = reinterpret_cast<__m256i*>(sums + 4 * i);
    const __m256i sum = _mm256_shuffle_epi8(_mm256_load_si256(at), swap);
    const __m256i value =
        _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 4 * i)), swap);
    _mm256_store_si256(at, _mm256_shuffle_epi8(_mm256_add_epi32(sum, value), swap));
  }
  add_portable(sums + 4 * i, values + 4 * i, count - i);
}

__attribute__((target("avx512f,avx512bw,prfchw"))) void add_avx512(uint8_t* sums, const uint8_t* values, size_t count) {
  const __m512i swap = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i sum = _mm512_shuffle_epi8(_mm512_load_si512(sums + 4 * i), swap);
    const __m512i value = _mm512_shuffle_epi8(_mm512_loadu_si512(values + 4 * i), swap);
    _mm512_store_si512(sums + 4 * i, _mm512_shuffle_epi8(_mm512_add_epi32(sum, value), swap));
  }
  add_portable(sums + 4 * i, values + 4 * i, count - i);
}

// Prefetch distance in bytes. Explicit prefetches help because the buffers are many, short, and in other cores' caches.
constexpr size_t kAhead = 1024;

__attribute__((target("avx2,prfchw"))) void sum_avx2(const SumBuffers& buffers, size_t count) {
  const __m256i swap = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256i sum = _mm256_setzero_si256();
    for (size_t buffer = 0; buffer < buffers.sources; ++buffer) {
      const uint8_t* words = buffers.first[buffer] + 4 * i;
      if (buffer < buffers.first_written) {
        __builtin_prefetch(words + kAhead, 0);
      } else {
        __builtin_prefetch(words + kAhead, 1);
      }
      const __m256i value = _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
      sum = _mm256_add_epi32(sum, _mm256_shuffle_epi8(value, swap));
    }
    sum = _mm256_shuffle_epi8(sum, swap);
    for (size_t buffer = buffers.first_written; buffer < buffers.count; ++buffer) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(buffers.first[buffer] + 4 * i), sum);
    }
  }
  sum_from(buffers, i, count);
}

// With the number of buffers known, the compiler keeps their pointers in registers.
template <size_t kBuffers>
__attribute__((target("avx512f,avx512bw,prfchw"))) void sum_fixed_avx512(uint8_t* const* given, size_t bytes) {
  const __m512i swap = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203);
  std::array<uint8_t*, kBuffers> buffers;
  std::copy_n(given, kBuffers, buffers.begin());
  for (size_t at = 0; at < bytes; at += 64) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t buffer = 0; buffer < kBuffers; ++buffer) {
      __builtin_prefetch(buffers[buffer] + at + kAhead, 1);
      sum = _mm512_add_epi32(sum, _mm512_shuffle_epi8(_mm512_load_si512(buffers[buffer] + at), swap));
    }
    sum = _mm512_shuffle_epi8(sum, swap);
#pragma GCC unroll 8
    for (size_t buffer = 0; buffer < kBuffers; ++buffer) _mm512_store_si512(buffers[buffer] + at, sum);
  }
}

__attribute__((target("avx512f,avx512bw,prfchw"))) void sum_any_avx512(const SumBuffers& buffers, size_t bytes) {
  const __m512i swap = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203);
  for (size_t at = 0; at < bytes; at += 64) {
    __m512i sum = _mm512_setzero_si512();
    for (size_t buffer = 0; buffer < buffers.sources; ++buffer) {
      const uint8_t* words = buffers.first[buffer] + at;
      if (buffer < buffers.first_written) {
        __builtin_prefetch(words + kAhead, 0);
      } else {
        __builtin_prefetch(words + kAhead, 1);
      }
      sum = _mm512_add_epi32(sum, _mm512_shuffle_epi8(_mm512_load_si512(words), swap));
    }
    sum = _mm512_shuffle_epi8(sum, swap);
    for (size_t buffer = buffers.first_written; buffer < buffers.sources; ++buffer) {
      _mm512_store_si512(buffers.first[buffer] + at, sum);
    }
    for (size_t buffer = buffers.sources; buffer < buffers.count; ++buffer) {
      __builtin_prefetch(buffers.first[buffer] + at + kAhead, 1);
      _mm512_store_si512(buffers.first[buffer] + at, sum);
    }
  }
}

void sum_avx512(const SumBuffers& buffers, size_t count) {
  const size_t in_vectors = count / 16 * 16;
  const size_t bytes = 4 * in_vectors;
  const bool all = buffers.first_written == 0 && buffers.sources == buffers.count;
  switch (all ? buffers.count : 0) {
    case 2:
      sum_fixed_avx512<2>(buffers.first, bytes);
      break;
    case 4:
      sum_fixed_avx512<4>(buffers.first, bytes);
      break;
    case 8:
      sum_fixed_avx512<8>(buffers.first, bytes);
      break;
    default:
      sum_any_avx512(buffers, bytes);
  }
  sum_from(buffers, in_vectors, count);
}

#endif

struct Functions {
  AddFunction add = add_portable;
  SumFunction sum = sum_portable;
};

Functions functions_for(Instructions instructions) {
  switch (instructions) {
#if defined(__x86_64__)
    case Instructions::avx512:
      return {add_avx512, sum_avx512};
    case Instructions::avx2:
      return {add_avx2, sum_avx2};
#elif defined(__aarch64__)
    case Instructions::neon:
      return {add_neon, sum_neon};
#endif
    default:
      return {};
  }
}

Instructions chosen = best_of_processor();
Functions in_use = functions_for(chosen);

}  // namespace

Instructions instructions_to_add() { return chosen; }

void use_instructions_to_add(Instructions instructions) {
  if (!cpu_has(instructions)) throw std::invalid_argument("this CPU does not have these instructions");
  chosen = instructions;
  in_use = functions_for(instructions);
}

void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count) { in_use.add(sums, values, count); }

void sum_buffers(const SumBuffers& buffers, size_t count) {
  SumBuffers written = buffers;
  if (buffers.sources == 1) written.first_written = 1;  // it has its words already
  if (written.first_written < written.count) in_use.sum(written, count);
}

}  // namespace switchml::kernels
