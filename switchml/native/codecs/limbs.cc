#include "switchml/native/codecs/limbs.h"

#include "native/kernels/limbs.h"

namespace switchml::client {

// Three limbs make 64 bits: two lower ones, and a word for the highest.
static_assert(2 * (Codec::kWordBits - bits_for(wire::protocol::max_world)) + Codec::kWordBits >= 64);

LongIntegers::LongIntegers(const Arrays& arrays, const Geometry& geometry)
    : Codec(arrays, kWordBits, geometry), limb_bits_(static_cast<int>(kWordBits) - bits_for(geometry.world_size)) {}

uint16_t LongIntegers::exponent_of(uint64_t chunk) const {
  const Place place = place_of(chunk);
  return static_cast<uint16_t>(kernels::bits_of_largest(input_of<int64_t>(place), place.count));
}

bool LongIntegers::begin(Chunk* chunk) {
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
    return {0, false, Scale::none, false, exponent_of(chunk.number), 0, {}, {}};
  }
  const Place place = place_of(chunk.number);
  const uint32_t count = place.count;
  const int limb = limbs_known(chunk, place);
  const bool highest = limb == lower_limbs(chunk);
  const uint64_t weighed = kernels::pack_limb(weights(), input_of<int64_t>(place), count, limb * limb_bits_,
                                              highest ? static_cast<int>(kWordBits) : limb_bits_, words);
  clear_from(count, words);
  const Scale scale = chunk.owns_scale ? Scale::own : Scale::of_others;
  return {static_cast<uint16_t>(count), true, scale, highest, 0, weighed, {}, reader_of(chunk)};
}

uint64_t LongIntegers::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  const int known = limbs_known(chunk, place);
  auto* const sums = output_of<int64_t>(place);
  if (known < lower_limbs(chunk) || sums == nullptr) {
    return weigh_from(0, words);
  }
  return kernels::join_limbs(weights(), words, place.count, chunk.limbs.data(), known, limb_bits_, sums) +
         weigh_from(place.count, words);
}

Step LongIntegers::advance(Chunk* chunk, const uint8_t* words) {
  if (chunk->phase == Chunk::Phase::exponent) {
    const bool agreed = chunk->told.all != wire::exponent::unknown && choose_phase(chunk);
    return agreed ? Step::next_phase : Step::contradiction;
  }
  const Place place = place_of(chunk->number);
  if (limbs_known(*chunk, place) == lower_limbs(*chunk)) {
    return Step::end;
  }
  const uint32_t count = place.count;
  const size_t known = chunk->limbs.size();
  chunk->limbs.resize(known + count);
  if (words != nullptr) {
    kernels::unpack(weights(), words, count, reinterpret_cast<uint8_t*>(chunk->limbs.data() + known));
  }
  return Step::next_phase;
}

}  // namespace switchml::client
