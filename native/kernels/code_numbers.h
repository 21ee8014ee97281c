// How the number of a code (native/wire/codes.h) is found from the bits of a float32 number.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "native/kernels/half.h"
#include "native/wire/codes.h"

namespace switchml::kernels {

constexpr uint32_t kFractionBits = 23;  // of a float32 number
constexpr uint32_t kFractions = 1U << kFractionBits;
constexpr uint32_t kExponentOfOne = 127;
constexpr uint32_t kNumberMask = wire::kCodeSign - 1;

// natural8. max(x + 1, 2 * x) is x + 1 below 1 and 2 * x from there on: its exponent is the number of the lower of the
// two codes around x, and its fraction is how far x is from that code's power of two, or from 0, to the next power. A
// random threshold of 16 bits, added to the fraction, carries into the exponent with this probability.
constexpr uint32_t kThresholdBit = kFractionBits - 16;
constexpr uint32_t kHalfThreshold = 1U << (kThresholdBit - 1);  // rounds the fraction to 16 bits
constexpr uint32_t kNatural8Offset = kHalfThreshold - kExponentOfOne * kFractions;

inline uint32_t natural8_number(float magnitude, uint32_t threshold) {
  const uint32_t bits = bits_of(std::max(magnitude + 1.0F, magnitude + magnitude));
  return (bits + (threshold << kThresholdBit) + kNatural8Offset) >> kFractionBits & kNumberMask;
}

// dynamic8. A magnitude has the number n + 1 or a higher one from bound n on: the float32 number halfway between what n
// and n + 1 stand for.
constexpr auto kDynamic8Bounds = [] {
  std::array<float, wire::kCodeSign - 1> bounds{};
  for (size_t n = 0; n < bounds.size(); ++n) {
    bounds[n] = static_cast<float>(uint64_t{wire::kDynamic8[n]} + wire::kDynamic8[n + 1]) / 2;
  }
  return bounds;
}();

// The bits of floats are in the order of the floats. A cell is the 2^17 floats whose bits differ only in the rest, the
// lowest 17: so few that they have one bound at most. An entry of this table has above bit 17 the number of the cell's
// first float. Below, it has what makes the rest of a float's bits carry into the number from the bound on.
constexpr uint32_t kRestBits = 17;
constexpr uint32_t kRests = 1U << kRestBits;
constexpr uint32_t kFirstPower = 3;  // the cells are those from 2^3, which is below all bounds, to 2^unit_bits
constexpr uint32_t kFirstCellBits = (kExponentOfOne + kFirstPower) * kFractions;
constexpr auto kDynamic8Cells = [] {
  constexpr uint32_t kCellsPerPower = kFractions / kRests;
  std::array<uint32_t, (wire::dynamic8::unit_bits - kFirstPower) * kCellsPerPower> cells{};
  uint32_t number = 0;
  for (uint32_t i = 0; i < cells.size(); ++i) {
    const float step = static_cast<float>(1U << (kFirstPower + i / kCellsPerPower)) / kFractions;
    const float first = step * static_cast<float>(kFractions + i % kCellsPerPower * kRests);
    cells[i] = number * kRests;
    if (number < kDynamic8Bounds.size() && kDynamic8Bounds[number] < first + step * kRests) {
      cells[i] += kRests - static_cast<uint32_t>((kDynamic8Bounds[number] - first) / step);
      ++number;
    }
  }
  return cells;
}();
static_assert(kDynamic8Cells.back() == kDynamic8Bounds.size() * kRests, "a cell has two bounds");
constexpr auto kLastPlace = static_cast<uint32_t>(kDynamic8Cells.size() * kRests - 1);

inline uint32_t dynamic8_number(float magnitude) {
  const uint32_t place = std::min(std::max(bits_of(magnitude), kFirstCellBits) - kFirstCellBits, kLastPlace);
  return (kDynamic8Cells[place >> kRestBits] + place % kRests) >> kRestBits;
}

}  // namespace switchml::kernels
