// SipHash-2-4: a pseudo-random function with a key of 128 bits (Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", INDOCRYPT 2012), of whole words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace switchml::client {

using SipKey = std::array<uint64_t, 2>;  // k0 and k1 of the publication: 16 bytes, little-endian

namespace sip {

struct State {
  uint64_t v0, v1, v2, v3;

  constexpr void round() {
    v0 += v1, v2 += v3;
    v1 = rotated(v1, 13) ^ v0, v3 = rotated(v3, 16) ^ v2;
    v0 = rotated(v0, 32);
    v2 += v1, v0 += v3;
    v1 = rotated(v1, 17) ^ v2, v3 = rotated(v3, 21) ^ v0;
    v2 = rotated(v2, 32);
  }
  constexpr void absorb(uint64_t word) {
    v3 ^= word;
    round(), round();
    v0 ^= word;
  }

 private:
  static constexpr uint64_t rotated(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }
};

}  // namespace sip

// Returns the function's value for a message of these words, each of which is 8 bytes, little-endian.
template <size_t kWords>
constexpr uint64_t siphash(const SipKey& key, const std::array<uint64_t, kWords>& message) {
  sip::State state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                   key[1] ^ 0x7465646279746573};
  for (const uint64_t word : message) {
    state.absorb(word);
  }
  state.absorb(uint64_t{kWords * sizeof(uint64_t)} << 56);
  state.v2 ^= 0xff;
  state.round(), state.round(), state.round(), state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace switchml::client
