#include "switchml/native/lockstep.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"
#include "switchml/native/codecs/agreed.h"

namespace switchml::client {

namespace {

// The words of a round, so that its memory does not grow with the call's.
constexpr uint32_t kWordsTogether = 1U << 22;

Geometry geometry_of(const Job& job) {
  if (job.world_size < 1 || job.world_size > wire::protocol::max_world || job.rank >= job.world_size ||
      job.values < 1 || job.values > wire::protocol::max_values) {
    throw std::invalid_argument("no job has rank " + std::to_string(job.rank) + " of " +
                                std::to_string(job.world_size) + " and " + std::to_string(job.values) +
                                " values in a packet");
  }
  Geometry geometry;
  geometry.slots = UINT32_MAX;  // no chunk follows another one that far on, so none is prefetched
  geometry.values = job.values;
  geometry.rank = job.rank;
  geometry.world_size = job.world_size;
  geometry.results_apart = Geometry::kInPlace;  // so that the rank expands its codes: no switch does here
  geometry.formats = UINT32_MAX;
  // In smaller packets a sparse call has the bits of a dense one, which needs fewer rounds.
  geometry.optional_values = job.optional_values && AgreedBlocks::suit(geometry) ? 1 : 0;
  return geometry;
}

std::unique_ptr<Codec> make_sum(const CallDescription& call, const Job& job) {
  const auto& [kind, arrays, lanes, form, contributes, call_hash] = call;
  if (kind == CallKind::bytes || kind == CallKind::barrier) {
    throw std::invalid_argument("calls of this kind have no sums");
  }
  if (lanes.format == wire::Format::float32) {
    throw std::invalid_argument("the words of floats cannot be added up as integers");
  }
  require_memory(arrays.input, arrays.elements, kind);
  require_memory(arrays.output, arrays.elements, kind);
  // The bits of the automatic form are those of a dense call.
  return make_codec(kind, arrays, true, geometry_of(job), lanes, form == Form::sparse ? Form::sparse : Form::dense);
}

}  // namespace

Lockstep::Lockstep(const CallDescription& call, const Job& job)
    : codec_(make_sum(call, job)), values_(job.values), packet_(job.values * sizeof(uint32_t)) {
  if (call.arrays.elements > 0) {
    begin_chunks();
  }
}

void Lockstep::begin_chunks() {
  if (next_position_ == codec_->positions() && codec_->has_second_part()) {
    codec_ = std::move(codec_->second_part().codec);
    next_position_ = 0;
  }
  const uint64_t end = std::min<uint64_t>(codec_->positions(), next_position_ + std::max(1U, kWordsTogether / values_));
  for (; next_position_ < end; ++next_position_) {
    Entry& entry = chunks_.emplace_back();
    entry.chunk.number = next_position_;
    codec_->begin(&entry.chunk);  // cannot find a contradiction, because no exponents are known yet
  }
}

void Lockstep::contribute() {
  exponents_.clear();
  words_.resize(chunks_.size() * values_);
  int32_t* words = words_.data();
  for (Entry& entry : chunks_) {
    const Contribution made = codec_->encode(entry.chunk, packet_.data());
    entry.tells_exponent = !made.tells_next;
    entry.has_words = made.expects_words;
    if (entry.tells_exponent) {
      entry.chunk.told.own = made.exponent;
      exponents_.push_back(static_cast<uint8_t>(made.exponent));
    }
    if (!entry.has_words) {
      continue;
    }
    if (made.count == 0) {
      std::fill_n(words, values_, 0);
    } else {
      kernels::unpack(kernels::kNoWeights, packet_.data(), values_, reinterpret_cast<uint8_t*>(words));
    }
    words += values_;
  }
  words_.resize(static_cast<size_t>(words - words_.data()));
}

void Lockstep::take() {
  const uint8_t* exponent = exponents_.data();
  const int32_t* words = words_.data();
  std::vector<Entry> remaining;
  for (Entry& entry : chunks_) {
    Chunk& chunk = entry.chunk;
    if (entry.has_words) {
      kernels::pack(kernels::kNoWeights, reinterpret_cast<const uint8_t*>(words), values_, packet_.data());
      words += values_;
      codec_->decode(chunk, packet_.data());
    }
    if (entry.tells_exponent) {
      chunk.told.all = *exponent++;
    }
    const Step step = codec_->advance(&chunk, entry.has_words ? packet_.data() : nullptr);
    if (step == Step::contradiction) {
      throw std::runtime_error("the ranks' exponents of one part of a sum contradict each other");
    }
    if (step == Step::next_phase) {
      remaining.push_back(std::move(entry));
    }
  }
  chunks_ = std::move(remaining);
  if (chunks_.empty()) {
    begin_chunks();
  }
}

}  // namespace switchml::client
