// RoCEv2 in the frames of the soft switch, compared with frames whose ICRC scapy has computed; the packet tests have
// more.
#include "dataplane/softswitch/native/ports/rocev2_frame.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/softswitch/native/ports/packet_view.h"
#include "dataplane/softswitch/native/ports/result_frame.h"

namespace switchml::soft {
namespace {

std::vector<uint8_t> bytes_of(std::string_view hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// A contribution of four values from queue pair 0x101, and a RESULT for it.
const std::vector<uint8_t> kContribution = bytes_of(
    "0200000000fe020000000101080045000064000100004011648a0a0001010a0000fe"  // Ethernet, IPv4
    "c12312b70050ffad"                                                      // UDP
    "6400ffff0080bee0000000000000000000000101"                              // BTH, DETH
    "010100010101006400020004000300000000000400000009"                      // SwitchML
    "0000004d85ec2e7000000001fffffffe000000037fffffffafda0a61");            // its end, the values, the ICRC
const std::vector<uint8_t> kResult = bytes_of(
    "0200000001010200000000fe08004508006400004000401124830a0000fe0a000101"
    "bee012b700500000"
    "6440ffff000001010000000005ec2e700080bee0"
    "010200010101006400020004000300000000000400000009"
    "0000004d85ec2e7000000001fffffffe000000037fffffffbfae1d0f");
constexpr size_t kAtBth = wire::kHeadersBeforeUdpPayload;
constexpr size_t kAtHeader = kAtBth + wire::kBetweenUdpAndHeader;
constexpr size_t kPacketBytes = wire::protocol::header_bytes + 4 * sizeof(uint32_t);

TEST(RoCEv2, AUdSendIsSeenAsTheUdpPacketThatItStandsFor) {
  const PacketView view = view_of_frame(kContribution.data(), kContribution.size());
  EXPECT_EQ(view.content, PacketView::Content::ours);
  EXPECT_EQ(view.sender, wire::kIsQueuePair | 0x101U);
  EXPECT_EQ(view.udp_length, wire::udp::bytes + kPacketBytes);
  EXPECT_EQ(view.ipv4_length, wire::ipv4::bytes + view.udp_length);
  EXPECT_EQ(view.payload, kContribution.data() + kAtHeader);
  EXPECT_EQ(view.payload_bytes, kPacketBytes + wire::kIcrcBytes);
  EXPECT_TRUE(is_intact(view));
}

TEST(RoCEv2, AFlippedBitThatTheIcrcCoversIsFound) {
  for (size_t place = wire::ethernet::bytes; place < kContribution.size(); ++place) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> frame = kContribution;
      frame[place] ^= static_cast<uint8_t>(1U << bit);
      const PacketView view = view_of_frame(frame.data(), frame.size());
      const bool same_packet = view.content == PacketView::Content::ours && view.icrc_bytes != 0 &&
                               view.udp_length == wire::udp::bytes + kPacketBytes;
      if (!same_packet) continue;
      const size_t in_ip = place - wire::ethernet::bytes;
      const bool may_change = in_ip == wire::ipv4::traffic_class || in_ip == wire::ipv4::ttl ||
                              in_ip == wire::ipv4::checksum || in_ip == wire::ipv4::checksum + 1 ||
                              place == kAtBth - 2 || place == kAtBth - 1 || place == kAtBth + wire::bth::congestion;
      EXPECT_EQ(is_intact(view), may_change) << place;
    }
  }
}

TEST(RoCEv2, FramesThatEndEarlyAreReadUpToTheirEnd) {
  for (size_t bytes = 0; bytes < kContribution.size(); ++bytes) {
    const std::vector<uint8_t> frame(kContribution.begin(), kContribution.begin() + static_cast<ptrdiff_t>(bytes));
    const PacketView view = view_of_frame(frame.data(), frame.size());
    EXPECT_EQ(view.content == PacketView::Content::ours, bytes >= kAtBth + wire::bth::bytes);
    EXPECT_EQ(view.payload_bytes, bytes > kAtHeader ? bytes - kAtHeader : 0);
  }
}

TEST(RoCEv2, TheCopiesOfAResult) {
  const uint8_t* header = kResult.data() + kAtHeader;
  const OutgoingPacket packet{
      header, wire::protocol::header_bytes, header + wire::protocol::header_bytes, 16, 8, nullptr, 0, 0};
  const SwitchAddress own{0x0200000000FE, 0x0A0000FE};
  const RankAddress card{0x020000000101, 0x0A000101, 0, 2, 0x101};
  RankAddress other_card = card;
  other_card.queue_pair = 0x102;
  RankAddress udp = card;
  udp.queue_pair.reset();
  udp.udp_dst = 40001;
  ResultFrames frames;
  for (const bool again : {false, true}) {
    frames.start(packet);
    EXPECT_EQ(frames.frame_to(card, own), kResult) << again;
    const std::vector<uint8_t> other = frames.frame_to(other_card, own);
    EXPECT_TRUE(has_right_icrc(other.data() + wire::ethernet::bytes, other.data() + kAtHeader, kPacketBytes));
    EXPECT_EQ(frames.frame_to(udp, own).size(), kResult.size() - wire::rocev2::overhead_bytes);
    EXPECT_EQ(frames.frame_to(card, own), kResult);
  }
  OutgoingPacket without_values = packet;
  without_values.payload_bytes = 0;
  frames.start(without_values);
  const std::vector<uint8_t>& empty = frames.frame_to(card, own);
  EXPECT_TRUE(
      has_right_icrc(empty.data() + wire::ethernet::bytes, empty.data() + kAtHeader, wire::protocol::header_bytes));
}

}  // namespace
}  // namespace switchml::soft
