// Ranks of one process that add up their values in memory that they share.
#include "switchml/native/direct_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "switchml/native/codecs/make_codec.h"
#include "tests/native/client/codec_call.h"

namespace switchml::client {
namespace {

using channel::DirectControl;
using channel::DirectMemory;
using channel::SharedMemory;

using Calls = std::vector<std::shared_ptr<Call>>;

struct Rank {
  std::unique_ptr<channel::ChannelControl> control = std::make_unique<channel::ChannelControl>();
  std::unique_ptr<ThreadTime> time;
  std::unique_ptr<DirectCalls> calls;
  Calls ended;
};

class Job {
 public:
  explicit Job(uint32_t ranks)
      : memory_("test", DirectMemory::bytes(ranks), SharedMemory::Others::may_write), ranks_(ranks) {
    DirectMemory::make(memory_.data(), ranks);
    for (uint32_t number = 0; number < ranks; ++number) {
      Rank& rank = ranks_[number];
      rank.time = std::make_unique<ThreadTime>(rank.control.get());
      rank.calls =
          std::make_unique<DirectCalls>(memory_.fd(), geometry(ranks, number), rank.control.get(), rank.time.get());
    }
  }

  Rank& operator[](size_t rank) { return ranks_[rank]; }
  size_t size() const { return ranks_.size(); }
  DirectControl& control() { return DirectMemory(memory_.data(), static_cast<uint32_t>(ranks_.size())).control(); }

  // Lets all ranks do what they can, in turns, until none can do more.
  void settle() {
    for (bool any = true; any;) {
      any = false;
      for (Rank& rank : ranks_) any = rank.calls->advance(&rank.ended) || any;
    }
  }

 private:
  SharedMemory memory_;
  std::vector<Rank> ranks_;
};

std::shared_ptr<Call> call_of(uint64_t sequence, CallKind kind, uint64_t elements, std::vector<uint8_t>* memory,
                              uint32_t world_size, uint32_t fingerprint = 7) {
  auto call = std::make_shared<Call>();
  call->sequence = sequence;
  call->fingerprint = fingerprint;
  call->times.bytes = memory->size();
  call->codec = make_codec(kind, {memory->data(), memory->data(), elements}, true, geometry(world_size));
  return call;
}

std::vector<std::vector<uint8_t>> random_memory(size_t ranks, size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint8_t>> memory(ranks, std::vector<uint8_t>(bytes));
  for (auto& of_rank : memory) {
    for (auto& byte : of_rank) byte = static_cast<uint8_t>(random());
  }
  return memory;
}

// ---- the same bits as over a switch ---------------------------------------------------------------------------------

struct Case {
  CallKind kind;
  size_t ranks;
  uint64_t elements;
};

void PrintTo(const Case& of, std::ostream* out) {
  *out << "kind " << static_cast<int>(of.kind) << ", " << of.ranks << " ranks, " << of.elements << " elements";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const CallKind kind :
       {CallKind::float32_sum, CallKind::float32_average, CallKind::float16_sum, CallKind::float16_average,
        CallKind::bfloat16_sum, CallKind::bfloat16_average, CallKind::float64_sum, CallKind::float64_average,
        CallKind::int64_sum, CallKind::int32_sum, CallKind::int16_sum, CallKind::int8_sum, CallKind::uint8_sum,
        CallKind::bool_sum}) {
    for (const size_t ranks : {2, 3, 8}) {
      for (const uint64_t elements : {1UL, 9UL * kValues - 3, 100'003UL}) all.push_back({kind, ranks, elements});
    }
  }
  return all;
}

class DirectBits : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Direct, DirectBits, testing::ValuesIn(cases()));

// Random bits are numbers of all magnitudes, NaN and infinity. The second half has only small ones, most of the first
// chunk zeros of both signs.
TEST_P(DirectBits, AsOverASwitch) {
  const auto [kind, ranks, elements] = GetParam();
  const uint32_t bytes = element_bytes(kind);
  auto memory = random_memory(ranks, elements * bytes, 5);
  for (auto& of_rank : memory) {
    for (size_t i = of_rank.size() / 2; i < of_rank.size(); ++i) {
      if (i % bytes == bytes - 1) of_rank[i] &= 0x83;
    }
    for (size_t i = 0; i < std::min<size_t>(of_rank.size(), (kValues - 1) * bytes); ++i) {
      of_rank[i] = i % bytes == bytes - 1 ? of_rank[i] & 0x80 : 0;
    }
  }
  CodecCall expected(kind, elements, memory);
  expected.run();
  Job job(static_cast<uint32_t>(ranks));
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto call = call_of(0, kind, elements, &memory[rank], static_cast<uint32_t>(ranks));
    ASSERT_TRUE(job[rank].calls->takes(*call));
    job[rank].calls->add(call);
  }
  job.settle();
  for (size_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(job[rank].ended.size(), 1U);
    EXPECT_TRUE(memory[rank] == expected.memory(rank)) << "rank " << rank;
    const NonFinite& found = job[rank].ended[0]->codec->non_finite();
    EXPECT_EQ(found.count, expected.codec(rank).non_finite().count);
    EXPECT_EQ(found.indices, expected.codec(rank).non_finite().indices);
  }
}

// The array that has only this rank's part does not lie in the other one.
class PartsBits : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Direct, PartsBits,
                         testing::Values(Case{CallKind::float32_sum, 2, 10}, Case{CallKind::float32_average, 3, 30'003},
                                         Case{CallKind::bfloat16_sum, 8, 8 * 9 * kValues},
                                         Case{CallKind::int64_sum, 3, 3 * 5'001}, Case{CallKind::bytes, 2, 6},
                                         Case{CallKind::bytes, 3, 3 * 100'001}, Case{CallKind::bytes, 8, 8 * 64}));

TEST_P(PartsBits, AsOverASwitch) {
  const auto [kind, ranks, elements] = GetParam();
  const uint32_t world_size = static_cast<uint32_t>(ranks);
  const bool gathers = kind == CallKind::bytes;
  const Division division = gathers ? Division::gather : Division::scatter;
  const size_t all = elements * element_bytes(kind);
  const auto inputs = random_memory(ranks, gathers ? all / ranks : all, 6);
  std::vector<std::vector<uint8_t>> outputs(ranks, std::vector<uint8_t>(gathers ? all : all / ranks));
  CodecCall expected(kind, division, elements, inputs, outputs);
  expected.run();
  Job job(world_size);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    auto call = std::make_shared<Call>();
    call->times.bytes = all;
    call->codec = make_codec(kind, {inputs[rank].data(), outputs[rank].data(), elements, division}, true,
                             geometry(world_size, rank));
    ASSERT_TRUE(job[rank].calls->takes(*call));
    job[rank].calls->add(call);
  }
  job.settle();
  for (size_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(job[rank].ended.size(), 1U);
    EXPECT_TRUE(outputs[rank] == expected.output(rank)) << "rank " << rank;
    EXPECT_EQ(job[rank].ended[0]->codec->non_finite().count, expected.codec(rank).non_finite().count);
    EXPECT_EQ(job[rank].ended[0]->codec->non_finite().indices, expected.codec(rank).non_finite().indices);
  }
}

TEST(DirectCalls, ABroadcastHasTheBytesOfOneRank) {
  for (const size_t bytes : {0, 5, 1'000'000}) {
    auto memory = random_memory(3, bytes, 8);
    const std::vector<uint8_t> expected = memory[1];
    Job job(3);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      auto call = std::make_shared<Call>();
      call->times.bytes = bytes;
      call->codec =
          make_codec(CallKind::bytes, {memory[rank].data(), memory[rank].data(), bytes}, rank == 1, geometry(3, rank));
      job[rank].calls->add(call);
    }
    job.settle();
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(job[rank].ended.size(), 1U);
      EXPECT_TRUE(memory[rank] == expected);
      EXPECT_EQ(job[rank].ended.at(0)->wire_bytes, rank == 1 ? bytes : 0);
    }
  }
}

// ---- threads --------------------------------------------------------------------------------------------------------

TEST(DirectCalls, ThreadsMakeManyCallsOfAllSizes) {
  constexpr size_t kRanks = 4;
  constexpr uint64_t kCalls = 300;
  Job job(kRanks);
  std::atomic<int> wrong{0};
  const auto run = [&](uint32_t number) {
    std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same sizes at all ranks
    Rank& rank = job[number];
    for (uint64_t sequence = 0; sequence < kCalls; ++sequence) {
      const size_t elements = sequence % 7 == 0 ? 0 : random() % (sequence % 20 == 1 ? 300'000 : 3'000);
      std::vector<float> values(elements);
      for (size_t i = 0; i < elements; ++i) values[i] = static_cast<float>((i + sequence) % 50 + number);
      std::vector<uint8_t> memory = bytes_of(values);
      rank.calls->add(call_of(sequence, CallKind::float32_sum, elements, &memory, kRanks));
      while (!rank.calls->idle()) {
        if (rank.calls->advance(&rank.ended) || rank.calls->spin()) continue;
        const uint32_t event = rank.calls->announce_sleep();
        const timespec ten_seconds{10, 0};
        if (!rank.calls->has_work()) rank.calls->sleep(event, &ten_seconds);
      }
      const std::vector<float> sums = elements_of<float>(memory);
      for (size_t i = 0; i < elements; ++i) {
        if (sums[i] != static_cast<float>(4 * ((i + sequence) % 50) + 6)) wrong += 1;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < kRanks; ++number) threads.emplace_back(run, number);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(job[rank].ended.size(), kCalls);
}

// ---- ranks that differ ----------------------------------------------------------------------------------------------

class TwoRanks : public testing::Test {
 protected:
  void add(size_t rank, uint64_t sequence, uint64_t elements, uint32_t fingerprint = 7) {
    memory_[rank].emplace_back(std::make_unique<std::vector<uint8_t>>(elements * sizeof(float), uint8_t{0}));
    job_[rank].calls->add(
        call_of(sequence, CallKind::float32_sum, elements, memory_[rank].back().get(), 2, fingerprint));
  }
  std::vector<uint64_t> leaving(size_t rank) {
    std::vector<uint64_t> sequences;
    for (const auto& call : job_[rank].calls->leaving()) sequences.push_back(call->sequence);
    return sequences;
  }

  Job job_{2};
  std::array<std::vector<std::unique_ptr<std::vector<uint8_t>>>, 2> memory_;
};

TEST_F(TwoRanks, OtherCallsGoOverTheSwitch) {
  for (const size_t rank : {0, 1}) {
    add(rank, 0, 10);
    add(rank, 1, 10, rank == 0 ? 7 : 8);
    add(rank, 2, 10);
  }
  job_.settle();
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(job_[rank].ended.size(), 1U);
    EXPECT_EQ(leaving(rank), (std::vector<uint64_t>{1, 2}));
    EXPECT_TRUE(job_[rank].calls->idle());
  }
}

TEST_F(TwoRanks, OtherSizesGoOverTheSwitch) {
  add(0, 0, 10);
  add(1, 0, 3'000'000);
  job_.settle();
  EXPECT_EQ(leaving(0), std::vector<uint64_t>{0});
  EXPECT_EQ(leaving(1), std::vector<uint64_t>{0});
}

TEST_F(TwoRanks, ACallThatAnotherRankMakesOverTheSwitchGoesThere) {
  std::vector<uint8_t> nothing;
  const auto over_switch = call_of(0, CallKind::barrier, 0, &nothing, 2);
  for (const bool switch_first : {false, true}) {
    Job job(2);
    if (switch_first) job[1].calls->begins_over_switch(*over_switch);
    std::vector<uint8_t> memory(40);
    job[0].calls->add(call_of(0, CallKind::float32_sum, 10, &memory, 2));
    job.settle();
    if (!switch_first) {
      EXPECT_FALSE(job[0].calls->has_work());
      job[1].calls->begins_over_switch(*over_switch);
    }
    EXPECT_TRUE(job[0].calls->has_work());
    EXPECT_EQ(job[0].calls->leaving().size(), 1U);
  }
}

TEST_F(TwoRanks, NoneMakesDirectCallsIfOneDoesNot) {
  add(0, 0, 10);
  job_.settle();
  job_[1].calls->leave();
  EXPECT_EQ(leaving(0), std::vector<uint64_t>{0});
  std::vector<uint8_t> memory(40);
  EXPECT_FALSE(job_[0].calls->takes(*call_of(1, CallKind::float32_sum, 10, &memory, 2)));
}

TEST_F(TwoRanks, CallsThatAreNotOfTheirKindAreNotTaken) {
  std::vector<uint8_t> memory(4096);
  const auto takes = [&](CallKind kind, const Arrays& arrays, const Lanes& lanes, Form form) {
    Call call;
    call.codec = make_codec(kind, arrays, true, geometry(2), lanes, form);
    return job_[0].calls->takes(call);
  };
  const Arrays whole{memory.data(), memory.data(), 1024};
  EXPECT_TRUE(takes(CallKind::float32_sum, whole, {}, Form::dense));
  EXPECT_TRUE(takes(CallKind::barrier, {}, {}, Form::dense));
  EXPECT_FALSE(takes(CallKind::float32_sum, whole, {16}, Form::dense));
  EXPECT_FALSE(takes(CallKind::float32_sum, whole, {}, Form::sparse));
  EXPECT_FALSE(takes(CallKind::int16_sum, whole, {16}, Form::dense));
  Geometry of_formats = geometry(2);
  of_formats.formats = UINT32_MAX;
  for (const wire::Format format : {wire::Format::float32, wire::Format::natural8}) {
    for (const uint32_t in_place : {0U, channel::Geometry::kInPlace}) {
      of_formats.results_apart = in_place;
      Call call;
      call.codec = make_codec(CallKind::float32_sum, whole, true, of_formats, {32, false, 0, 0, format});
      EXPECT_FALSE(job_[0].calls->takes(call));
    }
  }
}

// ---- the end of an epoch --------------------------------------------------------------------------------------------

// Freezes at every step of a call of several pieces: both ranks come to the same conclusion, whichever looks first.
TEST(DirectCalls, AFrozenCallIsCompleteForAllRanksOrForNone) {
  constexpr uint64_t kElements = 600'000;  // more pieces than rows
  for (size_t steps = 0;; ++steps) {
    Job job(2);
    std::vector<std::vector<uint8_t>> memory(2, std::vector<uint8_t>(kElements * sizeof(float)));
    for (const uint32_t rank : {0, 1}) {
      for (uint64_t sequence = 0; sequence < 2; ++sequence) {
        job[rank].calls->add(call_of(sequence, CallKind::float32_sum, kElements, &memory[rank], 2));
      }
    }
    size_t done = 0;
    bool any = true;
    while (done < steps && any) {
      any = false;
      for (const uint32_t rank : {1, 0}) {
        if (done < steps && job[rank].calls->advance(&job[rank].ended)) {
          any = true;
          done += 1;
        }
      }
    }
    job[0].calls->freeze();
    for (const uint32_t rank : {0, 1}) {
      while (job[rank].calls->has_results()) job[rank].calls->advance(&job[rank].ended);
      job[rank].calls->advance(&job[rank].ended);
      EXPECT_FALSE(job[rank].calls->has_results());
    }
    EXPECT_EQ(job[0].ended.size(), job[1].ended.size()) << "after " << steps << " steps";
    if (done < steps) {  // the calls had ended
      EXPECT_EQ(job[0].ended.size(), 2U);
      break;
    }
  }
}

TEST(DirectCalls, OtherMemoryIsRefused) {
  const SharedMemory small("test", 4096, SharedMemory::Others::may_write);
  const SharedMemory zeros("test", DirectMemory::bytes(2), SharedMemory::Others::may_write);
  SharedMemory of_three("test", DirectMemory::bytes(3), SharedMemory::Others::may_write);
  DirectMemory::make(of_three.data(), 3);
  channel::ChannelControl control{};
  ThreadTime time(&control);
  for (const int fd : {small.fd(), zeros.fd(), of_three.fd()}) {
    EXPECT_THROW(DirectCalls(fd, geometry(2), &control, &time), std::invalid_argument);
  }
}

}  // namespace
}  // namespace switchml::client
