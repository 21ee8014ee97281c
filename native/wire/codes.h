// The integers that codes of one byte stand for (constants.toml, [format] and [dynamic8]).
#pragma once

#include <array>
#include <cstdint>

#include "native/wire/constants.h"

namespace switchml::wire {

using CodeTable = std::array<uint32_t, 256>;  // integers modulo 2^32, by code

constexpr uint8_t kCodeSign = 0x80;

// Returns the table whose positive codes, from 1 on, stand for magnitude(code).
template <typename Magnitude>
constexpr CodeTable code_table(Magnitude magnitude) {
  CodeTable table{};
  for (uint32_t number = 1; number < kCodeSign; ++number) {
    table[number] = magnitude(number);
    table[number | kCodeSign] = uint32_t{0} - magnitude(number);
  }
  return table;
}

constexpr uint32_t natural8_magnitude(uint32_t number) {
  return static_cast<uint32_t>(number <= 32 ? uint64_t{1} << (number - 1) : 0);
}

constexpr uint32_t dynamic8_magnitude(uint32_t number) {
  constexpr uint32_t kStarts[] = {dynamic8::start_0, dynamic8::start_1, dynamic8::start_2, dynamic8::start_3,
                                  dynamic8::start_4, dynamic8::start_5, dynamic8::start_6};
  constexpr uint32_t kSteps[] = {
      0, dynamic8::step_1, dynamic8::step_2, dynamic8::step_3, dynamic8::step_4, dynamic8::step_5, dynamic8::step_6};
  uint32_t bits = 0;
  while ((number >> bits) > 1) {
    ++bits;
  }
  return kStarts[bits] + (number - (1U << bits)) * kSteps[bits];
}

inline constexpr CodeTable kNatural8 = code_table(natural8_magnitude);
inline constexpr CodeTable kDynamic8 = code_table(dynamic8_magnitude);

// Precondition: the format is one of codes.
constexpr const CodeTable& code_table_of(Format format) { return format == Format::natural8 ? kNatural8 : kDynamic8; }

}  // namespace switchml::wire
