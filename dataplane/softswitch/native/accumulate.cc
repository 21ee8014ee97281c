#include "dataplane/softswitch/native/accumulate.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml {
namespace {

using AddFunction = void (*)(uint8_t* sums, const uint8_t* values, size_t count);

// Compilers turn this loop into NEON or SSE2 as it stands.
void add_portable(uint8_t* sums, const uint8_t* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t sum;
    uint32_t value;
    std::memcpy(&sum, sums + 4 * i, sizeof sum);
    std::memcpy(&value, values + 4 * i, sizeof value);
    sum = __builtin_bswap32(__builtin_bswap32(sum) + __builtin_bswap32(value));
    std::memcpy(sums + 4 * i, &sum, sizeof sum);
  }
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

__attribute__((target("avx512f,avx512bw"))) void add_avx512(uint8_t* sums, const uint8_t* values, size_t count) {
  const __m512i swap = _mm512_set4_epi32(0x0C0D0E0F, 0x08090A0B, 0x04050607, 0x00010203);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i sum = _mm512_shuffle_epi8(_mm512_load_si512(sums + 4 * i), swap);
    const __m512i value = _mm512_shuffle_epi8(_mm512_loadu_si512(values + 4 * i), swap);
    _mm512_store_si512(sums + 4 * i, _mm512_shuffle_epi8(_mm512_add_epi32(sum, value), swap));
  }
  add_portable(sums + 4 * i, values + 4 * i, count - i);
}

AddFunction choose() noexcept {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return add_avx512;
  if (__builtin_cpu_supports("avx2")) return add_avx2;
  return add_portable;
}

#else

AddFunction choose() noexcept { return add_portable; }

#endif

const AddFunction kAdd = choose();

}  // namespace

void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count) { kAdd(sums, values, count); }

}  // namespace switchml
