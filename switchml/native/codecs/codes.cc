#include "switchml/native/codecs/codes.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "native/kernels/codes.h"
#include "native/wire/codes.h"

namespace switchml::client {

namespace {

// A value with an exponent field below `exponent` + 1 has a magnitude below 2^(exponent - kExponentOfOne).
constexpr int kExponentOfOne = 126;
constexpr int kLargestPower = 30;  // of two, in a signed word

int unit_bits_of(wire::Format format, uint32_t world_size) {
  if (format == wire::Format::natural8) {
    return kLargestPower - bits_for(world_size);
  }
  constexpr uint32_t kMostRanks = INT32_MAX / wire::kDynamic8[wire::kCodeSign - 1];
  if (world_size > kMostRanks) {
    throw std::invalid_argument("words hold the sums of dynamic8 codes of at most " + std::to_string(kMostRanks) +
                                " ranks, and this job has " + std::to_string(world_size));
  }
  return static_cast<int>(wire::dynamic8::unit_bits);
}

}  // namespace

template <typename Value>
CodedFloat<Value>::CodedFloat(const Arrays& arrays, bool average, const Lanes& lanes, const Geometry& geometry)
    : BlockFloat<Value>(arrays, average, geometry),
      format_(lanes.format),
      expands_(geometry.results_apart == Geometry::kInPlace),
      unit_bits_(unit_bits_of(lanes.format, geometry.world_size)),
      key_(kernels::key_of_call(lanes.seed, lanes.sequence, geometry.rank)) {}

template <typename Value>
int CodedFloat<Value>::shift_of(const Chunk& chunk) const {
  return unit_bits_ - (chunk.scaled_by - kExponentOfOne);
}

template <typename Value>
void CodedFloat<Value>::write_codes(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* codes) const {
  if (format_ == wire::Format::natural8) {
    const kernels::Rounding rounding(key_, this->place_of(chunk.number).first);
    kernels::write_natural8(values, count, shift_of(chunk), rounding, codes);
  } else {
    kernels::write_dynamic8(values, count, shift_of(chunk), codes);
  }
}

template <typename Value>
uint64_t CodedFloat<Value>::quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const {
  if (expands_) {
    std::array<uint8_t, wire::protocol::max_values> codes;
    write_codes(chunk, values, count, codes.data());
    kernels::expand_codes(codes.data(), count, format_, words);
    return kernels::weigh(this->weights(), words, 0, count);
  }
  write_codes(chunk, values, count, words);
  std::fill(words + count, words + this->values(), uint8_t{0});
  return kernels::weigh_codes(this->weights(), words, count, format_);
}

template <typename Value>
uint64_t CodedFloat<Value>::dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const {
  const uint64_t weighed = kernels::dequantize(this->weights(), words, count, shift_of(chunk), this->divisor(), values);
  this->keep_finite(chunk.scaled_by, count, values);  // the highest power is above the largest number
  return weighed;
}

template class CodedFloat<float>;
template class CodedFloat<kernels::Float16>;
template class CodedFloat<kernels::BFloat16>;

}  // namespace switchml::client
