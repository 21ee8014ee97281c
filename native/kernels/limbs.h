// Limbs: a 64-bit integer as up to three parts, each of which takes a word of a packet.
//
// With limbs of w bits, value = limb_0 + limb_1 * 2^w + limb_2 * 2^(2w) modulo 2^64. The highest limb has a sign and
// takes a whole word of 32 bits; those below it are not negative. The sum of the limbs of up to 2^(32 - w) values fits
// 32 bits, except for the highest limb, and the sum of the values is made of the sums of their limbs in the same way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/weights.h"

namespace switchml::kernels {

// Returns the smallest b, from 0 to 63, for which -2^b <= value < 2^b for all values.
int bits_of_largest(const int64_t* values, size_t count);

// words[i] = the `bits` bits of values[i] from bit `first` on, where `bits` is at most 32 and the bits beyond the value
// are 0. Returns the weighed sum of the words.
uint64_t pack_limb(const Weights& weights, const int64_t* values, size_t count, int first, int bits, uint8_t* words);

// Makes the values whose highest limbs are `words`; the limb j of value i, of the `lower_limbs` (0 to 2) below those,
// is lower[j * count + i]. A limb has `bits` bits. Returns the weighed sum of the words.
uint64_t join_limbs(const Weights& weights, const uint8_t* words, size_t count, const uint32_t* lower, int lower_limbs,
                    int bits, int64_t* values);

}  // namespace switchml::kernels
