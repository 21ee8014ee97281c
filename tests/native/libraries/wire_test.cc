#include "native/wire/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "native/wire/epoch_limit.h"
#include "native/wire/frame_headers.h"
#include "native/wire/frame_slot.h"
#include "native/wire/slot_blocks.h"
#include "native/wire/udp_frame.h"

namespace switchml::wire {
namespace {

TEST(Header, FieldsAreWhereTheProtocolPutsThem) {
  Header header;
  header.kind = 2;
  header.job = 0x0304;
  header.worker = 5;
  header.format = 6;
  header.exponent = 0x0708;
  header.slot = 0x090A;
  header.count = 0x0B0C;
  header.epoch = 0x0D0E;
  header.owner = 0x0F;
  header.flags = 0x10;
  header.phase = 0x11121314;
  header.chunk = 0x15161718;
  header.check = 0x191A1B1C;
  header.secret = 0x1D1E1F20;
  std::array<uint8_t, protocol::header_bytes> bytes{};
  store_header(bytes.data(), header);
  EXPECT_EQ(bytes[0], protocol::version);
  for (size_t i = 1; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], i + 1) << "byte " << i;
}

TEST(Header, OwnerSaysWhoReadsTheValues) {
  EXPECT_EQ(readers_of(owner::everyone), ~uint64_t{0});
  EXPECT_EQ(readers_of(owner::first), 1U);
  EXPECT_EQ(readers_of(owner::first + 63), uint64_t{1} << 63U);
  EXPECT_EQ(readers_of(owner::first + 64), 0U);
  EXPECT_EQ(readers_of(owner::except - 1), 0U);
  EXPECT_EQ(readers_of(owner::except + owner::first), ~uint64_t{1});
  EXPECT_EQ(readers_of(owner::except + owner::first + 63), ~uint64_t{0} >> 1U);
  EXPECT_EQ(readers_of(owner::except + owner::first + 64), ~uint64_t{0});
  EXPECT_EQ(readers_of(0xFF), ~uint64_t{0});
}

TEST(Header, RanksOfAnyNumberMayReadTheValues) {
  for (const uint32_t rank : {0U, 63U, 64U, 4095U}) {
    EXPECT_TRUE(reads(owner::everyone, rank));
    EXPECT_EQ(reads(owner::first, rank), rank == 0);
    EXPECT_EQ(reads(owner::first + 63, rank), rank == 63);
    EXPECT_EQ(reads(owner::except + owner::first, rank), rank != 0);
  }
}

TEST(Header, OwnerIsGivenTheNumberThatTheSwitchHas) {
  EXPECT_EQ(owner_at_switch(unchanged_owners(), owner::except + owner::first + 126), 0xFF);
  OwnerNumbers numbers = unchanged_owners();
  numbers[owner::first + 5] = owner::first + 2;
  EXPECT_EQ(owner_at_switch(numbers, owner::everyone), owner::everyone);
  EXPECT_EQ(owner_at_switch(numbers, owner::first + 5), owner::first + 2);
  EXPECT_EQ(owner_at_switch(numbers, owner::except + owner::first + 5), owner::except + owner::first + 2);
  EXPECT_EQ(owner_at_switch(numbers, owner::first + 6), owner::first + 6);
}

TEST(Header, WhatIsStoredIsLoaded) {
  std::array<uint8_t, protocol::header_bytes> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(0x80 + i);
  std::array<uint8_t, protocol::header_bytes> again{};
  store_header(again.data(), load_header(bytes.data()));
  EXPECT_EQ(again, bytes);
}

TEST(Numbers, FortyEightBitsAreBigEndian) {
  std::array<uint8_t, 6> bytes{};
  store48(bytes.data(), 0x010203040506);
  EXPECT_EQ(bytes, (std::array<uint8_t, 6>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(load48(bytes.data()), 0x010203040506U);
}

TEST(Checksum, SumsTheExampleOfRfc1071) {
  const std::array<uint8_t, 8> data{0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7};
  EXPECT_EQ(ones_complement_sum(data.data(), data.size()), 0xDDF2);
}

TEST(Checksum, OddByteIsTheHighHalfOfAWord) {
  const std::array<uint8_t, 3> data{0x00, 0x01, 0xF2};
  EXPECT_EQ(ones_complement_sum(data.data(), data.size()), 0xF201);
}

TEST(Checksum, ManyWordsCarryAround) {
  const std::vector<uint8_t> data(65536, 0xFF);
  EXPECT_EQ(ones_complement_sum(data.data(), data.size()), 0xFFFF);
}

TEST(Checksum, Ipv4HeaderSumsToAllOnes) {
  std::array<uint8_t, ipv4::bytes> header{0x45, 0,    0,    0x3C, 0x1C, 0x46, 0x40, 0,  0x40, 6,
                                          0xAB, 0xCD, 0xAC, 16,   10,   99,   0xAC, 16, 10,   12};
  store_ipv4_checksum(header.data());
  EXPECT_EQ(load16(&header[ipv4::checksum]), 0xB1E6);
  EXPECT_EQ(ones_complement_sum(header.data(), header.size()), 0xFFFF);
}

TEST(SlotBlocks, OneThreadHasAllSlots) {
  for (const uint32_t slot : {0U, 127U, 128U, 32767U}) EXPECT_EQ(part_of_slot(slot, 1), 0U);
}

TEST(SlotBlocks, BlocksOf128SlotsGoAround) {
  EXPECT_EQ(part_of_slot(0, 3), 0U);
  EXPECT_EQ(part_of_slot(127, 3), 0U);
  EXPECT_EQ(part_of_slot(128, 3), 1U);
  EXPECT_EQ(part_of_slot(3 * 128, 3), 0U);
  EXPECT_TRUE(in_same_block(128, 255));
  EXPECT_FALSE(in_same_block(127, 128));
}

TEST(EpochLimit, EndsAThirtySecondBeforeTheLastUse) {
  EXPECT_FALSE(epoch_is_spent(247, 256));
  EXPECT_TRUE(epoch_is_spent(248, 256));
  EXPECT_FALSE(epoch_is_spent(uint64_t{kSlotUses} - kSlotUses / 32 - 1, kSlotUses));
  EXPECT_TRUE(epoch_is_spent(uint64_t{kSlotUses} - kSlotUses / 32, kSlotUses));
}

// Returns a frame with a SwitchML packet for a pool index.
std::array<uint8_t, kBytesToSlot> frame_of(uint32_t slot, uint16_t udp_src, uint16_t udp_dst) {
  std::array<uint8_t, kBytesToSlot> frame{};
  FrameAddresses addresses;
  addresses.udp_src = udp_src;
  addresses.udp_dst = udp_dst;
  store_frame_headers(frame.data(), addresses, protocol::header_bytes);
  Header header;
  header.slot = static_cast<uint16_t>(slot << 1U | 1U);
  store_header(&frame[kHeadersBeforeUdpPayload], header);
  return frame;
}

std::optional<uint32_t> slot_of(const std::array<uint8_t, kBytesToSlot>& frame, size_t bytes = kBytesToSlot) {
  return slot_of_frame(frame.data(), bytes);
}

// The same as a UD SEND of an RDMA card.
std::array<uint8_t, kBytesToSlot> ud_send_of(uint32_t slot, uint16_t udp_src, uint32_t queue_pair) {
  std::array<uint8_t, kBytesToSlot> frame = frame_of(slot, udp_src, rocev2::udp_port);
  uint8_t* payload = &frame[kHeadersBeforeUdpPayload];
  std::copy_backward(payload, payload + protocol::header_bytes, frame.end());
  payload[bth::opcode] = rocev2::opcode;
  store24(payload + bth::destination_queue_pair, queue_pair);
  return frame;
}

TEST(FrameSlot, IsFoundInUdSendsToTheSwitch) {
  EXPECT_EQ(slot_of(ud_send_of(300, 50000, rocev2::queue_pair)), 300U);
  EXPECT_EQ(slot_of(ud_send_of(301, protocol::udp_port, rocev2::queue_pair)), 301U);
  EXPECT_FALSE(slot_of(ud_send_of(300, 50000, rocev2::queue_pair), kBytesToSlot - 1).has_value());
  EXPECT_FALSE(slot_of(ud_send_of(300, 50000, 17)).has_value());
}

TEST(FrameSlot, IsFoundInPacketsToAndFromTheSwitch) {
  EXPECT_EQ(slot_of(frame_of(300, 50000, protocol::udp_port)), 300U);
  EXPECT_EQ(slot_of(frame_of(301, protocol::udp_port, 50000)), 301U);
  EXPECT_EQ(slot_of(frame_of(300, 50000, protocol::udp_port), kBytesToSlot - kBetweenUdpAndHeader), 300U);
  EXPECT_FALSE(slot_of(frame_of(300, 50000, protocol::udp_port), kBytesToSlot - kBetweenUdpAndHeader - 1).has_value());
}

TEST(FrameSlot, OtherFramesHaveNone) {
  EXPECT_FALSE(slot_of(frame_of(300, 50000, 50001)).has_value());
  auto frame = frame_of(300, 50000, protocol::udp_port);
  frame[ethernet::bytes + ipv4::protocol] = 6;
  EXPECT_FALSE(slot_of(frame).has_value());
  frame = frame_of(300, 50000, protocol::udp_port);
  frame[ethernet::bytes + ipv4::version_and_length] = 0x46;
  EXPECT_FALSE(slot_of(frame).has_value());
  frame = frame_of(300, 50000, protocol::udp_port);
  store16(&frame[ethernet::bytes + ipv4::fragment], 1);
  EXPECT_FALSE(slot_of(frame).has_value());
  frame = frame_of(300, 50000, protocol::udp_port);
  store16(&frame[ethernet::type], ethernet::type_vlan);
  EXPECT_FALSE(slot_of(frame).has_value());
}

}  // namespace
}  // namespace switchml::wire
