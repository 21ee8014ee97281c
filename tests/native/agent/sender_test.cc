// A job's ranks on one host, run like a data thread of the agent, with a simulated clock and network.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "host_agent/native/job_ranks.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/wire/slot_blocks.h"

namespace switchml::agent {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr uint16_t kJob = 7;
constexpr uint16_t kEpoch = 3;
constexpr uint32_t kSecret = 0x5EC2E7;
constexpr uint32_t kSlots = 256;
constexpr uint16_t kSlotBase = 512;
constexpr uint32_t kValues = 16;
constexpr uint32_t kSwitchAddress = 0x7F000001;
constexpr uint16_t kSwitchPort = 48000;
constexpr uint32_t kInitialWindow = 64;
constexpr milliseconds kInitialTimeout{20};

struct Sent {
  wire::Header header;
  std::vector<uint8_t> payload;
  uint16_t switch_port;
};

struct Arriving {
  std::vector<uint8_t> bytes;
  sockaddr_in source;
};

// Keeps sent packets, and delivers packets that the test puts into it.
class FakeTransport : public JobTransport {
 public:
  unsigned sources() const override { return 1; }
  int fd(unsigned /*source*/) const override { return -1; }
  void send(net::SendBatch* batch, const sockaddr_in& switch_endpoint) override {
    const uint16_t port = ntohs(switch_endpoint.sin_port);
    batch->hand_over([&](const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes) {
      EXPECT_EQ(header_bytes, wire::protocol::header_bytes);
      sent.push_back({wire::load_header(header), {payload, payload + payload_bytes}, port});
    });
  }
  bool receive(unsigned /*source*/, net::ReceiveBatch* /*batch*/) override {
    received_ = std::exchange(arriving, {});
    next_ = 0;
    return !received_.empty();
  }
  bool next(net::ReceiveBatch* /*batch*/, net::Datagram* datagram) override {
    if (next_ == received_.size()) return false;
    const Arriving& packet = received_[next_++];
    *datagram = {packet.bytes.data(), packet.bytes.size(), packet.source};
    return true;
  }

  std::vector<Sent> sent;
  std::vector<Arriving> arriving;

 private:
  std::vector<Arriving> received_;
  size_t next_ = 0;
};

RankAssignment assignment(uint8_t rank = 0, uint32_t world_size = 2, uint32_t values = kValues) {
  return {"127.0.0.1", "127.0.0.1", kSwitchPort, kJob,   rank, rank,   kEpoch,
          world_size,  kSlotBase,   kSlots,      values, "",   kSecret};
}

std::vector<uint8_t> words(uint32_t first, uint32_t values = kValues) {
  std::vector<uint8_t> bytes(values * sizeof(uint32_t));
  for (uint32_t lane = 0; lane < values; ++lane) wire::store32(&bytes[lane * sizeof(uint32_t)], first + lane);
  return bytes;
}

// A training process' end of a rank's memory.
class Process {
 public:
  Process(const RankAssignment& of, uint8_t* results, unsigned threads)
      : values_(of.values),
        server_(of, results, threads),
        descriptor_(server_.open()),
        memory_(channel::SharedMemory::map(descriptor_, channel::SharedMemory::Others::may_write)),
        channel_(memory_.data(), kSlots, values_, results) {}
  ~Process() { close(descriptor_); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  RankChannel* server() { return &server_; }
  channel::ChannelControl& control() { return channel_.control(); }

  void submit(uint32_t chunk, uint8_t flags = 0, uint8_t owner = wire::owner::everyone) {
    submit_in(static_cast<uint16_t>(chunk % kSlots), chunk, flags, owner);
  }
  void submit_in(uint16_t slot, uint32_t chunk, uint8_t flags = 0, uint8_t owner = wire::owner::everyone) {
    if (slot < kSlots) {
      const auto count = static_cast<uint16_t>(values_);
      channel_.contribution_tickets()[slot] = {chunk, chunk, 100 + chunk, 9, count, 1, owner, flags};
      const std::vector<uint8_t> bytes = words(1000 * chunk, values_);
      std::memcpy(channel_.contribution(slot), bytes.data(), bytes.size());
    }
    channel_.submission_ring()[submitted_++ % kSlots] = slot;
    control().submitted.store(submitted_, std::memory_order_release);
  }
  void submit_range(uint32_t first, uint32_t end) {
    for (uint32_t chunk = first; chunk != end; ++chunk) submit(chunk);
  }
  // Returns the slots that came back since the last call.
  std::vector<uint16_t> completed() {
    std::vector<uint16_t> slots;
    for (const uint32_t end = control().completed.load(std::memory_order_acquire); completed_ != end; ++completed_) {
      slots.push_back(channel_.completion_ring()[completed_ % kSlots]);
    }
    return slots;
  }
  channel::Ticket result_ticket(uint16_t slot) { return channel_.result_tickets()[slot]; }
  uint32_t result_word(uint16_t slot, size_t lane = 0) {
    return wire::load32(channel_.result(slot) + lane * sizeof(uint32_t));
  }

 private:
  uint32_t values_;
  RankChannel server_;
  int descriptor_;
  channel::SharedMemory memory_;
  channel::Channel channel_;
  uint32_t submitted_ = 0;
  uint32_t completed_ = 0;
};

class Sender : public testing::Test {
 protected:
  explicit Sender(unsigned threads = 1, uint32_t values = kValues, unsigned priority = 0,
                  std::shared_ptr<runtime::Precedence> precedence = std::make_shared<runtime::Precedence>(),
                  const std::vector<Aggregator>& aggregators = {})
      : threads_(threads), values_(values) {
    auto transport = std::make_unique<FakeTransport>();
    network_ = transport.get();
    RankAssignment first = assignment(0, 2, values);
    first.priority = static_cast<uint8_t>(priority);
    first.aggregators = aggregators;
    ranks_ =
        std::make_unique<JobRanks>(first, 0, threads, std::move(transport), results_.data(), std::move(precedence));
    process_ = add_rank(first);
  }

  std::unique_ptr<Process> add_rank(const RankAssignment& of) {
    auto process = std::make_unique<Process>(of, results_.data(), threads_);
    ranks_->add(of, process->server());
    return process;
  }

  // Does one round of a data thread. Returns the packets that were sent in it.
  std::vector<Sent> round(bool nothing_left = false) {
    ranks_->take_submissions(&others_);
    ranks_->receive(batch_, now_, &strays_);
    ranks_->transmit(queue_, now_);
    ranks_->publish(nothing_left);
    return std::exchange(network_->sent, {});
  }
  std::vector<uint32_t> chunks(const std::vector<Sent>& sent) {
    std::vector<uint32_t> all(sent.size());
    std::transform(sent.begin(), sent.end(), all.begin(), [](const Sent& packet) { return packet.header.chunk; });
    return all;
  }

  // Returns the switch's answer to a contribution; the first lane is `first`.
  static wire::Header result_of(const wire::Header& contribution) {
    wire::Header header = contribution;
    header.kind = static_cast<uint8_t>(wire::Kind::result);
    return header;
  }
  void arrive(const wire::Header& header, uint32_t first = 0, size_t payload_bytes = kValues * sizeof(uint32_t),
              uint32_t address = kSwitchAddress, uint16_t port = kSwitchPort) {
    std::vector<uint8_t> bytes(wire::protocol::header_bytes);
    wire::store_header(bytes.data(), header);
    std::vector<uint8_t> payload = words(first);
    payload.resize(payload_bytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    network_->arriving.push_back({std::move(bytes), net::ipv4_endpoint(address, port)});
  }
  void answer(const Sent& packet) { arrive(result_of(packet.header), 0, values_ * sizeof(uint32_t)); }
  RankStatus status() { return process_->server()->status(); }

  unsigned threads_;
  uint32_t values_;
  std::vector<uint8_t> results_ = std::vector<uint8_t>(channel::Channel::result_bytes(kSlots, values_));
  FakeTransport* network_;
  std::unique_ptr<JobRanks> ranks_;
  std::unique_ptr<Process> process_;
  // Rank::fetch() uses the real clock, and this one is never behind it.
  Clock::time_point now_ = Clock::now() + std::chrono::hours(1);
  net::ReceiveBatch batch_{1};
  net::SendBatch queue_;
  std::vector<StrayDatagram> strays_;
  uint64_t others_ = 0;
};

TEST_F(Sender, ContributionSaysWhatTheTicketSays) {
  process_->submit(5);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 1U);
  const wire::Header& header = sent[0].header;
  EXPECT_EQ(header.version, wire::protocol::version);
  EXPECT_EQ(header.kind, static_cast<uint8_t>(wire::Kind::contribution));
  EXPECT_EQ(header.job, kJob);
  EXPECT_EQ(header.worker, 0);
  EXPECT_EQ(header.epoch, kEpoch);
  EXPECT_EQ(header.secret, kSecret);
  EXPECT_EQ(header.slot, 2 * (kSlotBase + 5));
  EXPECT_EQ(header.phase, 0U);
  EXPECT_EQ(header.chunk, 5U);
  EXPECT_EQ(header.check, 105U);
  EXPECT_EQ(header.exponent, 9);
  EXPECT_EQ(header.count, kValues);
  EXPECT_EQ(header.flags, 0);
  EXPECT_EQ(sent[0].payload, words(5000));
}

TEST_F(Sender, ContributionWithoutValuesHasNoPayload) {
  process_->submit(0, wire::flag::without_values);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].payload.empty());
  EXPECT_EQ(status().position, 1U);
}

// So that packets of one size follow each other.
TEST_F(Sender, PacketsWithValuesAreSentBeforeThoseWithout) {
  for (uint32_t chunk = 0; chunk < 6; ++chunk) process_->submit(chunk, chunk % 2 == 0 ? wire::flag::without_values : 0);
  EXPECT_EQ(chunks(round()), (std::vector<uint32_t>{1, 3, 5, 0, 2, 4}));
  EXPECT_EQ(status().position, 6U);
  EXPECT_TRUE(round().empty());
}

// Otherwise the results of ranks with different blocks would come in an order that looks like losses.
TEST_F(Sender, PacketsAreSortedOnlyAmong64Positions) {
  for (uint32_t chunk = 0; chunk < 40; ++chunk) process_->submit(chunk);
  for (const Sent& packet : round()) arrive(result_of(packet.header));
  for (uint32_t chunk = 40; chunk < 104; ++chunk)
    process_->submit(chunk, chunk % 2 == 0 ? wire::flag::without_values : 0);
  std::vector<uint32_t> expected;
  for (const auto& [begin, end] : {std::pair(40U, 64U), std::pair(64U, 104U)}) {
    for (uint32_t chunk = begin + 1; chunk < end; chunk += 2) expected.push_back(chunk);
    for (uint32_t chunk = begin; chunk < end; chunk += 2) expected.push_back(chunk);
  }
  EXPECT_EQ(chunks(round()), expected);
}

TEST_F(Sender, ProcessCannotMarkItsPacketsAsRetransmitted) {
  process_->submit(0, wire::flag::retransmission);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].header.flags, 0);
}

TEST_F(Sender, ResultReachesTheProcess) {
  process_->submit(3);
  const std::vector<Sent> sent = round();
  wire::Header header = result_of(sent.at(0).header);
  header.check = 4242;
  header.exponent = 17;
  arrive(header, 600);
  EXPECT_TRUE(round().empty());
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{3});
  EXPECT_EQ(process_->result_word(3), 600U);
  EXPECT_EQ(process_->result_word(3, kValues - 1), 600U + kValues - 1);
  EXPECT_EQ(process_->result_ticket(3).chunk, 3U);
  EXPECT_EQ(process_->result_ticket(3).check, 4242U);
  EXPECT_EQ(process_->result_ticket(3).exponent, 17);
  EXPECT_EQ(status().received, 1U);
}

// Not those of packets that waited for another rank or were sent twice; but the results of all count as bytes.
TEST_F(Sender, ProcessSeesTheRoundTripsOfPacketsThatCompletedTheirSlots) {
  const channel::ServerCounters& counters = process_->control().server;
  process_->submit_range(0, 3);
  std::vector<Sent> sent = round();
  const uint64_t bytes = wire::protocol::header_bytes + sent[0].payload.size();
  sent[1].header.worker = 1;
  now_ += milliseconds(3);
  for (const Sent& packet : sent) answer(packet);
  ranks_->receive(batch_, now_, &strays_);
  EXPECT_EQ(counters.round_trips_ns, 0U);
  ranks_->publish(false);
  EXPECT_EQ(counters.round_trips_ns, 6'000'000U);
  EXPECT_EQ(counters.round_trips_bytes, (1 + 3) * bytes);
  process_->submit_range(3, 5);
  sent = round();
  now_ += milliseconds(5);
  answer(sent[0]);
  round();
  EXPECT_EQ(counters.round_trips_ns, 11'000'000U);
  EXPECT_EQ(counters.round_trips_bytes, (1 + 3 + 1) * bytes);
  now_ += kInitialTimeout;
  sent = round();
  ASSERT_EQ(chunks(sent), std::vector<uint32_t>{4});
  now_ += milliseconds(1);
  answer(sent[0]);
  round();
  EXPECT_EQ(status().received, 5U);
  EXPECT_EQ(counters.round_trips_ns, 11'000'000U);
  EXPECT_EQ(counters.round_trips_bytes, (1 + 3 + 1) * bytes);
}

TEST_F(Sender, NextUseOfASlotIsItsNextPhase) {
  process_->submit(3);
  answer(round().at(0));
  round();
  process_->submit(3 + kSlots);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].header.phase, 1U);
  EXPECT_EQ(sent[0].header.slot, 2 * (kSlotBase + 3) + 1);
  EXPECT_EQ(sent[0].header.chunk, 3 + kSlots);
}

TEST_F(Sender, WindowLimitsWhatIsInFlight) {
  process_->submit_range(0, kSlots);
  EXPECT_EQ(round().size(), kInitialWindow);
  EXPECT_TRUE(round().empty());
}

TEST_F(Sender, WindowBeginsWithTheLowestChunkThatHasNoResult) {
  process_->submit_range(0, kSlots);
  const std::vector<Sent> sent = round();
  answer(sent[1]);
  EXPECT_TRUE(round().empty());
  answer(sent[0]);
  EXPECT_EQ(chunks(round()), (std::vector<uint32_t>{kInitialWindow, kInitialWindow + 1}));
}

TEST_F(Sender, WindowDoublesAfterARoundWithoutLosses) {
  process_->submit_range(0, kSlots);
  for (const Sent& packet : round()) answer(packet);
  now_ += milliseconds(1);
  EXPECT_EQ(round().size(), 2 * kInitialWindow);
}

TEST_F(Sender, WindowHalvesAfterARoundWithLosses) {
  process_->submit_range(0, kSlots);
  std::vector<Sent> sent = round();
  for (size_t i = 0; i < sent.size(); ++i) {
    if (i < 5) sent[i].header.flags |= wire::flag::retransmission;
    answer(sent[i]);
  }
  EXPECT_EQ(round().size(), kInitialWindow / 2);
}

TEST_F(Sender, LossesOfOtherRanksDoNotShrinkTheWindow) {
  process_->submit_range(0, kSlots);
  std::vector<Sent> sent = round();
  for (Sent& packet : sent) {
    if (packet.header.chunk % 2 == 0) {
      packet.header.flags |= wire::flag::retransmission;
      packet.header.worker = 1;
    }
    answer(packet);
  }
  now_ += milliseconds(1);
  EXPECT_EQ(round().size(), 2 * kInitialWindow);
}

TEST_F(Sender, WindowGrowsOnlyWithResultsThatThisRankCompleted) {
  process_->submit_range(0, kSlots);
  for (Sent& packet : round()) {
    packet.header.worker = 1;
    answer(packet);
  }
  now_ += milliseconds(1);
  EXPECT_EQ(round().size(), kInitialWindow);
}

// The minimum round trip is measured again, with few packets in flight, if it has not been seen for ten seconds.
TEST_F(Sender, FourPacketsAreInFlightWhileTheMinimumIsMeasured) {
  process_->submit_range(0, kSlots);
  std::vector<Sent> sent = round();
  for (const milliseconds delay : {milliseconds(1), milliseconds(11'000)}) {
    now_ += delay;
    for (const Sent& packet : sent) answer(packet);
    sent = round();
  }
  ASSERT_EQ(sent.size(), 4U);
  now_ += milliseconds(1);
  for (const Sent& packet : sent) answer(packet);
  EXPECT_EQ(round().size(), kSlots - 3 * kInitialWindow - 4);
}

// Ranks whose packets take turns on a link, before a delay without a queue; a process that always has more to send.
class SenderOnALink : public Sender {
 protected:
  static constexpr uint32_t kLargeValues = 2048;
  static constexpr microseconds kPacketTime{100};
  static constexpr microseconds kDelay{900};

  SenderOnALink() : Sender(1, kLargeValues) {}

  // Takes this number of results, one at a time. Returns the time in which they came.
  nanoseconds take(size_t results) {
    const Clock::time_point begin = now_;
    for (size_t taken = 0; taken < results; ++taken) {
      const auto [arrives, packet] = in_flight_.front();
      in_flight_.pop_front();
      now_ = std::max(now_, arrives);
      answer(packet);
      send();
      process_->submit(packet.header.chunk + kSlots);
      send();
    }
    return now_ - begin;
  }
  void send() {
    for (const Sent& packet : round()) {
      link_free_ = std::max(link_free_, now_) + kPacketTime;
      in_flight_.emplace_back(link_free_ + kDelay, packet);
    }
  }

  std::deque<std::pair<Clock::time_point, Sent>> in_flight_;
  Clock::time_point link_free_;
};

TEST_F(SenderOnALink, WindowIsWhatThePathAndTheHostsHoldTwice) {
  process_->submit_range(0, kSlots);
  send();
  take(4000);
  // Twice the ten packets of a round trip and the ten of the hosts' reaction, and a burst of one packet; not the pool.
  EXPECT_NEAR(static_cast<double>(status().window), 2 * (10 + 10) + 1, 2);
  EXPECT_LE(in_flight_.size(), 43U);
  EXPECT_EQ(take(1000), 1000 * kPacketTime);  // the link is always busy
}

TEST_F(Sender, NothingIsRetransmittedBeforeTheTimeout) {
  process_->submit_range(0, 8);
  round();
  EXPECT_EQ(ranks_->next_deadline(), now_ + kInitialTimeout);
  now_ += kInitialTimeout - nanoseconds(1);
  EXPECT_TRUE(round().empty());
}

TEST_F(Sender, TimeoutRetransmitsTheTwoLowestChunks) {
  process_->submit_range(0, 8);
  const std::vector<Sent> first = round();
  now_ += kInitialTimeout;
  const std::vector<Sent> again = round();
  ASSERT_EQ(chunks(again), (std::vector<uint32_t>{0, 1}));
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(first[i].header.flags, 0);
    EXPECT_EQ(again[i].header.flags, wire::flag::retransmission);
    EXPECT_EQ(again[i].header.phase, first[i].header.phase);
    EXPECT_EQ(again[i].header.check, first[i].header.check);
    EXPECT_EQ(again[i].payload, first[i].payload);
  }
  EXPECT_EQ(status().retransmissions, 2U);
  EXPECT_EQ(status().position, 8U);
  EXPECT_EQ(status().sent, 10U);
}

TEST_F(Sender, EachTimeoutDoublesTheNext) {
  process_->submit(0);
  round();
  for (const int timeout : {20, 40, 80, 160, 200, 200}) {
    EXPECT_EQ(ranks_->next_deadline(), now_ + milliseconds(timeout));
    now_ += milliseconds(timeout);
    EXPECT_EQ(round().size(), 1U);
  }
}

TEST_F(Sender, ResultEndsTheRowOfTimeouts) {
  process_->submit_range(0, 2);
  const std::vector<Sent> sent = round();
  now_ += kInitialTimeout;
  round();
  ASSERT_EQ(ranks_->next_deadline(), now_ + 2 * kInitialTimeout);
  answer(sent[0]);
  round();
  EXPECT_EQ(ranks_->next_deadline(), now_ + kInitialTimeout);
}

TEST_F(Sender, ResultOfARetransmissionAllowsTwoMore) {
  process_->submit_range(0, 8);
  round();
  now_ += kInitialTimeout;
  const std::vector<Sent> again = round();
  answer(again.at(0));
  EXPECT_EQ(chunks(round()), (std::vector<uint32_t>{2, 3}));
}

TEST_F(Sender, ResultOfAStragglerEndsTheRetransmissions) {
  process_->submit_range(0, 8);
  const std::vector<Sent> sent = round();
  now_ += kInitialTimeout;
  const std::vector<Sent> again = round();
  answer(again.at(0));
  answer(sent.at(1));  // for a packet that another rank sent once: nothing was missing
  EXPECT_TRUE(round().empty());
}

TEST_F(Sender, NoDeadlineIsLeftWhenEverythingHasItsResult) {
  process_->submit(0);
  answer(round().at(0));
  EXPECT_TRUE(round().empty());
  EXPECT_EQ(ranks_->next_deadline(), Clock::time_point::max());
}

TEST_F(Sender, ContributionAfterAPauseBeginsANewTimeout) {
  process_->submit(0);
  const std::vector<Sent> sent = round();
  now_ += milliseconds(2);
  answer(sent.at(0));
  round();
  now_ += milliseconds(6) - nanoseconds(1);  // three times the first sample (RFC 6298)
  process_->submit(1);
  ASSERT_EQ(round().size(), 1U);
  EXPECT_EQ(ranks_->next_deadline(), now_ + milliseconds(6));
}

TEST_F(Sender, RoundTripIsMeasuredOfPacketsSentOnce) {
  process_->submit_range(0, 2);
  const std::vector<Sent> sent = round();
  now_ += milliseconds(2);
  answer(sent.at(0));
  round();
  EXPECT_DOUBLE_EQ(status().round_trip_seconds, 0.002);
  EXPECT_EQ(ranks_->next_deadline(), now_ + milliseconds(6));  // three times the first sample (RFC 6298)
}

TEST_F(Sender, RoundTripIsNotMeasuredOfRetransmissions) {
  process_->submit(0);
  round();
  now_ += kInitialTimeout;
  const std::vector<Sent> again = round();
  now_ += milliseconds(1);
  answer(again.at(0));
  round();
  EXPECT_EQ(status().received, 1U);
  EXPECT_EQ(status().round_trip_seconds, 0);
}

TEST_F(Sender, RoundTripIsNotMeasuredByAnotherRanksPacket) {
  process_->submit(0);
  Sent sent = round().at(0);
  sent.header.worker = 1;
  now_ += milliseconds(2);
  answer(sent);
  round();
  EXPECT_EQ(status().received, 1U);
  EXPECT_EQ(status().round_trip_seconds, 0);
}

// Half the window and one more: results of that many later packets indicate a loss.
TEST_F(Sender, PacketThatManyOthersOvertookIsRetransmittedFast) {
  constexpr size_t kOthers = kInitialWindow / 2 + 1;
  process_->submit_range(0, kSlots);
  const std::vector<Sent> sent = round();
  for (size_t i = 1; i < kOthers; ++i) answer(sent[i]);
  EXPECT_TRUE(round().empty());
  answer(sent[kOthers]);
  const std::vector<Sent> again = round();
  ASSERT_EQ(chunks(again), std::vector<uint32_t>{0});
  EXPECT_EQ(again[0].header.flags, wire::flag::retransmission);
  EXPECT_EQ(status().fast_retransmissions, 1U);
  EXPECT_EQ(status().retransmissions, 0U);
}

TEST_F(Sender, FastRetransmissionIsNotRetransmittedAtOnce) {
  process_->submit_range(0, kSlots);
  const std::vector<Sent> sent = round();
  for (size_t i = 1; i < sent.size() - 1; ++i) answer(sent[i]);
  EXPECT_EQ(round().size(), 1U);
  answer(sent.back());
  EXPECT_TRUE(round().empty());
}

TEST_F(Sender, WholeWindowMayOvertakeAfterASpuriousFastRetransmission) {
  process_->submit_range(0, kSlots);
  const std::vector<Sent> sent = round();
  for (size_t i = 1; i < sent.size(); ++i) answer(sent[i]);
  ASSERT_EQ(round().size(), 1U);
  answer(sent[0]);  // it was on its way
  const std::vector<Sent> later = round();
  ASSERT_EQ(later.size(), kInitialWindow);
  for (size_t i = 1; i < later.size(); ++i) answer(later[i]);
  EXPECT_TRUE(round().empty());
}

TEST_F(Sender, SecondResultOfAPhaseIsIgnored) {
  process_->submit(0);
  const Sent sent = round().at(0);
  answer(sent);
  answer(sent);
  round();
  EXPECT_EQ(process_->completed().size(), 1U);
  EXPECT_EQ(status().received, 1U);
  EXPECT_EQ(status().ignored, 1U);
}

TEST_F(Sender, ResultOfAnotherPhaseIsIgnored) {
  process_->submit(0);
  Sent sent = round().at(0);
  sent.header.phase = 2;
  arrive(result_of(sent.header), 77);
  round();
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(process_->result_word(0), 0U);
  EXPECT_EQ(status().ignored, 1U);
}

TEST_F(Sender, PacketsFromOthersThanTheSwitchAreIgnored) {
  process_->submit(0);
  const wire::Header header = result_of(round().at(0).header);
  const size_t payload = kValues * sizeof(uint32_t);
  arrive(header, 1, payload, kSwitchAddress + 1);
  arrive(header, 1, payload, kSwitchAddress, kSwitchPort + 1);
  round();
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(status().ignored, 2U);
}

TEST_F(Sender, ResultsOfTheWrongLengthAreIgnored) {
  process_->submit(0);
  wire::Header header = result_of(round().at(0).header);
  const size_t payload = kValues * sizeof(uint32_t);
  arrive(header, 1, payload - 4);
  arrive(header, 1, payload + 4);
  arrive(header, 1, 0);
  header.flags |= wire::flag::without_values;
  arrive(header, 1, payload);
  network_->arriving.push_back({std::vector<uint8_t>(31), net::ipv4_endpoint(kSwitchAddress, kSwitchPort)});
  round();
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(status().ignored, 5U);
}

TEST_F(Sender, OnlyItsOwnerNeedsTheValuesOfAResult) {
  constexpr uint8_t kOwn = wire::owner::first + 0;
  process_->submit(0, 0, kOwn);
  process_->submit(1, 0, kOwn + 1);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 2U);
  for (const Sent& packet : sent) arrive(wire::without_values(result_of(packet.header)), 0, 0);
  round();
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{1});
  EXPECT_EQ(process_->result_ticket(1).flags, wire::flag::without_values);
  EXPECT_EQ(status().ignored, 1U);
  arrive(result_of(sent[0].header), 50);
  round();
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{0});
  EXPECT_EQ(process_->result_word(0), 50U);
}

// As on a switch that does not remove them.
TEST_F(Sender, ValuesThatOnlyAnotherRankReadsAreTaken) {
  process_->submit(0, 0, wire::owner::first + 1);
  arrive(result_of(round().at(0).header), 50);
  round();
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{0});
  EXPECT_EQ(process_->result_ticket(0).flags, 0);
}

TEST_F(Sender, SeveralRanksShareAResult) {
  const std::unique_ptr<Process> other = add_rank(assignment(1));
  process_->submit(0);
  other->submit(0);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].header.worker, 0);
  EXPECT_EQ(sent[1].header.worker, 1);
  arrive(result_of(sent[1].header), 50);
  round();
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{0});
  EXPECT_EQ(other->completed(), std::vector<uint16_t>{0});
  EXPECT_EQ(other->result_word(0), 50U);
}

TEST_F(Sender, ResultThatNotEveryRankWaitsForIsIgnored) {
  const std::unique_ptr<Process> other = add_rank(assignment(1));
  process_->submit(0);
  const Sent sent = round().at(0);
  arrive(result_of(sent.header), 50);
  round();
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(process_->result_word(0), 0U);
  EXPECT_EQ(status().ignored, 1U);
}

TEST_F(Sender, RankThatHasGoneIsNotWaitedFor) {
  const std::unique_ptr<Process> other = add_rank(assignment(1));
  process_->submit(0);
  const Sent sent = round().at(0);
  ranks_->remove(1);
  answer(sent);
  round();
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{0});
  EXPECT_THROW(ranks_->held(1), std::out_of_range);
}

struct HeaderChange {
  std::string field;
  std::function<void(wire::Header*)> change;
};

class ForeignResult : public Sender, public testing::WithParamInterface<HeaderChange> {};

TEST_P(ForeignResult, IsIgnored) {
  process_->submit(0);
  wire::Header header = result_of(round().at(0).header);
  const wire::Header right = header;
  GetParam().change(&header);
  arrive(header, 77);
  round();
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(status().ignored, 1U);
  arrive(right, 78);
  round();
  EXPECT_EQ(process_->completed().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ForeignResult,
    testing::Values(HeaderChange{"version", [](wire::Header* header) { header->version += 1; }},
                    HeaderChange{"kind", [](wire::Header* header) { header->kind = 1; }},
                    HeaderChange{"job", [](wire::Header* header) { header->job += 1; }},
                    HeaderChange{"epoch", [](wire::Header* header) { header->epoch += 1; }},
                    HeaderChange{"secret", [](wire::Header* header) { header->secret += 1; }},
                    HeaderChange{"half", [](wire::Header* header) { header->slot ^= 1; }},
                    HeaderChange{"slot_below", [](wire::Header* header) { header->slot = 2 * (kSlotBase - 1); }},
                    HeaderChange{"slot_above", [](wire::Header* header) { header->slot = 2 * (kSlotBase + kSlots); }}),
    [](const auto& each) { return each.param.field; });

class SenderOfTwoThreads : public Sender {
 protected:
  SenderOfTwoThreads() : Sender(2) {}
};

TEST_F(SenderOfTwoThreads, SlotsAreSentByTheThreadTheyBelongTo) {
  process_->submit(0);
  process_->submit_in(1U << wire::kSlotBlockBits, 1U << wire::kSlotBlockBits);
  EXPECT_EQ(chunks(round()), std::vector<uint32_t>{0});
  EXPECT_EQ(others_, 0b10U);
  EXPECT_TRUE(process_->server()->has_slots_for(1));
}

TEST_F(SenderOfTwoThreads, ResultsOfTheOtherThreadsSlotsArePassedOn) {
  process_->submit(0);
  wire::Header header = result_of(round().at(0).header);
  header.slot = static_cast<uint16_t>(2 * (kSlotBase + (1U << wire::kSlotBlockBits)));
  arrive(header, 5);
  round();
  ASSERT_EQ(strays_.size(), 1U);
  EXPECT_EQ(strays_[0].thread, 1U);
  EXPECT_EQ(strays_[0].bytes.size(), wire::protocol::header_bytes + kValues * sizeof(uint32_t));
  EXPECT_EQ(status().ignored, 0U);
}

// Three switches share the slots: slot s is at number s modulo 3.
class SenderToAggregators : public Sender {
 protected:
  static constexpr uint16_t kPorts[] = {kSwitchPort, 48001, 48002};

  SenderToAggregators()
      : Sender(1, kValues, 0, std::make_shared<runtime::Precedence>(),
               {{"127.0.0.1", kPorts[0]}, {"127.0.0.1", kPorts[1]}, {"127.0.0.1", kPorts[2]}}) {}

  void answer_from(const Sent& packet, uint16_t port) {
    arrive(result_of(packet.header), 0, kValues * sizeof(uint32_t), kSwitchAddress, port);
  }
};

TEST_F(SenderToAggregators, ThePoolIsSharedSlotBySlot) {
  process_->submit_range(0, 9);
  for (const Sent& packet : round()) {
    EXPECT_EQ(packet.switch_port, kPorts[packet.header.chunk % 3]);
    answer_from(packet, packet.switch_port);
  }
  round();
  EXPECT_EQ(process_->completed().size(), 9U);
  EXPECT_EQ(status().position, 9U);
  EXPECT_EQ(status().received, 9U);
}

TEST_F(SenderToAggregators, OnlyTheSwitchOfASlotCanAnswer) {
  process_->submit(4);
  const Sent packet = round().at(0);
  answer_from(packet, kPorts[0]);
  answer_from(packet, kPorts[2]);
  round();
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(status().ignored, 2U);
  answer_from(packet, kPorts[1]);
  round();
  EXPECT_EQ(process_->completed(), std::vector<uint16_t>{4});
}

// Each switch has its own window: one that does not answer does not stop the packets to the others.
TEST_F(SenderToAggregators, ASilentSwitchStopsItsOwnSlotsOnly) {
  process_->submit_range(0, kSlots);
  std::vector<Sent> in_flight = round();
  for (int rounds = 0; rounds < 100 && !in_flight.empty(); ++rounds) {
    for (const Sent& packet : std::exchange(in_flight, {})) {
      if (packet.switch_port != kPorts[1]) answer_from(packet, packet.switch_port);
    }
    now_ += microseconds(100);
    in_flight = round();
  }
  EXPECT_EQ(process_->completed().size(), kSlots - kSlots / 3);
}

// The round trips of a part of the slots tell the bytes that come to this part.
TEST_F(SenderToAggregators, BytesOfRoundTripsAreThoseOfAllParts) {
  process_->submit_range(0, 3);
  const std::vector<Sent> sent = round();
  ASSERT_EQ(sent.size(), 3U);
  now_ += milliseconds(2);
  for (const Sent& packet : sent) answer_from(packet, packet.switch_port);
  round();
  const channel::ServerCounters& counters = process_->control().server;
  EXPECT_EQ(counters.round_trips_ns, 6'000'000U);
  EXPECT_EQ(counters.round_trips_bytes, 3 * 3 * (wire::protocol::header_bytes + sent[0].payload.size()));
}

TEST_F(SenderToAggregators, PhasesHeldAreThoseOfAllSwitches) {
  process_->submit_range(0, 4);
  for (const Sent& packet : round()) answer_from(packet, packet.switch_port);
  round();
  ranks_->freeze(0);
  const std::vector<uint32_t> held = ranks_->held(0);
  EXPECT_EQ(std::vector<uint32_t>(held.begin(), held.begin() + 5), (std::vector<uint32_t>{1, 1, 1, 1, 0}));
}

// Data that SwitchML's library never writes ends the service of the rank, at once and permanently.
class HostileProcess : public Sender {
 protected:
  void expect_broken() {
    EXPECT_TRUE(round().empty());
    EXPECT_TRUE(process_->server()->broken());
    process_->submit(1);
    EXPECT_TRUE(round().empty());
    EXPECT_EQ(status().sent, 0U);
  }
};

TEST_F(HostileProcess, SlotBeyondThePool) {
  process_->submit_in(kSlots, 0);
  expect_broken();
}

TEST_F(HostileProcess, MoreSlotsThanThereAre) {
  process_->control().submitted.store(kSlots + 1, std::memory_order_release);
  expect_broken();
}

TEST_F(HostileProcess, SlotThatIsInFlight) {
  process_->submit(0);
  ASSERT_EQ(round().size(), 1U);
  process_->submit(0);
  EXPECT_TRUE(round().empty());
  EXPECT_TRUE(process_->server()->broken());
}

class ChunkOutOfOrder : public HostileProcess, public testing::WithParamInterface<uint32_t> {};

TEST_P(ChunkOutOfOrder, EndsTheServiceOfItsRank) {
  process_->submit(GetParam());
  expect_broken();
}

INSTANTIATE_TEST_SUITE_P(FarAndNear, ChunkOutOfOrder,
                         testing::Values((1U << 31U) - kSlots + 1, (1U << 31U) + 1, 0U - kSlots + 1, 2 * kSlots + 1));

TEST_F(HostileProcess, ChunkBehindThePool) {
  process_->submit_range(0, 2);
  std::vector<Sent> sent = round();
  for (const Sent& packet : sent) answer(packet);
  round();
  process_->submit(1 + kSlots);  // the stream continues without chunk 256
  ASSERT_EQ(round().size(), 1U);
  process_->submit(0);
  EXPECT_TRUE(round().empty());
  EXPECT_TRUE(process_->server()->broken());
}

// On a switch of a tree the ranks are numbered on their own.
TEST_F(Sender, PacketsNameTheNumberOfTheRankAtItsSwitch) {
  RankAssignment of = assignment(1);
  of.worker = 0;
  ranks_->remove(0);
  const std::unique_ptr<Process> other = add_rank(of);
  other->submit(0);
  const Sent sent = round().at(0);
  EXPECT_EQ(sent.header.worker, 0);
  now_ += milliseconds(2);
  answer(sent);
  round();
  EXPECT_DOUBLE_EQ(other->server()->status().round_trip_seconds, 0.002);
}

TEST_F(Sender, SlotIsNotUsedBeyondTheEpoch) {
  RankAssignment of = assignment(1);
  of.slot_uses = 2;
  ranks_->remove(0);
  const std::unique_ptr<Process> other = add_rank(of);
  for (uint32_t use = 0; use < 2; ++use) {
    other->submit(use * kSlots);
    answer(round().at(0));
    round();
  }
  EXPECT_EQ(other->server()->status().uses, 2U);
  other->submit(2 * kSlots);
  EXPECT_TRUE(round().empty());
  EXPECT_TRUE(other->server()->broken());
}

TEST_F(Sender, FrozenRankBeginsNothingAndTakesNoResult) {
  process_->submit_range(0, 2);
  const std::vector<Sent> sent = round();
  ranks_->freeze(0);
  process_->submit(2);
  answer(sent[0]);
  now_ += milliseconds(500);
  EXPECT_TRUE(round().empty());
  EXPECT_TRUE(process_->completed().empty());
  EXPECT_EQ(ranks_->held(0), std::vector<uint32_t>(kSlots));
  EXPECT_EQ(ranks_->next_deadline(), Clock::time_point::max());
}

TEST_F(Sender, FrozenRankFetchesWhatOthersHold) {
  process_->submit_range(0, 3);
  const std::vector<Sent> sent = round();
  answer(sent[2]);
  round();
  ranks_->freeze(0);
  std::vector<uint32_t> targets = ranks_->held(0);
  ASSERT_EQ(targets[2], 1U);
  targets[1] = 1;
  ranks_->fetch(0, targets);
  const std::vector<Sent> again = round();
  ASSERT_EQ(chunks(again), std::vector<uint32_t>{1});
  EXPECT_EQ(again[0].header.flags, wire::flag::retransmission);
  answer(sent[0]);  // not requested
  answer(again[0]);
  round();
  EXPECT_EQ(ranks_->held(0), targets);
  EXPECT_EQ(process_->completed(), (std::vector<uint16_t>{2, 1}));
}

TEST_F(Sender, FetchNeedsAFrozenRankAndOneTargetForEachSlot) {
  EXPECT_THROW(ranks_->fetch(0, std::vector<uint32_t>(kSlots)), std::invalid_argument);
  ranks_->freeze(0);
  EXPECT_THROW(ranks_->fetch(0, std::vector<uint32_t>(kSlots - 1)), std::invalid_argument);
  EXPECT_NO_THROW(ranks_->fetch(0, std::vector<uint32_t>(kSlots)));
}

TEST_F(Sender, SleepingProcessIsWokenAtTheCountThatItNamed) {
  process_->submit_range(0, 3);
  const std::vector<Sent> sent = round();
  channel::ChannelControl& control = process_->control();
  control.process_wakes_at.store(2);
  control.process_sleeps.store(1);
  answer(sent[0]);
  round();
  EXPECT_EQ(control.process_event.load(), 0U);
  answer(sent[1]);
  round();
  EXPECT_EQ(control.process_event.load(), 1U);
  EXPECT_EQ(control.process_sleeps.load(), 0U);
}

TEST_F(Sender, SleepingProcessIsWokenWhenNothingIsLeftToDo) {
  process_->submit_range(0, 3);
  const std::vector<Sent> sent = round();
  channel::ChannelControl& control = process_->control();
  control.process_wakes_at.store(3);
  control.process_sleeps.store(1);
  round(true);  // no new result for it
  EXPECT_EQ(control.process_event.load(), 0U);
  answer(sent[0]);
  round(true);
  EXPECT_EQ(control.process_event.load(), 1U);
}

TEST_F(Sender, SubmissionsWaitUntilTheyAreTaken) {
  EXPECT_FALSE(ranks_->submissions_wait());
  process_->submit(0);
  EXPECT_TRUE(ranks_->submissions_wait());
  round();
  EXPECT_FALSE(ranks_->submissions_wait());
}

TEST_F(Sender, SleepingThreadWantsToBeRungAtAnEighthOfThePool) {
  ranks_->set_sleeping(true);
  EXPECT_EQ(process_->control().server_sleeps.load(), 1U);
  EXPECT_EQ(process_->control().server_wakes_at.load(), kSlots / 8);
  ranks_->set_sleeping(false);
  EXPECT_EQ(process_->control().server_sleeps.load(), 0U);
}

TEST_F(Sender, ProfileHasBytesAndRoundTrips) {
  process_->submit(0);
  process_->submit(1, wire::flag::without_values);
  const std::vector<Sent> sent = round();
  now_ += microseconds(100);
  answer(sent[0]);
  round();
  RankProfile profile;
  ranks_->add_to(0, &profile);
  EXPECT_EQ(profile.sent_bytes, 2 * wire::protocol::header_bytes + kValues * sizeof(uint32_t));
  EXPECT_EQ(profile.received_bytes, wire::protocol::header_bytes + kValues * sizeof(uint32_t));
  EXPECT_EQ(
      std::accumulate(profile.round_trips_by_duration.begin(), profile.round_trips_by_duration.end(), uint64_t{0}), 1U);
}

// Two jobs of one tenant at one agent, whose data thread serves the urgent one first.
class TwoJobs : public testing::Test {
 protected:
  TwoJobs() { urgent_.now_ = other_.now_; }  // one clock for both

  class Job : public Sender {
   public:
    Job(unsigned priority, std::shared_ptr<runtime::Precedence> precedence)
        : Sender(1, kValues, priority, std::move(precedence)) {}
    using Sender::answer;
    using Sender::now_;
    using Sender::process_;
    using Sender::ranks_;
    using Sender::round;

   private:
    void TestBody() override {}
  };

  struct Round {
    std::vector<Sent> urgent;
    std::vector<Sent> other;
  };
  // Does one round of the data thread.
  Round round() {
    Round sent;
    sent.urgent = urgent_.round();
    sent.other = other_.round();
    return sent;
  }
  void pass(nanoseconds time) {
    urgent_.now_ += time;
    other_.now_ += time;
  }
  void answer(const Round& sent) {
    for (const Sent& packet : sent.urgent) urgent_.answer(packet);
    for (const Sent& packet : sent.other) other_.answer(packet);
  }

  std::shared_ptr<runtime::Precedence> precedence_ = std::make_shared<runtime::Precedence>();
  Job urgent_{5, precedence_};
  Job other_{2, precedence_};
};

TEST_F(TwoJobs, JobSendsItsWindowWhileTheUrgentOneHasNothingToDo) {
  other_.process_->submit_range(0, kSlots);
  EXPECT_EQ(round().other.size(), kInitialWindow);
}

TEST_F(TwoJobs, JobIsHeldBackUntilTheUrgentOneHasItsResults) {
  urgent_.process_->submit_range(0, kSlots);
  other_.process_->submit_range(0, kSlots);
  uint32_t urgent = 0;
  while (urgent < kSlots) {
    const Round sent = round();
    urgent += static_cast<uint32_t>(sent.urgent.size());
    EXPECT_EQ(sent.other.size(), runtime::Precedence::kHeldBackWindow) << "after " << urgent << " urgent packets";
    pass(milliseconds(1));
    answer(sent);
  }
  const Round after = round();
  EXPECT_TRUE(after.urgent.empty());
  EXPECT_GE(after.other.size(), kInitialWindow);
}

// Less would be in the queues of the path, but what was sent is not taken back.
TEST_F(TwoJobs, JobThatIsHeldBackSendsNothingBeyondWhatIsInFlight) {
  other_.process_->submit_range(0, kSlots);
  const std::vector<Sent> before = round().other;
  urgent_.process_->submit_range(0, kSlots);
  EXPECT_EQ(round().urgent.size(), kInitialWindow);
  for (const Sent& packet : before) {
    if (packet.header.chunk + 1 != before.size()) other_.answer(packet);
  }
  EXPECT_TRUE(round().other.empty());
  other_.answer(before.back());
  EXPECT_EQ(round().other.size(), runtime::Precedence::kHeldBackWindow);
}

// The urgent job's other rank may wait for a result of the other job: so no job must be held back for long.
TEST_F(TwoJobs, UrgentJobThatWaitsForAnotherRankHoldsNoJobBack) {
  urgent_.process_->submit_range(0, kSlots);
  other_.process_->submit_range(0, kSlots);
  const Round first = round();
  EXPECT_EQ(first.other.size(), runtime::Precedence::kHeldBackWindow);
  pass(kInitialTimeout - nanoseconds(1));
  EXPECT_TRUE(round().other.empty());
  pass(nanoseconds(1));
  EXPECT_EQ(round().other.size(), kInitialWindow);  // its first packet again, and the others of its window
  pass(milliseconds(1));
  for (const Sent& packet : first.urgent) urgent_.answer(packet);
  const Round resumed = round();
  EXPECT_FALSE(resumed.urgent.empty());
  EXPECT_TRUE(resumed.other.empty());
}

// Its packets wait behind those that the other job had sent: longer than its timeout, which an idle path has taught it.
TEST_F(TwoJobs, UrgentJobWhosePacketsAreBehindOthersHoldsThemBackBeyondItsTimeout) {
  constexpr size_t kDrained = 40;
  other_.process_->submit_range(0, kSlots);
  const std::vector<Sent> before = round().other;
  urgent_.process_->submit_range(0, kSlots);
  round();
  pass(kInitialTimeout - milliseconds(1));
  for (size_t packet = 0; packet < kDrained; ++packet) other_.answer(before[packet]);
  EXPECT_TRUE(round().other.empty());
  pass(milliseconds(1));
  EXPECT_TRUE(round().other.empty()) << "after the urgent job's timeout";
  pass(2 * kInitialTimeout - milliseconds(2));
  for (const Sent& packet : round().other) EXPECT_NE(packet.header.flags & wire::flag::retransmission, 0);
  pass(milliseconds(2));
  EXPECT_GE(round().other.size(), kDrained) << "the urgent job waits for something else";
}

TEST_F(TwoJobs, LossesOfAJobThatIsHeldBackAreMended) {
  other_.process_->submit_range(0, kSlots);
  const std::vector<Sent> before = round().other;
  std::vector<Sent> again;
  for (uint32_t chunk = 0; chunk < kSlots; chunk += kInitialWindow / 2) {
    urgent_.process_->submit_range(chunk, chunk + kInitialWindow / 2);
    const Round sent = round();
    again.insert(again.end(), sent.other.begin(), sent.other.end());
    answer({sent.urgent, {}});
    pass(milliseconds(5));
  }
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.at(0).header.chunk, before.at(0).header.chunk);
  EXPECT_NE(again.at(0).header.flags & wire::flag::retransmission, 0);
}

TEST_F(TwoJobs, LessUrgentJobHoldsNoJobBack) {
  other_.process_->submit_range(0, kSlots);
  round();
  urgent_.process_->submit_range(0, kSlots);
  EXPECT_EQ(round().urgent.size(), kInitialWindow);
}

TEST_F(TwoJobs, JobsOfOnePriorityShare) {
  Job equal{5, precedence_};
  urgent_.process_->submit_range(0, kSlots);
  round();
  equal.process_->submit_range(0, kSlots);
  EXPECT_EQ(equal.round().size(), kInitialWindow);
}

TEST_F(TwoJobs, JobBeforeAChangeOfEpochHoldsNoJobBack) {
  urgent_.process_->submit_range(0, kSlots);
  round();
  urgent_.ranks_->freeze(0);
  other_.process_->submit_range(0, kSlots);
  EXPECT_EQ(round().other.size(), kInitialWindow);
}

TEST_F(TwoJobs, JobThatHasEndedHoldsNoJobBack) {
  other_.process_->submit_range(0, kSlots);
  {
    Job third{7, precedence_};
    third.process_->submit(0);
    third.round();
    EXPECT_EQ(round().other.size(), runtime::Precedence::kHeldBackWindow);
  }
  EXPECT_EQ(round().other.size(), kInitialWindow - 1);
}

TEST(Precedence, JobYieldsAsLongAsThereIsAMoreUrgentOne) {
  const auto precedence = std::make_shared<runtime::Precedence>();
  const runtime::Precedence::Place job(precedence, 2);
  const runtime::Precedence::Place equal(precedence, 2);
  EXPECT_FALSE(job.yields());
  {
    const runtime::Precedence::Place urgent(precedence, 3);
    EXPECT_TRUE(job.yields());
    EXPECT_FALSE(urgent.yields());
  }
  EXPECT_FALSE(job.yields());
}

TEST(Precedence, TenantsDoNotHoldEachOtherBack) {
  runtime::TenantPrecedences tenants;
  EXPECT_EQ(tenants.of(0), tenants.of(0));
  runtime::Precedence::Place urgent(tenants.of(1), 7);
  const runtime::Precedence::Place same(tenants.of(1), 0);
  const runtime::Precedence::Place another(tenants.of(2), 0);
  urgent.hold(true);
  EXPECT_EQ(same.window(64), runtime::Precedence::kHeldBackWindow);
  EXPECT_EQ(another.window(64), 64U);
  urgent.hold(false);
  EXPECT_EQ(same.window(64), 64U);
}

struct AssignmentChange {
  std::string what;
  std::function<void(RankAssignment*)> change;
};

class BadAssignment : public testing::TestWithParam<AssignmentChange> {};

TEST_P(BadAssignment, IsRefused) {
  RankAssignment of = assignment();
  EXPECT_NO_THROW(checked(of));
  GetParam().change(&of);
  EXPECT_THROW(checked(of), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(
    Members, BadAssignment,
    testing::Values(AssignmentChange{"no_slots", [](RankAssignment* of) { of->slots = 0; }},
                    AssignmentChange{"slots_not_a_power_of_two", [](RankAssignment* of) { of->slots = 96; }},
                    AssignmentChange{"slot_base_between_pools", [](RankAssignment* of) { of->slot_base = 128; }},
                    AssignmentChange{"range_beyond_the_field", [](RankAssignment* of) { of->slot_base = 32768; }},
                    AssignmentChange{"no_values", [](RankAssignment* of) { of->values = 0; }},
                    AssignmentChange{"too_many_values", [](RankAssignment* of) { of->values = 2049; }},
                    AssignmentChange{"no_ranks", [](RankAssignment* of) { of->world_size = 0; }},
                    AssignmentChange{"too_many_ranks", [](RankAssignment* of) { of->world_size = 4097; }},
                    AssignmentChange{"rank_beyond_the_switch",
                                     [](RankAssignment* of) {
                                       of->world_size = 4096;
                                       of->rank = of->worker = 64;
                                     }},
                    AssignmentChange{"rank_beyond_the_world", [](RankAssignment* of) { of->rank = 2; }},
                    AssignmentChange{"number_above_the_rank", [](RankAssignment* of) { of->worker = 1; }},
                    AssignmentChange{"priority_above_7", [](RankAssignment* of) { of->priority = 8; }},
                    AssignmentChange{"epoch_zero", [](RankAssignment* of) { of->epoch = 0; }},
                    AssignmentChange{"too_many_aggregators",
                                     [](RankAssignment* of) { of->aggregators.assign(65, {"127.0.0.1", 1}); }},
                    AssignmentChange{"fewer_slots_than_aggregators",
                                     [](RankAssignment* of) {
                                       of->slots = 2;
                                       of->aggregators.assign(3, {"127.0.0.1", 1});
                                     }}),
    [](const auto& each) { return each.param.what; });

}  // namespace
}  // namespace switchml::agent
