// The way from the values of a call to the words of packets and back: one codec for each format.
//
// The stream decides which chunk has which slot, and when. A codec decides what a chunk does with its slot: in which
// phases, what it contributes in each, and what their RESULTs mean. One codec serves one call, on one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"

namespace switchml::client {

// The exponent of the chunk that a slot has, or has next.
struct Exponents {
  uint16_t own = 0;                        // this rank's, as it last told
  uint16_t all = wire::exponent::unknown;  // the largest of all ranks, as the last RESULT told
};

// One chunk while it has a slot: the state that its codec keeps from phase to phase.
struct Chunk {
  enum class Phase : uint8_t { exponent, flags, values };

  uint64_t number = 0;          // in its call
  std::vector<uint16_t> named;  // lanes that are NaN or infinite at some rank
  Exponents told;               // of this chunk, and from its last phase on of the next one in the slot
  uint16_t scaled_by = 0;       // the exponent that scales the values
  Phase phase = Phase::values;  // under way
  bool owns_scale = false;      // this rank has values as large as the scale says
};

// A rank's part in one phase of a chunk.
struct Contribution {
  // Ranks whose values are as large as the exponent that scales the words. A RESULT tells how many they are.
  enum class Scale : uint8_t { none, own, of_others };

  uint16_t count = 0;  // words that mean something; where it is 0, neither the packet nor its RESULT has any
  Scale scale = Scale::none;
  bool last = true;       // the chunk ends with the RESULT, and the exponent field tells of the next one in the slot
  uint16_t exponent = 0;  // of the chunk at this rank, where the phase is not the last
  uint32_t weighed = 0;   // the sum of weight_i * word_i
};

// Places of a result that are NaN or infinite at some rank.
struct NonFinite {
  static constexpr size_t kIndicesKept = 16;

  uint64_t count = 0;
  std::vector<uint64_t> indices;  // the lowest ones
};

class Codec {
 public:
  // `lane_bits` of a word hold an element; `values` are the words of a packet.
  Codec(uint64_t elements, uint32_t lane_bits, uint32_t values)
      : words_((elements + kWordBits / lane_bits - 1) / (kWordBits / lane_bits)),
        chunks_(std::max<uint64_t>(1, (words_ + values - 1) / values)),
        values_(values) {}
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // One at least: a call without values is an empty packet, so that the ranks still agree that it was made.
  uint64_t chunks() const { return chunks_; }

  // Returns this rank's exponent of a chunk that has no slot yet.
  virtual uint16_t exponent_of(uint64_t /*chunk*/) const { return 0; }

  // Chooses the first phase of a chunk. False where the exponents contradict each other.
  virtual bool begin(Chunk* chunk) const {
    chunk->scaled_by = 0;
    return true;
  }

  // Contributes to the phase under way; `words` are those of a packet, all of which it sets if any.
  virtual Contribution encode(const Chunk& chunk, uint8_t* words) const = 0;

  // Takes the words of the RESULT of a phase that has any, into the call's memory if it is the last phase. Returns
  // their weighed sum. Whether they are right is known only afterwards.
  virtual uint32_t decode(const Chunk& chunk, const uint8_t* words) const = 0;

  // Chooses the next phase after one that was not the last and whose RESULT, with these words, is right. False where
  // the exponents contradict each other.
  virtual bool agree(Chunk* /*chunk*/, const uint8_t* /*words*/) { return false; }

  const NonFinite& non_finite() const { return non_finite_; }

 protected:
  static constexpr uint32_t kWordBits = 32;
  static constexpr uint32_t kWordBytes = sizeof(uint32_t);

  uint32_t values() const { return values_; }
  // The words of a chunk that mean something.
  uint32_t words_of(uint64_t chunk) const {
    return static_cast<uint32_t>(std::min<uint64_t>(values_, words_ - chunk * values_));
  }
  // Where a chunk begins in memory that holds as many bytes as the words do.
  uint64_t offset_of(uint64_t chunk) const { return chunk * values_ * kWordBytes; }
  void clear_from(uint32_t first, uint8_t* words) const {
    if (first < values_) {
      std::fill_n(words + first * kWordBytes, (values_ - first) * kWordBytes, uint8_t{0});
    }
  }
  uint32_t weigh_from(uint32_t first, const uint8_t* words) const {
    return kernels::weigh(words + first * kWordBytes, first, values_ - first);
  }

  NonFinite non_finite_;

 private:
  uint64_t words_;  // that the elements take
  uint64_t chunks_;
  uint32_t values_;
};

}  // namespace switchml::client
