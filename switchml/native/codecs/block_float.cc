#include "switchml/native/codecs/block_float.h"

#include <limits>

namespace switchml::client {

template <typename Value>
BlockFloat<Value>::BlockFloat(uint8_t* memory, uint64_t elements, bool average, const channel::Geometry& geometry,
                              uint32_t lane_bits)
    : Codec(elements, lane_bits, geometry.values),
      memory_(reinterpret_cast<Value*>(memory)),
      elements_(elements),
      lane_bits_(lane_bits),
      divisor_(average ? static_cast<float>(geometry.world_size) : 1.0F),
      headroom_(bits_for(geometry.world_size)),
      slots_(geometry.slots),
      streaming_(geometry.streaming != 0) {}

template <typename Value>
uint16_t BlockFloat<Value>::exponent_of(uint64_t chunk) const {
  return kernels::block_exponent(values_of(chunk), elements_of(chunk));
}

template <typename Value>
bool BlockFloat<Value>::begin(Chunk* chunk) const {
  chunk->named.clear();
  return choose_phase(chunk);
}

template <typename Value>
bool BlockFloat<Value>::choose_phase(Chunk* chunk) {
  const Exponents told = chunk->told;
  if (told.all < told.own) {
    return false;  // `all` must be the largest of all ranks: it was corrupted, and this rank's values would not fit
  }
  const bool known = told.all != wire::exponent::unknown;
  chunk->phase = !known                                  ? Chunk::Phase::exponent
                 : told.all > wire::exponent::max_finite ? Chunk::Phase::flags
                                                         : Chunk::Phase::values;
  chunk->scaled_by = known ? told.all : 0;
  chunk->owns_scale = told.own == chunk->scaled_by;
  return true;
}

template <typename Value>
Contribution BlockFloat<Value>::encode(const Chunk& chunk, uint8_t* words) const {
  using Scale = Contribution::Scale;
  const auto count = static_cast<uint16_t>(words_of(chunk.number));
  switch (chunk.phase) {
    case Chunk::Phase::exponent:
      return {0, Scale::none, false, exponent_of(chunk.number), 0};
    case Chunk::Phase::flags:
      return {count, Scale::none, false, exponent_of_finite(chunk.number), write_flags(chunk.number, words)};
    case Chunk::Phase::values:
      break;
  }
  return {count, chunk.owns_scale ? Scale::own : Scale::of_others, true, 0, write_values(chunk, words)};
}

// Since |value| < 2^(exponent - 126), the sum of the scaled values of all ranks fits 31 bits and a sign.
template <typename Value>
int BlockFloat<Value>::shift_of(const Chunk& chunk) const {
  return 31 - headroom_ - (chunk.scaled_by - 126);
}

// Returns the exponent of the values when the lanes that are not finite are set to zero.
template <typename Value>
uint16_t BlockFloat<Value>::exponent_of_finite(uint64_t chunk) const {
  uint16_t largest = 0;
  const Value* values = values_of(chunk);
  for (uint32_t i = 0; i < elements_of(chunk); ++i) {
    if (kernels::is_finite(values[i])) {
      largest = std::max(largest, kernels::block_exponent(values + i, 1));
    }
  }
  return largest;
}

template <typename Value>
uint32_t BlockFloat<Value>::write_flags(uint64_t chunk, uint8_t* words) const {
  const Value* const own = values_of(chunk);
  std::vector<kernels::Boolean> flags(elements_of(chunk));
  for (size_t i = 0; i < flags.size(); ++i) {
    flags[i].byte = kernels::is_finite(own[i]) ? 0 : 1;
  }
  clear_from(words_of(chunk), words);
  return kernels::pack_lanes(flags.data(), flags.size(), static_cast<int>(lane_bits_), words);
}

template <typename Value>
uint32_t BlockFloat<Value>::write_values(const Chunk& chunk, uint8_t* words) const {
  const Value* const own = values_of(chunk.number);
  const uint32_t count = elements_of(chunk.number);
  clear_from(words_of(chunk.number), words);
  if (chunk.named.empty()) {
    return quantize(chunk, own, count, words);
  }
  std::vector<Value> finite(own, own + count);
  std::replace_if(finite.begin(), finite.end(), [](Value value) { return !kernels::is_finite(value); }, Value{});
  return quantize(chunk, finite.data(), count, words);
}

template <typename Value>
const Value* BlockFloat<Value>::next_of(const Chunk& chunk) const {
  const uint64_t later = chunk.number + slots_ + 1;
  return chunk.named.empty() && later + 1 < chunks() ? values_of(later) : nullptr;
}

template <typename Value>
uint32_t BlockFloat<Value>::quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const {
  return kernels::quantize(values, count, shift_of(chunk), words, streaming_, next_of(chunk));
}

template <typename Value>
uint32_t BlockFloat<Value>::dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const {
  return kernels::dequantize(words, count, shift_of(chunk), divisor_, values);
}

template <typename Value>
uint32_t BlockFloat<Value>::decode(const Chunk& chunk, const uint8_t* words) const {
  if (chunk.phase != Chunk::Phase::values) {
    return weigh_from(0, words);
  }
  Value* const sums = values_of(chunk.number);
  const uint32_t weighed = dequantize(chunk, words, elements_of(chunk.number), sums);
  for (const uint16_t lane : chunk.named) {
    kernels::narrow(std::numeric_limits<float>::quiet_NaN(), sums + lane);
  }
  return weighed + weigh_from(words_of(chunk.number), words);
}

template <typename Value>
bool BlockFloat<Value>::agree(Chunk* chunk, const uint8_t* words) {
  // After the phase `exponent` every rank knows the exponent; after `flags`, that of the lanes without a flag.
  const uint32_t largest =
      chunk->phase == Chunk::Phase::exponent ? wire::exponent::non_finite : wire::exponent::max_finite;
  if (chunk->told.all > largest) {
    return false;
  }
  if (chunk->phase == Chunk::Phase::flags) {
    read_flags(chunk, words);
  }
  return choose_phase(chunk);
}

template <typename Value>
void BlockFloat<Value>::read_flags(Chunk* chunk, const uint8_t* words) {
  std::vector<kernels::Boolean> flags(elements_of(chunk->number));
  kernels::unpack_lanes(words, flags.size(), static_cast<int>(lane_bits_), flags.data());
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i].byte != 0) {
      chunk->named.push_back(static_cast<uint16_t>(i));
      non_finite_.count += 1;
      non_finite_.indices.push_back(elements_before(chunk->number) + i);
    }
  }
  // Chunks end out of order, so the lowest indices are known only at the end of the call; this keeps the list short.
  std::sort(non_finite_.indices.begin(), non_finite_.indices.end());
  non_finite_.indices.resize(std::min(non_finite_.indices.size(), NonFinite::kIndicesKept));
}

template class BlockFloat<float>;
template class BlockFloat<kernels::Float16>;
template class BlockFloat<kernels::BFloat16>;

}  // namespace switchml::client
