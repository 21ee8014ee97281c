// The first part of a sparse call: the ranks tell each other who has values in each of some blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "native/wire/wire.h"
#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// Sums a number for each block: where a rank has values, its bit in jobs of up to kRanksWithBit ranks, and 1 in larger
// ones. So the sums are sets of ranks, or numbers of ranks.
class BlockOwners : public Codec {
 public:
  static constexpr uint32_t kRanksWithBit = 15;  // a lane of 16 bits has a sign

  uint64_t positions() const override { return sums_->positions(); }
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override { return sums_->encode(chunk, words); }
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override { return sums_->decode(chunk, words); }
  bool has_second_part() const override { return true; }
  bool is_sparse() const override { return true; }

 protected:
  // `words` are those of the call. Asks about the blocks 0 to `blocks` - 1.
  BlockOwners(const Arrays& words, uint64_t blocks, const Geometry& geometry);

  // Returns whether this rank has values in a block.
  virtual bool has_values(uint64_t block) = 0;
  // Returns in how many blocks any rank has values. Precondition of this and the next two: all results have come.
  uint64_t any_blocks() const;
  // Returns these blocks. Where the owners are known, blocks of the same owners follow each other.
  std::vector<uint64_t> blocks_by_owners() const;
  // Returns a hash of the result, for SecondPart::agreed.
  uint32_t agreed() const;

 private:
  bool knows_ranks_;
  uint32_t lane_bits_;
  int16_t own_;                  // this rank's number for a block with values
  std::vector<int16_t> owners_;  // for each block this rank's number, and then the sum
  std::unique_ptr<Codec> sums_;
};

}  // namespace switchml::client
