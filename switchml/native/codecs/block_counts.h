// The first part of a sparse call: the ranks count how many of them have values in each of some blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "native/channel/channel.h"
#include "native/kernels/lanes.h"
#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// Counts four blocks in a word, or two if four lanes of a word cannot count all ranks.
class BlockCounts : public Codec {
 public:
  uint64_t positions() const override { return counter_->positions(); }
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override { return counter_->encode(chunk, words); }
  uint32_t decode(const Chunk& chunk, const uint8_t* words) const override { return counter_->decode(chunk, words); }
  bool has_second_part() const override { return true; }
  bool is_sparse() const override { return true; }

 protected:
  // `words` are those of the call. Counts the blocks 0 to `blocks` - 1.
  BlockCounts(const Arrays& words, uint64_t blocks, const channel::Geometry& geometry);

  // Returns whether this rank has values in a block.
  virtual bool has_values(uint64_t block) = 0;
  // Returns, for each block, whether any rank has values in it. Precondition: all results have come.
  const std::vector<kernels::Boolean>& any() const { return any_; }
  // Returns how many blocks that are.
  uint64_t any_blocks() const;
  // Returns a hash of the result, for SecondPart::agreed.
  uint32_t agreed() const;

 private:
  uint32_t count_bits_;
  std::vector<kernels::Boolean> any_;  // for each block: this rank has values, and then, some rank has
  std::unique_ptr<Codec> counter_;     // sums them
};

}  // namespace switchml::client
