// Trees of switches: one leaf, and whole trees over a network that loses, duplicates and reorders packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/net/udp_batch.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

constexpr uint16_t kPort = 1;
constexpr uint16_t kUplink = 2;
constexpr uint16_t kJob = 7;
constexpr uint16_t kEpoch = 9;
constexpr uint32_t kSecret = 0x5EC2E7;
constexpr uint16_t kUdpPort = 4000;  // of every sender
constexpr uint32_t kSlots = 2;
constexpr size_t kValues = 4;

using Words = std::vector<uint32_t>;  // the values of a packet; empty for one without values

// A packet that left a switch, and the IPv4 address that it was sent to.
struct Sent {
  wire::Header header;
  Words words;
  uint32_t to = 0;
};

// Keeps the packets that leave through it.
class RecordingPort final : public PipelinePort {
 public:
  RecordingPort(uint16_t number, std::vector<Sent>* sent) : PipelinePort(number, false), sent_(sent) {}

  PortCounters counters() const override { return common_counters(); }
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& /*own*/, Counter* /*injected_loss*/) override {
    for (const OutgoingPacket& packet : packets) {
      Words words;
      for (size_t at = 0; at < packet.payload_bytes; at += sizeof(uint32_t)) {
        words.push_back(wire::load32(packet.payload + at));
      }
      for (const RankAddress& rank : ranks) sent_->push_back({wire::load_header(packet.header), words, rank.ipv4_dst});
    }
  }

 protected:
  void send_due() override {}

 private:
  std::vector<Sent>* sent_;
};

// A switch with two ports and the tables of one job.
class Node {
 public:
  explicit Node(uint32_t address, std::unique_ptr<SlotStore> slots = std::make_unique<PacketSlotStore>(kSlots, kValues))
      : address_(address), pipeline_(std::move(slots), &ports_) {
    for (const uint16_t port : {kPort, kUplink}) ports_.add(std::make_unique<RecordingPort>(port, &sent_));
  }

  // Makes the senders with these addresses its ranks 0, 1, ... and, if it is below another switch, that one its parent,
  // which knows this switch as `number` of `others` switches.
  void set_job(const std::vector<uint32_t>& ranks, std::optional<uint32_t> parent = {}, uint8_t number = 0,
               unsigned others = 1) {
    const uint64_t below = ranks.size() == 64 ? ~uint64_t{0} : (uint64_t{1} << ranks.size()) - 1;
    pipeline_.tables.set_job(kJob, {0, 0});
    std::vector<Replica> replicas;
    const auto count = static_cast<uint8_t>(ranks.size());
    for (uint8_t rank = 0; rank < count; ++rank) {
      const uint64_t bit = uint64_t{1} << rank;
      const auto action = parent ? Admission::Action::admit_below : Admission::Action::admit;
      admit(kPort, ranks[rank], rank, {bit, below, kEpoch, kJob, action});
      pipeline_.tables.set_rank(kJob, rank, {0, ranks[rank], kUdpPort, UINT64_MAX});
      replicas.push_back({kPort, rank});
    }
    pipeline_.tables.set_group(kJob, replicas);
    if (!parent) return;
    parent_ = parent;
    for (unsigned other = 0; other < others; ++other) {
      Admission results{kFinal, below, kEpoch, kJob, Admission::Action::admit_parent};
      results.completed_here = other == number;
      admit(kUplink, *parent, static_cast<uint8_t>(other), results);
    }
    // It may itself be below another switch.
    admit(kUplink, *parent, wire::tree::no_rank, {kFinal, below, kEpoch, kJob, Admission::Action::admit_parent});
    const auto instance = static_cast<uint16_t>(wire::tree::first_parent_instance + number);
    pipeline_.tables.set_rank(kJob, instance, {0, *parent, kUdpPort, UINT64_MAX});
    pipeline_.tables.set_group(parent_group(kJob), {{kUplink, instance}});
  }

  // Processes a packet from the sender with this address. Returns the verdict, or nothing if it was not admitted.
  std::optional<wire::Verdict> receive(uint32_t from, const wire::Header& header, const Words& words,
                                       const SharedValues* shared = nullptr) {
    std::vector<uint8_t> bytes(words.size() * sizeof(uint32_t));
    for (size_t i = 0; i < words.size(); ++i) wire::store32(bytes.data() + i * sizeof(uint32_t), words[i]);
    BareContribution one;
    one.header = header;
    one.ipv4_src = from;
    one.sender = kUdpPort;
    one.payload_bytes = words.empty() && shared == nullptr ? 0 : kValues * sizeof(uint32_t);
    one.values = {shared == nullptr ? bytes.data() : nullptr, shared};
    const auto verdict = pipeline_.contribute(*ports_.find(from == parent_ ? kUplink : kPort), one);
    pipeline_.flush();
    return verdict;
  }

  // Returns the packets that were sent since the last call.
  std::vector<Sent> take_sent() { return std::exchange(sent_, {}); }
  uint32_t address() const { return address_; }
  Pipeline& pipeline() { return pipeline_; }
  uint64_t dropped(wire::DropReason reason) { return pipeline_.drops[reason].packets; }

 private:
  void admit(uint16_t port, uint32_t sender, uint8_t worker, const Admission& admission) {
    const bool from_parent = admission.action == Admission::Action::admit_parent;
    const wire::Kind kind = from_parent ? wire::Kind::result : wire::Kind::contribution;
    pipeline_.tables.workers.set({port, 0, sender, kUdpPort, kJob, worker, kSecret, kind}, {0, 0, 1}, admission);
  }

  uint32_t address_;
  std::optional<uint32_t> parent_;
  std::vector<Sent> sent_;
  PortTable ports_;
  Pipeline pipeline_;
};

wire::Header header_of(uint8_t worker, uint32_t phase, const Words& words, wire::Kind kind = wire::Kind::contribution) {
  wire::Header header;
  header.kind = static_cast<uint8_t>(kind);
  header.format = static_cast<uint8_t>(wire::Format::int32);
  header.job = kJob;
  header.worker = worker;
  header.slot = static_cast<uint16_t>(2 | (phase & 1U));
  header.count = static_cast<uint16_t>(words.size());
  header.flags = words.empty() ? wire::flag::without_values : 0;
  header.epoch = kEpoch;
  header.phase = phase;
  header.secret = kSecret;
  return header;
}

// Addresses: of the leaf, of its ranks and of its parent.
constexpr uint32_t kLeaf = 1;
constexpr std::array<uint32_t, 2> kRanks = {10, 11};
constexpr uint8_t kRankCount = kRanks.size();
constexpr uint32_t kParent = 2;
constexpr uint8_t kNumber = 5;  // of the leaf at its parent
constexpr unsigned kLeaves = 8;
constexpr uint8_t kOtherLeaf = 3;

const Words kOfRank0 = {1, 2, 3, 4};
const Words kOfRank1 = {10, 20, 30, 40};
const Words kBelow = {11, 22, 33, 44};
const Words kOfAll = {111, 222, 333, 444};

class Leaf : public testing::Test {
 protected:
  Leaf() { leaf_.set_job({kRanks.begin(), kRanks.end()}, kParent, kNumber, kLeaves); }

  std::optional<wire::Verdict> contribute(uint8_t rank, const Words& words, uint32_t phase = 0) {
    wire::Header header = header_of(rank, phase, words);
    header.exponent = static_cast<uint16_t>(100 + rank);
    header.check = 1000U + rank;
    header.chunk = 50U - rank;
    asked_by_ = rank;
    return leaf_.receive(kRanks[rank], header, words);
  }
  std::optional<wire::Verdict> answer(const Words& words, uint32_t phase = 0, uint8_t completed_by = kNumber) {
    wire::Header header = header_of(completed_by, phase, words, wire::Kind::result);
    header.exponent = 120;
    header.check = 77;
    header.chunk = 9;
    header.owner = asked_by_;
    return leaf_.receive(kParent, header, words);
  }
  // The parent receives exactly one contribution, with these values.
  void expect_contribution(const Words& words) {
    const std::vector<Sent> sent = leaf_.take_sent();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].to, kParent);
    EXPECT_EQ(sent[0].header.kind, static_cast<uint8_t>(wire::Kind::contribution));
    EXPECT_EQ(sent[0].header.worker, kNumber);
    EXPECT_EQ(sent[0].words, words);
    EXPECT_EQ(sent[0].header.count, words.size());
    EXPECT_EQ(sent[0].header.flags & wire::flag::without_values, words.empty() ? wire::flag::without_values : 0);
  }
  // Each rank receives one RESULT with these values.
  void expect_results(const Words& words, uint8_t completed_by) {
    std::vector<Sent> sent = leaf_.take_sent();
    ASSERT_EQ(sent.size(), kRanks.size());
    std::sort(sent.begin(), sent.end(), [](const Sent& a, const Sent& b) { return a.to < b.to; });
    for (size_t rank = 0; rank < kRanks.size(); ++rank) {
      EXPECT_EQ(sent[rank].to, kRanks[rank]);
      EXPECT_EQ(sent[rank].header.kind, static_cast<uint8_t>(wire::Kind::result));
      EXPECT_EQ(sent[rank].header.worker, completed_by);
      EXPECT_EQ(sent[rank].header.owner, 0);
      EXPECT_EQ(sent[rank].words, words);
      EXPECT_EQ(sent[rank].header.exponent, 120);
      EXPECT_EQ(sent[rank].header.check, 77U);
      EXPECT_EQ(sent[rank].header.chunk, 9U);
    }
  }
  void expect_nothing() { EXPECT_TRUE(leaf_.take_sent().empty()); }

  Node leaf_{kLeaf};
  uint8_t asked_by_ = 0;  // the rank that has contributed last; the parent's RESULTs answer its packet
};

TEST_F(Leaf, SendsTheSumOfItsRanksToTheParent) {
  EXPECT_EQ(contribute(0, kOfRank0), wire::Verdict::aggregated);
  expect_nothing();
  EXPECT_EQ(contribute(1, kOfRank1), wire::Verdict::forwarded);
  const std::vector<Sent> sent = leaf_.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  const wire::Header& header = sent[0].header;
  EXPECT_EQ(sent[0].to, kParent);
  EXPECT_EQ(sent[0].words, kBelow);
  EXPECT_EQ(header.kind, static_cast<uint8_t>(wire::Kind::contribution));
  EXPECT_EQ(header.worker, kNumber);
  EXPECT_EQ(header.owner, 1);
  EXPECT_EQ(header.exponent, 101);
  EXPECT_EQ(header.check, 2001U);
  EXPECT_EQ(header.chunk, 49U);
  EXPECT_EQ(header.job, kJob);
  EXPECT_EQ(header.slot, 2);
  EXPECT_EQ(header.phase, 0U);
  EXPECT_EQ(header.epoch, kEpoch);
  EXPECT_EQ(header.secret, kSecret);
}

TEST_F(Leaf, SendsItAgainForEachRetransmission) {
  contribute(0, kOfRank0);
  EXPECT_EQ(contribute(0, kOfRank0), wire::Verdict::duplicate);
  expect_nothing();  // rank 1 is missing
  contribute(1, kOfRank1);
  expect_contribution(kBelow);
  for (const uint8_t rank : {uint8_t{0}, uint8_t{1}}) {
    EXPECT_EQ(contribute(rank, rank == 0 ? kOfRank0 : kOfRank1), wire::Verdict::forwarded);
    expect_contribution(kBelow);
  }
}

TEST_F(Leaf, ParentsResultReplacesTheSum) {
  contribute(0, kOfRank0);
  contribute(1, kOfRank1);
  leaf_.take_sent();
  EXPECT_EQ(answer(kOfAll), wire::Verdict::completed);
  expect_results(kOfAll, 1);
  EXPECT_EQ(contribute(0, kOfRank0), wire::Verdict::resent);
  const std::vector<Sent> sent = leaf_.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].to, kRanks[0]);
  EXPECT_EQ(sent[0].words, kOfAll);
  EXPECT_EQ(sent[0].header.worker, 0);
}

TEST_F(Leaf, OtherResultsOfTheParentAreDropped) {
  EXPECT_EQ(answer(kOfAll), wire::Verdict::stale);  // no phase has begun
  contribute(0, kOfRank0, 2);
  contribute(1, kOfRank1, 2);
  leaf_.take_sent();
  EXPECT_EQ(answer(kOfRank0, 0), wire::Verdict::stale);
  EXPECT_EQ(answer(kOfRank0, 4), wire::Verdict::stale);
  expect_nothing();
  EXPECT_EQ(answer(kOfAll, 2), wire::Verdict::completed);
  expect_results(kOfAll, 1);
  EXPECT_EQ(answer(kOfRank0, 2), wire::Verdict::duplicate);
  expect_nothing();
  contribute(0, kOfRank0, 2);
  EXPECT_EQ(leaf_.take_sent().at(0).words, kOfAll);
}

TEST_F(Leaf, NextPhaseBeginsWithoutTheParent) {
  for (uint32_t phase = 0; phase < 6; ++phase) {
    contribute(1, kOfRank1, phase);
    expect_nothing();
    contribute(0, kOfRank0, phase);
    expect_contribution(kBelow);
    EXPECT_EQ(answer(kOfAll, phase), wire::Verdict::completed);
    expect_results(kOfAll, 0);
  }
}

TEST_F(Leaf, ValuesOfSomeRanks) {
  // A packet without values completes the leaf, and the contribution has those of the other rank.
  contribute(0, kOfRank0);
  contribute(1, {});
  expect_contribution(kOfRank0);
  EXPECT_EQ(answer(kOfAll), wire::Verdict::completed);
  expect_results(kOfAll, 1);
  // No rank here has values, but another leaf's has.
  contribute(0, {}, 2);
  contribute(1, {}, 2);
  expect_contribution({});
  EXPECT_EQ(answer(kOfAll, 2), wire::Verdict::completed);
  expect_results(kOfAll, 1);
  contribute(0, {}, 2);
  EXPECT_EQ(leaf_.take_sent().at(0).words, kOfAll);
  // No rank of the job has values.
  contribute(0, {}, 4);
  contribute(1, {}, 4);
  expect_contribution({});
  EXPECT_EQ(answer({}, 4), wire::Verdict::completed);
  expect_results({}, 1);
}

TEST_F(Leaf, OnlyTheParentSendsResultsAndItSendsNothingElse) {
  contribute(0, kOfRank0);
  contribute(1, kOfRank1);
  leaf_.take_sent();
  for (const uint8_t rank : {uint8_t{0}, uint8_t{1}}) {
    EXPECT_EQ(leaf_.receive(kRanks[rank], header_of(rank, 0, kOfAll, wire::Kind::result), kOfAll), std::nullopt);
  }
  EXPECT_EQ(leaf_.dropped(wire::DropReason::forged_result), 2U);
  EXPECT_EQ(leaf_.receive(kParent, header_of(kNumber, 0, kOfAll), kOfAll), std::nullopt);
  EXPECT_EQ(leaf_.dropped(wire::DropReason::unknown_worker), 1U);
  expect_nothing();
  // A RESULT that is not well-formed, or has another secret, is not taken for the parent's.
  wire::Header header = header_of(kNumber, 0, kOfAll, wire::Kind::result);
  header.secret += 1;
  EXPECT_EQ(leaf_.receive(kParent, header, kOfAll), std::nullopt);
  header = header_of(kNumber, 0, kOfAll, wire::Kind::result);
  header.exponent = wire::exponent::unknown + 1;
  EXPECT_EQ(leaf_.receive(kParent, header, kOfAll), std::nullopt);
  EXPECT_EQ(leaf_.dropped(wire::DropReason::forged_result), 4U);
  header = header_of(kNumber, 0, kOfAll, wire::Kind::result);
  header.epoch += 1;
  EXPECT_EQ(leaf_.receive(kParent, header, kOfAll), wire::Verdict::wrong_epoch);
  EXPECT_EQ(answer(kOfAll), wire::Verdict::completed);
}

// Ranks measure round trips by the RESULTs that name them, so no RESULT may name a rank whose packet did not complete
// it.
TEST_F(Leaf, ResultsNameARankBelowOrNone) {
  contribute(1, kOfRank1);
  contribute(0, kOfRank0);
  leaf_.take_sent();
  answer(kOfAll, 0, kOtherLeaf);
  expect_results(kOfAll, wire::tree::no_rank);
  contribute(1, kOfRank1, 2);
  contribute(0, kOfRank0, 2);
  contribute(1, kOfRank1, 2);  // the RESULT may be the answer to this one
  leaf_.take_sent();
  answer(kOfAll, 2, kNumber);
  expect_results(kOfAll, 1);
}

TEST(Flat, JobOfSixtyFourRanksHasNoParent) {
  Node node(kLeaf);
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < wire::protocol::max_workers; ++rank) ranks.push_back(10 + rank);
  node.set_job(ranks);
  for (uint8_t rank = 0; rank < 63; ++rank) {
    EXPECT_EQ(node.receive(ranks[rank], header_of(rank, 0, kOfRank0), kOfRank0), wire::Verdict::aggregated);
  }
  EXPECT_TRUE(node.take_sent().empty());
  EXPECT_EQ(node.receive(ranks[63], header_of(63, 0, kOfAll, wire::Kind::result), kOfAll), std::nullopt);
  EXPECT_EQ(node.dropped(wire::DropReason::forged_result), 1U);
  EXPECT_EQ(node.receive(ranks[63], header_of(63, 0, kOfRank1), kOfRank1), wire::Verdict::completed);
  const std::vector<Sent> sent = node.take_sent();
  ASSERT_EQ(sent.size(), 64U);
  EXPECT_EQ(sent[0].words, (Words{63 + 10, 126 + 20, 189 + 30, 252 + 40}));
}

// A host's own switch: its ranks share memory with it.
TEST(HostLeaf, RanksThatShareMemoryAreSummedAndGetTheParentsResult) {
  auto owned = std::make_unique<SharedSlotStore>(kSlots, kValues);
  SharedSlotStore* slots = owned.get();
  ShmJob job(ShmJobKey{kJob, kEpoch, 0, kRanks.size(), kSlots, kValues});
  SumQueue sums;
  std::vector<channel::SharedMemory> memory;
  std::array<SharedValues, kRanks.size()> shared;
  for (uint8_t rank = 0; rank < kRankCount; ++rank) {
    memory.emplace_back("test-rank", channel::Channel::bytes(kSlots, kValues, true),
                        channel::SharedMemory::Others::may_read);
    uint8_t* buffer = channel::Channel::contributions(memory.back().data(), kSlots);
    job.set_contributions(rank, buffer);
    shared[rank] = {&job, rank, &sums};
    const Words& words = rank == 0 ? kOfRank0 : kOfRank1;
    for (size_t i = 0; i < kValues; ++i) {
      wire::store32(job.contribution(rank, 1) + i * sizeof(uint32_t), words[i]);
    }
  }
  Node leaf(kLeaf, std::move(owned));
  leaf.set_job({kRanks.begin(), kRanks.end()}, kParent, kNumber, kLeaves);
  for (uint8_t rank = 0; rank < kRankCount; ++rank) {
    EXPECT_EQ(leaf.receive(kRanks[rank], header_of(rank, 0, kOfRank0), kOfRank0, &shared[rank]),
              rank == 0 ? wire::Verdict::aggregated : wire::Verdict::forwarded);
  }
  EXPECT_EQ(leaf.receive(kRanks[0], header_of(0, 0, kOfRank0), kOfRank0, &shared[0]), wire::Verdict::forwarded);
  const std::vector<Sent> up = leaf.take_sent();
  ASSERT_EQ(up.size(), 2U);
  for (const Sent& sent : up) {
    EXPECT_EQ(sent.to, kParent);
    EXPECT_EQ(sent.words, kBelow);
  }
  EXPECT_EQ(leaf.receive(kParent, header_of(kNumber, 0, kOfAll, wire::Kind::result), kOfAll), wire::Verdict::completed);
  const std::vector<Sent> down = leaf.take_sent();
  ASSERT_EQ(down.size(), kRanks.size());
  for (const Sent& sent : down) EXPECT_EQ(sent.words, kOfAll);
  EXPECT_EQ(leaf.receive(kRanks[1], header_of(1, 0, kOfRank1), kOfRank1, &shared[1]), wire::Verdict::resent);
  EXPECT_EQ(leaf.take_sent().at(0).words, kOfAll);
  slots->forget(job);
}

// A tree, as the children of each switch: the ranks and switches below it, by their numbers. The last switch is the
// root.
struct Shape {
  std::string name;
  unsigned ranks;
  std::vector<std::vector<unsigned>> ranks_of;
  std::vector<std::vector<unsigned>> switches_of;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class TreeOfSwitches : public testing::TestWithParam<Shape> {};

// Ranks, switches and the packets between them. Any packet may be lost, arrive late or several times.
class Network {
 public:
  static constexpr uint32_t kPhases = 40;

  Network(const Shape& shape, unsigned seed) : random_(seed), held_(shape.ranks) {
    for (size_t at = 0; at < shape.ranks_of.size(); ++at) switches_.push_back(std::make_unique<Node>(switch_at(at)));
    std::vector<std::optional<uint32_t>> parents(switches_.size());
    std::vector<std::pair<uint8_t, unsigned>> numbers(switches_.size());
    above_.resize(shape.ranks);
    numbers_.resize(shape.ranks);
    for (size_t at = switches_.size(); at-- > 0;) {
      std::vector<uint32_t> below;
      for (const unsigned rank : shape.ranks_of[at]) {
        above_[rank] = at;
        numbers_[rank] = static_cast<uint8_t>(below.size());
        below.push_back(rank_at(rank));
      }
      const auto all = static_cast<unsigned>(below.size() + shape.switches_of[at].size());
      for (const unsigned lower : shape.switches_of[at]) {
        parents[lower] = switch_at(at);
        numbers[lower] = {static_cast<uint8_t>(below.size()), all};
        below.push_back(switch_at(lower));
      }
      switches_[at]->set_job(below, parents[at], numbers[at].first, numbers[at].second);
    }
  }

  // Lets all ranks reach the last phase. Returns false if they do not.
  bool run() {
    for (unsigned step = 0; step < kMostSteps; ++step) {
      if (std::all_of(held_.begin(), held_.end(), [](uint32_t held) { return held == kPhases; })) return true;
      const auto rank = draw(static_cast<unsigned>(held_.size()));
      if (draw(4) == 0 && held_[rank] < kPhases) send_from(rank);
      if (!flying_.empty()) deliver_one();
    }
    return false;
  }

 private:
  static constexpr unsigned kMostSteps = 200'000;
  static constexpr size_t kMostFlying = 60;

  struct Flying {
    uint32_t from;
    Sent packet;
  };

  static uint32_t rank_at(size_t rank) { return static_cast<uint32_t>(100 + rank); }
  static uint32_t switch_at(size_t at) { return static_cast<uint32_t>(1 + at); }

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  // In each phase some ranks have values, and in every seventh none.
  static Words words_of(unsigned rank, uint32_t phase) {
    if (phase % 7 == 6 || (phase + rank) % 3 == 1) return {};
    return {phase * 1000 + rank, 0xF0000000U + rank, phase, ~rank};
  }
  Words expected(uint32_t phase) const {
    Words sum;
    for (unsigned rank = 0; rank < held_.size(); ++rank) {
      const Words words = words_of(rank, phase);
      if (words.empty()) continue;
      sum.resize(kValues);
      for (size_t i = 0; i < kValues; ++i) sum[i] += words[i];
    }
    return sum;
  }

  void send_from(unsigned rank) {
    const Words words = words_of(rank, held_[rank]);
    wire::Header header = header_of(numbers_[rank], held_[rank], words);
    header.check = 1U << rank;
    header.chunk = 10 + rank;
    header.exponent = static_cast<uint16_t>(rank);
    add(rank_at(rank), {header, words, switch_at(above_[rank])});
  }

  void add(uint32_t from, Sent packet) {
    if (flying_.size() == kMostFlying) flying_.pop_front();  // lost
    flying_.push_back({from, std::move(packet)});
  }

  void deliver_one() {
    const auto at = flying_.begin() + draw(static_cast<unsigned>(flying_.size()));
    const unsigned fate = draw(10);
    Flying flying = std::move(*at);
    if (fate > 2) {
      flying_.erase(at);
    } else {
      *at = flying;  // it arrives again
    }
    if (fate == 9) return;  // lost
    if (flying.packet.to >= rank_at(0)) {
      take_result(flying.packet.to - rank_at(0), flying.packet);
      return;
    }
    Node& node = *switches_[flying.packet.to - switch_at(0)];
    EXPECT_NE(node.receive(flying.from, flying.packet.header, flying.packet.words), std::nullopt);
    for (Sent& sent : node.take_sent()) add(node.address(), std::move(sent));
  }

  void take_result(unsigned rank, const Sent& result) {
    EXPECT_EQ(result.header.kind, static_cast<uint8_t>(wire::Kind::result));
    if (result.header.phase != held_[rank]) return;
    EXPECT_EQ(result.words, expected(held_[rank])) << "rank " << rank << ", phase " << held_[rank];
    EXPECT_EQ(result.header.check, (1U << held_.size()) - 1);
    EXPECT_EQ(result.header.chunk, 10U);
    EXPECT_EQ(result.header.exponent, held_.size() - 1);
    ++held_[rank];
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<Node>> switches_;
  std::vector<size_t> above_;     // the switch of each rank
  std::vector<uint8_t> numbers_;  // the number of each rank there
  std::vector<uint32_t> held_;    // the phases whose RESULTs each rank holds
  std::deque<Flying> flying_;
};

TEST_P(TreeOfSwitches, SumsAreExactOverALossyNetwork) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Network network(GetParam(), seed);
    EXPECT_TRUE(network.run()) << "seed " << seed;
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TreeOfSwitches,
    testing::Values(Shape{"TwoLeaves", 3, {{0, 1}, {2}, {}}, {{}, {}, {0, 1}}},
                    Shape{"FourLeaves", 8, {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {}}, {{}, {}, {}, {}, {0, 1, 2, 3}}},
                    Shape{"ThreeLevels", 6, {{0, 1}, {2}, {}, {3, 4}, {5}}, {{}, {}, {0, 1}, {}, {2, 3}}}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace switchml::soft
