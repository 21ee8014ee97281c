#include "switchml/native/codecs/sparse.h"

#include <algorithm>
#include <utility>

namespace switchml::client {

namespace {

// A call begins when this much of its memory has been looked at, so that a large call without values does not delay
// other calls.
constexpr uint64_t kBytesLookedAtFirst = uint64_t{4} << 20;

constexpr uint64_t kOrdinals = wire::next::none >> wire::next::exponent_bits;  // the highest one would be `none`

// The blocks are chunks of words.
Arrays words_of_all(const Codec& blocks) {
  Arrays words;
  words.elements = blocks.words();
  return words;
}

uint64_t columns_for(uint64_t blocks, const Geometry& geometry) { return std::min<uint64_t>(blocks, geometry.slots); }

}  // namespace

bool Sparse::can_name(uint64_t blocks, const Geometry& geometry) {
  return blocks <= kOrdinals * columns_for(blocks, geometry);
}

Sparse::Sparse(std::unique_ptr<BlockCodec> blocks, const Geometry& geometry)
    : Codec(words_of_all(*blocks), kWordBits, geometry),
      blocks_(std::move(blocks)),
      columns_(columns_for(chunks(), geometry)),
      look_at_first_(std::max<uint64_t>(1, kBytesLookedAtFirst / (geometry.values * kWordBytes))) {
  blocks_->expect_any_order();
  exponents_.reserve(chunks());
}

uint32_t Sparse::find_next(uint64_t column, uint64_t ordinal, uint64_t end) {
  for (uint64_t block = ordinal * columns_ + column; block < chunks(); block += columns_) {
    if (block >= std::max<uint64_t>(end, exponents_.size())) {
      return next_block(block / columns_, wire::exponent::unknown);
    }
    while (exponents_.size() <= block) {
      exponents_.push_back(blocks_->look_at(exponents_.size()));
    }
    if (exponents_[block] != BlockCodec::kZero) {
      return next_block(block / columns_, exponents_[block]);
    }
  }
  return wire::next::none;
}

bool Sparse::begin(Chunk* chunk) {
  chunk->phase = Chunk::Phase::announcement;
  chunk->named.clear();
  chunk->scaled_by = 0;
  chunk->owns_scale = chunk->owns_block = false;
  chunk->ordinal = 0;
  chunk->least_next = 0;
  chunk->next.own = find_next(chunk->number, 0, look_at_first_);
  return true;
}

Contribution Sparse::encode(const Chunk& chunk, uint8_t* words) const {
  using Scale = Contribution::Scale;
  Contribution made;
  made.next = chunk.next.own;
  if (chunk.owns_block) {
    made = blocks_->encode(chunk, words);
    made.next = chunk.phase == Chunk::Phase::flags ? next_block(chunk.ordinal, made.exponent) : chunk.next.own;
  }
  made.tells_next = true;
  made.expects_words = chunk.phase != Chunk::Phase::announcement;
  made.scale = chunk.phase != Chunk::Phase::values ? Scale::none : chunk.owns_scale ? Scale::own : Scale::of_others;
  return made;
}

uint64_t Sparse::decode(const Chunk& chunk, const uint8_t* words) const { return blocks_->decode(chunk, words); }

bool Sparse::is_block(uint64_t column, uint32_t next) const {
  const uint32_t exponent = exponent_of_next(next);
  return ordinal_of(next) * columns_ + column < chunks() &&
         (exponent <= blocks_->largest_exponent() || exponent == wire::exponent::unknown);
}

Step Sparse::advance(Chunk* chunk, const uint8_t* words) {
  const uint32_t next = chunk->next.all;
  const uint64_t column = chunk->number % columns_;
  const bool had_flags = chunk->phase == Chunk::Phase::flags;
  if (next < chunk->least_next || (had_flags && ordinal_of(next) != chunk->ordinal)) {
    return Step::contradiction;
  }
  if (next == wire::next::none) {
    return Step::end;
  }
  if (!is_block(column, next)) {
    return Step::contradiction;
  }
  if (had_flags) {
    blocks_->read_flags(chunk, words);
    non_finite_ = blocks_->non_finite();
  } else {
    chunk->named.clear();
  }
  enter(chunk, column);
  return Step::next_phase;
}

void Sparse::enter(Chunk* chunk, uint64_t column) {
  const uint32_t next = chunk->next.all;
  const uint32_t own = chunk->next.own;
  const uint32_t exponent = exponent_of_next(next);
  chunk->ordinal = ordinal_of(next);
  chunk->number = chunk->ordinal * columns_ + column;
  chunk->owns_block = exponent != wire::exponent::unknown && ordinal_of(own) == chunk->ordinal;
  chunk->owns_scale = false;
  chunk->scaled_by = 0;
  if (exponent_of_next(own) == wire::exponent::unknown) {
    chunk->next.own = find_next(column, ordinal_of(own), chunks());
  }
  if (exponent == wire::exponent::unknown) {
    chunk->phase = Chunk::Phase::announcement;
    chunk->least_next = next + 1;
  } else if (exponent == wire::exponent::non_finite) {
    chunk->phase = Chunk::Phase::flags;
    chunk->least_next = next_block(chunk->ordinal, wire::exponent::max_finite);
  } else {
    chunk->phase = Chunk::Phase::values;
    chunk->least_next = next_block(chunk->ordinal + 1, wire::exponent::unknown);
    chunk->scaled_by = static_cast<uint16_t>(exponent);
    chunk->owns_scale = own == next;
    received_ += 1;
    if (chunk->owns_block) {
      sent_ += 1;
      chunk->next.own = find_next(column, chunk->ordinal + 1, chunks());
    }
  }
}

}  // namespace switchml::client
