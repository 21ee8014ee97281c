#include "dataplane/softswitch/native/accumulate.h"

#include <cstring>
#include <stdexcept>

#include "dataplane/softswitch/native/accumulate_neon.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml {
namespace {

using AddFunction = void (*)(uint8_t* sums, const uint8_t* values, size_t count);
using SumFunction = void (*)(const uint8_t* const* sources, size_t source_count, uint8_t* sums, size_t count,
                             bool streaming);

uint32_t word_at(const uint8_t* words, size_t index) {
  uint32_t word;
  std::memcpy(&word, words + 4 * index, sizeof word);
  return __builtin_bswap32(word);
}

// Compilers turn this loop into SSE2 as it stands.
void add_portable(uint8_t* sums, const uint8_t* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t sum = __builtin_bswap32(word_at(sums, i) + word_at(values, i));
    std::memcpy(sums + 4 * i, &sum, sizeof sum);
  }
}

void sum_from(const uint8_t* const* sources, size_t source_count, uint8_t* sums, size_t first, size_t count) {
  for (size_t i = first; i < count; ++i) {
    uint32_t sum = 0;
    for (size_t source = 0; source < source_count; ++source) sum += word_at(sources[source], i);
    sum = __builtin_bswap32(sum);
    std::memcpy(sums + 4 * i, &sum, sizeof sum);
  }
}

void sum_portable(const uint8_t* const* sources, size_t source_count, uint8_t* sums, size_t count, bool /*streaming*/) {
  sum_from(sources, source_count, sums, 0, count);
}

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

__attribute__((target("avx2"))) void sum_avx2(const uint8_t* const* sources, size_t source_count, uint8_t* sums,
                                              size_t count, bool streaming) {
  const __m256i swap = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256i sum = _mm256_setzero_si256();
    for (size_t source = 0; source < source_count; ++source) {
      const __m256i value = _mm256_load_si256(reinterpret_cast<const __m256i*>(sources[source] + 4 * i));
      sum = _mm256_add_epi32(sum, _mm256_shuffle_epi8(value, swap));
    }
    auto* at = reinterpret_cast<__m256i*>(sums + 4 * i);
    if (streaming) {
      _mm256_stream_si256(at, _mm256_shuffle_epi8(sum, swap));
    } else {
      _mm256_store_si256(at, _mm256_shuffle_epi8(sum, swap));
    }
  }
  sum_from(sources, source_count, sums, i, count);
}

// How many bytes before its use a cache line is fetched: sources are many, short, and in another core's cache.
constexpr size_t kAhead = 1024;

// With the number of sources known, the compiler keeps their pointers in registers.
template <size_t kSources>
__attribute__((target("avx512f,avx512bw,prfchw"))) void sum_fixed_avx512(const uint8_t* const* sources, uint8_t* sums,
                                                                         size_t vectors, bool streaming) {
  const __m512i swap = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203);
  for (size_t at = 0; at < 64 * vectors; at += 64) {
#pragma GCC unroll 8
    for (size_t source = 0; source < kSources; ++source) _mm_prefetch(sources[source] + at + kAhead, _MM_HINT_T0);
    __builtin_prefetch(sums + at + kAhead, 1);
    __m512i sum = _mm512_shuffle_epi8(_mm512_load_si512(sources[0] + at), swap);
#pragma GCC unroll 8
    for (size_t source = 1; source < kSources; ++source) {
      sum = _mm512_add_epi32(sum, _mm512_shuffle_epi8(_mm512_load_si512(sources[source] + at), swap));
    }
    sum = _mm512_shuffle_epi8(sum, swap);
    if (streaming) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(sums + at), sum);
    } else {
      _mm512_store_si512(sums + at, sum);
    }
  }
}

__attribute__((target("avx512f,avx512bw,prfchw"))) void sum_any_avx512(const uint8_t* const* sources,
                                                                       size_t source_count, uint8_t* sums,
                                                                       size_t vectors, bool streaming) {
  const __m512i swap = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203);
  for (size_t at = 0; at < 64 * vectors; at += 64) {
    __m512i sum = _mm512_setzero_si512();
    for (size_t source = 0; source < source_count; ++source) {
      sum = _mm512_add_epi32(sum, _mm512_shuffle_epi8(_mm512_load_si512(sources[source] + at), swap));
    }
    sum = _mm512_shuffle_epi8(sum, swap);
    if (streaming) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(sums + at), sum);
    } else {
      _mm512_store_si512(sums + at, sum);
    }
  }
}

void sum_avx512(const uint8_t* const* sources, size_t source_count, uint8_t* sums, size_t count, bool streaming) {
  const size_t vectors = count / 16;
  switch (source_count) {
    case 2:
      sum_fixed_avx512<2>(sources, sums, vectors, streaming);
      break;
    case 4:
      sum_fixed_avx512<4>(sources, sums, vectors, streaming);
      break;
    case 8:
      sum_fixed_avx512<8>(sources, sums, vectors, streaming);
      break;
    default:
      sum_any_avx512(sources, source_count, sums, vectors, streaming);
  }
  sum_from(sources, source_count, sums, 16 * vectors, count);
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
  if (!processor_has(instructions)) throw std::invalid_argument("this processor does not have these instructions");
  chosen = instructions;
  in_use = functions_for(instructions);
}

void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count) { in_use.add(sums, values, count); }

void sum_big_endian(const uint8_t* const* sources, size_t source_count, uint8_t* sums, size_t count, bool streaming) {
  in_use.sum(sources, source_count, sums, count, streaming);
}

void fence_streaming_stores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace switchml
