// Conversion between the values of a call and the words of packets: one codec for each format.
//
// The stream decides which chunk gets which slot, and when. A codec decides how a chunk uses its slot: the phases, the
// contribution to each phase, and the meaning of their RESULTs. One codec serves one call, on one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"

namespace switchml::client {

// The exponent of the chunk that has a slot, or will have it next.
struct Exponents {
  uint16_t own = 0;                        // of this rank, as it last sent it
  uint16_t all = wire::exponent::unknown;  // the largest of all ranks, from the last RESULT
};

// One chunk while it has a slot: the state that its codec keeps from phase to phase.
struct Chunk {
  enum class Phase : uint8_t { exponent, flags, values };

  uint64_t number = 0;          // within its call
  std::vector<uint16_t> named;  // lanes that are NaN or infinite at some rank
  std::vector<uint32_t> limbs;  // the sums of the lower limbs of 64-bit integers, as far as they have arrived
  Exponents told;               // of this chunk; after its last phase, of the next chunk in the slot
  uint16_t scaled_by = 0;       // the exponent that scales the values
  Phase phase = Phase::values;  // the current phase
  bool owns_scale = false;      // the exponent that scales the values is that of this rank
};

// A rank's part in one phase of a chunk.
struct Contribution {
  // The origin of the exponent that scales the words. The check of a RESULT counts the ranks for which it is `own`.
  enum class Scale : uint8_t { none, own, of_others };

  uint16_t count = 0;  // words in use; if it is 0, neither the packet nor its RESULT has words
  Scale scale = Scale::none;
  bool last = true;       // the chunk ends with the RESULT, whose exponent field is about the next chunk in the slot
  uint16_t exponent = 0;  // of this rank's chunk, if the phase is not the last
  uint32_t weighed = 0;   // the sum of weight_i * word_i
};

// Elements of a result that are NaN or infinite at some rank.
struct NonFinite {
  static constexpr size_t kIndicesKept = 16;

  uint64_t count = 0;
  std::vector<uint64_t> indices;  // the lowest ones
};

// Returns ceil(log2(world_size)): the bits that a sum over all ranks needs beyond those of its terms.
constexpr int bits_for(uint32_t world_size) {
  int bits = 0;
  while ((uint64_t{1} << bits) < world_size) {
    ++bits;
  }
  return bits;
}

class Codec {
 public:
  static constexpr uint32_t kWordBits = 32;

  // An element takes `lane_bits` bits of the words; a packet has `values` words.
  Codec(uint64_t elements, uint32_t lane_bits, uint32_t values)
      : words_((elements + kWordBits / lane_bits - 1) / (kWordBits / lane_bits)),
        chunks_(std::max<uint64_t>(1, (words_ + values - 1) / values)),
        values_(values) {}
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // Returns the number of chunks, at least one: a call without values sends an empty packet, so that the ranks still
  // find out whether all of them made it.
  uint64_t chunks() const { return chunks_; }
  // Returns the number of words that all elements take.
  uint64_t words() const { return words_; }

  // Returns this rank's exponent of a chunk that has no slot yet.
  virtual uint16_t exponent_of(uint64_t /*chunk*/) const { return 0; }

  // Chooses the first phase of a chunk. Returns false if the exponents contradict each other.
  virtual bool begin(Chunk* chunk) const {
    chunk->scaled_by = 0;
    return true;
  }

  // Makes the contribution to the current phase; `words` are those of a packet, all of which it sets if it has any.
  virtual Contribution encode(const Chunk& chunk, uint8_t* words) const = 0;

  // Reads the words of the RESULT of a phase that has words; in the last phase, writes them to the call's memory.
  // Returns their weighed sum, from which the caller finds out whether they are correct.
  virtual uint32_t decode(const Chunk& chunk, const uint8_t* words) const = 0;

  // Chooses the next phase after one that was not the last and whose RESULT, with these words, is correct. Returns
  // false if the exponents contradict each other.
  virtual bool agree(Chunk* /*chunk*/, const uint8_t* /*words*/) { return false; }

  const NonFinite& non_finite() const { return non_finite_; }

 protected:
  static constexpr uint32_t kWordBytes = sizeof(uint32_t);

  uint32_t values() const { return values_; }
  // Returns the number of words of a chunk that are in use.
  uint32_t words_of(uint64_t chunk) const {
    return static_cast<uint32_t>(std::min<uint64_t>(values_, words_ - chunk * values_));
  }
  // Returns the offset of a chunk in memory, for formats whose elements take as many bytes as their words.
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
  uint64_t words_;  // for all elements
  uint64_t chunks_;
  uint32_t values_;
};

}  // namespace switchml::client
