#include "switchml/native/check.h"

namespace switchml::client {

namespace {

// Returns random number `number` of an epoch. The pads, whose messages are longer, are others.
uint64_t number_of(const SipKey& key, uint64_t number) { return siphash<1>(key, {number}); }

enum : uint64_t { kSpread, kScaledFactor, kNamedFactor, kFirstWeight };

uint32_t odd(uint64_t number) { return static_cast<uint32_t>(number) | 1; }

}  // namespace

Check::Check(const SipKey& key, uint32_t rank, uint32_t world_size)
    : key_(key),
      rank_(rank),
      world_size_(world_size),
      spread_(number_of(key, kSpread) | 1),
      counted_ranks_(world_size, odd(number_of(key, kScaledFactor)), odd(number_of(key, kNamedFactor))) {
  for (size_t i = 0; i < weights_.of.size(); ++i) {
    weights_.of[i] = static_cast<int32_t>(number_of(key, kFirstWeight + i));
  }
}

uint32_t Check::of(const Phase& phase, const Words& words, Counted counted) const {
  const uint32_t next = rank_ + 1 < world_size_ ? member(phase, rank_ + 1) : 0;
  return hash(words) + (counted.scaled ? counted_ranks_.scaled_factor() : 0) +
         (counted.named ? counted_ranks_.named_factor() : 0) + member(phase, rank_) - next;
}

bool Check::holds(uint32_t check, const Phase& phase, const Words& words, Counted counted) const {
  const uint32_t rest = check - hash(words) - member(phase, 0);
  if (words.sums_fit) {
    return counted.scaled ? counted_ranks_.are_scaled_less_carries(rest) : counted_ranks_.are_carries(rest);
  }
  if (counted.named) {
    return counted.scaled ? counted_ranks_.are_named_and_scaled(rest) : counted_ranks_.are_named(rest);
  }
  return counted.scaled ? counted_ranks_.are_scaled(rest) : rest == 0;
}

uint32_t Check::member(const Phase& phase, uint32_t number) const {
  return static_cast<uint32_t>(siphash<4>(key_, {phase.position, uint64_t{phase.round} << 32 | phase.fingerprint,
                                                 uint64_t{phase.ordinal} << 32 | phase.scaled_by, number}));
}

// Where sums fit, a change of a word changes the weighed sum by a multiple of its weight that is not 0 modulo 2^64: its
// upper half after multiplication by a secret odd number is any with the same probability. The upper half of a sum
// is that of its terms and up to world_size - 1 carries. Where sums wrap around, terms of 2^32 * weight come and go,
// and only the lower half is linear: a multiple of 2^k passes it with probability 2^(k - 32).
uint32_t Check::hash(const Words& words) const {
  return static_cast<uint32_t>(words.sums_fit ? words.weighed * spread_ >> 32 : words.weighed);
}

}  // namespace switchml::client
