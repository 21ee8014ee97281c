#include "native/kernels/crc32.h"

#include <array>
#include <cstring>

#include "native/kernels/instructions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

namespace switchml::kernels {
namespace {

// A polynomial over GF(2) of degree below 32 is a number in which the highest bit is the coefficient of x^0, because
// Ethernet sends the lowest bit of a byte first.
constexpr uint32_t kPolynomial = 0xEDB88320;  // without x^32
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t times_x(uint32_t polynomial) {
  return (polynomial >> 1U) ^ ((polynomial & 1U) != 0 ? kPolynomial : 0);
}

constexpr uint32_t x_to_the(unsigned power) {
  uint32_t result = kOne;
  for (; power > 0; --power) result = times_x(result);
  return result;
}

// of[k][byte] is the remainder of a byte that k others follow.
struct Tables {
  std::array<std::array<uint32_t, 256>, 8> of{};

  constexpr Tables() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t remainder = byte;
      for (int bit = 0; bit < 8; ++bit) remainder = times_x(remainder);
      of[0][byte] = remainder;
    }
    for (size_t k = 1; k < of.size(); ++k) {
      for (size_t byte = 0; byte < 256; ++byte) {
        of[k][byte] = (of[k - 1][byte] >> 8U) ^ of[0][of[k - 1][byte] & 0xFFU];
      }
    }
  }
};
constexpr Tables kTables;

uint64_t load64(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// These functions go on from a remainder, which is the complement of a CRC.
uint32_t remainder_portable(uint32_t remainder, const uint8_t* data, size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    const uint64_t word = load64(data) ^ remainder;
    remainder = 0;
    for (unsigned i = 0; i < 8; ++i) remainder ^= kTables.of[7 - i][word >> 8 * i & 0xFFU];
  }
  for (; bytes > 0; ++data, --bytes) remainder = (remainder >> 8U) ^ kTables.of[0][(remainder ^ *data) & 0xFFU];
  return remainder;
}

// Returns the product of a and b, in which bit 63 is the coefficient of x^0.
uint64_t product_portable(uint32_t a, uint32_t b) {
  uint64_t product = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if ((a >> i & 1U) != 0) product ^= static_cast<uint64_t>(b) << i;
  }
  return product << 1U;
}

#if defined(__x86_64__)

// NOLINTBEGIN(portability-simd-intrinsics)
// Multiplies a remainder of 128 bits by a power of x: by both factors of `powers`, each of which is that of one half.
__attribute__((target("pclmul,sse4.1"))) inline __m128i moved(__m128i remainder, __m128i powers) {
  return _mm_xor_si128(_mm_clmulepi64_si128(remainder, powers, 0x00), _mm_clmulepi64_si128(remainder, powers, 0x11));
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i block(const uint8_t* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// The factors that move a remainder behind `bits` further bits. The product of two such numbers, in which bit 63 is
// x^0, lacks a factor x: hence the shift to the left.
constexpr int64_t power(unsigned bits) { return static_cast<int64_t>(static_cast<uint64_t>(x_to_the(bits)) << 1U); }

// The polynomial with x^32, and the quotient of x^64 by it, in the same order of bits.
constexpr int64_t kWhole = static_cast<int64_t>(static_cast<uint64_t>(kPolynomial) << 1U | 1U);
constexpr int64_t quotient_of_x64() {
  uint64_t quotient = 0;
  uint32_t remainder = kOne;  // x^0; after n steps the remainder of x^n
  for (unsigned n = 0; n < 64; ++n) {
    const bool carries = (remainder & 1U) != 0;
    remainder = times_x(remainder);
    quotient = quotient >> 1U | (carries ? uint64_t{1} << 63U : 0);
  }
  // The quotient has 33 bits, the coefficient of x^32 is the lowest one.
  return static_cast<int64_t>(quotient >> 31U);
}

// Returns the remainder of a text of 16 bytes: folds 128 bits to 64, and divides these by multiplying with the quotient
// (Barrett).
__attribute__((target("pclmul,sse4.1"))) inline uint32_t reduced(__m128i text) {
  const __m128i halves = _mm_set_epi64x(power(64), power(128 - 32));
  const __m128i division = _mm_set_epi64x(quotient_of_x64(), kWhole);
  const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
  __m128i rest = _mm_xor_si128(_mm_clmulepi64_si128(text, halves, 0x00), _mm_srli_si128(text, 8));
  rest = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(rest, low_words), halves, 0x10), _mm_srli_si128(rest, 4));
  const __m128i times = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(rest, low_words), division, 0x10), low_words);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(rest, _mm_clmulepi64_si128(times, division, 0x00)), 1));
}

// Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): keeps a
// remainder of 128 bits, four of them in turn where there is enough data.
__attribute__((target("pclmul,sse4.1"))) uint32_t remainder_clmul(uint32_t remainder, const uint8_t* data,
                                                                  size_t bytes) {
  if (bytes < 16) return remainder_portable(remainder, data, bytes);
  const __m128i by_128 = _mm_set_epi64x(power(128 - 32), power(128 + 32));
  __m128i first = _mm_xor_si128(block(data), _mm_cvtsi32_si128(static_cast<int>(remainder)));
  data += 16;
  bytes -= 16;
  if (bytes >= 112) {
    const __m128i by_512 = _mm_set_epi64x(power(512 - 32), power(512 + 32));
    __m128i second = block(data);
    __m128i third = block(data + 16);
    __m128i fourth = block(data + 32);
    data += 48;
    bytes -= 48;
    for (; bytes >= 64; data += 64, bytes -= 64) {
      first = _mm_xor_si128(moved(first, by_512), block(data));
      second = _mm_xor_si128(moved(second, by_512), block(data + 16));
      third = _mm_xor_si128(moved(third, by_512), block(data + 32));
      fourth = _mm_xor_si128(moved(fourth, by_512), block(data + 48));
    }
    first = _mm_xor_si128(moved(first, by_128), second);
    first = _mm_xor_si128(moved(first, by_128), third);
    first = _mm_xor_si128(moved(first, by_128), fourth);
  }
  for (; bytes >= 16; data += 16, bytes -= 16) first = _mm_xor_si128(moved(first, by_128), block(data));
  return remainder_portable(reduced(first), data, bytes);
}

__attribute__((target("pclmul,sse4.1"))) uint64_t product_clmul(uint32_t a, uint32_t b) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(b), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product)) << 1U;
}
// NOLINTEND(portability-simd-intrinsics)

#elif defined(__aarch64__)

__attribute__((target("+crc"))) uint32_t remainder_crc(uint32_t remainder, const uint8_t* data, size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) remainder = __crc32d(remainder, load64(data));
  for (; bytes > 0; ++data, --bytes) remainder = __crc32b(remainder, *data);
  return remainder;
}

#endif

struct Functions {
  uint32_t (*remainder)(uint32_t remainder, const uint8_t* data, size_t bytes);
  uint64_t (*product)(uint32_t a, uint32_t b);
};
constexpr Functions kPortable{remainder_portable, product_portable};

Functions fastest_functions() {
#if defined(__x86_64__)
  if (x86_features().carryless_multiply) return {remainder_clmul, product_clmul};
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0) return {remainder_crc, product_portable};
#endif
  return kPortable;
}

Functions in_use = fastest_functions();

// Returns a * b modulo the polynomial.
uint32_t multiplied(uint32_t a, uint32_t b) {
  const uint64_t product = in_use.product(a, b);
  const auto high_powers = static_cast<uint32_t>(product);
  uint32_t remainder = static_cast<uint32_t>(product >> 32U);
  for (unsigned i = 0; i < 4; ++i) remainder ^= kTables.of[3 - i][high_powers >> 8 * i & 0xFFU];
  return remainder;
}

}  // namespace

uint32_t crc32(uint32_t before, const uint8_t* data, size_t bytes) { return ~in_use.remainder(~before, data, bytes); }

Crc32Join::Crc32Join(size_t second_bytes) : second_bytes_(second_bytes), factor_(kOne) {
  uint32_t square = x_to_the(8);
  for (size_t rest = second_bytes; rest > 0; rest >>= 1U) {
    if ((rest & 1U) != 0) factor_ = multiplied(factor_, square);
    square = multiplied(square, square);
  }
}

// Each CRC is the remainder of its text with the first 32 bits complemented, complemented itself: the complements of
// the second text's beginning and of the first one's remainder are the same number at the same place.
uint32_t Crc32Join::join(uint32_t first, uint32_t second) const { return multiplied(first, factor_) ^ second; }

void use_crc_instructions(bool fastest) { in_use = fastest ? fastest_functions() : kPortable; }

}  // namespace switchml::kernels
