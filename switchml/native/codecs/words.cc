#include "switchml/native/codecs/words.h"

#include <cstring>

namespace switchml::client {

Contribution NoValues::encode(const Chunk& /*chunk*/, uint8_t* /*words*/) const { return {}; }

uint32_t NoValues::decode(const Chunk& /*chunk*/, const uint8_t* /*words*/) const { return 0; }

Contribution Integers::encode(const Chunk& chunk, uint8_t* words) const {
  Contribution made;
  made.count = static_cast<uint16_t>(words_of(chunk.number));
  made.weighed = kernels::pack(memory_ + offset_of(chunk.number), made.count, words, streaming_);
  clear_from(made.count, words);
  return made;
}

uint32_t Integers::decode(const Chunk& chunk, const uint8_t* words) const {
  const uint32_t count = words_of(chunk.number);
  return kernels::unpack(words, count, memory_ + offset_of(chunk.number)) + weigh_from(count, words);
}

Contribution Bytes::encode(const Chunk& chunk, uint8_t* words) const {
  Contribution made;
  made.count = static_cast<uint16_t>(words_of(chunk.number));
  if (!contributes_) {
    clear_from(0, words);
    return made;
  }
  const uint8_t* bytes = memory_ + offset_of(chunk.number);
  const uint64_t rest = rest_of(chunk.number);
  const uint32_t whole = rest == 0 ? made.count : made.count - 1U;
  made.weighed = kernels::pack(bytes, whole, words, streaming_);
  clear_from(whole, words);
  if (rest != 0) {
    uint32_t last = 0;
    std::memcpy(&last, bytes + whole * kWordBytes, rest);
    wire::store32(words + whole * kWordBytes, last);
    made.weighed += kernels::weigh(words + whole * kWordBytes, whole, 1);
  }
  return made;
}

uint32_t Bytes::decode(const Chunk& chunk, const uint8_t* words) const {
  const uint64_t rest = rest_of(chunk.number);
  const uint32_t count = words_of(chunk.number);
  const uint32_t whole = rest == 0 ? count : count - 1;
  uint8_t* bytes = memory_ + offset_of(chunk.number);
  const uint32_t weighed = kernels::unpack(words, whole, bytes);
  if (rest != 0) {
    const uint32_t last = wire::load32(words + whole * kWordBytes);
    std::memcpy(bytes + whole * kWordBytes, &last, rest);
  }
  return weighed + weigh_from(whole, words);
}

}  // namespace switchml::client
