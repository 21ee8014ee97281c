// The arithmetic with NEON, on 64-bit ARM: four values at a time.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "native/kernels/vectors.h"

namespace switchml::kernels {

namespace {

constexpr size_t kLanes = 4;
constexpr bool kPrefetches = false;

using Words = Vector<uint32_t, kLanes>;
using Integers = Vector<int32_t, kLanes>;
using Floats = Vector<float, kLanes>;
using Halves = Vector<int16_t, 2 * kLanes>;
using Bytes = Vector<int8_t, 4 * kLanes>;
using Longs = Vector<uint64_t, kLanes / 2>;

using portable::expand_codes;  // NEON cannot look up in large tables

// kernels_avx2.cc describes these functions.

inline Words swapped(Words words) { return reinterpret_cast<Words>(vrev32q_u8(reinterpret_cast<uint8x16_t>(words))); }

inline Words rotated_by_8(Words words) { return words << 8 | words >> 24; }

inline void add_products(Words left, Words right, Longs* low, Longs* high) {
  const auto words = reinterpret_cast<Integers>(left);
  const auto weights = reinterpret_cast<Integers>(right);
  *low += reinterpret_cast<Longs>(vmull_s32(vget_low_s32(words), vget_low_s32(weights)));
  *high += reinterpret_cast<Longs>(vmull_high_s32(words, weights));
}

inline uint64_t total(Longs sums) { return vaddvq_u64(sums); }

inline Floats plus_product(float added, Floats left, float right) {
  return vfmaq_n_f32(vdupq_n_f32(added), left, right);
}

inline void stream(void* to, Words words) { std::memcpy(to, &words, sizeof words); }

inline Words rounded(Floats values) { return reinterpret_cast<Words>(vcvtnq_s32_f32(values)); }

inline float64x2_t low_doubles(Words words) {
  return vcvtq_f64_s64(vmovl_s32(vget_low_s32(reinterpret_cast<Integers>(words))));
}
inline float64x2_t high_doubles(Words words) {
  return vcvtq_f64_s64(vmovl_high_s32(reinterpret_cast<Integers>(words)));
}

inline Floats rounded_to_odd(Words words) {
  return vcvtx_high_f32_f64(vcvtx_f32_f64(low_doubles(words)), high_doubles(words));
}

inline Floats quotients(Words words, float divisor, float factor) {
  const float64x2_t low = low_doubles(words) / divisor * factor;
  const float64x2_t high = high_doubles(words) / divisor * factor;
  return vcvt_high_f32_f64(vcvt_f32_f64(low), high);
}

inline Floats load_floats(const Float16* from) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits))); }

inline void store_floats(Float16* to, Floats values) {
  vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(values)));
}

inline Words load_words(const uint16_t* from) { return vmovl_u16(vld1_u16(from)); }

inline Halves load_halves(const uint8_t* from) { return reinterpret_cast<Halves>(vmovl_u8(vld1_u8(from))); }

inline Halves load_halves(const int8_t* from) { return vmovl_s8(vld1_s8(from)); }

inline void store_words(uint16_t* to, Words words) { vst1_u16(to, vmovn_u32(words)); }

inline void store_halves(uint8_t* to, Halves halves) { vst1_u8(to, vmovn_u16(reinterpret_cast<uint16x8_t>(halves))); }

inline Halves narrowed(Words first, Words second) {
  return vuzp1q_s16(reinterpret_cast<Halves>(first), reinterpret_cast<Halves>(second));
}

inline Bytes narrowed(Halves first, Halves second) {
  return vuzp1q_s8(reinterpret_cast<Bytes>(first), reinterpret_cast<Bytes>(second));
}

inline Words lower_of(Halves halves) { return reinterpret_cast<Words>(vmovl_s16(vget_low_s16(halves))); }
inline Words upper_of(Halves halves) { return reinterpret_cast<Words>(vmovl_high_s16(halves)); }
inline Halves lower_of(Bytes bytes) { return vmovl_s8(vget_low_s8(bytes)); }
inline Halves upper_of(Bytes bytes) { return vmovl_high_s8(bytes); }

inline Halves upper_halves_of(Words first, Words second) {
  return vuzp2q_s16(reinterpret_cast<Halves>(first), reinterpret_cast<Halves>(second));
}

inline Halves alternating(Words lower_halves, Words upper_halves) {
  return reinterpret_cast<Halves>(vbslq_u32(vdupq_n_u32(0xFFFF), lower_halves, upper_halves));
}

inline Words looked_up(const uint32_t* table, Words places) {
  return Words{table[places[0]], table[places[1]], table[places[2]], table[places[3]]};
}

}  // namespace

}  // namespace switchml::kernels

#include "native/kernels/vector_kernels.h"

namespace switchml::kernels {

const Functions kNeon = kFunctions;
const LaneFunctions kNeonLanes = kLaneFunctions;
const CodeFunctions kNeonCodes = kCodeFunctions;

}  // namespace switchml::kernels

#endif
