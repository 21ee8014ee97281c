// A sum over the ranks of a job that goes another way than through its switch, with the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "native/channel/channel.h"
#include "switchml/native/codecs/codec.h"
#include "switchml/native/codecs/make_codec.h"

namespace switchml::client {

// The ranks of a job, and what of its pipeline the results of its calls depend on.
struct Job {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t values = 0;           // per packet
  bool optional_values = false;  // the ranks of a phase may differ in whether they send values
};

// One call of this rank. Its codec does what it does in a stream, but many chunks take each of their phases together: a
// round. In a round the caller replaces exponents() by the largest of all ranks and words() by their sums modulo 2^32,
// as a switch would. The ranks have the same rounds, and each the same number of exponents and words.
class Lockstep {
 public:
  // Throws std::invalid_argument for a kind that is not a sum, for lanes, memory and parts that the kind does not
  // allow, and for a job that cannot be.
  Lockstep(const CallDescription& call, const Job& job);

  bool has_ended() const { return chunks_.empty(); }
  // Makes this rank's part in the next round. Precondition: !has_ended().
  void contribute();
  std::vector<uint8_t>& exponents() { return exponents_; }
  std::vector<int32_t>& words() { return words_; }
  // Reads the results of the round. Throws std::runtime_error if they contradict each other.
  void take();

  const NonFinite& non_finite() const { return codec_->non_finite(); }

 private:
  struct Entry {
    Chunk chunk;
    bool tells_exponent = false;  // in this round
    bool has_words = false;
  };

  // Begins the chunks that follow those that have ended, also of a second part; none if the call has ended.
  void begin_chunks();

  std::unique_ptr<Codec> codec_;
  uint32_t values_;
  uint64_t next_position_ = 0;
  std::vector<Entry> chunks_;    // that have not ended
  std::vector<uint8_t> packet_;  // the words of one chunk
  std::vector<uint8_t> exponents_;
  std::vector<int32_t> words_;
};

}  // namespace switchml::client
