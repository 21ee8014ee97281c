#include "dataplane/softswitch/native/pipeline/slot_store.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "dataplane/softswitch/native/pipeline/slot_values.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/kernels/half.h"
#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint16_t kSlotBase = 4;
constexpr uint32_t kValues = 16;
constexpr uint8_t kRanks = 3;
constexpr uint64_t kEveryone = (1U << kRanks) - 1;
constexpr size_t kHalf = size_t{2} * (kSlotBase + 1);  // of the job's second pool index

// The format of all values of a test. Every number of these tests, and every sum, is a whole float32, too.
wire::Format format = wire::Format::int32;

uint32_t word_of(uint32_t number) {
  return format == wire::Format::float32 ? kernels::bits_of(static_cast<float>(number)) : number;
}

uint64_t number_of(uint64_t word) {
  return format == wire::Format::float32 ? static_cast<uint64_t>(kernels::float_of(static_cast<uint32_t>(word))) : word;
}

// Big-endian words of the numbers first, first + 1, ...
std::vector<uint8_t> words(uint32_t first) {
  std::vector<uint8_t> bytes(kValues * sizeof(uint32_t));
  for (uint32_t lane = 0; lane < kValues; ++lane) wire::store32(&bytes[lane * sizeof(uint32_t)], word_of(first + lane));
  return bytes;
}

uint64_t sum_of(const SlotStore& store, size_t lane = 0) { return number_of(store.word(kHalf, lane)); }

// The values of the slot's memory; a sum of floats that has not been rounded yet is not among them.
uint64_t memory_word(const SlotStore& store, size_t lane = 0, size_t half = kHalf) {
  const HalfState& state = store.state(half);
  const bool is_apart = format == wire::Format::float32 && uses_memory(state.values) && !state.rounded;
  return number_of(is_apart ? store.word(half, lane) : wire::load32(store.values(half) + lane * sizeof(uint32_t)));
}

void add_packet(SlotStore* store, uint32_t first, size_t half = kHalf) {
  const std::vector<uint8_t> bytes = words(first);
  Values values;
  values.words = bytes.data();
  store->add(half, values);
}

// ---- values in packets only ----

class PacketStore : public testing::Test {
 protected:
  PacketStore() { store_.begin(kHalf, wire::Format::int32); }

  PacketSlotStore store_{kSlotBase + kSlots, kValues};
};

TEST_F(PacketStore, FirstValuesOfAPhaseOverwrite) {
  add_packet(&store_, 1000);
  store_.begin(kHalf, wire::Format::int32);
  EXPECT_FALSE(store_.state(kHalf).filled());
  add_packet(&store_, 5);
  EXPECT_TRUE(store_.state(kHalf).filled());
  EXPECT_EQ(store_.word(kHalf, 0), 5U);
  EXPECT_EQ(store_.word(kHalf, kValues - 1), 5U + kValues - 1);
}

TEST_F(PacketStore, LaterValuesAreAddedModulo32Bits) {
  add_packet(&store_, UINT32_MAX - 1);
  add_packet(&store_, 3);
  EXPECT_EQ(store_.word(kHalf, 0), 1U);
  EXPECT_EQ(store_.word(kHalf, 2), 5U);
}

TEST_F(PacketStore, HalvesAreApart) {
  store_.begin(kHalf + 1, wire::Format::int32);
  add_packet(&store_, 10);
  add_packet(&store_, 20, kHalf + 1);
  EXPECT_EQ(store_.word(kHalf, 0), 10U);
  EXPECT_EQ(store_.word(kHalf + 1, 0), 20U);
}

TEST_F(PacketStore, SumIsThereWithTheLastPacket) {
  add_packet(&store_, 1);
  EXPECT_TRUE(store_.complete(kHalf, {}, {}, kEveryone));
}

TEST_F(PacketStore, LanesAreRegisters) {
  store_.write_register("lane_3", 1, 0x01020304);
  EXPECT_EQ(store_.values(1)[12], 0x01);
  EXPECT_EQ(store_.values(1)[15], 0x04);
  EXPECT_EQ(store_.read_register("lane_3", 1), 0x01020304U);
  EXPECT_EQ(store_.read_register("lane_3", 0), 0U);
  EXPECT_THROW(store_.read_register("lane_16", 0), std::out_of_range);
  EXPECT_THROW(store_.read_register("lane_03", 0), std::out_of_range);
  EXPECT_THROW(store_.read_register("lane_3", 2 * (kSlotBase + kSlots)), std::invalid_argument);
}

TEST_F(PacketStore, RegistersRefuseWhatDoesNotFit) {
  EXPECT_THROW(store_.write_register("slot_epoch", 0, 0x10000), std::invalid_argument);
  EXPECT_THROW(store_.write_register("slot_phase", 0, uint64_t{1} << 32U), std::invalid_argument);
  EXPECT_THROW(store_.write_register("slot_filled", 0, 2), std::invalid_argument);
  EXPECT_THROW(store_.write_register("slot", 0, 0), std::out_of_range);
  store_.write_register("slot_bitmap", 0, UINT64_MAX);
  EXPECT_EQ(store_.read_register("slot_bitmap", 0), UINT64_MAX);
}

TEST_F(PacketStore, ClearedFilledRegisterLetsTheNextValuesOverwrite) {
  add_packet(&store_, 1000);
  EXPECT_EQ(store_.read_register("slot_filled", kHalf), 1U);
  store_.write_register("slot_filled", kHalf, 0);
  add_packet(&store_, 5);
  EXPECT_EQ(store_.word(kHalf, 0), 5U);
}

// ---- floats in packets ----

void add_floats(SlotStore* store, float number) {
  std::vector<uint8_t> bytes(kValues * sizeof(uint32_t));
  for (size_t lane = 0; lane < kValues; ++lane)
    wire::store32(&bytes[lane * sizeof(uint32_t)], kernels::bits_of(number));
  Values values;
  values.words = bytes.data();
  store->add(kHalf, values);
}

float first_float(const SlotStore& store) { return kernels::float_of(wire::load32(store.values(kHalf))); }

class FloatStore : public testing::Test {
 protected:
  FloatStore() { store_.begin(kHalf, wire::Format::float32); }

  PacketSlotStore store_{kSlotBase + kSlots, kValues};
};

TEST_F(FloatStore, SumIsRoundedWithTheLastPacket) {
  add_floats(&store_, 1.0F);
  add_floats(&store_, 0x1p-24F);
  add_floats(&store_, 0x1p-40F);  // too small alone, and with the one before more than half a unit
  EXPECT_EQ(store_.word(kHalf, 0), kernels::bits_of(1.0F + 0x1p-23F));
  ASSERT_TRUE(store_.complete(kHalf, {}, {}, kEveryone));
  EXPECT_EQ(first_float(store_), 1.0F + 0x1p-23F);
}

TEST_F(FloatStore, FirstValuesOfAPhaseOverwrite) {
  add_floats(&store_, 1000.0F);
  store_.begin(kHalf, wire::Format::float32);
  EXPECT_FALSE(store_.state(kHalf).filled());
  add_floats(&store_, 5.0F);
  store_.settle(kHalf);
  EXPECT_EQ(first_float(store_), 5.0F);
}

TEST_F(FloatStore, ValuesAfterTheSumAreAddedToTheRoundedSum) {
  add_floats(&store_, 1.0F);
  ASSERT_TRUE(store_.complete(kHalf, {}, {}, kEveryone));
  add_floats(&store_, 2.0F);
  ASSERT_TRUE(store_.complete(kHalf, {}, {}, kEveryone));
  EXPECT_EQ(first_float(store_), 3.0F);
}

// A phase has the format of its first contribution. If a rank brings values in another one, the check does not hold;
// and whatever the sum is, no number of an earlier phase is part of it.
TEST_F(FloatStore, IntegersInAPhaseOfFloatsAreFloats) {
  store_.begin(kHalf, wire::Format::int32);
  add_packet(&store_, 77);
  store_.begin(kHalf, wire::Format::float32);
  add_packet(&store_, 0);
  store_.settle(kHalf);
  EXPECT_EQ(store_.word(kHalf, 0), 0U);
}

TEST(SlotMemory, ImpossibleSizesAreRefused) {
  EXPECT_THROW(PacketSlotStore(0, 1), std::invalid_argument);
  EXPECT_THROW(PacketSlotStore(1, 0), std::invalid_argument);
  EXPECT_THROW(PacketSlotStore(32769, 1), std::invalid_argument);
  EXPECT_THROW(PacketSlotStore(1, 2049), std::invalid_argument);
}

// ---- values in memory that ranks share with the switch ----

// One job and its ranks' memory.
struct Ranks {
  std::vector<channel::SharedMemory> memory;
  ShmJob job;

  Ranks() : job(ShmJobKey{1, 1, kSlotBase, kRanks, kSlots, kValues}) {
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      memory.emplace_back("test-rank", channel::Channel::bytes(kSlots, kValues, true),
                          channel::SharedMemory::Others::may_read);
      job.set_contributions(rank, channel::Channel::contributions(memory.back().data(), kSlots));
    }
  }
  void write(uint8_t rank, uint32_t first, size_t half = kHalf) {
    const std::vector<uint8_t> bytes = words(first);
    std::memcpy(job.contribution(rank, half / 2), bytes.data(), bytes.size());
  }
  uint64_t word(uint8_t rank, size_t lane = 0, size_t half = kHalf) const {
    return number_of(wire::load32(job.contribution(rank, half / 2) + lane * sizeof(uint32_t)));
  }
};

// Its parameter is the format of the values.
class SharedStore : public testing::TestWithParam<wire::Format> {
 protected:
  SharedStore() {
    format = GetParam();
    begin();
  }
  ~SharedStore() override { format = wire::Format::int32; }

  void begin(size_t half = kHalf) { store_.begin(half, format); }

  void add(Ranks* ranks, uint8_t rank, uint32_t first, size_t half = kHalf) {
    ranks->write(rank, first, half);
    const SharedValues shared{&ranks->job, rank, &sums_};
    Values values;
    values.shared = &shared;
    store_.add(half, values);
  }
  void lend(Ranks* ranks, uint8_t rank) {
    const SharedValues shared{&ranks->job, rank, &sums_};
    Values values;
    values.shared = &shared;
    store_.lend(kHalf, values);
  }
  // Handles the last contribution, from this rank's buffer. Returns whether the sum is in the slot's memory.
  bool complete(Ranks* ranks, uint8_t last, uint64_t everyone = kEveryone, uint8_t owner = wire::owner::everyone) {
    const SharedValues shared{&ranks->job, last, &sums_};
    Values values;
    values.shared = &shared;
    Completion completion;
    completion.group = 77;
    completion.answer.owner = owner;
    return store_.complete(kHalf, values, completion, everyone);
  }
  // Handles the last contribution, in a packet without values.
  bool complete_by_packet(uint64_t everyone = kEveryone) {
    const std::vector<uint8_t> nothing;
    Values values;
    values.words = nothing.data();
    store_.lend(kHalf, values);
    return store_.complete(kHalf, values, {}, everyone);
  }
  // Makes the only pending sum.
  SumTask run() {
    std::vector<SumTask> made;
    sums_.run_all(&made);
    EXPECT_EQ(made.size(), 1U);
    return made.at(0);
  }
  SlotValues state() { return store_.state(kHalf).values; }

  SharedSlotStore store_{kSlotBase + kSlots, kValues};
  SumQueue sums_;
  Ranks ranks_;
};

TEST_P(SharedStore, BuffersAreSummedWhereTheyAre) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 100U * (rank + 1U));
  EXPECT_EQ(state(), SlotValues::in_buffers);
  EXPECT_EQ(sum_of(store_, 1), 603U);  // before the sum is made
  EXPECT_EQ(ranks_.word(0), 100U);     // no values were moved
  ASSERT_FALSE(complete(&ranks_, 2));
  EXPECT_EQ(state(), SlotValues::summing);
  const Completion* completion = store_.finish(run());
  ASSERT_NE(completion, nullptr);
  EXPECT_EQ(completion->group, 77);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, kEveryone);
  EXPECT_EQ(state(), SlotValues::in_results);
  for (uint8_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks_.word(rank, 1), 603U);
  EXPECT_EQ(sum_of(store_, 1), 603U);
}

TEST_P(SharedStore, OnlyTheOwnersBufferGetsTheSum) {
  for (uint8_t owner = 0; owner < kRanks; ++owner) {
    begin();
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      add(&ranks_, rank, 100U * (rank + 1U));
      store_.state(kHalf).bitmap |= uint64_t{1} << rank;
    }
    ASSERT_FALSE(complete(&ranks_, 2, kEveryone, wire::owner::first + owner));
    EXPECT_EQ(state(), SlotValues::summing);
    ASSERT_NE(store_.finish(run()), nullptr);
    EXPECT_EQ(state(), SlotValues::in_results);
    EXPECT_EQ(ranks_.job.result(kHalf).ranks, 1U << owner);
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ranks_.word(rank, 1), rank == owner ? 603U : 100U * (rank + 1U) + 1U) << int{rank};
    }
    EXPECT_EQ(sum_of(store_, 1), 603U);
    EXPECT_EQ(memory_word(store_), 0U);
  }
}

TEST_P(SharedStore, OwnerThatBringsNoValuesGetsTheSumInItsBuffer) {
  add(&ranks_, 0, 10);
  add(&ranks_, 1, 100);
  ranks_.write(2, 0xDEAD);
  lend(&ranks_, 2);
  ASSERT_FALSE(complete(&ranks_, 1, kEveryone, wire::owner::first + 2));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(ranks_.word(0), 10U);
  EXPECT_EQ(ranks_.word(1), 100U);
  EXPECT_EQ(ranks_.word(2), 110U);
}

TEST_P(SharedStore, OwnerThatSendsPacketsGetsTheSumFromTheSlot) {
  add(&ranks_, 0, 10);
  add_packet(&store_, 1);
  add(&ranks_, 2, 100);
  ASSERT_FALSE(complete(&ranks_, 2, kEveryone, wire::owner::first + 1));
  EXPECT_EQ(state(), SlotValues::summing_both);
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 0U);
  EXPECT_EQ(ranks_.word(0), 10U);
  EXPECT_EQ(ranks_.word(2), 100U);
  EXPECT_EQ(memory_word(store_), 111U);
}

TEST_P(SharedStore, OwnerThatLeavesDuringTheSumLeavesItToTheSlot) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 10);
  ASSERT_FALSE(complete(&ranks_, 2, kEveryone, wire::owner::first + 1));
  const SumTask made = run();
  store_.take_over(ranks_.job, 0);
  EXPECT_EQ(state(), SlotValues::summing);
  store_.take_over(ranks_.job, 1);
  EXPECT_EQ(state(), SlotValues::summing_both);
  ASSERT_NE(store_.finish(made), nullptr);
  EXPECT_EQ(memory_word(store_), 30U);
}

TEST_P(SharedStore, OwnerThatNoRankIsLeavesTheSumToTheSlot) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 10);
  ASSERT_FALSE(complete(&ranks_, 2, kEveryone, wire::owner::except - 1));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(ranks_.word(0), 10U);
  EXPECT_EQ(memory_word(store_), 30U);
}

TEST_P(SharedStore, AllButTheNamedRankGetTheSum) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 10);
  ASSERT_FALSE(complete(&ranks_, 2, kEveryone, wire::owner::except + wire::owner::first + 1));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(state(), SlotValues::in_results);
  EXPECT_EQ(ranks_.word(0), 30U);
  EXPECT_EQ(ranks_.word(1), 10U);
  EXPECT_EQ(ranks_.word(2), 30U);
}

TEST_P(SharedStore, PacketsAndBuffersMakeOneSum) {
  add(&ranks_, 0, 10);
  add_packet(&store_, 1);
  add(&ranks_, 2, 100);
  EXPECT_EQ(state(), SlotValues::in_both);
  EXPECT_EQ(sum_of(store_), 111U);
  ASSERT_FALSE(complete(&ranks_, 2));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 0b101U);
  EXPECT_EQ(ranks_.word(0), 111U);
  EXPECT_EQ(ranks_.word(2), 111U);
  EXPECT_EQ(memory_word(store_), 111U);  // for the rank that sends packets
}

TEST_P(SharedStore, SumIsInTheSlotWhereThePacketCameLast) {
  add(&ranks_, 0, 10);
  add(&ranks_, 1, 100);
  add_packet(&store_, 1);
  const std::vector<uint8_t> bytes = words(1);
  Values last;
  last.words = bytes.data();
  EXPECT_TRUE(store_.complete(kHalf, last, {}, kEveryone));
  EXPECT_FALSE(sums_.any_wait());
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(memory_word(store_), 111U);
}

TEST_P(SharedStore, RankWithoutValuesGetsTheSumInItsBuffer) {
  add_packet(&store_, 7);
  store_.settle(kHalf);
  begin();
  ranks_.write(2, 0xDEAD);
  add(&ranks_, 0, 10);
  lend(&ranks_, 2);
  add(&ranks_, 1, 20);
  EXPECT_EQ(store_.sources(kHalf), 0b011U);
  EXPECT_EQ(store_.lent(kHalf), kEveryone);
  EXPECT_EQ(sum_of(store_), 30U);
  ASSERT_FALSE(complete(&ranks_, 1));
  EXPECT_EQ(state(), SlotValues::summing);
  EXPECT_EQ(store_.lent(kHalf), kEveryone);  // until it is finished
  ASSERT_NE(store_.finish(run()), nullptr);
  for (uint8_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks_.word(rank, 1), 32U) << int{rank};
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, kEveryone);
  EXPECT_EQ(memory_word(store_), 7U);  // unchanged
  EXPECT_EQ(sum_of(store_), 30U);
  EXPECT_EQ(store_.lent(kHalf), 0U);
}

TEST_P(SharedStore, ValuesOfOneRankAreCopiedToTheOthers) {
  for (uint8_t owner = 0; owner < kRanks; ++owner) {
    begin();
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      if (rank == owner) {
        add(&ranks_, rank, 10U * (owner + 1U));
      } else {
        ranks_.write(rank, 0xDEAD);
        lend(&ranks_, rank);
      }
    }
    ASSERT_FALSE(complete(&ranks_, 2));
    ASSERT_NE(store_.finish(run()), nullptr);
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ranks_.word(rank, kValues - 1), 10U * (owner + 1U) + kValues - 1) << int{rank};
    }
  }
}

TEST_P(SharedStore, ValuesOfAPacketAreCopiedToLentBuffers) {
  lend(&ranks_, 0);
  add_packet(&store_, 40);
  lend(&ranks_, 2);
  ASSERT_FALSE(complete(&ranks_, 2));
  EXPECT_EQ(state(), SlotValues::summing_both);
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 0b101U);
  EXPECT_EQ(ranks_.word(0, 1), 41U);
  EXPECT_EQ(ranks_.word(2, 1), 41U);
  EXPECT_EQ(memory_word(store_, 1), 41U);
}

TEST_P(SharedStore, RankThatSendsPacketsWithoutValuesGetsTheSumFromTheSlot) {
  add_packet(&store_, 0xDEAD);
  begin();
  store_.lend(kHalf, {});
  lend(&ranks_, 0);
  add(&ranks_, 1, 20);
  ASSERT_FALSE(complete(&ranks_, 1));  // rank 2 has no buffer
  EXPECT_EQ(state(), SlotValues::summing_both);
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(memory_word(store_), 20U);
  EXPECT_EQ(memory_word(store_, 1), 21U);
  EXPECT_EQ(ranks_.word(0), 20U);
}

TEST_P(SharedStore, PacketThatComesLastLeavesLentBuffersAlone) {
  add(&ranks_, 0, 10);
  ranks_.write(1, 0xDEAD);
  lend(&ranks_, 1);
  EXPECT_TRUE(complete_by_packet());
  EXPECT_FALSE(sums_.any_wait());
  EXPECT_EQ(memory_word(store_), 10U);
  EXPECT_EQ(store_.lent(kHalf), 0U);
  EXPECT_EQ(ranks_.word(1), 0xDEADU);  // the result is copied there when it is sent
}

TEST_P(SharedStore, ResultWithoutValuesGivesTheBuffersBack) {
  lend(&ranks_, 0);
  lend(&ranks_, 1);
  EXPECT_TRUE(complete(&ranks_, 1, 0b011));
  EXPECT_FALSE(store_.state(kHalf).filled());
  // The entry of rank 2 has another mask. The others have their result, and write what comes next.
  ranks_.write(0, 0xDEAD);
  ranks_.write(1, 0xDEAD);
  add(&ranks_, 2, 5);
  EXPECT_EQ(store_.lent(kHalf), 0U);
  EXPECT_TRUE(complete(&ranks_, 2));
  EXPECT_FALSE(sums_.any_wait());
  EXPECT_EQ(ranks_.word(0), 0xDEADU);
  EXPECT_EQ(ranks_.word(1), 0xDEADU);
  EXPECT_EQ(memory_word(store_), 5U);
}

TEST_P(SharedStore, NoBufferIsLentAfterTheFirstResultOfAPhase) {
  add_packet(&store_, 10);
  EXPECT_TRUE(complete_by_packet(0b001));
  lend(&ranks_, 1);  // may be sent that result, which is for all ranks
  add(&ranks_, 2, 5);
  EXPECT_EQ(store_.lent(kHalf), 0U);
  EXPECT_EQ(store_.sources(kHalf), 0U);
  EXPECT_EQ(memory_word(store_), 15U);
  begin();
  lend(&ranks_, 1);
  EXPECT_EQ(store_.lent(kHalf), 0b010U);
}

TEST_P(SharedStore, RankThatIsSentTheResultAgainHasItsBufferBack) {
  add(&ranks_, 0, 10);
  lend(&ranks_, 1);
  store_.resend(kHalf, 0b010, true);  // its entry lacks the rank that all others wait for
  EXPECT_EQ(memory_word(store_), 10U);
  ranks_.write(0, 0xDEAD);
  ranks_.write(1, 0xDEAD);
  add(&ranks_, 2, 5);
  ASSERT_FALSE(complete(&ranks_, 2));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(ranks_.word(0), 0xDEADU);
  EXPECT_EQ(ranks_.word(1), 0xDEADU);
  EXPECT_EQ(memory_word(store_), 15U);
}

TEST_P(SharedStore, RankThatDoesNotReadTheResultHasItsBufferBack) {
  add(&ranks_, 0, 10);
  add(&ranks_, 1, 20);
  store_.resend(kHalf, 0b010, false);
  EXPECT_EQ(store_.lent(kHalf), 0b001U);
  ranks_.write(1, 0xDEAD);
  add(&ranks_, 2, 5);
  ASSERT_FALSE(complete(&ranks_, 2));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(ranks_.word(0), 35U);
  EXPECT_EQ(ranks_.word(1), 0xDEADU);
}

TEST_P(SharedStore, SumIsCopiedOnlyForARankThatDoesNotHaveIt) {
  add_packet(&store_, 7);
  store_.settle(kHalf);
  begin();
  add(&ranks_, 0, 10);
  lend(&ranks_, 1);
  ASSERT_FALSE(complete(&ranks_, 1, 0b011));
  ASSERT_NE(store_.finish(run()), nullptr);
  store_.resend(kHalf, 0b010, true);
  EXPECT_EQ(state(), SlotValues::in_results);
  EXPECT_EQ(memory_word(store_), 7U);
  store_.resend(kHalf, 0b100, true);
  EXPECT_EQ(memory_word(store_), 10U);
}

TEST_P(SharedStore, BufferThatComesTooLateIsNotWrittenTo) {
  add_packet(&store_, 7);
  store_.settle(kHalf);
  begin();
  add(&ranks_, 0, 10);
  store_.state(kHalf).bitmap = 0b001;
  ASSERT_FALSE(complete(&ranks_, 0, 0b001));
  const SumTask task = run();
  ranks_.write(1, 0xDEAD);
  store_.state(kHalf).bitmap = 0b011;
  lend(&ranks_, 1);
  ASSERT_NE(store_.finish(task), nullptr);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 0b001U);
  EXPECT_EQ(ranks_.word(1), 0xDEADU);
  EXPECT_EQ(memory_word(store_), 10U);  // from where its result is copied
}

TEST_P(SharedStore, SumOfAllBuffersIsNotCopiedUntilSomebodyNeedsIt) {
  add_packet(&store_, 7);
  store_.settle(kHalf);
  begin();
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 1);
  ASSERT_FALSE(complete(&ranks_, 2));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(memory_word(store_), 7U);  // unchanged
  store_.settle(kHalf);
  EXPECT_EQ(memory_word(store_), 3U);
  EXPECT_EQ(state(), SlotValues::in_memory);
}

TEST_P(SharedStore, NextPhaseMakesAnUnfinishedSumWorthless) {
  add(&ranks_, 0, 10);
  ASSERT_FALSE(complete(&ranks_, 0, 1));
  const SumTask task = run();
  begin();
  EXPECT_EQ(store_.finish(task), nullptr);
  EXPECT_EQ(state(), SlotValues::none);
}

TEST_P(SharedStore, NextPhaseGivesAllBuffersBack) {
  add(&ranks_, 0, 10);
  lend(&ranks_, 1);
  begin();
  EXPECT_EQ(store_.sources(kHalf), 0U);
  EXPECT_EQ(store_.lent(kHalf), 0U);
}

TEST_P(SharedStore, ValuesAfterTheLastOnesSpoilTheCheck) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 1);
  const uint32_t check = store_.state(kHalf).check;
  ASSERT_FALSE(complete(&ranks_, 2));
  const SumTask task = run();
  add_packet(&store_, 5);
  EXPECT_NE(store_.state(kHalf).check, check);
  EXPECT_EQ(store_.finish(task), nullptr);
  EXPECT_EQ(store_.lent(kHalf), 0U);  // a thread may still be writing to these buffers
  EXPECT_EQ(memory_word(store_), 5U);
}

TEST_P(SharedStore, ValuesAfterTheSumSpoilTheCheck) {
  add(&ranks_, 0, 10);
  lend(&ranks_, 1);
  ASSERT_FALSE(complete(&ranks_, 1, 0b011));
  ASSERT_NE(store_.finish(run()), nullptr);
  const uint32_t check = store_.state(kHalf).check;
  add(&ranks_, 2, 5);
  EXPECT_NE(store_.state(kHalf).check, check);
  EXPECT_EQ(store_.lent(kHalf), 0U);
  EXPECT_TRUE(complete(&ranks_, 2));
  EXPECT_EQ(memory_word(store_), 15U);
  EXPECT_EQ(ranks_.word(0), 10U);
  EXPECT_EQ(ranks_.word(1), 10U);
}

TEST_P(SharedStore, SecondCompletionOfAPhaseMakesNoSecondSum) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 1);
  ASSERT_FALSE(complete(&ranks_, 2));
  EXPECT_FALSE(complete(&ranks_, 1));
  EXPECT_NE(store_.finish(run()), nullptr);
}

TEST_P(SharedStore, LeavingRankLeavesItsValuesBehind) {
  add(&ranks_, 0, 10);
  add(&ranks_, 1, 200);
  store_.take_over(ranks_.job, 1);
  ranks_.write(1, 9999);  // its memory is no longer the switch's
  EXPECT_EQ(store_.sources(kHalf), 1U);
  EXPECT_EQ(store_.lent(kHalf), 1U);
  EXPECT_EQ(sum_of(store_), 210U);
  ASSERT_FALSE(complete(&ranks_, 0, 0b11));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 1U);
  EXPECT_EQ(ranks_.word(0), 210U);
}

TEST_P(SharedStore, RanksThatLeaveBeforeTheirSumIsFinishedLeaveTheSumBehind) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) add(&ranks_, rank, 1);
  ASSERT_FALSE(complete(&ranks_, 2));
  const SumTask task = run();
  for (uint8_t rank = 0; rank < kRanks; ++rank) store_.take_over(ranks_.job, rank);
  ASSERT_NE(store_.finish(task), nullptr);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 0U);
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(memory_word(store_), 3U);
}

TEST_P(SharedStore, RanksWithoutValuesThatLeaveGetNoSum) {
  add(&ranks_, 0, 10);
  lend(&ranks_, 1);
  lend(&ranks_, 2);
  store_.take_over(ranks_.job, 1);
  ranks_.write(1, 9999);
  ASSERT_FALSE(complete(&ranks_, 2));
  const SumTask task = run();
  EXPECT_EQ(ranks_.word(1), 9999U);
  EXPECT_EQ(memory_word(store_), 10U);  // as if that rank had sent a packet
  store_.take_over(ranks_.job, 0);      // the sum is made but not finished
  ASSERT_NE(store_.finish(task), nullptr);
  EXPECT_EQ(ranks_.job.result(kHalf).ranks, 0b100U);
  EXPECT_EQ(ranks_.word(2), 10U);
}

TEST_P(SharedStore, JobWhoseRanksBroughtNoValuesIsForgotten) {
  lend(&ranks_, 0);
  store_.take_over(ranks_.job, 0);
  store_.forget(ranks_.job);
  EXPECT_EQ(store_.lent(kHalf), 0U);
  EXPECT_FALSE(store_.state(kHalf).filled());
}

TEST_P(SharedStore, SettlingBringsAllValuesIntoTheSlot) {
  add_packet(&store_, 1);
  add(&ranks_, 0, 10);
  lend(&ranks_, 2);
  add(&ranks_, 1, 100);
  store_.settle(kHalf);
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(memory_word(store_), 111U);
  EXPECT_EQ(sum_of(store_), 111U);
  EXPECT_EQ(store_.sources(kHalf), 0U);
  EXPECT_EQ(store_.lent(kHalf), 0U);
}

TEST_P(SharedStore, ForgottenJobHasNothingInAnySlot) {
  begin(kHalf + 2);
  add(&ranks_, 0, 10);
  add(&ranks_, 0, 20, kHalf + 2);
  ASSERT_FALSE(complete(&ranks_, 0, 1));
  const SumTask task = run();
  store_.take_over(ranks_.job, 0);
  store_.forget(ranks_.job);
  EXPECT_EQ(store_.finish(task), nullptr);
  EXPECT_EQ(state(), SlotValues::in_memory);
  EXPECT_EQ(store_.sources(kHalf + 2), 0U);
  EXPECT_EQ(memory_word(store_, 0, kHalf + 2), 20U);
}

TEST_P(SharedStore, ValuesOfAnotherGenerationAreAddedAtOnce) {
  Ranks next;
  add(&ranks_, 0, 10);
  add(&next, 1, 200);
  next.write(1, 9999);
  EXPECT_EQ(sum_of(store_), 210U);
}

TEST_P(SharedStore, BufferOfAnotherGenerationIsNotWrittenTo) {
  Ranks next;
  next.write(1, 9999);
  add(&ranks_, 0, 10);
  lend(&next, 1);
  ASSERT_FALSE(complete(&ranks_, 0, 0b011));
  ASSERT_NE(store_.finish(run()), nullptr);
  EXPECT_EQ(next.word(1), 9999U);
  EXPECT_EQ(memory_word(store_), 10U);
}

TEST_P(SharedStore, SumOfAnotherStoreIsNotFinished) {
  SharedSlotStore other(kSlotBase + kSlots, kValues);
  other.begin(kHalf, format);
  add(&ranks_, 0, 10);
  ASSERT_FALSE(complete(&ranks_, 0, 1));
  EXPECT_EQ(other.finish(run()), nullptr);
}

TEST_P(SharedStore, WrittenLaneChangesTheSumOfAll) {
  add(&ranks_, 0, 10);
  add(&ranks_, 1, 100);
  store_.write_register("lane_0", kHalf, word_of(5));
  EXPECT_EQ(number_of(store_.read_register("lane_0", kHalf)), 5U);
  EXPECT_EQ(number_of(store_.read_register("lane_1", kHalf)), 112U);
}

INSTANTIATE_TEST_SUITE_P(Formats, SharedStore, testing::Values(wire::Format::int32, wire::Format::float32),
                         [](const auto& named) { return named.param == wire::Format::int32 ? "int32" : "float32"; });

TEST(SumQueue, SumsAreTakenSixteenAtATime) {
  SumQueue queue;
  for (size_t half = 0; half < 20; ++half) {
    SumTask task;
    task.half = half;
    queue.add(task);
  }
  std::vector<SumTask> taken;
  queue.exchange(0, &taken);
  ASSERT_EQ(taken.size(), 16U);
  EXPECT_EQ(taken[15].half, 15U);
  EXPECT_TRUE(queue.any_wait());
  queue.exchange(16, &taken);
  ASSERT_EQ(taken.size(), 4U);
  EXPECT_EQ(taken[0].half, 16U);
  EXPECT_FALSE(queue.any_wait());
  EXPECT_TRUE(queue.any_left());  // the sums are in progress
  queue.exchange(4, &taken);
  EXPECT_FALSE(queue.any_left());
}

// ---- the states of a half's values ----

TEST(SlotValues, EveryPhaseMayBegin) {
  for (uint8_t from = 0; from < kSlotValues; ++from) {
    EXPECT_EQ(after(static_cast<SlotValues>(from), SlotEvent::begin), SlotValues::none);
  }
}

TEST(SlotValues, EachTransitionIsListedOnce) {
  int legal = 0;
  for (uint8_t from = 0; from < kSlotValues; ++from) {
    for (uint8_t event = 0; event < kSlotEvents; ++event) {
      legal += is_legal(static_cast<SlotValues>(from), static_cast<SlotEvent>(event)) ? 1 : 0;
    }
  }
  EXPECT_EQ(legal, static_cast<int>(std::size(kSlotTransitions)));
}

TEST(SlotValues, SumsAreHandedOverOnlyWithValues) {
  for (uint8_t number = 0; number < kSlotValues; ++number) {
    const auto from = static_cast<SlotValues>(number);
    const bool in_buffers = from == SlotValues::in_buffers;
    EXPECT_EQ(is_legal(from, SlotEvent::hand_over), in_buffers) << int{number};
    const bool has_values = in_buffers || from == SlotValues::in_memory || from == SlotValues::in_both;
    EXPECT_EQ(is_legal(from, SlotEvent::hand_over_both), has_values) << int{number};
    EXPECT_EQ(is_legal(from, SlotEvent::finish), is_summing(from)) << int{number};
  }
}

TEST(SlotValuesDeathTest, IllegalTransitionEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(after(SlotValues::none, SlotEvent::finish), "");
}

}  // namespace
}  // namespace switchml::soft
