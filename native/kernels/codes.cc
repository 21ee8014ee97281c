// Codes without special instructions.
#include "native/kernels/codes.h"

#include <array>
#include <cmath>
#include <cstring>

#include "native/kernels/code_numbers.h"
#include "native/kernels/kernel_functions.h"
#include "native/kernels/kernels.h"
#include "native/wire/codes.h"

namespace switchml::kernels {

namespace portable {

namespace {

// The tables as they are in memory when a word is stored.
constexpr wire::CodeTable big_endian(const wire::CodeTable& table) {
  wire::CodeTable swapped{};
  for (size_t code = 0; code < table.size(); ++code) {
    swapped[code] = __builtin_bswap32(table[code]);
  }
  return swapped;
}
constexpr wire::CodeTable kNatural8Words = big_endian(wire::kNatural8);
constexpr wire::CodeTable kDynamic8Words = big_endian(wire::kDynamic8);

uint8_t code_of(float value, uint32_t number) {
  return static_cast<uint8_t>((bits_of(value) >> 24 & wire::kCodeSign) | number);
}

}  // namespace

template <typename Value>
void write_natural8(const Value* values, size_t count, const Factors& factors, const uint16_t* thresholds,
                    uint8_t* codes) {
  for (size_t i = 0; i < count; ++i) {
    const float scaled = kernels::widen(values[i]) * factors.first * factors.second;
    codes[i] = code_of(scaled, natural8_number(std::fabs(scaled), thresholds[i]));
  }
}

template <typename Value>
void write_dynamic8(const Value* values, size_t count, const Factors& factors, uint8_t* codes) {
  for (size_t i = 0; i < count; ++i) {
    const float scaled = kernels::widen(values[i]) * factors.first * factors.second;
    codes[i] = code_of(scaled, dynamic8_number(std::fabs(scaled)));
  }
}

void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words) {
  const wire::CodeTable& table = format == wire::Format::natural8 ? kNatural8Words : kDynamic8Words;
#pragma GCC unroll 8  // the speed of a shorter loop depends on where the linker puts it
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(words + 4 * i, &table[codes[i]], sizeof(uint32_t));
  }
}

template void write_natural8(const float*, size_t, const Factors&, const uint16_t*, uint8_t*);
template void write_natural8(const Float16*, size_t, const Factors&, const uint16_t*, uint8_t*);
template void write_natural8(const BFloat16*, size_t, const Factors&, const uint16_t*, uint8_t*);
template void write_dynamic8(const float*, size_t, const Factors&, uint8_t*);
template void write_dynamic8(const Float16*, size_t, const Factors&, uint8_t*);
template void write_dynamic8(const BFloat16*, size_t, const Factors&, uint8_t*);

}  // namespace portable

namespace {

template <typename Value>
void natural8(const Value* values, size_t count, const Factors& factors, const Rounding& rounding, uint8_t* codes) {
  Thresholds thresholds;
  portable::write_thresholds(rounding, count, thresholds.of.data());
  portable::write_natural8(values, count, factors, thresholds.of.data(), codes);
}

}  // namespace

const CodeFunctions kPortableCodes = {
    {natural8<float>, portable::write_dynamic8<float>},
    {natural8<Float16>, portable::write_dynamic8<Float16>},
    {natural8<BFloat16>, portable::write_dynamic8<BFloat16>},
    portable::expand_codes,
};

uint64_t weigh_codes(const Weights& weights, const uint8_t* codes, size_t count, wire::Format format) {
  std::array<uint8_t, sizeof(uint32_t) * wire::protocol::max_values> words;
  expand_codes(codes, count, format, words.data());
  return weigh(weights, words.data(), 0, count);
}

}  // namespace switchml::kernels
