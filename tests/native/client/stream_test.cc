#include "switchml/native/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "native/wire/wire.h"
#include "switchml/native/codecs/make_codec.h"

namespace switchml::client {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kValues = 16;
constexpr size_t kWordBytes = sizeof(uint32_t);

// A rank's stream, with its own memory.
class Rank {
 public:
  Rank(uint32_t rank, uint32_t world_size)
      : memory_(static_cast<uint8_t*>(std::aligned_alloc(channel::Channel::kAlignment, kBytes)), &std::free) {
    std::memset(memory_.get(), 0, kBytes);
    new (memory_.get()) channel::ChannelControl{};
    channel_ = channel::Channel(memory_.get(), kSlots, kValues);
    geometry_.slots = kSlots;
    geometry_.values = kValues;
    geometry_.rank = rank;
    geometry_.world_size = world_size;
    stream_ = std::make_unique<Stream>(channel_, geometry_, -1);
  }

  // Adds a call whose `fingerprint` should be the same at all ranks; `values` must live until it has ended.
  template <class Value>
  void call(CallKind kind, std::vector<Value>* values, uint32_t fingerprint, bool contributes = true) {
    auto call = std::make_shared<Call>();
    call->sequence = calls_++;
    call->fingerprint = fingerprint;
    call->codec = make_codec(kind, reinterpret_cast<uint8_t*>(values->data()), values->size(), contributes, geometry_);
    stream_->add(std::move(call));
  }

  Stream& stream() { return *stream_; }
  const channel::Channel& memory() const { return channel_; }
  std::vector<std::shared_ptr<Call>> ended;

 private:
  static constexpr size_t kBytes = 1U << 16U;

  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
  channel::Channel channel_;
  channel::Geometry geometry_{};
  std::unique_ptr<Stream> stream_;
  uint64_t calls_ = 0;
};

// Ranks, and a switch that completes a slot when all ranks have submitted it.
class Job {
 public:
  explicit Job(uint32_t world_size) : taken_(world_size), waiting_(kSlots) {
    for (uint32_t rank = 0; rank < world_size; ++rank) ranks.push_back(std::make_unique<Rank>(rank, world_size));
  }

  // Runs all ranks until none can do anything more.
  void run() {
    bool any = true;
    while (any) {
      any = false;
      for (auto& rank : ranks) any |= rank->stream().advance(&rank->ended);
      any |= serve();
    }
  }

  std::vector<std::unique_ptr<Rank>> ranks;
  uint32_t phases = 0;            // of all slots
  uint16_t changed_exponent = 0;  // subtracted from the next RESULT that has values
  uint32_t bits_flipped = 0;      // in the first word of the next RESULT that has values

 private:
  bool serve() {
    bool any = false;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const channel::Channel& memory = ranks[rank]->memory();
      for (; taken_[rank] != memory.control().submitted.load(); ++taken_[rank]) {
        const uint16_t slot = memory.submission_ring()[taken_[rank] % kSlots];
        any = true;
        if (++waiting_[slot] == ranks.size()) complete(slot);
      }
    }
    return any;
  }

  void complete(uint16_t slot) {
    waiting_[slot] = 0;
    phases += 1;
    std::vector<uint32_t> sums(kValues);
    channel::Ticket result = ranks[0]->memory().contribution_tickets()[slot];
    result.check = result.exponent = 0;
    for (auto& rank : ranks) {
      const channel::Ticket ticket = rank->memory().contribution_tickets()[slot];
      result.check += ticket.check;
      result.exponent = std::max(result.exponent, ticket.exponent);
      for (uint32_t lane = 0; lane < kValues; ++lane) {
        sums[lane] += wire::load32(rank->memory().contribution(slot) + lane * kWordBytes);
      }
    }
    if ((result.flags & wire::flag::without_values) == 0) {
      sums[0] ^= bits_flipped;
      result.exponent = static_cast<uint16_t>(result.exponent - changed_exponent);
      bits_flipped = changed_exponent = 0;
    }
    for (auto& rank : ranks) {
      const channel::Channel& memory = rank->memory();
      for (uint32_t lane = 0; lane < kValues; ++lane) {
        wire::store32(memory.result(slot) + lane * kWordBytes, sums[lane]);
      }
      memory.result_tickets()[slot] = result;
      const uint32_t completed = memory.control().completed.load();
      memory.completion_ring()[completed % kSlots] = slot;
      memory.control().completed.store(completed + 1);
    }
  }

  std::vector<uint32_t> taken_;
  std::vector<size_t> waiting_;
};

TEST(Stream, SumsMoreChunksThanThereAreSlots) {
  Job job(3);
  std::vector<std::vector<int32_t>> values(3, std::vector<int32_t>(10 * kSlots * kValues + 5));
  for (size_t rank = 0; rank < 3; ++rank) {
    for (size_t i = 0; i < values[rank].size(); ++i) values[rank][i] = static_cast<int32_t>(1000 * rank + i);
    job.ranks[rank]->call(CallKind::int32_sum, &values[rank], 7);
  }
  job.run();
  EXPECT_EQ(job.phases, 10 * kSlots + 1);
  for (size_t rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(job.ranks[rank]->ended.size(), 1U);
    EXPECT_EQ(job.ranks[rank]->stream().position(), 10 * kSlots + 1);
    for (size_t i = 0; i < values[rank].size(); ++i) ASSERT_EQ(values[rank][i], static_cast<int32_t>(3000 + 3 * i));
  }
}

TEST(Stream, LearnsExponentsOneUseOfTheSlotAhead) {
  Job job(2);
  std::vector<std::vector<float>> values(2, std::vector<float>(3 * kSlots * kValues, 1.5F));
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->call(CallKind::float32_sum, &values[rank], 7);
  job.run();
  // The exponents of the first use of each slot take a separate phase; all others came with the previous results.
  EXPECT_EQ(job.phases, 4 * kSlots);
  EXPECT_EQ(values[0], std::vector<float>(3 * kSlots * kValues, 3.0F));
  EXPECT_EQ(values[1], values[0]);
}

TEST(Stream, TellsExponentsAcrossCallsOfSeveralFormats) {
  Job job(2);
  std::vector<std::vector<int32_t>> integers(2, std::vector<int32_t>(kSlots * kValues, 4));
  std::vector<std::vector<float>> floats(2, std::vector<float>(kSlots * kValues, 0.25F));
  std::vector<uint8_t> nothing;
  for (size_t rank = 0; rank < 2; ++rank) {
    job.ranks[rank]->call(CallKind::int32_sum, &integers[rank], 1);
    job.ranks[rank]->call(CallKind::barrier, &nothing, 2);
    job.ranks[rank]->call(CallKind::float32_average, &floats[rank], 3);
  }
  job.run();
  EXPECT_EQ(job.phases, 2 * kSlots + 1);  // no phase for exponents only, because the calls were queued together
  EXPECT_EQ(job.ranks[0]->ended.size(), 3U);
  EXPECT_EQ(integers[1], std::vector<int32_t>(kSlots * kValues, 8));
  EXPECT_EQ(floats[1], std::vector<float>(kSlots * kValues, 0.25F));
}

TEST(Stream, NamesTheLanesThatAreNotFinite) {
  Job job(2);
  std::vector<std::vector<float>> values(2, std::vector<float>(2 * kValues, 2.0F));
  values[0][3] = std::numeric_limits<float>::infinity();
  values[1][kValues] = std::numeric_limits<float>::quiet_NaN();
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->call(CallKind::float32_sum, &values[rank], 7);
  job.run();
  EXPECT_EQ(job.phases, 6);  // each chunk: exponent, flags, values
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(job.ranks[rank]->ended.size(), 1U);
    const NonFinite& named = job.ranks[rank]->ended[0]->codec->non_finite();
    EXPECT_EQ(named.count, 2U);
    EXPECT_EQ(named.indices, (std::vector<uint64_t>{3, kValues}));
    EXPECT_NE(values[rank][3], values[rank][3]);
    EXPECT_EQ(values[rank][4], 4.0F);
  }
}

TEST(Stream, WaitsForARankThatHasNotMadeTheCall) {
  Job job(2);
  std::vector<std::vector<int32_t>> values(2, std::vector<int32_t>(kValues, 1));
  job.ranks[0]->call(CallKind::int32_sum, &values[0], 7);
  job.run();
  EXPECT_TRUE(job.ranks[0]->ended.empty());
  EXPECT_TRUE(job.ranks[0]->stream().waits_for_results());
  job.ranks[1]->call(CallKind::int32_sum, &values[1], 7);
  job.run();
  EXPECT_EQ(values[0], std::vector<int32_t>(kValues, 2));
  EXPECT_FALSE(job.ranks[0]->stream().waits_for_results());
}

void expect_failure(Job& job, uint64_t position, uint64_t sequence) {
  for (auto& rank : job.ranks) {
    ASSERT_TRUE(rank->stream().check_failed());
    EXPECT_EQ(rank->stream().failed_position(), position);
    EXPECT_EQ(rank->stream().failed_sequence(), sequence);
    EXPECT_TRUE(rank->ended.empty());
  }
}

TEST(Stream, FindsRanksThatMadeDifferentCalls) {
  Job job(2);
  std::vector<std::vector<int32_t>> values(2, std::vector<int32_t>(kValues, 1));
  for (uint32_t rank = 0; rank < 2; ++rank) job.ranks[rank]->call(CallKind::int32_sum, &values[rank], 7 + rank);
  job.run();
  expect_failure(job, 0, 0);
}

TEST(Stream, FindsFlippedBits) {
  for (const CallKind kind : {CallKind::int32_sum, CallKind::float32_sum}) {
    Job job(2);
    job.bits_flipped = 1U << 20U;
    std::vector<std::vector<float>> values(2, std::vector<float>(kValues, 1.0F));
    for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->call(kind, &values[rank], 7);
    job.run();
    expect_failure(job, 0, 0);
  }
}

TEST(Stream, FindsAnExponentThatIsBelowItsOwn) {
  Job job(2);
  std::vector<std::vector<float>> values(2, std::vector<float>((kSlots + 1) * kValues, 1.0F));
  job.changed_exponent = 1;  // of the chunk that uses the first slot next
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->call(CallKind::float32_sum, &values[rank], 7);
  job.run();
  expect_failure(job, kSlots, 0);
}

}  // namespace
}  // namespace switchml::client
