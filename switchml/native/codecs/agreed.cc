#include "switchml/native/codecs/agreed.h"

#include <algorithm>
#include <utility>

namespace switchml::client {

namespace {

// The distance at which blocks are prefetched. Hardware does not, because they lie anywhere in memory.
constexpr uint64_t kBlocksAhead = 2;

constexpr uint32_t kBytesOfBlock = AgreedBlocks::kWords * sizeof(uint32_t);

Arrays arrays_of(uint64_t blocks) {
  Arrays words;
  words.elements = blocks * AgreedBlocks::kWords;
  return words;
}

}  // namespace

Geometry AgreedBlocks::geometry_of(const Geometry& of_packets) {
  Geometry of_blocks = of_packets;
  of_blocks.values = kWords;
  return of_blocks;
}

Agreement::Agreement(std::unique_ptr<BlockCodec> codec, std::function<std::unique_ptr<Codec>()> make_dense,
                     const Geometry& geometry)
    : BlockOwners(arrays_of(codec->chunks()), codec->chunks(), geometry),
      make_dense_(std::move(make_dense)),
      geometry_(geometry) {
  blocks_.exponents.resize(codec->chunks());
  blocks_.codec = std::move(codec);
  blocks_.codec->expect_any_order();
}

bool Agreement::has_values(uint64_t block) {
  blocks_.exponents[block] = blocks_.codec->look_at(block);
  return blocks_.exponents[block] != BlockCodec::kZero;
}

SecondPart Agreement::second_part() {
  const auto all = static_cast<double>(blocks_.exponents.size());
  if (static_cast<double>(any_blocks()) > AgreedBlocks::kLargestShare * all) {
    return {make_dense_(), agreed()};
  }
  blocks_.some = blocks_by_owners();
  return {std::make_unique<BlocksOfCall>(std::move(blocks_), geometry_), agreed()};
}

BlocksOfCall::BlocksOfCall(AgreedBlocks blocks, const Geometry& geometry)
    : Codec(arrays_of(blocks.some.size()), kWordBits, geometry),
      blocks_(std::move(blocks)),
      blocks_of_chunk_(geometry.values / AgreedBlocks::kWords) {
  for (const uint64_t block : blocks_.some) {
    own_ += blocks_.exponents[block] == BlockCodec::kZero ? 0 : 1;
  }
}

template <typename Act>
void BlocksOfCall::for_each_block(uint64_t chunk, Act&& act) const {
  const uint64_t first = chunk * blocks_of_chunk_;
  const uint64_t end = std::min<uint64_t>(first + blocks_of_chunk_, blocks_.some.size());
  for (uint64_t i = first; i < end; ++i) {
    act(blocks_.some[i], i - first);
  }
}

void BlocksOfCall::prefetch_after(uint64_t chunk, uint64_t place) const {
  const uint64_t later = chunk * blocks_of_chunk_ + place + kBlocksAhead;
  if (later < blocks_.some.size()) {
    blocks_.codec->prefetch(blocks_.some[later]);
  }
}

bool BlocksOfCall::owns(uint64_t chunk) const {
  bool any = false;
  for_each_block(
      chunk, [&](uint64_t block, uint64_t /*place*/) { any = any || blocks_.exponents[block] != BlockCodec::kZero; });
  return any;
}

uint16_t BlocksOfCall::exponent_of(uint64_t chunk) const {
  uint16_t largest = 0;
  for_each_block(chunk, [&](uint64_t block, uint64_t /*place*/) {
    const uint16_t exponent = blocks_.exponents[block];
    largest = exponent == BlockCodec::kZero ? largest : std::max(largest, exponent);
  });
  return largest;
}

Chunk BlocksOfCall::state_of(const Chunk& chunk, uint64_t block, uint64_t place) const {
  Chunk state;
  state.number = block;
  state.phase = chunk.phase;
  state.scaled_by = chunk.scaled_by;
  const uint64_t lanes = blocks_.codec->elements_of_chunk();
  for (const uint16_t lane : chunk.named) {
    if (lane / lanes == place) {
      state.named.push_back(static_cast<uint16_t>(lane % lanes));
    }
  }
  return state;
}

bool BlocksOfCall::begin(Chunk* chunk) {
  if (!blocks_.some.empty()) {
    return blocks_.codec->begin(chunk);
  }
  chunk->phase = Chunk::Phase::values;
  return Codec::begin(chunk);
}

Contribution BlocksOfCall::encode(const Chunk& chunk, uint8_t* words) const {
  using Scale = Contribution::Scale;
  Contribution made;
  if (blocks_.some.empty()) {
    return made;
  }
  made.tells_next = chunk.phase == Chunk::Phase::values;
  if (chunk.phase == Chunk::Phase::exponent) {
    made.exponent = exponent_of(chunk.number);
    return made;
  }
  made.expects_words = true;
  if (chunk.phase == Chunk::Phase::values && blocks_.codec->largest_exponent() > 0) {
    made.scale = chunk.owns_scale ? Scale::own : Scale::of_others;
  }
  if (!owns(chunk.number)) {
    return made;
  }
  for_each_block(chunk.number, [&](uint64_t block, uint64_t place) {
    prefetch_after(chunk.number, place);
    const Contribution of_block = blocks_.codec->encode(state_of(chunk, block, place), words + place * kBytesOfBlock);
    made.exponent = std::max(made.exponent, of_block.exponent);
    made.count = static_cast<uint16_t>(place * AgreedBlocks::kWords + of_block.count);
  });
  clear_from((made.count + AgreedBlocks::kWords - 1) / AgreedBlocks::kWords * AgreedBlocks::kWords, words);
  made.weighed = weigh_from(0, words);
  return made;
}

uint64_t BlocksOfCall::decode(const Chunk& chunk, const uint8_t* words) const {
  const uint64_t weighed = weigh_from(0, words);
  if (chunk.phase == Chunk::Phase::values) {
    for_each_block(chunk.number, [&](uint64_t block, uint64_t place) {
      prefetch_after(chunk.number, place);
      blocks_.codec->decode(state_of(chunk, block, place), words + place * kBytesOfBlock);
    });
  }
  return weighed;
}

Step BlocksOfCall::advance(Chunk* chunk, const uint8_t* words) {
  if (chunk->phase == Chunk::Phase::values) {
    return Step::end;
  }
  const bool had_flags = chunk->phase == Chunk::Phase::flags;
  if (chunk->told.all > (had_flags ? wire::exponent::max_finite : wire::exponent::non_finite)) {
    return Step::contradiction;
  }
  if (had_flags) {
    read_flags(chunk, words);
  }
  std::vector<uint16_t> named = std::move(chunk->named);
  const bool agreed = blocks_.codec->begin(chunk);
  chunk->named = std::move(named);
  return agreed ? Step::next_phase : Step::contradiction;
}

void BlocksOfCall::read_flags(Chunk* chunk, const uint8_t* words) {
  const uint64_t lanes = blocks_.codec->elements_of_chunk();
  for_each_block(chunk->number, [&](uint64_t block, uint64_t place) {
    Chunk state = state_of(*chunk, block, place);
    state.named.clear();
    blocks_.codec->read_flags(&state, words + place * kBytesOfBlock);
    for (const uint16_t lane : state.named) {
      chunk->named.push_back(static_cast<uint16_t>(place * lanes + lane));
    }
  });
  non_finite_ = blocks_.codec->non_finite();
}

}  // namespace switchml::client
