// The codecs without an exponent, which need one phase for each chunk.
#pragma once

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// A call without values: one empty packet.
class NoValues final : public Codec {
 public:
  explicit NoValues(uint32_t values) : Codec(0, kWordBits, values) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint32_t decode(const Chunk& chunk, const uint8_t* words) const override;
};

// int32: sums modulo 2^32.
class Integers final : public Codec {
 public:
  Integers(uint8_t* memory, uint64_t elements, uint32_t values, bool streaming)
      : Codec(elements, kWordBits, values), memory_(memory), streaming_(streaming) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint32_t decode(const Chunk& chunk, const uint8_t* words) const override;

 private:
  uint8_t* memory_;
  bool streaming_;
};

// The bytes of one rank, unchanged: all other ranks contribute zeros.
class Bytes final : public Codec {
 public:
  Bytes(uint8_t* memory, uint64_t bytes, bool contributes, uint32_t values, bool streaming)
      : Codec(bytes, 8, values), memory_(memory), bytes_(bytes), contributes_(contributes), streaming_(streaming) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint32_t decode(const Chunk& chunk, const uint8_t* words) const override;

 private:
  // Returns the number of bytes at the end of the call's last chunk that do not fill a word; 0 for other chunks.
  uint64_t rest_of(uint64_t chunk) const {
    return std::min<uint64_t>(bytes_ - offset_of(chunk), values() * kWordBytes) % kWordBytes;
  }

  uint8_t* memory_;
  uint64_t bytes_;
  bool contributes_;
  bool streaming_;
};

}  // namespace switchml::client
