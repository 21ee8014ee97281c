// A hash of numbers, for the fingerprints of calls.
#pragma once

#include <cstdint>

namespace switchml::client {

// The finalizer of MurmurHash3: every bit of the input changes half of the output.
constexpr uint32_t mix(uint32_t value) {
  value ^= value >> 16;
  value *= 0x85EBCA6B;
  value ^= value >> 13;
  value *= 0xC2B2AE35;
  return value ^ value >> 16;
}

}  // namespace switchml::client
