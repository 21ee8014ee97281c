#include "switchml/native/codecs/limbs.h"

#include "native/kernels/limbs.h"

namespace switchml::client {

LongIntegers::LongIntegers(uint8_t* memory, uint64_t elements, const channel::Geometry& geometry)
    : Codec(elements, kWordBits, geometry.values),
      memory_(reinterpret_cast<int64_t*>(memory)),
      limb_bits_(static_cast<int>(kWordBits) - bits_for(geometry.world_size)),
      streaming_(geometry.streaming != 0) {}

uint16_t LongIntegers::exponent_of(uint64_t chunk) const {
  return static_cast<uint16_t>(kernels::bits_of_largest(values_of(chunk), words_of(chunk)));
}

bool LongIntegers::begin(Chunk* chunk) const {
  chunk->limbs.clear();
  return choose_phase(chunk);
}

bool LongIntegers::choose_phase(Chunk* chunk) {
  const Exponents told = chunk->told;
  if (told.all < told.own) {
    return false;  // `all` must be the largest of all ranks: it was corrupted, and this rank's values might not fit
  }
  const bool known = told.all != wire::exponent::unknown;
  chunk->phase = known ? Chunk::Phase::values : Chunk::Phase::exponent;
  chunk->scaled_by = known ? told.all : 0;
  chunk->owns_scale = told.own == chunk->scaled_by;
  return true;
}

Contribution LongIntegers::encode(const Chunk& chunk, uint8_t* words) const {
  using Scale = Contribution::Scale;
  if (chunk.phase == Chunk::Phase::exponent) {
    return {0, Scale::none, false, exponent_of(chunk.number), 0};
  }
  const uint32_t count = words_of(chunk.number);
  const int limb = limbs_known(chunk);
  const bool highest = limb == lower_limbs(chunk);
  const uint32_t weighed = kernels::pack_limb(values_of(chunk.number), count, limb * limb_bits_,
                                              highest ? static_cast<int>(kWordBits) : limb_bits_, words, streaming_);
  clear_from(count, words);
  return {static_cast<uint16_t>(count), chunk.owns_scale ? Scale::own : Scale::of_others, highest, 0, weighed};
}

uint32_t LongIntegers::decode(const Chunk& chunk, const uint8_t* words) const {
  const uint32_t count = words_of(chunk.number);
  const int known = limbs_known(chunk);
  if (known < lower_limbs(chunk)) {
    return weigh_from(0, words);
  }
  return kernels::join_limbs(words, count, chunk.limbs.data(), known, limb_bits_, values_of(chunk.number)) +
         weigh_from(count, words);
}

bool LongIntegers::agree(Chunk* chunk, const uint8_t* words) {
  if (chunk->phase == Chunk::Phase::exponent) {
    return chunk->told.all != wire::exponent::unknown && choose_phase(chunk);
  }
  const uint32_t count = words_of(chunk->number);
  const size_t known = chunk->limbs.size();
  chunk->limbs.resize(known + count);
  kernels::unpack(words, count, reinterpret_cast<uint8_t*>(chunk->limbs.data() + known));
  return true;
}

}  // namespace switchml::client
