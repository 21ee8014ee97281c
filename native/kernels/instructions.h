// The vector instructions that this CPU has.
#pragma once

#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace switchml::kernels {

enum class Instructions : uint8_t { portable, neon, avx2, avx512 };

// From the slowest to the fastest.
constexpr std::array kAllInstructions = {Instructions::portable, Instructions::neon, Instructions::avx2,
                                         Instructions::avx512};

#if defined(__x86_64__)
struct X86Features {
  bool carryless_multiply = false;
  bool avx2 = false;
  bool avx512 = false;
};

// By CPUID and XCR0 (Intel's manual, volume 1, sections 14.3 and 15.2): whether the CPU has the instructions, and
// whether the kernel saves their registers. __builtin_cpu_supports does the same, but in what zig compiles it knows no
// feature.
inline X86Features x86_features() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned first = 0;  // ecx of leaf 1
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &first, &edx) == 0) return {};
  X86Features features;
  features.carryless_multiply = (first & bit_PCLMUL) != 0 && (first & bit_SSE4_1) != 0;
  unsigned seventh = 0;  // ebx of leaf 7
  unsigned ecx = 0;
  if ((first & bit_OSXSAVE) == 0 || __get_cpuid_count(7, 0, &eax, &seventh, &ecx, &edx) == 0) return features;
  unsigned saved = 0;
  unsigned upper = 0;
  __asm__("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  constexpr unsigned kYmm = 0x06;  // XMM and the upper halves of YMM
  constexpr unsigned kZmm = 0xE6;  // these, the masks, and all of ZMM
  constexpr unsigned kAvx512Bits = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  features.avx2 =
      (saved & kYmm) == kYmm && (seventh & bit_AVX2) != 0 && (first & bit_FMA) != 0 && (first & bit_F16C) != 0;
  features.avx512 = (saved & kZmm) == kZmm && (seventh & kAvx512Bits) == kAvx512Bits;
  return features;
}
#endif

inline bool cpu_has(Instructions instructions) {
  switch (instructions) {
    case Instructions::portable:
      return true;
    case Instructions::neon:
#if defined(__aarch64__)
      return true;  // part of every 64-bit ARM
#else
      return false;
#endif
#if defined(__x86_64__)
    case Instructions::avx2:
      return x86_features().avx2;
    case Instructions::avx512:
      return x86_features().avx512;
#else
    case Instructions::avx2:
    case Instructions::avx512:
      return false;
#endif
  }
  return false;
}

inline Instructions best_of_processor() {
  Instructions best = Instructions::portable;
  for (const Instructions instructions : kAllInstructions) {
    if (cpu_has(instructions)) best = instructions;
  }
  return best;
}

}  // namespace switchml::kernels
