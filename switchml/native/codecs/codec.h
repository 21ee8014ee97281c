// Conversion between the values of a call and the words of packets: one codec for each format.
//
// The stream decides which chunk gets which slot, and when. A codec decides how a chunk uses its slot: the phases, the
// contribution to each phase, and the meaning of their RESULTs. One codec serves one call, on one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"
#include "switchml/native/codecs/layout.h"

namespace switchml::client {

// The exponent of the chunk that has a slot, or will have it next.
struct Exponents {
  uint16_t own = 0;                        // of this rank, as it last sent it
  uint16_t all = wire::exponent::unknown;  // the largest of all ranks, from the last RESULT
};

// In a sparse call, the next block of a column that has values, as the header's `chunk` names it (blocks.h).
struct NextBlock {
  uint32_t own = wire::next::none;  // of this rank, as it last named it
  uint32_t all = wire::next::none;  // the lowest of all ranks, from the last RESULT
};

// A chunk while it has a slot, or in a sparse call a column of blocks: the state that its codec keeps between phases.
struct Chunk {
  enum class Phase : uint8_t { exponent, flags, values, announcement };

  uint64_t number = 0;          // within its call; of a column, its current block
  std::vector<uint16_t> named;  // lanes that are NaN or infinite at some rank
  std::vector<uint32_t> limbs;  // the sums of the lower limbs of 64-bit integers, as far as they have arrived
  Exponents told;               // of this chunk; after its last phase, of the next chunk in the slot
  uint16_t scaled_by = 0;       // the exponent that scales the values
  Phase phase = Phase::values;  // the current phase
  bool owns_scale = false;      // the exponent that scales the values is that of this rank
  // In a sparse call only:
  bool owns_block = false;  // this rank has values in the current block
  uint32_t ordinal = 0;     // of the current block in its column
  NextBlock next;
  uint32_t least_next = 0;  // the lowest block that the next RESULT may name
};

// A rank's part in one phase of a chunk.
struct Contribution {
  // The origin of the exponent that scales the words. The check of a RESULT counts the ranks for which it is `own`.
  enum class Scale : uint8_t { none, own, of_others };

  uint16_t count = 0;          // words in use; if it is 0, the packet has no words
  bool expects_words = false;  // the RESULT has words: this rank's or another one's
  Scale scale = Scale::none;
  bool tells_next = true;        // the header's exponent is that of the next chunk in the slot, not of this one
  uint16_t exponent = 0;         // of this rank's chunk, if the header is to tell that
  uint64_t weighed = 0;          // sum of the words (native/kernels/weights.h)
  std::optional<uint32_t> next;  // in a sparse call, the block that the header names
  // The only rank that reads the words of the RESULT; none if all do. The words may be missing in what others get.
  std::optional<uint32_t> reader;
  wire::Format format = wire::Format::int32;  // of the words; codes are one byte for each word
  // The only rank that contributes words, which are those of the RESULT; they may be missing in what it gets itself.
  std::optional<uint32_t> giver = std::nullopt;
};

// The next step after a RESULT: a phase or the end of the chunk, unless the RESULT contradicts what the rank has sent.
enum class Step : uint8_t { next_phase, end, contradiction };

// The blocks of a call.
struct Blocks {
  uint64_t sent = 0;      // by this rank, with values
  uint64_t received = 0;  // that any rank has sent
  uint64_t all = 0;
};

// Elements of a result that are NaN or infinite at some rank.
struct NonFinite {
  static constexpr size_t kIndicesKept = 16;

  uint64_t count = 0;
  std::vector<uint64_t> indices;  // the lowest ones, in order

  // Chunks end in any order, so the lowest indices are known only at the end of the call.
  void add(uint64_t index) {
    count += 1;
    indices.insert(std::upper_bound(indices.begin(), indices.end(), index), index);
    indices.resize(std::min(indices.size(), kIndicesKept));
  }
};

// Returns ceil(log2(world_size)): the bits that a sum over all ranks needs beyond those of its terms.
constexpr int bits_for(uint32_t world_size) {
  int bits = 0;
  while ((uint64_t{1} << bits) < world_size) {
    ++bits;
  }
  return bits;
}

// Returns the bits that a sum of floats over all ranks needs beyond those of its terms. A term of fewer bits than a
// float has may be rounded up to the power of two above all terms, and 2^bits of those would not fit.
constexpr int headroom_for(uint32_t world_size) {
  constexpr int kWord = 31;
  constexpr int kFloat = 24;
  const int bits = bits_for(world_size);
  return kWord - bits < kFloat ? bits_for(world_size + 1) : bits;
}

class Codec;

// The second part of a call, whose length follows from the results of the first.
struct SecondPart {
  std::unique_ptr<Codec> codec;
  uint32_t agreed = 0;  // a hash of the results on which it depends: ranks with other ones make another call
};

class Codec {
 public:
  static constexpr uint32_t kWordBits = 32;

  // An element takes `lane_bits` bits of the words of a packet.
  Codec(const Arrays& arrays, uint32_t lane_bits, const Geometry& geometry)
      : arrays_(arrays),
        layout_(arrays.elements, arrays.division, geometry.values * (kWordBits / lane_bits), geometry),
        chunks_(layout_.chunks()),
        lane_bits_(lane_bits),
        values_(geometry.values),
        weights_(geometry.weights) {}
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // Returns the number of chunks, at least one: a call without values sends an empty packet, so that the ranks still
  // find out whether all of them made it.
  uint64_t chunks() const { return chunks_; }
  // Returns the number of words that all elements take.
  uint64_t words() const { return layout_.parts() * words_for(layout_.part_elements()); }
  // Returns the number of positions in the stream: one for each chunk, or for each column of a sparse call.
  virtual uint64_t positions() const { return chunks_; }

  // Returns this rank's exponent of a chunk that has no slot yet, by its position in the call.
  virtual uint16_t exponent_of(uint64_t /*chunk*/) const { return 0; }

  // Chooses the first phase of a chunk, whose number is that of its position in the call. Returns false if the
  // exponents contradict each other.
  virtual bool begin(Chunk* chunk) {
    chunk->scaled_by = 0;
    return true;
  }

  // Makes the contribution to the current phase; `words` are those of a packet, all of which it sets if it has any.
  virtual Contribution encode(const Chunk& chunk, uint8_t* words) const = 0;

  // Reads the words of the RESULT of a phase that has words; if it has the last ones of a chunk or block, writes them
  // to the call's memory, if this rank wants the chunk. Returns their weighed sum, from which the caller finds out
  // whether they are correct, for every chunk whose words come: without it, the other terms of the check could not be
  // told from the words'.
  virtual uint64_t decode(const Chunk& chunk, const uint8_t* words) const = 0;

  // Returns whether the sum of a word over all ranks, as a signed integer, always fits the word, so that it does not
  // wrap around.
  virtual bool sums_fit_words() const { return true; }

  // Chooses what follows a phase whose RESULT, with these words, is correct; null for a RESULT without words.
  virtual Step advance(Chunk* /*chunk*/, const uint8_t* /*words*/) { return Step::end; }

  // For calls whose ranks add up the values themselves, in memory that they share (direct_calls.h). The first function
  // returns the bytes of an element, or 0 if that is not possible for this call. sum() adds up the elements of a chunk,
  // which are at `parts`, one for each rank, and writes the sums, with the bits that the call would have over the
  // switch. It returns false if one of the elements is NaN or infinite; then note_non_finite() must get them at every
  // rank.
  virtual uint32_t direct_bytes() const { return 0; }
  virtual bool sum(uint64_t /*chunk*/, const std::vector<const uint8_t*>& /*parts*/, uint8_t* /*sums*/) const {
    return true;
  }
  virtual void note_non_finite(uint64_t /*chunk*/, const std::vector<const uint8_t*>& /*parts*/) {}
  // Returns whether there is something to add up: otherwise one rank has all elements of a chunk.
  virtual bool adds_up() const { return true; }
  const Arrays& arrays() const { return arrays_; }
  const Layout& layout() const { return layout_; }
  // Returns the number of elements of all chunks but the last of a part.
  uint32_t elements_of_chunk() const { return values_ * (kWordBits / lane_bits_); }
  // Returns whether this rank has elements in a call of one part.
  virtual bool contributes() const { return true; }

  const NonFinite& non_finite() const { return non_finite_; }
  // Returns the blocks so far. Unless a call is sparse, all are sent and received.
  virtual Blocks blocks() const {
    const uint64_t all = arrays_.elements == 0 ? 0 : chunks_;
    return {all, all, all};
  }
  virtual bool is_sparse() const { return false; }

  // Some calls have a second part. second_part() makes it after all results of the first.
  virtual bool has_second_part() const { return false; }
  virtual SecondPart second_part() { return {}; }

 protected:
  // Chooses the phase of a chunk of floating-point numbers by what its rank was told: an unknown exponent, NaN or
  // infinity, or an exponent that scales the values. Returns false if the exponents contradict each other.
  static bool choose_float_phase(Chunk* chunk) {
    const Exponents told = chunk->told;
    if (told.all < told.own) {
      return false;  // `all` must be the largest of all ranks: it was corrupted, and this rank's values would not fit
    }
    const bool known = told.all != wire::exponent::unknown;
    chunk->phase = !known                                  ? Chunk::Phase::exponent
                   : told.all > wire::exponent::max_finite ? Chunk::Phase::flags
                                                           : Chunk::Phase::values;
    chunk->scaled_by = known ? told.all : 0;
    chunk->owns_scale = told.own == chunk->scaled_by;
    return true;
  }
  static constexpr uint32_t kWordBytes = sizeof(uint32_t);

  uint32_t values() const { return values_; }
  const kernels::Weights& weights() const { return *weights_; }
  uint32_t lane_bits() const { return lane_bits_; }
  Place place_of(uint64_t chunk) const { return layout_.place_of(chunk); }
  // Returns the number of words of a chunk that are in use.
  uint32_t words_of(const Place& place) const { return static_cast<uint32_t>(words_for(place.count)); }
  // Returns the elements of a chunk that this rank contributes; null if they belong to another rank.
  template <typename Element>
  const Element* input_of(const Place& place) const {
    const auto* input = reinterpret_cast<const Element*>(arrays_.input);
    if (arrays_.division != Division::gather) {
      return input + place.first;
    }
    return place.own ? input + place.in_part : nullptr;
  }
  // Returns the only rank that reads the sums of a chunk; none if all do.
  std::optional<uint32_t> reader_of(const Chunk& chunk) const {
    return arrays_.division == Division::scatter ? std::optional(layout_.owner_of(chunk.number)) : std::nullopt;
  }
  // Returns the only rank that has elements of a chunk; none if all do.
  std::optional<uint32_t> giver_of(const Chunk& chunk) const {
    return arrays_.division == Division::gather ? std::optional(layout_.owner_of(chunk.number)) : std::nullopt;
  }
  // Adds up integers of a chunk modulo the range of their type, as sum() does.
  template <typename Integer>
  bool sum_integers(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const {
    const uint32_t count = place_of(chunk).count;
    auto* const summed = reinterpret_cast<Integer*>(sums);
    std::copy_n(reinterpret_cast<const Integer*>(parts.front()), count, summed);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      const auto* const values = reinterpret_cast<const Integer*>(parts[rank]);
      for (uint32_t i = 0; i < count; ++i) summed[i] = static_cast<Integer>(summed[i] + values[i]);
    }
    return true;
  }
  // Returns the memory for the results of a chunk; null if only another rank wants them.
  template <typename Element>
  Element* output_of(const Place& place) const {
    auto* output = reinterpret_cast<Element*>(arrays_.output);
    if (arrays_.division != Division::scatter) {
      return output + place.first;
    }
    return place.own ? output + place.in_part : nullptr;
  }
  // Prefetches the memory of a chunk's results, which will be written soon.
  template <typename Element>
  void prefetch_output_of(const Place& place) const {
    constexpr uint32_t kLine = 64;
    const auto* const output = reinterpret_cast<const uint8_t*>(output_of<Element>(place));
    for (uint32_t byte = 0; byte < place.count * sizeof(Element); byte += kLine) {
      __builtin_prefetch(output + byte, 1);
    }
  }
  void clear_from(uint32_t first, uint8_t* words) const {
    if (first < values_) {
      std::fill_n(words + first * kWordBytes, (values_ - first) * kWordBytes, uint8_t{0});
    }
  }
  uint64_t weigh_from(uint32_t first, const uint8_t* words) const {
    return kernels::weigh(weights(), words + first * kWordBytes, first, values_ - first);
  }

  NonFinite non_finite_;

 private:
  uint64_t words_for(uint64_t elements) const {
    const uint32_t per_word = kWordBits / lane_bits_;
    return (elements + per_word - 1) / per_word;
  }

  Arrays arrays_;
  Layout layout_;
  uint64_t chunks_;
  uint32_t lane_bits_;
  uint32_t values_;
  const kernels::Weights* weights_;
};

// A codec whose chunks can be the blocks of a sparse call: it needs the phase `values` for each, after the phase
// `flags` for those that are not finite.
class BlockCodec : public Codec {
 public:
  static constexpr uint16_t kZero = 0xFFFF;  // instead of an exponent

  using Codec::Codec;

  // Returns this rank's exponent of a block, or kZero if all of its elements are 0. These are then +0.0, as their sum
  // will be.
  virtual uint16_t look_at(uint64_t block) = 0;
  // Called when blocks will be encoded and decoded in any order, so that the memory behind one is not used soon.
  void expect_any_order() { any_order_ = true; }
  // Prefetches the memory of a block, whose sums replace its values.
  virtual void prefetch(uint64_t block) const = 0;
  // Returns the largest exponent that look_at() returns, except for kZero.
  virtual uint16_t largest_exponent() const { return 0; }
  // Notes the lanes that the words of the RESULT of the phase `flags` name.
  virtual void read_flags(Chunk* /*chunk*/, const uint8_t* /*words*/) {}

 protected:
  bool any_order() const { return any_order_; }

 private:
  bool any_order_ = false;
};

}  // namespace switchml::client
