#include "switchml/native/codecs/sample.h"

#include <utility>

#include "switchml/native/codecs/mix.h"

namespace switchml::client {

namespace {

constexpr uint64_t kBlocksOfCall = 4096;  // from which on calls have a sample
constexpr uint64_t kBlocks = 256;         // of a sample

Arrays words_of_call(const Codec& blocks) {
  Arrays words;
  words.elements = blocks.words();
  return words;
}

}  // namespace

bool Sample::suits(uint64_t blocks) { return blocks >= kBlocksOfCall; }

Sample::Sample(std::unique_ptr<BlockCodec> blocks, double largest_share,
               std::function<std::unique_ptr<Codec>(std::unique_ptr<BlockCodec>)> make_sparse,
               std::function<std::unique_ptr<Codec>()> make_dense, const Geometry& geometry)
    : BlockOwners(words_of_call(*blocks), kBlocks, geometry),
      blocks_(std::move(blocks)),
      largest_share_(largest_share),
      make_sparse_(std::move(make_sparse)),
      make_dense_(std::move(make_dense)) {}

// The call is divided into kBlocks runs, and one block of each is looked at. A fixed one might always have values,
// where those of a tensor are at regular distances.
bool Sample::has_values(uint64_t number) {
  const uint64_t first = number * blocks_->chunks() / kBlocks;
  const uint64_t end = (number + 1) * blocks_->chunks() / kBlocks;
  return blocks_->look_at(first + mix(static_cast<uint32_t>(number)) % (end - first)) != BlockCodec::kZero;
}

SecondPart Sample::second_part() {
  const bool dense = static_cast<double>(any_blocks()) > largest_share_ * kBlocks;
  return {dense ? make_dense_() : make_sparse_(std::move(blocks_)), agreed()};
}

}  // namespace switchml::client
