#include "switchml/native/codecs/floats.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "native/wire/constants.h"

namespace switchml::client {

namespace {

constexpr size_t kPart = 256;  // numbers that are converted at a time: they stay in the nearest cache

const uint8_t* bytes_of(const float* values) { return reinterpret_cast<const uint8_t*>(values); }
uint8_t* bytes_of(float* values) { return reinterpret_cast<uint8_t*>(values); }

void divide(float* values, size_t count, float divisor) {
  for (size_t i = 0; i < count; ++i) {
    values[i] /= divisor;
  }
}

template <typename Value>
void write_words(const Value* values, size_t count, uint8_t* words) {
  if constexpr (std::is_same_v<Value, float>) {
    kernels::pack(kernels::kNoWeights, bytes_of(values), count, words);
  } else {
    alignas(64) std::array<float, kPart> floats;
    for (size_t first = 0; first < count; first += kPart) {
      const size_t part = std::min(kPart, count - first);
      kernels::widen(values + first, part, floats.data());
      kernels::pack(kernels::kNoWeights, bytes_of(floats.data()), part, words + first * sizeof(float));
    }
  }
}

template <typename Value>
void read_words(const uint8_t* words, size_t count, float divisor, Value* values) {
  alignas(64) std::array<float, kPart> floats;
  for (size_t first = 0; first < count; first += kPart) {
    const size_t part = std::min(kPart, count - first);
    kernels::unpack(kernels::kNoWeights, words + first * sizeof(float), part, bytes_of(floats.data()));
    divide(floats.data(), part, divisor);
    if constexpr (std::is_same_v<Value, float>) {
      std::copy_n(floats.data(), part, values + first);
    } else {
      kernels::narrow(floats.data(), part, values + first);
    }
  }
}

}  // namespace

template <typename Value>
FloatWords<Value>::FloatWords(const Arrays& arrays, bool average, const Geometry& geometry)
    : Codec(arrays, kWordBits, geometry), divisor_(average ? static_cast<float>(geometry.world_size) : 1.0F) {}

template <typename Value>
Contribution FloatWords<Value>::encode(const Chunk& chunk, uint8_t* words) const {
  const Place place = place_of(chunk.number);
  Contribution made;
  made.count = static_cast<uint16_t>(place.count);
  made.expects_words = true;
  made.reader = reader_of(chunk);
  made.format = wire::Format::float32;
  write_words(input_of<Value>(place), place.count, words);
  clear_from(made.count, words);
  return made;
}

template <typename Value>
uint64_t FloatWords<Value>::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  auto* const sums = output_of<Value>(place);
  if (sums == nullptr) {
    return 0;
  }
  if constexpr (std::is_same_v<Value, float>) {
    if (divisor_ == 1.0F) {
      kernels::unpack(kernels::kNoWeights, words, place.count, bytes_of(sums));
      return 0;
    }
  }
  read_words(words, place.count, divisor_, sums);
  return 0;
}

template class FloatWords<float>;
template class FloatWords<kernels::Float16>;
template class FloatWords<kernels::BFloat16>;

}  // namespace switchml::client
