#include "native/net/udp_batch.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "native/wire/slot_blocks.h"
#include "native/wire/wire.h"

namespace switchml::net {
namespace {

constexpr int kPatienceMs = 20'000;
constexpr size_t kBufferBytes = 1 << 20;

// Receives datagrams until there are `count`, or no more arrive.
std::vector<std::vector<uint8_t>> receive(const UdpSocket& socket, size_t count) {
  ReceiveBatch batch;
  std::vector<std::vector<uint8_t>> all;
  pollfd polled{socket.fd(), POLLIN, 0};
  while (all.size() < count && poll(&polled, 1, kPatienceMs) == 1) {
    batch.receive(socket);
    for (Datagram datagram; batch.next(&datagram);) all.emplace_back(datagram.data, datagram.data + datagram.length);
  }
  return all;
}

TEST(SendBatch, GsoBatchHasAtMost64PacketsAnd65507Bytes) {
  EXPECT_EQ(SendBatch::largest_gso_batch(32), 64U);
  EXPECT_EQ(SendBatch::largest_gso_batch(1023), 64U);
  EXPECT_EQ(SendBatch::largest_gso_batch(1024), 63U);
  EXPECT_EQ(SendBatch::largest_gso_batch(32'753), 2U);
  EXPECT_EQ(SendBatch::largest_gso_batch(65'507), 1U);
}

TEST(SendBatch, HandsOverWhatIsQueuedOnce) {
  const std::vector<uint8_t> bytes(64, 7);
  SendBatch batch;
  batch.add(bytes.data(), 32, bytes.data() + 32, 16);
  batch.add(bytes.data(), 8, nullptr, 0);
  std::vector<std::pair<size_t, size_t>> sizes;
  const auto note = [&](const uint8_t*, size_t header, const uint8_t*, size_t payload) {
    sizes.emplace_back(header, payload);
  };
  batch.hand_over(note);
  EXPECT_EQ(sizes, (std::vector<std::pair<size_t, size_t>>{{32, 16}, {8, 0}}));
  EXPECT_TRUE(batch.empty());
  batch.hand_over(note);
  EXPECT_EQ(sizes.size(), 2U);
}

// Runs of equal sizes, with another size in between and a short one at the end, arrive as they were sent, whether or
// not the kernel accepts runs.
TEST(SendBatch, PacketsOfSeveralSizesArriveInOrder) {
  UdpSocket receiver("127.0.0.1", 0, kBufferBytes);
  const UdpSocket sender("127.0.0.1", 0, kBufferBytes);
  std::vector<std::vector<uint8_t>> packets;
  for (size_t i = 0; i < 200; ++i) packets.emplace_back(i % 67 == 66 ? 100 : i == 199 ? 40 : 300);
  for (size_t i = 0; i < packets.size(); ++i) std::iota(packets[i].begin(), packets[i].end(), static_cast<uint8_t>(i));
  SendBatch batch;
  for (const auto& packet : packets) batch.add(packet.data(), 32, packet.data() + 32, packet.size() - 32);
  batch.flush(sender, ipv4_endpoint(0x7F000001, receiver.port()));
  EXPECT_EQ(batch.counters().sent, packets.size());
  EXPECT_EQ(batch.counters().send_errors, 0U);
  EXPECT_EQ(receive(receiver, packets.size()), packets);
}

TEST(SendBatch, EveryDestinationGetsEveryPacket) {
  UdpSocket one("127.0.0.1", 0, kBufferBytes);
  UdpSocket two("127.0.0.1", 0, kBufferBytes);
  const UdpSocket sender("127.0.0.1", 0, kBufferBytes);
  const std::vector<uint8_t> bytes(96, 5);
  SendBatch batch;
  for (int i = 0; i < 3; ++i) batch.add(bytes.data(), 32, bytes.data() + 32, 64);
  const std::vector<sockaddr_in> destinations{ipv4_endpoint(0x7F000001, one.port()),
                                              ipv4_endpoint(0x7F000001, two.port())};
  batch.flush(sender, destinations.data(), destinations.size());
  EXPECT_EQ(receive(one, 3).size(), 3U);
  EXPECT_EQ(receive(two, 3).size(), 3U);
  EXPECT_EQ(batch.counters().sent, 6U);
}

TEST(SendBatch, DatagramThatIsTooLargeIsLost) {
  const UdpSocket sender("127.0.0.1", 0, kBufferBytes);
  const std::vector<uint8_t> bytes(66'000);
  SendBatch batch;
  batch.add(bytes.data(), bytes.size(), nullptr, 0);
  batch.flush(sender, ipv4_endpoint(0x7F000001, sender.port()));
  EXPECT_EQ(batch.counters().send_errors, 1U);
  EXPECT_EQ(batch.counters().last_send_errno, EMSGSIZE);
  EXPECT_TRUE(batch.empty());
}

TEST(UdpSockets, SlotDecidesWhichSocketGetsAPacket) {
  constexpr unsigned kThreads = 3;
  std::vector<UdpSocket> sockets = open_udp_sockets("127.0.0.1", 0, kBufferBytes, kThreads);
  const UdpSocket sender("127.0.0.1", 0, kBufferBytes);
  SendBatch batch;
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    wire::Header header;
    header.slot = static_cast<uint16_t>((thread << wire::kSlotBlockBits) << 1U);
    std::vector<uint8_t> bytes(wire::protocol::header_bytes);
    wire::store_header(bytes.data(), header);
    batch.add(bytes.data(), bytes.size(), nullptr, 0);
    batch.flush(sender, ipv4_endpoint(0x7F000001, sockets[0].port()));
  }
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    const auto received = receive(sockets[thread], 1);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(wire::part_of_slot(wire::load_header(received[0].data()).slot >> 1U, kThreads), thread);
  }
}

TEST(UdpSockets, PortOfAnotherProgramIsRefused) {
  const UdpSocket taken("127.0.0.1", 0, kBufferBytes);
  EXPECT_THROW(UdpSocket("127.0.0.1", taken.port(), kBufferBytes), std::system_error);
  EXPECT_THROW(open_udp_sockets("127.0.0.1", taken.port(), kBufferBytes, 2), std::system_error);
}

TEST(Addresses, DottedQuadsAreInHostByteOrder) {
  EXPECT_EQ(parse_ipv4("10.0.0.254"), 0x0A0000FEU);
  for (const char* text : {"", "10.0.0", "10.0.0.256", "::1", "host"}) {
    EXPECT_THROW(parse_ipv4(text), std::invalid_argument) << text;
  }
  const sockaddr_in endpoint = ipv4_endpoint(0x0A0000FE, 48000);
  EXPECT_EQ(ntohl(endpoint.sin_addr.s_addr), 0x0A0000FEU);
  EXPECT_EQ(ntohs(endpoint.sin_port), 48000);
}

}  // namespace
}  // namespace switchml::net
