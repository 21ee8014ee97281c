#include "switchml/native/codecs/block_float.h"

#include <array>
#include <limits>

namespace switchml::client {

namespace {

// The largest finite number of each type, and the exponent field of its float32 number.
template <typename Value>
struct Largest;
template <>
struct Largest<float> {
  static constexpr float kNumber = 0x1.fffffep127F;
  static constexpr int kExponent = 254;
};
template <>
struct Largest<kernels::BFloat16> {
  static constexpr float kNumber = 0x1.fep127F;
  static constexpr int kExponent = 254;
};
template <>
struct Largest<kernels::Float16> {
  static constexpr float kNumber = 65504.0F;
  static constexpr int kExponent = 142;
};

}  // namespace

template <typename Value>
BlockFloat<Value>::BlockFloat(const Arrays& arrays, bool average, const Geometry& geometry, uint32_t lane_bits)
    : BlockCodec(arrays, lane_bits, geometry),
      averages_(average),
      divisor_(average ? static_cast<float>(geometry.world_size) : 1.0F),
      headroom_(headroom_for(geometry.world_size)),
      slots_(geometry.slots) {}

template <typename Value>
uint16_t BlockFloat<Value>::exponent_of(uint64_t chunk) const {
  const Place place = place_of(chunk);
  return kernels::block_exponent(input_of<Value>(place), place.count);
}

template <typename Value>
uint16_t BlockFloat<Value>::look_at(uint64_t block) {
  const Place place = place_of(block);
  const uint32_t magnitude = kernels::largest_magnitude(input_of<Value>(place), place.count);
  if (magnitude > 1) {
    return kernels::exponent_of<Value>(magnitude);
  }
  if (magnitude == 1) {  // at least one is -0.0
    std::fill_n(output_of<Value>(place), place.count, Value{});
  }
  return kZero;
}

template <typename Value>
bool BlockFloat<Value>::begin(Chunk* chunk) {
  chunk->named.clear();
  return choose_float_phase(chunk);
}

template <typename Value>
Contribution BlockFloat<Value>::encode(const Chunk& chunk, uint8_t* words) const {
  using Scale = Contribution::Scale;
  const Place place = place_of(chunk.number);
  const auto count = static_cast<uint16_t>(words_of(place));
  switch (chunk.phase) {
    case Chunk::Phase::exponent:
      return {0, false, Scale::none, false, exponent_of(chunk.number), 0, {}, {}};
    case Chunk::Phase::flags:
      // All ranks read the flags.
      return {count, true, Scale::none, false, exponent_of_finite(place), write_flags(place, words), {}, {}};
    case Chunk::Phase::announcement:  // has no words
    case Chunk::Phase::values:
      break;
  }
  const Scale scale = chunk.owns_scale ? Scale::own : Scale::of_others;
  return {count, true, scale, true, 0, write_values(chunk, place, words), {}, reader_of(chunk), format()};
}

// Since |value| < 2^(exponent - 126), the sum of the scaled values of all ranks fits 31 bits and a sign.
template <typename Value>
int BlockFloat<Value>::shift_for(uint16_t exponent) const {
  return 31 - headroom_ - (exponent - 126);
}

// Returns the exponent of the values when the lanes that are not finite are set to zero.
template <typename Value>
uint16_t BlockFloat<Value>::exponent_of_finite(const Place& place) const {
  uint16_t largest = 0;
  const Value* values = input_of<Value>(place);
  for (uint32_t i = 0; i < place.count; ++i) {
    if (kernels::is_finite(values[i])) {
      largest = std::max(largest, kernels::block_exponent(values + i, 1));
    }
  }
  return largest;
}

template <typename Value>
uint64_t BlockFloat<Value>::write_flags(const Place& place, uint8_t* words) const {
  const Value* const own = input_of<Value>(place);
  std::vector<kernels::Boolean> flags(place.count);
  for (size_t i = 0; i < flags.size(); ++i) {
    flags[i].byte = kernels::is_finite(own[i]) ? 0 : 1;
  }
  clear_from(words_of(place), words);
  return kernels::pack_lanes(weights(), flags.data(), flags.size(), static_cast<int>(lane_bits()), words);
}

template <typename Value>
uint64_t BlockFloat<Value>::write_values(const Chunk& chunk, const Place& place, uint8_t* words) const {
  const Value* const own = input_of<Value>(place);
  clear_from(words_of(place), words);
  if (chunk.named.empty()) {
    return quantize(chunk, own, place.count, words);
  }
  std::vector<Value> finite(own, own + place.count);
  std::replace_if(finite.begin(), finite.end(), [](Value value) { return !kernels::is_finite(value); }, Value{});
  return quantize(chunk, finite.data(), place.count, words);
}

template <typename Value>
const Value* BlockFloat<Value>::next_of(const Chunk& chunk) const {
  const uint64_t later = chunk.number + slots_ + 1;
  if (!chunk.named.empty() || any_order() || later >= chunks()) {
    return nullptr;
  }
  const Place place = place_of(later);
  return layout().is_full(place) ? input_of<Value>(place) : nullptr;
}

template <typename Value>
uint64_t BlockFloat<Value>::quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const {
  return kernels::quantize(weights(), values, count, shift_for(chunk.scaled_by), words, next_of(chunk), any_order());
}

template <typename Value>
uint64_t BlockFloat<Value>::dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const {
  const int shift = shift_for(chunk.scaled_by);
  const uint64_t weighed = kernels::dequantize(weights(), words, count, shift, divisor_, values, any_order());
  keep_finite(chunk.scaled_by, count, values);
  return weighed;
}

template <typename Value>
void BlockFloat<Value>::keep_finite(uint16_t exponent, uint32_t count, Value* values) const {
  if (!averages_ || exponent < Largest<Value>::kExponent) {
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (!kernels::is_finite(values[i])) {
      kernels::narrow(std::copysign(Largest<Value>::kNumber, kernels::widen(values[i])), values + i);
    }
  }
}

template <typename Value>
uint64_t BlockFloat<Value>::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  auto* const sums = output_of<Value>(place);
  if (chunk.phase != Chunk::Phase::values || sums == nullptr) {
    return weigh_from(0, words);
  }
  const uint64_t weighed = dequantize(chunk, words, place.count, sums);
  for (const uint16_t lane : chunk.named) {
    kernels::narrow(std::numeric_limits<float>::quiet_NaN(), sums + lane);
  }
  return weighed + weigh_from(words_of(place), words);
}

template <typename Value>
Step BlockFloat<Value>::advance(Chunk* chunk, const uint8_t* words) {
  if (chunk->phase == Chunk::Phase::values) {
    return Step::end;
  }
  // After the phase `exponent` every rank knows the exponent; after `flags`, that of the lanes without a flag.
  const uint32_t largest =
      chunk->phase == Chunk::Phase::exponent ? wire::exponent::non_finite : wire::exponent::max_finite;
  if (chunk->told.all > largest) {
    return Step::contradiction;
  }
  if (chunk->phase == Chunk::Phase::flags) {
    read_flags(chunk, words);
  }
  return choose_float_phase(chunk) ? Step::next_phase : Step::contradiction;
}

template <typename Value>
void BlockFloat<Value>::read_flags(Chunk* chunk, const uint8_t* words) {
  const Place place = place_of(chunk->number);
  std::vector<kernels::Boolean> flags(place.count);
  kernels::unpack_lanes(weights(), words, flags.size(), static_cast<int>(lane_bits()), flags.data());
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i].byte != 0) {
      chunk->named.push_back(static_cast<uint16_t>(i));
      non_finite_.add(place.first + i);
    }
  }
}

// Each rank rounds its values to narrow lanes in its own way.
template <typename Value>
uint32_t BlockFloat<Value>::direct_bytes() const {
  return lane_bits() == kWordBits ? sizeof(Value) : 0;
}

template <typename Value>
bool BlockFloat<Value>::sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const {
  const uint32_t count = place_of(chunk).count;
  std::array<const Value*, wire::protocol::max_workers> values;
  uint32_t largest = 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    values[rank] = reinterpret_cast<const Value*>(parts[rank]);
    largest = std::max(largest, kernels::largest_magnitude(values[rank], count));
  }
  auto* const summed = reinterpret_cast<Value*>(sums);
  const kernels::Parts<Value> all{values.data(), parts.size()};
  const uint16_t exponent = kernels::exponent_of<Value>(largest);
  if (largest <= 1) {  // only zeros
    std::fill_n(summed, count, Value{});
  } else if (exponent > wire::exponent::max_finite) {
    sum_finite(all, count, summed);
    return false;
  } else {
    kernels::sum_parts(all, count, shift_for(exponent), divisor_, summed);
    keep_finite(exponent, count, summed);
  }
  return true;
}

template <typename Value>
void BlockFloat<Value>::sum_finite(const kernels::Parts<Value>& parts, uint32_t count, Value* sums) const {
  std::vector<Value> finite(parts.count * count);
  std::vector<const Value*> rows;
  std::vector<bool> named(count, false);
  uint16_t exponent = 0;
  for (size_t rank = 0; rank < parts.count; ++rank) {
    Value* const row = finite.data() + rank * count;
    rows.push_back(row);
    std::copy_n(parts.first[rank], count, row);
    for (uint32_t i = 0; i < count; ++i) {
      if (!kernels::is_finite(row[i])) {
        named[i] = true;
        row[i] = Value{};
      }
    }
    exponent = std::max(exponent, kernels::block_exponent(row, count));
  }
  kernels::sum_parts(kernels::Parts<Value>{rows.data(), rows.size()}, count, shift_for(exponent), divisor_, sums);
  keep_finite(exponent, count, sums);
  for (uint32_t i = 0; i < count; ++i) {
    if (named[i]) kernels::narrow(std::numeric_limits<float>::quiet_NaN(), sums + i);
  }
}

template <typename Value>
void BlockFloat<Value>::note_non_finite(uint64_t chunk, const std::vector<const uint8_t*>& parts) {
  const Place place = place_of(chunk);
  for (uint32_t i = 0; i < place.count; ++i) {
    const bool finite = std::all_of(parts.begin(), parts.end(), [i](const uint8_t* part) {
      return kernels::is_finite(reinterpret_cast<const Value*>(part)[i]);
    });
    if (!finite) non_finite_.add(place.first + i);
  }
}

template class BlockFloat<float>;
template class BlockFloat<kernels::Float16>;
template class BlockFloat<kernels::BFloat16>;

}  // namespace switchml::client
