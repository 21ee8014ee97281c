// The codecs of all ranks of a call, without streams, agents and packets.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "switchml/native/check.h"
#include "switchml/native/codecs/make_codec.h"

namespace switchml::client {

constexpr uint32_t kValues = 16;
constexpr uint32_t kSlots = 4;

inline Geometry geometry(uint32_t world_size, uint32_t rank = 0, bool optional_values = true) {
  static const Check check({1, 2}, 0, 1);
  Geometry of;
  of.weights = &check.weights();
  of.slots = kSlots;
  of.values = kValues;
  of.world_size = world_size;
  of.rank = rank;
  of.optional_values = optional_values ? 1 : 0;
  return of;
}

// The same call at several ranks, and a switch that sums their contributions to a position.
class CodecCall {
 public:
  CodecCall(CallKind kind, uint64_t elements, std::vector<std::vector<uint8_t>> memory, size_t contributor = SIZE_MAX,
            const Lanes& lanes = {}, bool optional_values = true, bool sparse = false)
      : memory_(std::move(memory)), words_(memory_.size()) {
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      const Arrays arrays{memory_[rank].data(), memory_[rank].data(), elements};
      add_rank(kind, arrays, contributor == SIZE_MAX || rank == contributor, lanes, optional_values, sparse);
    }
  }
  // Makes a call of parts, whose results go to `outputs`, or to `memory` if that is empty: then the own part of a
  // scatter or a gather lies where it lies among all parts.
  CodecCall(CallKind kind, Division division, uint64_t elements, std::vector<std::vector<uint8_t>> memory,
            std::vector<std::vector<uint8_t>> outputs, const Lanes& lanes = {}, bool optional_values = true)
      : memory_(std::move(memory)), outputs_(std::move(outputs)), words_(memory_.size()) {
    const uint64_t part_bytes = elements / memory_.size() * element_bytes(kind);
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      Arrays arrays{memory_[rank].data(), memory_[rank].data(), elements, division};
      if (!outputs_.empty()) {
        arrays.output = outputs_[rank].data();
      } else if (division == Division::scatter) {
        arrays.output += rank * part_bytes;
      } else {
        arrays.input += rank * part_bytes;
      }
      add_rank(kind, arrays, true, lanes, optional_values, false);
    }
  }

  // Runs all positions, the last one first, because they may arrive in any order.
  void run() {
    for (uint64_t position = codecs_[0]->positions(); position-- > 0;) {
      run_position(position);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  Codec& codec(size_t rank = 0) { return *codecs_[rank]; }
  const std::vector<uint8_t>& memory(size_t rank) const { return memory_[rank]; }
  const std::vector<uint8_t>& output(size_t rank) const { return outputs_[rank]; }
  int phases() const { return phases_; }
  // Returns the words that a rank has sent.
  uint64_t words(size_t rank) const { return words_[rank]; }
  // Returns the chunks or blocks whose values were summed, in order.
  const std::vector<uint64_t>& summed() const { return summed_; }

 private:
  void add_rank(CallKind kind, const Arrays& arrays, bool contributes, const Lanes& lanes, bool optional_values,
                bool sparse) {
    const auto rank = static_cast<uint32_t>(codecs_.size());
    const Geometry of = geometry(static_cast<uint32_t>(memory_.size()), rank, optional_values);
    // A sparse call of any size without a first part.
    codecs_.push_back(make_codec(kind, arrays, contributes, of, lanes, sparse ? Form::automatic : Form::dense));
  }

  void run_position(uint64_t position) {
    std::vector<Chunk> chunks(codecs_.size());
    for (size_t rank = 0; rank < codecs_.size(); ++rank) {
      chunks[rank].number = position;
      chunks[rank].told.own = codecs_[rank]->exponent_of(position);
      ASSERT_TRUE(codecs_[rank]->begin(&chunks[rank]));
    }
    Step step = Step::next_phase;
    for (uint64_t phase = 0; step == Step::next_phase; ++phase) {
      ASSERT_LT(phase, 4 + 2 * codecs_[0]->chunks()) << "the ranks do not come to an end";
      ++phases_;
      if (chunks[0].phase == Chunk::Phase::values) summed_.push_back(chunks[0].number);
      run_phase(&chunks, &step);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  void run_phase(std::vector<Chunk>* chunks, Step* step) {
    std::vector<uint32_t> sums(kValues);
    uint64_t weighed = 0;
    uint16_t largest = 0;
    uint32_t lowest = wire::next::none;
    bool filled = false;
    std::vector<Contribution> made;
    for (size_t rank = 0; rank < codecs_.size(); ++rank) {
      std::vector<uint8_t> words(kValues * sizeof(uint32_t), 0xEE);
      made.push_back(codecs_[rank]->encode((*chunks)[rank], words.data()));
      words_[rank] += made[rank].count;
      ASSERT_EQ(made[rank].tells_next, made[0].tells_next);
      ASSERT_EQ(made[rank].expects_words, made[0].expects_words);
      ASSERT_EQ(made[rank].next.has_value(), codecs_[rank]->is_sparse());
      weighed += made[rank].weighed;
      largest = std::max(largest, made[rank].exponent);
      lowest = std::min(lowest, made[rank].next.value_or(wire::next::none));
      if (made[rank].count == 0) continue;
      filled = true;
      for (uint32_t lane = 0; lane < kValues; ++lane) sums[lane] += wire::load32(&words[lane * sizeof(uint32_t)]);
    }
    ASSERT_EQ(filled, made[0].expects_words);
    std::vector<uint8_t> result(kValues * sizeof(uint32_t));
    for (uint32_t lane = 0; lane < kValues; ++lane) wire::store32(&result[lane * sizeof(uint32_t)], sums[lane]);
    for (size_t rank = 0; rank < codecs_.size(); ++rank) {
      Chunk& chunk = (*chunks)[rank];
      if (filled) {
        const uint64_t of_result = codecs_[rank]->decode(chunk, result.data());
        // A word that wraps around loses a multiple of 2^32 times its weight.
        const uint64_t mask = codecs_[rank]->sums_fit_words() ? UINT64_MAX : UINT32_MAX;
        ASSERT_EQ(of_result & mask, weighed & mask);
      }
      chunk.told = {made[rank].exponent, largest};
      chunk.next = {made[rank].next.value_or(wire::next::none), lowest};
      const Step next = codecs_[rank]->advance(&chunk, result.data());
      ASSERT_NE(next, Step::contradiction);
      if (rank > 0) {
        ASSERT_EQ(next, *step);
      }
      *step = next;
    }
  }

  std::vector<std::vector<uint8_t>> memory_;
  std::vector<std::vector<uint8_t>> outputs_;
  std::vector<std::unique_ptr<Codec>> codecs_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> summed_;
  int phases_ = 0;
};

template <class Element>
std::vector<uint8_t> bytes_of(const std::vector<Element>& elements) {
  const auto* first = reinterpret_cast<const uint8_t*>(elements.data());
  return {first, first + elements.size() * sizeof(Element)};
}

template <class Element>
std::vector<Element> elements_of(const std::vector<uint8_t>& bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::copy_n(bytes.begin(), elements.size() * sizeof(Element), reinterpret_cast<uint8_t*>(elements.data()));
  return elements;
}

}  // namespace switchml::client
