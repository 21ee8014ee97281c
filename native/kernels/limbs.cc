// The loops are plain: the compiler vectorizes them for each instruction set that a function below is compiled for.
// Between them and the words is a block of 32-bit integers, which stays in the first-level cache.
#include "native/kernels/limbs.h"

#include <array>

#include "native/kernels/kernels.h"
#include "native/wire/constants.h"

namespace switchml::kernels {

namespace {

struct Functions {
  uint64_t (*magnitudes)(const int64_t* values, size_t count);
  void (*cut)(const int64_t* values, size_t count, int first, uint32_t mask, uint32_t* limbs);
  void (*join)(const uint32_t* highest, size_t count, const uint32_t* lower, int lower_limbs, int bits,
               int64_t* values);
};

namespace portable {

#define SWITCHML_LOOP [[gnu::always_inline]] inline

// Returns the bits in which some value differs from its sign.
SWITCHML_LOOP uint64_t magnitudes(const int64_t* values, size_t count) {
  uint64_t all = 0;
  for (size_t i = 0; i < count; ++i) {
    all |= static_cast<uint64_t>(values[i] ^ (values[i] >> 63));
  }
  return all;
}

SWITCHML_LOOP void cut(const int64_t* values, size_t count, int first, uint32_t mask, uint32_t* limbs) {
  for (size_t i = 0; i < count; ++i) {
    limbs[i] = static_cast<uint32_t>(static_cast<uint64_t>(values[i]) >> first) & mask;
  }
}

SWITCHML_LOOP uint64_t with_sign(uint32_t limb) {
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(limb)));
}

SWITCHML_LOOP void join(const uint32_t* highest, size_t count, const uint32_t* lower, int lower_limbs, int bits,
                        int64_t* values) {
  if (lower_limbs == 0) {
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<int64_t>(with_sign(highest[i]));
    }
  } else if (lower_limbs == 1) {
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<int64_t>((with_sign(highest[i]) << bits) + lower[i]);
    }
  } else {
    for (size_t i = 0; i < count; ++i) {
      const uint64_t upper = (with_sign(highest[i]) << bits) + lower[count + i];
      values[i] = static_cast<int64_t>((upper << bits) + lower[i]);
    }
  }
}

constexpr Functions kFunctions = {magnitudes, cut, join};

}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {

#define SWITCHML_AVX2 __attribute__((target("avx2")))

SWITCHML_AVX2 uint64_t magnitudes(const int64_t* values, size_t count) { return portable::magnitudes(values, count); }

SWITCHML_AVX2 void cut(const int64_t* values, size_t count, int first, uint32_t mask, uint32_t* limbs) {
  portable::cut(values, count, first, mask, limbs);
}

SWITCHML_AVX2 void join(const uint32_t* highest, size_t count, const uint32_t* lower, int lower_limbs, int bits,
                        int64_t* values) {
  portable::join(highest, count, lower, lower_limbs, bits, values);
}

constexpr Functions kFunctions = {magnitudes, cut, join};

}  // namespace avx2

namespace avx512 {

#define SWITCHML_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq")))

SWITCHML_AVX512 uint64_t magnitudes(const int64_t* values, size_t count) { return portable::magnitudes(values, count); }

SWITCHML_AVX512 void cut(const int64_t* values, size_t count, int first, uint32_t mask, uint32_t* limbs) {
  portable::cut(values, count, first, mask, limbs);
}

SWITCHML_AVX512 void join(const uint32_t* highest, size_t count, const uint32_t* lower, int lower_limbs, int bits,
                          int64_t* values) {
  portable::join(highest, count, lower, lower_limbs, bits, values);
}

constexpr Functions kFunctions = {magnitudes, cut, join};

}  // namespace avx512
#endif

const Functions& functions_in_use() {
  switch (instructions_in_use()) {
#if defined(__x86_64__)
    case Instructions::avx512:
      return avx512::kFunctions;
    case Instructions::avx2:
      return avx2::kFunctions;
#endif
    default:
      return portable::kFunctions;  // with NEON where the CPU has it: the compiler needs no permission for that
  }
}

using Block = std::array<uint32_t, wire::protocol::max_values>;

}  // namespace

int bits_of_largest(const int64_t* values, size_t count) {
  const uint64_t bits = functions_in_use().magnitudes(values, count);
  return bits == 0 ? 0 : 64 - __builtin_clzll(bits);
}

uint64_t pack_limb(const Weights& weights, const int64_t* values, size_t count, int first, int bits, uint8_t* words) {
  Block limbs;  // NOLINT(cppcoreguidelines-pro-type-member-init): only what was written to is read
  const auto mask = static_cast<uint32_t>((uint64_t{1} << bits) - 1);
  functions_in_use().cut(values, count, first, mask, limbs.data());
  return pack(weights, reinterpret_cast<const uint8_t*>(limbs.data()), count, words);
}

uint64_t join_limbs(const Weights& weights, const uint8_t* words, size_t count, const uint32_t* lower, int lower_limbs,
                    int bits, int64_t* values) {
  Block highest;  // NOLINT(cppcoreguidelines-pro-type-member-init): only what was written to is read
  const uint64_t weighed = unpack(weights, words, count, reinterpret_cast<uint8_t*>(highest.data()));
  functions_in_use().join(highest.data(), count, lower, lower_limbs, bits, values);
  return weighed;
}

}  // namespace switchml::kernels
