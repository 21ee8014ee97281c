// Sparse sums: only blocks that are not zero travel, and only from the ranks that have values in them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// The header's `chunk` in a sparse call (dataplane/constants.toml): the ordinal of a block in its column, and this
// rank's exponent of the block. The lowest one of several names the lowest block and the largest exponent of that
// block.
constexpr uint32_t kExponentOfNext = (1U << wire::next::exponent_bits) - 1;
constexpr uint32_t next_block(uint64_t ordinal, uint32_t exponent) {
  return static_cast<uint32_t>(ordinal << wire::next::exponent_bits) | (kExponentOfNext - exponent);
}
constexpr uint32_t ordinal_of(uint32_t next) { return next >> wire::next::exponent_bits; }
constexpr uint32_t exponent_of_next(uint32_t next) { return kExponentOfNext - (next & kExponentOfNext); }

// The blocks of a call, dealt to columns: block b is in column b mod C, with the ordinal b div C. A column has one
// position of the stream. Its phases:
//
//   RESULT of the phase before       phase          this rank sends
//   none yet, or the exponent 256    announcement   no values
//   names a block, exponent 255      flags          the block's flags (block_float.h), if it has values in the block
//   names a block, exponent 0..254   values         the block's values scaled by this exponent, if it has values there
//   names none                       -              the column has ended
//
// In each phase a rank names the next block in which it has values. An exponent of 256 says that there may be such
// blocks from this one on: the rank has not looked yet. It does so before the next phase.
class Sparse final : public Codec {
 public:
  static constexpr double kLargestShare = 0.75;  // with values at some rank; with more, a dense call is as fast

  // Returns whether the header's field can hold the ordinals of a call with this number of blocks.
  static bool can_name(uint64_t blocks, const Geometry& geometry);

  // Precondition: can_name(blocks->chunks(), geometry).
  Sparse(std::unique_ptr<BlockCodec> blocks, const Geometry& geometry);

  uint64_t positions() const override { return columns_; }
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  Step advance(Chunk* chunk, const uint8_t* words) override;
  Blocks blocks() const override { return {sent_, received_, chunks()}; }
  bool is_sparse() const override { return true; }
  // False, because of the check of a RESULT: with carries and two counts of ranks, it would tell too little.
  bool sums_fit_words() const override { return false; }

 private:
  // Returns the next block of a column in which this rank has values, from `ordinal` on. Does not look at blocks from
  // `end` on that it has not looked at before.
  uint32_t find_next(uint64_t column, uint64_t ordinal, uint64_t end);
  // Returns whether a RESULT may name this block.
  bool is_block(uint64_t column, uint32_t next) const;
  // Sets the phase, and what it needs, for the block that all ranks have named.
  void enter(Chunk* chunk, uint64_t column);

  std::unique_ptr<BlockCodec> blocks_;
  uint64_t columns_;
  uint64_t look_at_first_;           // blocks
  std::vector<uint16_t> exponents_;  // or kZero, of the blocks that this rank has looked at, which it does in order
  uint64_t sent_ = 0;                // blocks
  uint64_t received_ = 0;
};

}  // namespace switchml::client
