#include "switchml/native/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "native/kernels/kernels.h"
#include "native/wire/wire.h"
#include "switchml/native/codecs/block_owners.h"
#include "switchml/native/codecs/make_codec.h"

namespace switchml::client {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kValues = 16;
constexpr size_t kWordBytes = sizeof(uint32_t);
constexpr SipKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};

// A rank's stream, with its own memory.
class Rank {
 public:
  Rank(uint32_t rank, uint32_t world_size, uint32_t values)
      : check(kKey, rank, world_size),
        memory_(static_cast<uint8_t*>(std::aligned_alloc(channel::Channel::kAlignment, bytes_for(values))),
                &std::free) {
    std::memset(memory_.get(), 0, bytes_for(values));
    new (memory_.get()) channel::ChannelControl{};
    channel_ = channel::Channel(memory_.get(), kSlots, values);
    geometry_.slots = kSlots;
    geometry_.values = values;
    geometry_.rank = rank;
    geometry_.world_size = world_size;
    geometry_.optional_values = 1;
    geometry_.owned_results = 1;
    geometry_.weights = &check.weights();
    stream_ = std::make_unique<Stream>(channel_, geometry_, -1, check);
  }

  // Adds a call whose `fingerprint` should be the same at all ranks; `values` must live until it has ended.
  template <class Value>
  void call(CallKind kind, std::vector<Value>* values, uint32_t fingerprint, bool sparse = false,
            const Lanes& lanes = {}) {
    auto call = std::make_shared<Call>();
    call->sequence = calls_++;
    call->fingerprint = fingerprint;
    auto* const memory = reinterpret_cast<uint8_t*>(values->data());
    call->codec =
        make_codec(kind, {memory, memory, values->size()}, true, geometry_, lanes, sparse ? Form::sparse : Form::dense);
    stream_->add(std::move(call));
  }

  // Adds a reduce-scatter of a part for each rank.
  template <class Value>
  void scatter(CallKind kind, const std::vector<Value>& input, std::vector<Value>* output, uint32_t fingerprint) {
    auto call = std::make_shared<Call>();
    call->sequence = calls_++;
    call->fingerprint = fingerprint;
    const Arrays arrays{reinterpret_cast<const uint8_t*>(input.data()), reinterpret_cast<uint8_t*>(output->data()),
                        input.size(), Division::scatter};
    call->codec = make_codec(kind, arrays, true, geometry_);
    stream_->add(std::move(call));
  }

  // Adds an all-gather of the bytes of each rank; `output` has those of all.
  void gather(const std::vector<uint8_t>& input, std::vector<uint8_t>* output, uint32_t fingerprint) {
    auto call = std::make_shared<Call>();
    call->sequence = calls_++;
    call->fingerprint = fingerprint;
    call->codec =
        make_codec(CallKind::bytes, {input.data(), output->data(), output->size(), Division::gather}, true, geometry_);
    stream_->add(std::move(call));
  }

  Stream& stream() { return *stream_; }
  const channel::Channel& memory() const { return channel_; }
  std::vector<std::shared_ptr<Call>> ended;
  const Check check;

 private:
  static size_t bytes_for(uint32_t values) {
    constexpr size_t kUnit = channel::Channel::kAlignment;
    return (channel::Channel::bytes(kSlots, values, false) + kUnit - 1) / kUnit * kUnit;
  }

  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
  channel::Channel channel_;
  Geometry geometry_;
  std::unique_ptr<Stream> stream_;
  uint64_t calls_ = 0;
};

// Ranks, and a switch that completes a slot when all ranks have submitted it.
class Job {
 public:
  explicit Job(uint32_t world_size, uint32_t values = kValues) : taken_(world_size), waiting_(kSlots), values_(values) {
    for (uint32_t rank = 0; rank < world_size; ++rank)
      ranks.push_back(std::make_unique<Rank>(rank, world_size, values));
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
  uint32_t phases = 0;  // of all slots
  // Changes the number-th RESULT, counted from 0; the copy of one rank, or before that of all (kAllRanks).
  static constexpr size_t kAllRanks = SIZE_MAX;
  std::function<void(uint32_t number, size_t rank, channel::Ticket*)> fault;
  uint16_t changed_exponent = 0;  // subtracted from the next RESULT that has values
  uint32_t bits_flipped = 0;      // in the first word of the next RESULT that has values
  bool values_for_owners = true;  // a copy for a rank that does not read them has no values
  uint32_t values_sent = 0;       // copies of RESULTs that had values
  uint32_t values_received = 0;   // contributions that had values

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
    std::vector<uint32_t> sums(values_);
    channel::Ticket result = ranks[0]->memory().contribution_tickets()[slot];
    result.check = result.exponent = 0;
    result.chunk = wire::next::none;
    result.flags |= wire::flag::without_values;
    for (auto& rank : ranks) {
      const channel::Ticket ticket = rank->memory().contribution_tickets()[slot];
      result.check += ticket.check;
      result.exponent = std::max(result.exponent, ticket.exponent);
      result.chunk = std::min(result.chunk, ticket.chunk);
      if ((ticket.flags & wire::flag::without_values) != 0) continue;
      result.flags &= static_cast<uint8_t>(~wire::flag::without_values);
      values_received += 1;
      for (uint32_t lane = 0; lane < values_; ++lane) {
        sums[lane] += wire::load32(rank->memory().contribution(slot) + lane * kWordBytes);
      }
    }
    if ((result.flags & wire::flag::without_values) == 0) {
      sums[0] ^= bits_flipped;
      result.exponent = static_cast<uint16_t>(result.exponent - changed_exponent);
      bits_flipped = changed_exponent = 0;
    }
    const uint32_t number = phases++;
    if (fault) fault(number, kAllRanks, &result);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const channel::Channel& memory = ranks[rank]->memory();
      channel::Ticket& copy = memory.result_tickets()[slot];
      copy = result;
      if (values_for_owners && !wire::reads(result.owner, static_cast<uint32_t>(rank))) {
        copy.flags |= wire::flag::without_values;
      }
      const bool has_values = (copy.flags & wire::flag::without_values) == 0;
      values_sent += has_values ? 1 : 0;
      for (uint32_t lane = 0; lane < values_; ++lane) {
        wire::store32(memory.result(slot) + lane * kWordBytes, has_values ? sums[lane] : 0xDEADBEEFU);
      }
      if (fault) fault(number, rank, &copy);
      const uint32_t completed = memory.control().completed.load();
      memory.completion_ring()[completed % kSlots] = slot;
      memory.control().completed.store(completed + 1);
    }
  }

  std::vector<uint32_t> taken_;
  std::vector<size_t> waiting_;
  uint32_t values_;
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

// Values in some blocks of each rank, with a block that is not finite.
std::vector<std::vector<float>> sparse_values(uint32_t ranks) {
  std::vector<std::vector<float>> values(ranks, std::vector<float>(6 * kSlots * kValues - 3));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (size_t block = rank; block < 6 * kSlots; block += 5) {
      for (size_t i = block * kValues; i < std::min((block + 1) * kValues, values[rank].size()); ++i) {
        values[rank][i] = std::ldexp(1.0F + static_cast<float>(i) / 1024, static_cast<int>(block));
      }
    }
  }
  values[0][5 * kValues + 3] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& two) {
  return one.size() == two.size() && std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) == 0;
}

TEST(Stream, SparseCallsHaveTheBitsOfDenseOnes) {
  std::vector<std::vector<float>> dense = sparse_values(3);
  std::vector<std::vector<float>> sparse = dense;
  std::vector<std::vector<int32_t>> before(3, std::vector<int32_t>(kSlots * kValues, 4));
  std::vector<std::vector<float>> after(3, std::vector<float>(kSlots * kValues, 0.25F));
  Job job(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    job.ranks[rank]->call(CallKind::int32_sum, &before[rank], 1);
    job.ranks[rank]->call(CallKind::float32_sum, &sparse[rank], 2, true);
    job.ranks[rank]->call(CallKind::float32_sum, &after[rank], 3);
  }
  job.run();
  ASSERT_EQ(job.ranks[2]->ended.size(), 3U);
  const Blocks blocks = job.ranks[0]->ended[1]->codec->blocks();
  EXPECT_EQ(blocks.sent, 5U);
  EXPECT_EQ(blocks.received, 15U);
  // Each column is announced, one block has flags, and no exponent of the last call takes a separate phase.
  EXPECT_EQ(job.phases, kSlots + (blocks.received + kSlots + 1) + kSlots);
  EXPECT_EQ(after[1], std::vector<float>(kSlots * kValues, 0.75F));
  EXPECT_EQ(job.ranks[2]->stream().position(), 3 * kSlots);
  Job reference(3);
  for (size_t rank = 0; rank < 3; ++rank) reference.ranks[rank]->call(CallKind::float32_sum, &dense[rank], 2);
  reference.run();
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(same_bits(sparse[rank], dense[rank]));
  EXPECT_EQ(job.ranks[0]->ended[1]->codec->non_finite().indices,
            reference.ranks[0]->ended[0]->codec->non_finite().indices);
}

class StreamsOfRanks : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StreamsOfRanks, testing::Values(64, 65, 1024, wire::protocol::max_world));

TEST_P(StreamsOfRanks, SparseCallsHaveTheBitsOfDenseOnes) {
  const uint32_t ranks = GetParam();
  std::vector<std::vector<float>> dense(ranks, std::vector<float>(3 * kSlots * kValues));
  for (uint32_t rank = 0; rank < ranks; ++rank) {  // the first packet: of all ranks; others: of one, some or none
    for (size_t i = 0; i < kValues; ++i) {
      dense[rank][i] = std::sin(static_cast<float>(rank + i + 1));
      dense[rank][(1 + rank % (2 * kSlots)) * kValues + i] = rank == 3 ? 0x1p20F : 1.0F;
    }
  }
  std::vector<std::vector<float>> sparse = dense;
  Job job(ranks);
  Job reference(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    job.ranks[rank]->call(CallKind::float32_sum, &sparse[rank], 2, true);
    reference.ranks[rank]->call(CallKind::float32_sum, &dense[rank], 2);
  }
  job.run();
  reference.run();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(job.ranks[rank]->ended.size(), 1U) << rank;
    ASSERT_TRUE(same_bits(sparse[rank], dense[0])) << rank;
  }
}

TEST_P(StreamsOfRanks, ARankThatIsCountedTwiceIsFound) {
  const uint32_t ranks = GetParam();
  for (const uint32_t other : {0U, ranks / 2, ranks - 2}) {
    Job job(ranks);
    job.fault = [&](uint32_t /*number*/, size_t rank, channel::Ticket* result) {
      if (rank != Job::kAllRanks) return;
      const auto check_of = [&](uint32_t one) { return job.ranks[one]->memory().contribution_tickets()[0].check; };
      result->check += check_of(ranks - 1) - check_of(other);
    };
    std::vector<std::vector<int32_t>> values(ranks, std::vector<int32_t>(kValues, 1));
    for (uint32_t rank = 0; rank < ranks; ++rank) job.ranks[rank]->call(CallKind::int32_sum, &values[rank], 7);
    job.run();
    expect_failure(job, 0, 0);
  }
}

// Calls with packets of two blocks of 256 words.
constexpr uint32_t kLargePacket = 512;
constexpr size_t kBlock = 256;

// Makes a sparse and a dense call with the same values and a call after them, and expects the same sums.
template <class Value>
Blocks expect_agreed_sums(CallKind kind, const std::vector<std::vector<Value>>& values, uint32_t* phases,
                          const Lanes& lanes = {}) {
  const auto ranks = static_cast<uint32_t>(values.size());
  std::vector<std::vector<Value>> sparse = values;
  std::vector<std::vector<Value>> dense = values;
  std::vector<std::vector<int32_t>> after(ranks, std::vector<int32_t>(3 * kLargePacket + 5, 1));
  Job job(ranks, kLargePacket);
  for (size_t rank = 0; rank < ranks; ++rank) {
    job.ranks[rank]->call(kind, &sparse[rank], 2, true, lanes);
    job.ranks[rank]->call(CallKind::int32_sum, &after[rank], 3);
  }
  job.run();
  Job reference(ranks, kLargePacket);
  for (size_t rank = 0; rank < ranks; ++rank) reference.ranks[rank]->call(kind, &dense[rank], 2, false, lanes);
  reference.run();
  for (size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_FALSE(job.ranks[rank]->stream().check_failed());
    EXPECT_EQ(job.ranks[rank]->ended.size(), 2U);
    if (job.ranks[rank]->ended.size() != 2 || reference.ranks[rank]->ended.size() != 1) return {};
    EXPECT_EQ(std::memcmp(sparse[rank].data(), dense[rank].data(), dense[rank].size() * sizeof(Value)), 0) << rank;
    EXPECT_EQ(after[rank], std::vector<int32_t>(3 * kLargePacket + 5, static_cast<int32_t>(ranks)));
    EXPECT_EQ(job.ranks[rank]->ended[0]->codec->non_finite().indices,
              reference.ranks[rank]->ended[0]->codec->non_finite().indices);
  }
  *phases = job.phases - 4;  // without those of the call after it
  return job.ranks[0]->ended[0]->codec->blocks();
}

TEST(Stream, AgreesOnBlocksWherePacketsAreLarge) {
  std::vector<std::vector<int32_t>> values(3, std::vector<int32_t>(20 * kBlock - 9));
  for (size_t rank = 0; rank < 3; ++rank) {
    values[rank][(3 * rank + 1) * kBlock + 7] = static_cast<int32_t>(rank) + 5;
    values[rank][19 * kBlock + rank] = -1;
  }
  uint32_t phases = 0;
  const Blocks blocks = expect_agreed_sums(CallKind::int32_sum, values, &phases);
  EXPECT_EQ(blocks.sent, 2U);
  EXPECT_EQ(blocks.received, 4U);
  EXPECT_EQ(blocks.all, 20U);
  EXPECT_EQ(phases, 1U + 2U);  // the owners, and two packets of two blocks
}

TEST(Stream, AgreedBlocksOfFloatsHaveOneExponentInAPacket) {
  std::vector<std::vector<float>> values(3, std::vector<float>(40 * kBlock));
  for (size_t rank = 0; rank < 3; ++rank) {
    for (size_t block = rank; block < 40; block += 9) {
      for (size_t i = 0; i < kBlock; ++i) values[rank][block * kBlock + i] = static_cast<float>(i + rank) / 64;
    }
  }
  values[1][1 * kBlock + 3] = std::numeric_limits<float>::infinity();
  values[2][30 * kBlock] = -0.0F;
  uint32_t phases = 0;
  const Blocks blocks = expect_agreed_sums(CallKind::float32_sum, values, &phases);
  EXPECT_EQ(blocks.sent, 5U);
  EXPECT_EQ(blocks.received, 15U);  // not the one with -0.0
}

// Values of one magnitude have the exponent of a dense call in every packet, and so its bits.
template <class Value>
void expect_agreed_sums_of_ones(CallKind kind, uint32_t lane_bits) {
  const size_t block = kBlock * 32 / lane_bits;
  for (const uint32_t ranks : {1U, 2U, 5U}) {
    for (const size_t elements : {size_t{1}, block - 1, 2 * block, 31 * block + 3}) {
      std::vector<std::vector<Value>> values(ranks, std::vector<Value>(elements));
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (size_t i = 0; i < elements; ++i) {
          if ((i / block) % 8 != rank % 3) continue;
          if constexpr (std::is_integral_v<Value>) {
            values[rank][i] = 1;
          } else {
            kernels::narrow(i % 3 == 0 ? -1.0F : 1.0F, &values[rank][i]);
          }
        }
      }
      uint32_t phases = 0;
      const Blocks blocks = expect_agreed_sums(kind, values, &phases, {lane_bits});
      EXPECT_LT(blocks.received, (elements + block - 1) / block + 1);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Stream, AgreedBlocksHaveAllTypesAndLanes) {
  expect_agreed_sums_of_ones<float>(CallKind::float32_sum, 32);
  expect_agreed_sums_of_ones<float>(CallKind::float32_average, 16);
  expect_agreed_sums_of_ones<float>(CallKind::float32_sum, 8);
  expect_agreed_sums_of_ones<kernels::Float16>(CallKind::float16_sum, 32);
  expect_agreed_sums_of_ones<kernels::BFloat16>(CallKind::bfloat16_average, 16);
  expect_agreed_sums_of_ones<int32_t>(CallKind::int32_sum, 32);
  expect_agreed_sums_of_ones<int16_t>(CallKind::int16_sum, 16);
  expect_agreed_sums_of_ones<int8_t>(CallKind::int8_sum, 8);
}

TEST_P(StreamsOfRanks, AgreeOnBlocksThatAnyNumberOfThemHave) {
  constexpr size_t kBlocks = 20;
  std::vector<std::vector<int32_t>> values(GetParam(), std::vector<int32_t>(kBlocks * kBlock));
  size_t block = 0;
  for (const uint32_t owners : {1U, 127U, 128U, 255U, 256U, 512U, GetParam()}) {  // sums of lanes may wrap around to 0
    for (uint32_t rank = 0; rank < std::min(owners, GetParam()); ++rank) values[rank][block * kBlock + 9] = 1;
    block += 2;
  }
  uint32_t phases = 0;
  EXPECT_EQ(expect_agreed_sums(CallKind::int32_sum, values, &phases).received, 7U);
}

TEST(Stream, SeveralCallsWaitForAnAgreement) {
  Job job(2, kLargePacket);
  std::vector<std::vector<float>> first(2, std::vector<float>(30 * kBlock));
  std::vector<std::vector<float>> second(2, std::vector<float>(30 * kBlock));
  std::vector<std::vector<float>> dense(2, std::vector<float>(9 * kLargePacket, 1.5F));
  for (size_t rank = 0; rank < 2; ++rank) {
    first[rank][5 * kBlock + rank] = 1;
    second[rank][6 * kBlock] = 2;
    job.ranks[rank]->call(CallKind::float32_sum, &first[rank], 1, true);
    job.ranks[rank]->call(CallKind::float32_sum, &second[rank], 2, true);
    job.ranks[rank]->call(CallKind::float32_sum, &dense[rank], 3);
  }
  job.run();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(job.ranks[rank]->ended.size(), 3U);
    EXPECT_EQ(first[rank][5 * kBlock + 1 - rank], 1.0F);
    EXPECT_EQ(second[rank][6 * kBlock], 4.0F);
    EXPECT_EQ(dense[rank], std::vector<float>(9 * kLargePacket, 3.0F));
    EXPECT_FALSE(job.ranks[rank]->stream().waits_for_results());
  }
}

TEST(Stream, CallsWithoutBlocksEndWithAPacketWithoutValues) {
  uint32_t phases = 0;
  const std::vector<std::vector<float>> values(2, std::vector<float>(20 * kBlock, -0.0F));
  EXPECT_EQ(expect_agreed_sums(CallKind::float32_average, values, &phases).received, 0U);
  EXPECT_EQ(phases, 2U);
}

TEST(Stream, CallsWithManyBlocksAreDenseAfterTheAgreement) {
  uint32_t phases = 0;
  const std::vector<std::vector<float>> values(2, std::vector<float>(20 * kBlock, 0.3F));
  EXPECT_EQ(expect_agreed_sums(CallKind::float32_average, values, &phases).received, 10U);  // packets
}

// Returns the values of a rank in a call with 5,000 blocks, of which two ranks together have a share.
std::vector<float> blocks_of_two_ranks(size_t rank, size_t words_of_block, size_t percent) {
  std::vector<float> values(5000 * words_of_block);
  for (size_t block = rank; block < 5000; block += 2) {
    if (block / 2 % 100 < percent) values[block * words_of_block + block % words_of_block] = 0.5F;
  }
  return values;
}

TEST(Stream, LargeSparseCallsAreDenseIfASampleHasManyBlocks) {
  for (const auto& [packet, words_of_block] : {std::pair{kValues, size_t{kValues}}, {kLargePacket, kBlock}}) {
    for (const size_t percent : {3, 50, 97}) {
      SCOPED_TRACE(std::to_string(packet) + " values in a packet, " + std::to_string(percent) + " %");
      std::vector<std::vector<float>> values;
      for (size_t rank = 0; rank < 2; ++rank) values.push_back(blocks_of_two_ranks(rank, words_of_block, percent));
      std::vector<float> sum = values[0];
      std::transform(sum.begin(), sum.end(), values[1].begin(), sum.begin(), std::plus<>());
      Job job(2, packet);
      for (size_t rank = 0; rank < 2; ++rank) {
        job.ranks[rank]->call(CallKind::float32_sum, &values[rank], 7, true);
        job.ranks[rank]->call(CallKind::barrier, &values[rank], 8);
      }
      job.run();
      for (size_t rank = 0; rank < 2; ++rank) {
        ASSERT_EQ(job.ranks[rank]->ended.size(), 2U);
        EXPECT_EQ(values[rank], sum);
        const Codec& codec = *job.ranks[rank]->ended[0]->codec;
        EXPECT_EQ(codec.is_sparse(), percent < 97);
        if (codec.is_sparse()) {
          EXPECT_EQ(codec.blocks().sent, 25 * percent);
          EXPECT_EQ(codec.blocks().received, 50 * percent);
        }
      }
    }
  }
}

// In packets of blocks in the order of the call, every rank would have values in every packet.
TEST(Stream, BlocksOfTheSameRanksShareAPacket) {
  for (const uint32_t ranks : {2U, 15U, 16U}) {
    SCOPED_TRACE(ranks);
    constexpr size_t kBlocksOfRank = 4;
    const size_t some = kBlocksOfRank * ranks;  // block i has values at rank i mod N
    std::vector<std::vector<int32_t>> values(ranks, std::vector<int32_t>(3 * some * kBlock));
    Job job(ranks, kLargePacket);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (size_t i = rank; i < some; i += ranks) values[rank][i * kBlock + 1] = static_cast<int32_t>(i + 1);
      job.ranks[rank]->call(CallKind::int32_sum, &values[rank], 7, true);
    }
    job.run();
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < some; ++i) ASSERT_EQ(values[rank][i * kBlock + 1], static_cast<int32_t>(i + 1));
    }
    const bool knows_ranks = ranks <= BlockOwners::kRanksWithBit;
    const auto packets = static_cast<uint32_t>(some / (kLargePacket / kBlock));
    EXPECT_EQ(job.values_received, ranks + packets * (knows_ranks ? 1 : 2));  // the first is that of the owners
  }
}

// One of the ranks reads other owners in the first part than the others, and the check does not show it.
TEST(Stream, FindsARankThatHasAgreedOnOtherBlocks) {
  const std::vector<size_t> blocks{2, 9};
  const std::vector<std::vector<size_t>> of_rank_1{{}, {2}, {9}, {2, 10}, {2, 9, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  for (const CallKind kind : {CallKind::int32_sum, CallKind::float32_sum}) {
    for (const bool some : {true, false}) {
      for (const std::vector<size_t>& read : of_rank_1) {
        if (!some && read.empty()) continue;
        Job job(2, kLargePacket);
        std::vector<std::vector<int32_t>> values(2, std::vector<int32_t>(12 * kBlock));
        for (const size_t block : blocks) values[0][block * kBlock + 3] = some ? 0x3F800000 : 0;
        for (auto& rank : job.ranks) rank->call(kind, &values[rank == job.ranks[1] ? 1 : 0], 7, true);
        job.fault = [&](uint32_t number, size_t rank, channel::Ticket* result) {
          if (number != 0 || rank != 1) return;
          uint8_t* const words = job.ranks[1]->memory().result(0);
          const Check& check = job.ranks[1]->check;
          const auto check_of_words = [&] {
            return check.of({}, {kernels::weigh(check.weights(), words, 0, kLargePacket), true}, {});
          };
          result->check -= check_of_words();
          std::vector<uint32_t> owners(12);
          for (const size_t block : read) owners[block] = 1;
          for (size_t i = 0; i < 6; ++i) {
            wire::store32(words + i * kWordBytes, owners[2 * i] | owners[2 * i + 1] << 16U);
          }
          result->check += check_of_words();
        };
        job.run();
        expect_failure(job, 1, 0);
      }
    }
  }
}

TEST(Stream, FindsSumsInAnotherFormat) {
  Job job(2);
  std::vector<std::vector<int32_t>> values(2, std::vector<int32_t>(3 * kValues, 1));
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->call(CallKind::int32_sum, &values[rank], 7);
  job.fault = [](uint32_t number, size_t rank, channel::Ticket* result) {
    if (number == 1 && rank == Job::kAllRanks) result->format = static_cast<uint16_t>(wire::Format::float32);
  };
  job.run();
  expect_failure(job, 1, 0);
}

TEST(Stream, FindsAColumnThatEndsTooEarly) {
  for (uint32_t changed = 0; changed < kSlots; ++changed) {
    Job job(3);
    std::vector<std::vector<float>> values = sparse_values(3);
    for (size_t rank = 0; rank < 3; ++rank) job.ranks[rank]->call(CallKind::float32_sum, &values[rank], 2, true);
    job.fault = [&](uint32_t number, size_t rank, channel::Ticket* result) {
      if (number == changed && rank == Job::kAllRanks) result->chunk = wire::next::none;
    };
    job.run();
    EXPECT_TRUE(
        std::any_of(job.ranks.begin(), job.ranks.end(), [](auto& rank) { return rank->stream().check_failed(); }));
  }
}

TEST(Stream, FindsRanksOfWhichOnlyOneMadeASparseCall) {
  Job job(2);
  std::vector<std::vector<float>> values = sparse_values(2);
  job.ranks[0]->call(CallKind::float32_sum, &values[0], 7, true);
  job.ranks[1]->call(CallKind::float32_sum, &values[1], 8);  // the fingerprint has it
  job.run();
  EXPECT_TRUE(job.ranks[0]->stream().check_failed());
  EXPECT_TRUE(job.ranks[1]->stream().check_failed());
}

// Changes one field of each RESULT of a sparse call in turn, for all ranks or one of them: it must be found, unless the
// sums are right in spite of it.
class FaultsOfSparseCalls : public testing::TestWithParam<size_t> {
 protected:
  static constexpr uint32_t kRanks = 3;

  void SetUp() override {
    Job job(kRanks);
    expected_ = values_;
    for (size_t rank = 0; rank < kRanks; ++rank)
      job.ranks[rank]->call(CallKind::float32_sum, &expected_[rank], 2, true);
    job.run();
    results_ = job.phases;
  }

  // Returns how many of the faults were found.
  template <class Change>
  uint32_t try_all(const Change& change) {
    uint32_t found = 0;
    for (uint32_t changed = 0; changed < results_; ++changed) {
      for (int bit = 0; bit < 32; ++bit) {
        found += run_with([&](uint32_t number, size_t rank, channel::Ticket* result) {
          if (number == changed && rank == GetParam()) change(result, bit);
        });
        if (testing::Test::HasFatalFailure()) return found;
      }
    }
    return found;
  }
  uint32_t all() const { return 32 * results_; }

 private:
  bool run_with(std::function<void(uint32_t, size_t, channel::Ticket*)> fault) {
    Job job(kRanks);
    std::vector<std::vector<float>> values = values_;
    for (size_t rank = 0; rank < kRanks; ++rank) job.ranks[rank]->call(CallKind::float32_sum, &values[rank], 2, true);
    job.fault = std::move(fault);
    job.run();
    for (auto& rank : job.ranks) {
      if (rank->stream().check_failed()) return true;
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(job.ranks[rank]->ended.size(), 1U) << "no rank has found the fault, and this one waits";
      EXPECT_TRUE(same_bits(values[rank], expected_[rank])) << "the sums are wrong";
    }
    return false;
  }

  std::vector<std::vector<float>> values_ = sparse_values(kRanks);
  std::vector<std::vector<float>> expected_;
  uint32_t results_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Ranks, FaultsOfSparseCalls, testing::Values(Job::kAllRanks, 0, 2));

TEST_P(FaultsOfSparseCalls, InTheNextBlockAreFound) {
  const uint32_t found = try_all([](channel::Ticket* result, int bit) { result->chunk ^= 1U << bit; });
  EXPECT_GT(found, all() * 9 / 10);  // announcing a column twice, or flags without need, does no harm
}

TEST_P(FaultsOfSparseCalls, ThatEndAColumnAreFound) {
  const uint32_t found = try_all([](channel::Ticket* result, int) { result->chunk = wire::next::none; });
  EXPECT_EQ(found, all() - 32 * kSlots);  // the last RESULT of each column is not changed by this
}

TEST_P(FaultsOfSparseCalls, InTheCheckAreFound) {
  EXPECT_EQ(try_all([](channel::Ticket* result, int bit) { result->check ^= 1U << bit; }), all());
}

TEST_P(FaultsOfSparseCalls, InTheFlagsAreFound) {
  EXPECT_EQ(try_all([](channel::Ticket* result, int) { result->flags ^= wire::flag::without_values; }), all());
}

class Scatter : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ValuesForOwners, Scatter, testing::Bool());

TEST_P(Scatter, BetweenOtherCalls) {
  constexpr size_t kPart = kSlots * kValues + 3;
  constexpr uint32_t kChunks = 3 * (kSlots + 1);
  Job job(3);
  job.values_for_owners = GetParam();
  std::vector<std::vector<float>> before(3, std::vector<float>(kValues, 1.0F));
  std::vector<std::vector<float>> parts(3, std::vector<float>(kPart));
  const std::vector<float> input(3 * kPart, 0.25F);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    job.ranks[rank]->call(CallKind::float32_sum, &before[rank], 1);
    job.ranks[rank]->scatter(CallKind::float32_sum, input, &parts[rank], 2);
  }
  job.run();
  for (size_t rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(job.ranks[rank]->ended.size(), 2U);
    EXPECT_EQ(before[rank], std::vector<float>(kValues, 3.0F));
    EXPECT_EQ(parts[rank], std::vector<float>(kPart, 0.75F));
    EXPECT_EQ(job.ranks[rank]->stream().position(), 1 + kChunks);
  }
  EXPECT_EQ(job.values_sent, 3 + (GetParam() ? kChunks : 3 * kChunks));
  EXPECT_EQ(job.values_received, 3 + 2 * kChunks);  // the owner of a chunk keeps its words
}

TEST_P(Scatter, GatheredBytesDoNotComeBackToTheirRank) {
  constexpr size_t kPart = 2 * kValues * kWordBytes + 5;
  Job job(3);
  job.values_for_owners = GetParam();
  std::vector<std::vector<uint8_t>> inputs;
  std::vector<uint8_t> all;
  for (uint8_t rank = 0; rank < 3; ++rank) {
    inputs.emplace_back(kPart, static_cast<uint8_t>(17 * rank + 1));
    all.insert(all.end(), inputs.back().begin(), inputs.back().end());
  }
  std::vector<std::vector<uint8_t>> outputs(3, std::vector<uint8_t>(all.size()));
  for (size_t rank = 0; rank < 3; ++rank) job.ranks[rank]->gather(inputs[rank], &outputs[rank], 4);
  job.run();
  for (size_t rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(job.ranks[rank]->ended.size(), 1U);
    EXPECT_EQ(outputs[rank], all);
  }
  EXPECT_EQ(job.values_received, 9U);
  EXPECT_EQ(job.values_sent, GetParam() ? 18U : 27U);
}

TEST_P(Scatter, FlippedBitsOfAGatherAreFoundByWhoeverGetsThem) {
  Job job(2);
  job.values_for_owners = GetParam();
  job.bits_flipped = 1U << 20U;  // in the first chunk, which rank 0 gives
  const std::vector<uint8_t> input(kValues * kWordBytes, 1);
  std::vector<std::vector<uint8_t>> outputs(2, std::vector<uint8_t>(2 * input.size()));
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->gather(input, &outputs[rank], 7);
  job.run();
  EXPECT_EQ(job.ranks[0]->stream().check_failed(), !GetParam());
  EXPECT_TRUE(job.ranks[1]->stream().check_failed());
}

TEST_P(Scatter, AWrongCheckIsFoundByTheGiverToo) {
  Job job(2);
  job.values_for_owners = GetParam();
  const std::vector<uint8_t> input(kValues * kWordBytes, 1);
  std::vector<std::vector<uint8_t>> outputs(2, std::vector<uint8_t>(2 * input.size()));
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->gather(input, &outputs[rank], 7);
  job.fault = [](uint32_t number, size_t rank, channel::Ticket* copy) {
    if (number == 0 && rank == Job::kAllRanks) copy->check += 1;
  };
  job.run();
  for (auto& rank : job.ranks) EXPECT_TRUE(rank->stream().check_failed());
}

TEST_P(Scatter, FlippedBitsAreFoundByWhoeverGetsThem) {
  Job job(2);
  job.values_for_owners = GetParam();
  job.bits_flipped = 1U << 20U;  // in the first chunk, which belongs to rank 0
  const std::vector<int32_t> input(2 * kValues, 1);
  std::vector<std::vector<int32_t>> parts(2, std::vector<int32_t>(kValues));
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->scatter(CallKind::int32_sum, input, &parts[rank], 7);
  job.run();
  EXPECT_TRUE(job.ranks[0]->stream().check_failed());
  EXPECT_EQ(job.ranks[1]->stream().check_failed(), !GetParam());
}

TEST(Stream, ValuesThatOnlyThisRankReadsMustCome) {
  Job job(2);
  const std::vector<int32_t> input(2 * kValues, 1);
  std::vector<std::vector<int32_t>> parts(2, std::vector<int32_t>(kValues));
  for (size_t rank = 0; rank < 2; ++rank) job.ranks[rank]->scatter(CallKind::int32_sum, input, &parts[rank], 7);
  job.fault = [](uint32_t number, size_t rank, channel::Ticket* copy) {
    if (number == 0 && rank == 0) copy->flags |= wire::flag::without_values;
  };
  job.run();
  EXPECT_TRUE(job.ranks[0]->stream().check_failed());
}

// A rank cannot verify the RESULTs of others' parts. It uses their exponents, and a wrong one is found later.
TEST(Stream, FindsWrongExponentsOfThePartsOfOthers) {
  constexpr size_t kPart = 3 * kSlots * kValues;
  uint32_t phases = 1;
  uint32_t found = 0;
  for (uint32_t changed = 0; changed < phases; ++changed) {
    for (const size_t victim : {Job::kAllRanks, size_t{0}, size_t{2}}) {
      Job job(3);
      const std::vector<float> input(3 * kPart, 0.75F);
      std::vector<std::vector<float>> parts(3, std::vector<float>(kPart));
      std::vector<std::vector<float>> after(3, std::vector<float>(kSlots * kValues, 0.75F));
      for (size_t rank = 0; rank < 3; ++rank) {
        job.ranks[rank]->scatter(CallKind::float32_sum, input, &parts[rank], 2);
        job.ranks[rank]->call(CallKind::float32_sum, &after[rank], 3);
      }
      job.fault = [&](uint32_t number, size_t rank, channel::Ticket* copy) {
        if (number == changed && rank == victim)
          copy->exponent = static_cast<uint16_t>(copy->exponent - (copy->exponent > 0 ? 1 : 0));
      };
      job.run();
      phases = std::max(phases, job.phases);
      const bool failed =
          std::any_of(job.ranks.begin(), job.ranks.end(), [](auto& rank) { return rank->stream().check_failed(); });
      found += failed ? 1 : 0;
      for (size_t rank = 0; rank < 3 && !failed; ++rank) {
        ASSERT_EQ(job.ranks[rank]->ended.size(), 2U);
        EXPECT_EQ(parts[rank], std::vector<float>(kPart, 2.25F));
        EXPECT_EQ(after[rank], std::vector<float>(kSlots * kValues, 2.25F));
      }
    }
  }
  EXPECT_GE(found, 3 * (phases - kSlots));  // the exponent of a slot's last RESULT is not used
}

}  // namespace
}  // namespace switchml::client
