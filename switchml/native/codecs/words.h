// The codecs without an exponent, which need one phase for each chunk.
#pragma once

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// A call without values: one empty packet.
class NoValues final : public Codec {
 public:
  explicit NoValues(const Geometry& geometry) : Codec({}, kWordBits, geometry) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  bool sums_fit_words() const override { return false; }
  uint32_t direct_bytes() const override { return 1; }
};

// int32: sums modulo 2^32.
class Integers final : public BlockCodec {
 public:
  Integers(const Arrays& arrays, const Geometry& geometry) : BlockCodec(arrays, kWordBits, geometry) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  bool sums_fit_words() const override { return false; }
  uint32_t direct_bytes() const override { return sizeof(int32_t); }
  bool sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const override {
    return sum_integers<uint32_t>(chunk, parts, sums);
  }
  uint16_t look_at(uint64_t block) override;
  void prefetch(uint64_t block) const override { prefetch_output_of<int32_t>(place_of(block)); }
};

// The bytes of one rank in each chunk, unchanged: of the owner of the chunk's part, or of the rank that `contributes`
// to a call of one part. All other ranks send packets without values, or zeros where the switch cannot do without.
class Bytes final : public Codec {
 public:
  Bytes(const Arrays& arrays, bool contributes, const Geometry& geometry)
      : Codec(arrays, kByteBits, geometry),
        contributes_(contributes),
        optional_values_(geometry.optional_values != 0) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  uint32_t direct_bytes() const override { return 1; }
  bool adds_up() const override { return false; }
  bool contributes() const override { return contributes_; }

 private:
  static constexpr uint32_t kByteBits = 8;

  bool contributes_;
  bool optional_values_;
};

}  // namespace switchml::client
