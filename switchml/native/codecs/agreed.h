// Sparse sums with large packets: the ranks first agree on the blocks in which any of them has values, and then sum
// packets of such blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "switchml/native/codecs/block_owners.h"
#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// The blocks of a call, of kWords words each, and this rank's exponents of them.
struct AgreedBlocks {
  static constexpr uint32_t kWords = 256;
  static constexpr double kLargestShare = 0.6;  // with values at some rank; with more, a dense call is as fast

  std::unique_ptr<BlockCodec> codec;  // a block is one of its chunks
  std::vector<uint16_t> exponents;    // or BlockCodec::kZero
  std::vector<uint64_t> some;         // blocks in which any rank has values, those of the same ranks together

  // Returns whether packets are so large that they should have several blocks.
  static bool suit(const Geometry& geometry) { return geometry.values > kWords && geometry.values % kWords == 0; }
  // Returns the geometry for `codec`.
  static Geometry geometry_of(const Geometry& of_packets);
};

// The first part of a call: the ranks that have values in each block.
class Agreement final : public BlockOwners {
 public:
  // `make_dense` makes the second part of a call whose blocks nearly all have values. Preconditions: codec is made with
  // AgreedBlocks::geometry_of(geometry), and suit(geometry).
  Agreement(std::unique_ptr<BlockCodec> codec, std::function<std::unique_ptr<Codec>()> make_dense,
            const Geometry& geometry);

  SecondPart second_part() override;
  Blocks blocks() const override { return {0, 0, blocks_.exponents.size()}; }

 private:
  bool has_values(uint64_t block) override;

  AgreedBlocks blocks_;
  std::function<std::unique_ptr<Codec>()> make_dense_;
  Geometry geometry_;
};

// The second part: chunks of several blocks, which lie anywhere in the call's memory. A chunk has one exponent. A rank
// without values in a chunk sends none. The phases are those of the codec of the blocks. If there are no blocks, one
// packet without values shows whether all ranks found that.
class BlocksOfCall final : public Codec {
 public:
  BlocksOfCall(AgreedBlocks blocks, const Geometry& geometry);

  uint16_t exponent_of(uint64_t chunk) const override;
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  Step advance(Chunk* chunk, const uint8_t* words) override;
  Blocks blocks() const override { return {own_, blocks_.some.size(), blocks_.exponents.size()}; }
  bool sums_fit_words() const override { return blocks_.codec->sums_fit_words(); }
  bool is_sparse() const override { return true; }

 private:
  // Calls act(block, its number among the blocks of the chunk) for each block of a chunk.
  template <typename Act>
  void for_each_block(uint64_t chunk, Act&& act) const;
  // Returns the state of a chunk for the codec of one of its blocks, the `place`-th.
  Chunk state_of(const Chunk& chunk, uint64_t block, uint64_t place) const;
  bool owns(uint64_t chunk) const;
  // Prefetches the memory of a block that follows the `place`-th one of a chunk.
  void prefetch_after(uint64_t chunk, uint64_t place) const;
  // Notes the lanes that the words of the phase `flags` name.
  void read_flags(Chunk* chunk, const uint8_t* words);

  AgreedBlocks blocks_;
  uint64_t blocks_of_chunk_;
  uint64_t own_ = 0;  // blocks in which this rank has values
};

}  // namespace switchml::client
