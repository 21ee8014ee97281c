#include "native/channel/sender_slots.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <vector>

namespace switchml::channel {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kSlotUses = 100;

Ticket ticket(uint32_t position) { return {position, 2000 + position, 1000 + position, 9, 16, 1, 3, 0}; }

class Slots : public testing::Test {
 protected:
  // Moves a slot through one phase.
  Ticket use(uint32_t slot, uint32_t chunk) {
    EXPECT_TRUE(slots_.submit(slot, ticket(chunk)));
    EXPECT_EQ(slots_.send_next(kSlots), slot);
    return slots_.complete(slot, slots_.header(slot));
  }

  SenderSlots slots_{Sender{7, 3, 5, 0x5EC2E7, 8, kSlots, kSlotUses}};
};

TEST_F(Slots, GoFromTheProcessIntoFlightAndBack) {
  EXPECT_EQ(slots_.state(1), SenderSlots::State::with_process);
  ASSERT_TRUE(slots_.submit(1, ticket(1)));
  EXPECT_EQ(slots_.state(1), SenderSlots::State::queued);
  EXPECT_EQ(slots_.in_flight(), 0U);
  EXPECT_EQ(slots_.send_next(kSlots), 1);
  EXPECT_EQ(slots_.state(1), SenderSlots::State::in_flight);
  EXPECT_EQ(slots_.in_flight(), 1U);
  slots_.complete(1, slots_.header(1));
  EXPECT_EQ(slots_.state(1), SenderSlots::State::with_process);
  EXPECT_EQ(slots_.in_flight(), 0U);
  EXPECT_EQ(slots_.uses(), 1U);
}

TEST_F(Slots, HeaderSaysWhatTheProcessHasNoSayIn) {
  Ticket said = ticket(2);
  said.flags = wire::flag::last_chunk | wire::flag::retransmission;
  ASSERT_TRUE(slots_.submit(2, said));
  const wire::Header header = slots_.header(2);
  EXPECT_EQ(header.kind, static_cast<uint8_t>(wire::Kind::contribution));
  EXPECT_EQ(header.job, 7);
  EXPECT_EQ(header.worker, 3);
  EXPECT_EQ(header.epoch, 5);
  EXPECT_EQ(header.secret, 0x5EC2E7U);
  EXPECT_EQ(header.slot, 2 * (8 + 2));
  EXPECT_EQ(header.chunk, 2002U);
  EXPECT_EQ(header.check, 1002U);
  EXPECT_EQ(header.owner, 3);
  EXPECT_EQ(header.flags, wire::flag::last_chunk);
}

TEST_F(Slots, HeaderNamesTheOwnerByItsNumberAtTheSwitch) {
  Sender sender{7, 3, 5, 0x5EC2E7, 8, kSlots, kSlotUses};
  sender.owners[3] = 9;
  SenderSlots slots(sender);
  ASSERT_TRUE(slots.submit(2, ticket(2)));
  EXPECT_EQ(slots.ticket(2).owner, 3);
  EXPECT_EQ(slots.header(2).owner, 9);
}

TEST_F(Slots, PhaseChoosesTheHalf) {
  use(1, 1);
  ASSERT_TRUE(slots_.submit(1, ticket(1 + kSlots)));
  EXPECT_EQ(slots_.header(1).phase, 1U);
  EXPECT_EQ(slots_.header(1).slot, 2 * (8 + 1) + 1);
}

TEST_F(Slots, FormatBeyondEightBitsIsNoFormat) {
  Ticket said = ticket(0);
  said.format = 0x0101;
  ASSERT_TRUE(slots_.submit(0, said));
  EXPECT_EQ(slots_.header(0).format, kNoFormat);
}

TEST_F(Slots, ResultsTicketHasNoRetransmissionFlag) {
  ASSERT_TRUE(slots_.submit(0, ticket(0)));
  EXPECT_EQ(slots_.send_next(kSlots), 0);
  wire::Header result = slots_.header(0);
  result.check = 4242;
  result.flags = wire::flag::retransmission | wire::flag::last_chunk;
  const Ticket taken = slots_.complete(0, result);
  EXPECT_EQ(taken.check, 4242U);
  EXPECT_EQ(taken.flags, wire::flag::last_chunk);
}

TEST_F(Slots, OnlyTheResultOfThePhaseInFlightIsAwaited) {
  EXPECT_FALSE(slots_.awaits(0, 0));
  ASSERT_TRUE(slots_.submit(0, ticket(0)));
  EXPECT_FALSE(slots_.awaits(0, 0));  // not sent yet
  EXPECT_EQ(slots_.send_next(kSlots), 0);
  EXPECT_TRUE(slots_.awaits(0, 0));
  EXPECT_FALSE(slots_.awaits(0, 1));
  slots_.complete(0, slots_.header(0));
  EXPECT_FALSE(slots_.awaits(0, 0));
}

TEST_F(Slots, SlotThatTheProcessDoesNotHaveIsRefused) {
  ASSERT_TRUE(slots_.submit(0, ticket(0)));
  EXPECT_FALSE(slots_.submit(0, ticket(0)));
  EXPECT_EQ(slots_.send_next(kSlots), 0);
  EXPECT_FALSE(slots_.submit(0, ticket(0)));
  EXPECT_FALSE(slots_.submit(kSlots, ticket(0)));
  EXPECT_EQ(slots_.stream_end(), 1U);
}

TEST_F(Slots, ChunkIsTheSameAgainOrOnePoolFurtherOn) {
  use(1, 1);
  EXPECT_FALSE(slots_.submit(1, ticket(2)));
  EXPECT_FALSE(slots_.submit(1, ticket(1 + 2 * kSlots)));
  use(1, 1);  // another phase of the chunk
  use(1, 1 + kSlots);
  EXPECT_FALSE(slots_.submit(1, ticket(1)));
}

TEST_F(Slots, ChunkMoreThanAPoolBehindTheFurthestIsRefused) {
  use(1, 1);
  use(1, 1 + kSlots);
  EXPECT_FALSE(slots_.submit(0, ticket(0)));
  EXPECT_TRUE(slots_.submit(2, ticket(2)));
}

TEST_F(Slots, StateIsThatOfTheChunkInTheSlot) {
  ASSERT_TRUE(slots_.submit(1, ticket(1)));
  EXPECT_EQ(slots_.state_of(1), SenderSlots::State::queued);
  EXPECT_EQ(slots_.state_of(1 + kSlots), SenderSlots::State::with_process);
}

TEST_F(Slots, AreSentInTheOrderOfTheStream) {
  for (const uint32_t slot : {2U, 0U, 3U}) ASSERT_TRUE(slots_.submit(slot, ticket(slot)));
  EXPECT_EQ(slots_.queued(), 3U);
  EXPECT_EQ(slots_.send_next(kSlots), 0U);
  ASSERT_TRUE(slots_.submit(1, ticket(1)));
  EXPECT_EQ(slots_.send_next(kSlots), 1U);
  EXPECT_EQ(slots_.send_next(kSlots), 2U);
  EXPECT_EQ(slots_.send_next(kSlots), 3U);
  EXPECT_EQ(slots_.send_next(kSlots), std::nullopt);
  EXPECT_EQ(slots_.queued(), 0U);
}

// A slot's second phase is in the window of its position, although later positions were submitted before it.
TEST_F(Slots, WindowIsARangeOfTheStream) {
  for (const uint32_t slot : {0U, 1U, 2U}) ASSERT_TRUE(slots_.submit(slot, ticket(slot)));
  EXPECT_EQ(slots_.send_next(2), 0U);
  EXPECT_EQ(slots_.send_next(2), 1U);
  EXPECT_FALSE(slots_.may_send(2));
  EXPECT_EQ(slots_.send_next(2), std::nullopt);
  slots_.complete(1, slots_.header(1));
  EXPECT_FALSE(slots_.may_send(2));  // position 0 is unfinished
  ASSERT_TRUE(slots_.submit(1, ticket(1)));
  EXPECT_EQ(slots_.send_next(2), 1U);
  slots_.complete(0, slots_.header(0));
  EXPECT_EQ(slots_.first(), 1U);
  EXPECT_TRUE(slots_.may_send(2));
  EXPECT_EQ(slots_.send_next(2), 2U);
  ASSERT_TRUE(slots_.submit(0, ticket(0)));
  EXPECT_EQ(slots_.first(), 0U);
  EXPECT_EQ(slots_.send_next(1), 0U);
}

TEST_F(Slots, FirstIsTheEndOfTheStreamIfNothingIsLeft) {
  EXPECT_EQ(slots_.first(), 0U);
  use(0, 0);
  use(1, 1);
  EXPECT_EQ(slots_.first(), 2U);
  use(0, 0 + kSlots);
  EXPECT_EQ(slots_.first(), 1 + kSlots);
}

TEST_F(Slots, PhasesEndWithTheEpoch) {
  for (uint32_t phase = 0; phase < kSlotUses; ++phase) use(0, 0);
  EXPECT_EQ(slots_.uses(), kSlotUses);
  EXPECT_FALSE(slots_.submit(0, ticket(0)));
}

TEST_F(Slots, FrozenSlotsTakeNoResultUntilTheyAreFetched) {
  use(0, 0);
  for (const uint32_t slot : {0U, 1U}) {
    ASSERT_TRUE(slots_.submit(slot, ticket(slot)));
    EXPECT_EQ(slots_.send_next(kSlots), slot);
  }
  EXPECT_FALSE(slots_.frozen());
  slots_.freeze();
  EXPECT_TRUE(slots_.frozen());
  EXPECT_FALSE(slots_.may_complete(0));
  EXPECT_TRUE(slots_.fetch({2, 0, 0, 0}));
  EXPECT_FALSE(slots_.fetch({2, 0, 0, 0}));  // nothing new
  EXPECT_TRUE(slots_.awaits(0, 1));
  EXPECT_FALSE(slots_.awaits(1, 0));
  slots_.complete(0, slots_.header(0));
  EXPECT_EQ(slots_.held(), (std::vector<uint32_t>{2, 0, 0, 0}));
}

TEST_F(Slots, TargetsAreOneForEachSlotOfAFrozenRank) {
  EXPECT_THROW(slots_.fetch({0, 0, 0, 0}), std::invalid_argument);
  slots_.freeze();
  EXPECT_THROW(slots_.fetch({0, 0, 0}), std::invalid_argument);
}

}  // namespace
}  // namespace switchml::channel
