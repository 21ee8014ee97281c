// A look at a few blocks of a large sparse call: if too many of them have values at some rank, the call is dense.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "switchml/native/codecs/block_owners.h"

namespace switchml::client {

// The first part of the call. The ranks look at the same blocks, which are spread over the call at random.
class Sample final : public BlockOwners {
 public:
  // Returns whether a call with this number of blocks is so large that the sample costs nearly nothing.
  static bool suits(uint64_t blocks);

  // `make_sparse` makes the second part from `blocks`, `make_dense` that of a call in which more than `largest_share`
  // of the blocks of the sample have values. Precondition: suits(blocks->chunks()).
  Sample(std::unique_ptr<BlockCodec> blocks, double largest_share,
         std::function<std::unique_ptr<Codec>(std::unique_ptr<BlockCodec>)> make_sparse,
         std::function<std::unique_ptr<Codec>()> make_dense, const Geometry& geometry);

  SecondPart second_part() override;
  Blocks blocks() const override { return {0, 0, blocks_->chunks()}; }

 private:
  bool has_values(uint64_t number) override;

  std::unique_ptr<BlockCodec> blocks_;
  double largest_share_;
  std::function<std::unique_ptr<Codec>(std::unique_ptr<BlockCodec>)> make_sparse_;
  std::function<std::unique_ptr<Codec>()> make_dense_;
};

}  // namespace switchml::client
