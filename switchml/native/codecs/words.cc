#include "switchml/native/codecs/words.h"

#include <cstring>

namespace switchml::client {

Contribution NoValues::encode(const Chunk& /*chunk*/, uint8_t* /*words*/) const { return {}; }

uint64_t NoValues::decode(const Chunk& /*chunk*/, const uint8_t* /*words*/) const { return 0; }

Contribution Integers::encode(const Chunk& chunk, uint8_t* words) const {
  const Place place = place_of(chunk.number);
  Contribution made;
  made.count = static_cast<uint16_t>(place.count);
  made.expects_words = true;
  made.reader = reader_of(chunk);
  made.weighed =
      kernels::pack(weights(), reinterpret_cast<const uint8_t*>(input_of<int32_t>(place)), made.count, words);
  clear_from(made.count, words);
  return made;
}

uint64_t Integers::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  auto* const sums = output_of<int32_t>(place);
  if (sums == nullptr) {
    return weigh_from(0, words);
  }
  return kernels::unpack(weights(), words, place.count, reinterpret_cast<uint8_t*>(sums)) +
         weigh_from(place.count, words);
}

uint16_t Integers::look_at(uint64_t block) {
  const Place place = place_of(block);
  return kernels::all_within(input_of<int32_t>(place), place.count, 0) ? kZero : 0;
}

Contribution Bytes::encode(const Chunk& chunk, uint8_t* words) const {
  const Place place = place_of(chunk.number);
  const uint8_t* const bytes = contributes_ ? input_of<uint8_t>(place) : nullptr;
  Contribution made;
  made.expects_words = true;
  made.giver = giver_of(chunk);
  if (bytes == nullptr && optional_values_) {
    return made;
  }
  made.count = static_cast<uint16_t>(words_of(place));
  if (bytes == nullptr) {
    clear_from(0, words);
    return made;
  }
  const uint32_t whole = place.count / kWordBytes;
  const uint32_t rest = place.count % kWordBytes;
  made.weighed = kernels::pack(weights(), bytes, whole, words);
  clear_from(whole, words);
  if (rest != 0) {
    uint32_t last = 0;
    std::memcpy(&last, bytes + whole * kWordBytes, rest);
    wire::store32(words + whole * kWordBytes, last);
    made.weighed += kernels::weigh(weights(), words + whole * kWordBytes, whole, 1);
  }
  return made;
}

uint64_t Bytes::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  const uint32_t whole = place.count / kWordBytes;
  const uint32_t rest = place.count % kWordBytes;
  auto* const bytes = output_of<uint8_t>(place);
  const uint64_t weighed = kernels::unpack(weights(), words, whole, bytes);
  if (rest != 0) {
    const uint32_t last = wire::load32(words + whole * kWordBytes);
    std::memcpy(bytes + whole * kWordBytes, &last, rest);
  }
  return weighed + weigh_from(whole, words);
}

}  // namespace switchml::client
