#include "switchml/native/codecs/block_owners.h"

#include <algorithm>

#include "switchml/native/codecs/lanes.h"
#include "switchml/native/codecs/mix.h"

namespace switchml::client {

namespace {

// Returns the bits of a lane that holds the sum of the ranks' numbers for a block.
uint32_t lane_bits_for(uint32_t world_size) {
  const bool counts = world_size > BlockOwners::kRanksWithBit;
  return counts && world_size <= kernels::largest_lane(8) ? 8 : 16;
}
static_assert(wire::protocol::max_world <= kernels::largest_lane(16));
static_assert((1 << BlockOwners::kRanksWithBit) - 1 <= kernels::largest_lane(16));

}  // namespace

BlockOwners::BlockOwners(const Arrays& words, uint64_t blocks, const Geometry& geometry)
    : Codec(words, kWordBits, geometry),
      knows_ranks_(geometry.world_size <= kRanksWithBit),
      lane_bits_(lane_bits_for(geometry.world_size)),
      own_(static_cast<int16_t>(knows_ranks_ ? 1 << geometry.rank : 1)),
      owners_(blocks) {
  auto* const memory = reinterpret_cast<uint8_t*>(owners_.data());
  sums_ = std::make_unique<NarrowIntegers<int16_t>>(Arrays{memory, memory, blocks}, lane_bits_, geometry);
}

bool BlockOwners::begin(Chunk* chunk) {
  const uint64_t blocks = uint64_t{values()} * (kWordBits / lane_bits_);  // in a packet
  const uint64_t end = std::min<uint64_t>((chunk->number + 1) * blocks, owners_.size());
  for (uint64_t block = chunk->number * blocks; block < end; ++block) {
    owners_[block] = has_values(block) ? own_ : int16_t{0};
  }
  return sums_->begin(chunk);
}

uint64_t BlockOwners::any_blocks() const {
  return owners_.size() - static_cast<uint64_t>(std::count(owners_.begin(), owners_.end(), 0));
}

// Sorts by counting. In a packet of blocks with the same owners, all other ranks need not send values.
std::vector<uint64_t> BlockOwners::blocks_by_owners() const {
  const auto key_of = [this](int16_t owners) -> size_t {
    return knows_ranks_ ? static_cast<uint16_t>(owners) : static_cast<size_t>(owners != 0);
  };
  std::vector<uint64_t> next;  // for each key the number of its blocks, and then the place of the next one
  for (const int16_t owners : owners_) {
    const size_t key = key_of(owners);
    next.resize(std::max(next.size(), key + 1));
    next[key] += 1;
  }
  uint64_t first = 0;
  next[0] = 0;
  for (uint64_t& place : next) {
    const uint64_t blocks = place;
    place = first;
    first += blocks;
  }
  std::vector<uint64_t> sorted(first);
  for (uint64_t block = 0; block < owners_.size(); ++block) {
    if (owners_[block] != 0) {
      sorted[next[key_of(owners_[block])]++] = block;
    }
  }
  return sorted;
}

uint32_t BlockOwners::agreed() const {
  uint32_t hash = 0;
  for (uint64_t block = 0; block < owners_.size(); ++block) {
    if (owners_[block] != 0) {
      hash += mix(mix(static_cast<uint32_t>(block + 1)) + static_cast<uint16_t>(owners_[block]));
    }
  }
  return hash;
}

}  // namespace switchml::client
