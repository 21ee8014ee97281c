// The check of packets: a message authentication code that survives addition, under a key that only the ranks know
// (docs/understand/protocol.md, "The check").
//
// A rank's check of its part in a phase is
//
//   hash(words) + scaled_factor * (1 if the exponent that scales the words is its own)
//               + named_factor * (1 if it names a next block) + pad_rank      modulo 2^32
//
// and the switch adds the checks like values. The hash is linear, its weights come from the key, and the pads, which
// are other ones for each phase and rank, hide everything else in the check of a single rank (Wegman and Carter, 1981).
// The pads of all ranks together have a sum that each of them can compute.
#pragma once

#include <cstdint>

#include "native/kernels/weights.h"
#include "switchml/native/counted_ranks.h"
#include "switchml/native/siphash.h"

namespace switchml::client {

// A phase of a chunk, with all that the ranks of a job must have in common there. An epoch has each one once.
struct Phase {
  uint64_t position = 0;     // in the stream
  uint32_t round = 0;        // of the phases of this position, from 1
  uint32_t fingerprint = 0;  // of the call
  uint32_t ordinal = 0;      // in a sparse call, of the block in its column
  uint16_t scaled_by = 0;    // the exponent that scales the values
};

// The words of a packet, as the check sees them.
struct Words {
  uint64_t weighed = 0;   // their sum with Check::weights()
  bool sums_fit = false;  // their sums over all ranks, as signed integers, fit a word
};

class Check {
 public:
  // The numbers of ranks that the check has in addition to the words: those whose own exponent scales the words, and
  // those that name a next block. A rank counts as 0 or 1. In a RESULT a count that is true is at least 1.
  struct Counted {
    bool scaled = false;
    bool named = false;
  };

  Check(const SipKey& key, uint32_t rank, uint32_t world_size);

  const kernels::Weights& weights() const { return weights_; }

  // Returns the check of this rank's contribution to a phase.
  uint32_t of(const Phase& phase, const Words& words, Counted counted) const;
  // Returns whether `check` can be that of a RESULT with these words: the sum of the contributions of all ranks, each
  // of them once.
  bool holds(uint32_t check, const Phase& phase, const Words& words, Counted counted) const;

 private:
  // The pad of rank r is member r - member r + 1 of a series of random numbers, of which the last one is 0 instead: so
  // the pads are independent, and their sum is member 0.
  uint32_t member(const Phase& phase, uint32_t number) const;
  uint32_t hash(const Words& words) const;

  SipKey key_;
  uint32_t rank_;
  uint32_t world_size_;
  uint64_t spread_;  // odd
  CountedRanks counted_ranks_;
  kernels::Weights weights_;
};

}  // namespace switchml::client
