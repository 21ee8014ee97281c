#include "switchml/native/codecs/block_counts.h"

#include <algorithm>

#include "switchml/native/codecs/lanes.h"
#include "switchml/native/codecs/mix.h"

namespace switchml::client {

namespace {

// Returns the bits of a lane that holds the number of ranks that have values in a block.
uint32_t count_bits_for(uint32_t world_size) { return world_size <= kernels::largest_lane(8) ? 8 : 16; }
static_assert(wire::protocol::max_world <= kernels::largest_lane(16));

}  // namespace

BlockCounts::BlockCounts(const Arrays& words, uint64_t blocks, const channel::Geometry& geometry)
    : Codec(words, kWordBits, geometry), count_bits_(count_bits_for(geometry.world_size)), any_(blocks) {
  auto* const any = reinterpret_cast<uint8_t*>(any_.data());
  counter_ = std::make_unique<NarrowIntegers<kernels::Boolean>>(Arrays{any, any, blocks}, count_bits_, geometry);
}

bool BlockCounts::begin(Chunk* chunk) {
  const uint64_t blocks = uint64_t{values()} * (kWordBits / count_bits_);  // that a packet counts
  const uint64_t end = std::min<uint64_t>((chunk->number + 1) * blocks, any_.size());
  for (uint64_t block = chunk->number * blocks; block < end; ++block) {
    any_[block].byte = has_values(block) ? 1 : 0;
  }
  return counter_->begin(chunk);
}

uint64_t BlockCounts::any_blocks() const {
  return static_cast<uint64_t>(
      std::count_if(any_.begin(), any_.end(), [](kernels::Boolean some) { return some.byte != 0; }));
}

uint32_t BlockCounts::agreed() const {
  uint32_t hash = 0;
  for (uint64_t block = 0; block < any_.size(); ++block) {
    if (any_[block].byte != 0) {
      hash += mix(static_cast<uint32_t>(block + 1));  // mix(0) is 0
    }
  }
  return hash;
}

}  // namespace switchml::client
