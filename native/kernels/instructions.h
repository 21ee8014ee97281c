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
    case Instructions::avx2: {
      unsigned eax = 0;
      unsigned ebx = 0;
      unsigned ecx = 0;
      unsigned edx = 0;
      const bool converts_halves = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves;
    }
    case Instructions::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
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
