#include "switchml/native/codecs/doubles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "native/wire/constants.h"

namespace switchml::client {

namespace {

constexpr int kLimbs = 3;
constexpr int kFractionBits = 52;
constexpr uint64_t kExponentField = 0x7ff;
constexpr uint64_t kMagnitude = ~uint64_t{0} >> 1;
constexpr uint64_t kInfinity = kExponentField << kFractionBits;
// A normal number with exponent field f is below 2^(f - 1022); a smaller one is below 2^-1022.
constexpr int kExponentOfField = 1022;
constexpr int kExponentsInStep = 9;
constexpr uint64_t kLargestStep = (kExponentField - 1 + kExponentsInStep - 1) / kExponentsInStep;
static_assert(kLargestStep <= wire::exponent::max_finite);
// With this, the highest limbs of the largest job keep the bits of a float64.
static_assert(2 * (Codec::kWordBits - bits_for(wire::protocol::max_world)) + 31 - bits_for(wire::protocol::max_world) -
                  (kExponentsInStep - 1) >=
              51);

uint64_t magnitude_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & kMagnitude;
}

bool is_finite(double value) { return magnitude_of(value) < kInfinity; }

// Returns the step of the largest of these magnitudes, which are compared like integers.
uint16_t step_of(uint64_t magnitude) {
  if (magnitude >= kInfinity) return wire::exponent::non_finite;
  return static_cast<uint16_t>(((magnitude >> kFractionBits) + kExponentsInStep - 1) / kExponentsInStep);
}

uint64_t largest_magnitude(const double* values, uint32_t count) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_of(values[i]));
  return largest;
}

uint64_t largest_finite_magnitude(const double* values, uint32_t count) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (is_finite(values[i])) largest = std::max(largest, magnitude_of(values[i]));
  }
  return largest;
}

// Returns a finite value in units of 2^unit, rounded to the nearest, or to the even one of two. Integers only: every
// machine gets the same.
__int128 scaled(double value, int unit) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint64_t field = bits >> kFractionBits & kExponentField;
  const uint64_t fraction = bits & ((uint64_t{1} << kFractionBits) - 1);
  const uint64_t integer = field == 0 ? fraction : fraction | uint64_t{1} << kFractionBits;
  // The value is integer * 2^(field - 1075), or with field 0 as with field 1.
  const int shift = static_cast<int>(std::max<uint64_t>(field, 1)) - kExponentOfField - kFractionBits - 1 - unit;
  __int128 result = 0;
  if (shift >= 0) {
    result = static_cast<__int128>(integer) << shift;
  } else if (shift > -64) {
    const uint64_t below = integer & ((uint64_t{1} << -shift) - 1);
    const uint64_t half = uint64_t{1} << (-shift - 1);
    uint64_t rounded = integer >> -shift;
    if (below > half || (below == half && (rounded & 1) != 0)) ++rounded;
    result = rounded;
  }
  return bits >> 63 != 0 ? -result : result;
}

}  // namespace

Doubles::Doubles(const Arrays& arrays, bool average, const Geometry& geometry)
    : Codec(arrays, kWordBits, geometry),
      divisor_(average ? geometry.world_size : 1),
      limb_bits_(static_cast<int>(kWordBits) - bits_for(geometry.world_size)),
      value_bits_(2 * limb_bits_ + static_cast<int>(kWordBits) - 1 - bits_for(geometry.world_size)) {}

int Doubles::unit_of(uint16_t step) const { return kExponentsInStep * step - kExponentOfField - value_bits_; }

double Doubles::mean_or_sum(Fixed sum, int unit) const {
  if (divisor_ == 1) return std::ldexp(static_cast<double>(sum), unit);
  const bool negative = sum < 0;
  auto magnitude = static_cast<unsigned __int128>(negative ? -sum : sum);
  if (magnitude == 0) return 0;
  // With as many bits as there is room for, those below a double's fraction matter only as to whether there are any: so
  // the quotient is rounded once.
  const auto upper = static_cast<uint64_t>(magnitude >> 64);
  const int zeros = upper != 0 ? __builtin_clzll(upper) : 64 + __builtin_clzll(static_cast<uint64_t>(magnitude));
  magnitude <<= zeros;
  unsigned __int128 mean = magnitude / divisor_;
  if (mean * divisor_ != magnitude) mean |= 1;
  const double rounded = std::ldexp(static_cast<double>(mean), unit - zeros);
  return negative ? -rounded : rounded;
}

uint16_t Doubles::exponent_of(uint64_t chunk) const {
  const Place place = place_of(chunk);
  return step_of(largest_magnitude(input_of<double>(place), place.count));
}

bool Doubles::begin(Chunk* chunk) {
  chunk->named.clear();
  chunk->limbs.clear();
  return choose_float_phase(chunk);
}

Contribution Doubles::encode(const Chunk& chunk, uint8_t* words) const {
  using Scale = Contribution::Scale;
  if (chunk.phase == Chunk::Phase::exponent) {
    return {0, false, Scale::none, false, exponent_of(chunk.number), 0, {}, {}};
  }
  const Place place = place_of(chunk.number);
  const auto count = static_cast<uint16_t>(place.count);
  if (chunk.phase == Chunk::Phase::flags) {
    const uint16_t finite = step_of(largest_finite_magnitude(input_of<double>(place), place.count));
    return {count, true, Scale::none, false, finite, write_flags(place, words), {}, {}};
  }
  const bool highest = limbs_known(chunk, place) == kLimbs - 1;
  const Scale scale = chunk.owns_scale ? Scale::own : Scale::of_others;
  return {count, true, scale, highest, 0, write_limb(chunk, place, words), {}, reader_of(chunk)};
}

uint64_t Doubles::write_flags(const Place& place, uint8_t* words) const {
  const auto* const own = input_of<double>(place);
  std::vector<uint32_t> flags(place.count);
  for (uint32_t i = 0; i < place.count; ++i) flags[i] = is_finite(own[i]) ? 0 : 1;
  clear_from(place.count, words);
  return kernels::pack(weights(), reinterpret_cast<const uint8_t*>(flags.data()), place.count, words);
}

uint64_t Doubles::write_limb(const Chunk& chunk, const Place& place, uint8_t* words) const {
  const auto* const own = input_of<double>(place);
  const int first = limbs_known(chunk, place) * limb_bits_;
  const bool highest = first == (kLimbs - 1) * limb_bits_;
  const uint32_t mask = highest ? ~uint32_t{0} : static_cast<uint32_t>((uint64_t{1} << limb_bits_) - 1);
  const int unit = unit_of(chunk.scaled_by);
  std::vector<uint32_t> limbs(place.count);
  for (uint32_t i = 0; i < place.count; ++i) {
    const double value = is_finite(own[i]) ? own[i] : 0;
    limbs[i] = static_cast<uint32_t>(scaled(value, unit) >> first) & mask;
  }
  clear_from(place.count, words);
  return kernels::pack(weights(), reinterpret_cast<const uint8_t*>(limbs.data()), place.count, words);
}

uint64_t Doubles::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  auto* const sums = output_of<double>(place);
  if (chunk.phase != Chunk::Phase::values || limbs_known(chunk, place) < kLimbs - 1 || sums == nullptr) {
    return weigh_from(0, words);
  }
  const uint32_t count = place.count;
  std::vector<uint32_t> highest(count);
  const uint64_t weighed = kernels::unpack(weights(), words, count, reinterpret_cast<uint8_t*>(highest.data()));
  const int unit = unit_of(chunk.scaled_by);
  for (uint32_t i = 0; i < count; ++i) {
    const Fixed upper =
        (static_cast<Fixed>(static_cast<int32_t>(highest[i])) * (Fixed{1} << limb_bits_)) + chunk.limbs[count + i];
    sums[i] = mean_or_sum(upper * (Fixed{1} << limb_bits_) + chunk.limbs[i], unit);
  }
  for (const uint16_t lane : chunk.named) sums[lane] = std::numeric_limits<double>::quiet_NaN();
  return weighed + weigh_from(count, words);
}

Step Doubles::advance(Chunk* chunk, const uint8_t* words) {
  const Place place = place_of(chunk->number);
  const uint32_t count = place.count;
  if (chunk->phase == Chunk::Phase::values) {
    if (limbs_known(*chunk, place) == kLimbs - 1) return Step::end;
    const size_t known = chunk->limbs.size();
    chunk->limbs.resize(known + count);
    if (words != nullptr) {
      kernels::unpack(weights(), words, count, reinterpret_cast<uint8_t*>(chunk->limbs.data() + known));
    }
    return Step::next_phase;
  }
  // After the phase `exponent` every rank knows the step; after `flags`, that of the lanes without a flag.
  const uint32_t largest =
      chunk->phase == Chunk::Phase::exponent ? wire::exponent::non_finite : wire::exponent::max_finite;
  if (chunk->told.all > largest) return Step::contradiction;
  if (chunk->phase == Chunk::Phase::flags) {
    std::vector<uint32_t> flags(count);
    kernels::unpack(weights(), words, count, reinterpret_cast<uint8_t*>(flags.data()));
    for (uint32_t i = 0; i < count; ++i) {
      if (flags[i] == 0) continue;
      chunk->named.push_back(static_cast<uint16_t>(i));
      non_finite_.add(place.first + i);
    }
  }
  return choose_float_phase(chunk) ? Step::next_phase : Step::contradiction;
}

bool Doubles::sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const {
  const uint32_t count = place_of(chunk).count;
  uint64_t largest = 0;
  bool finite = true;
  for (const uint8_t* part : parts) {
    const auto* const values = reinterpret_cast<const double*>(part);
    finite = finite && largest_magnitude(values, count) < kInfinity;
    largest = std::max(largest, largest_finite_magnitude(values, count));
  }
  const int unit = unit_of(step_of(largest));
  auto* const summed = reinterpret_cast<double*>(sums);
  for (uint32_t i = 0; i < count; ++i) {
    Fixed total = 0;
    bool named = false;
    for (const uint8_t* part : parts) {
      const double value = reinterpret_cast<const double*>(part)[i];
      named = named || !is_finite(value);
      if (!named) total += scaled(value, unit);
    }
    summed[i] = named ? std::numeric_limits<double>::quiet_NaN() : mean_or_sum(total, unit);
  }
  return finite;
}

void Doubles::note_non_finite(uint64_t chunk, const std::vector<const uint8_t*>& parts) {
  const Place place = place_of(chunk);
  for (uint32_t i = 0; i < place.count; ++i) {
    const bool finite = std::all_of(parts.begin(), parts.end(), [i](const uint8_t* part) {
      return is_finite(reinterpret_cast<const double*>(part)[i]);
    });
    if (!finite) non_finite_.add(place.first + i);
  }
}

}  // namespace switchml::client
