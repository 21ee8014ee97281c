#include "dataplane/softswitch/native/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"
#include "native/channel/channel.h"
#include "native/channel/shared_memory.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

constexpr uint16_t kPort = 1;
constexpr uint16_t kJob = 7;
constexpr uint16_t kEpoch = 9;
constexpr uint8_t kRanks = 3;
constexpr uint16_t kFirstUdpPort = 4000;
constexpr uint32_t kSlots = 2;
constexpr size_t kValues = 4;
constexpr uint16_t kSlot = 2;  // the first half of pool index 1

// Keeps the headers of the results that leave through it.
class RecordingPort final : public PipelinePort {
 public:
  RecordingPort() : PipelinePort(kPort, false) {}

  PortCounters counters() const override { return common_counters(); }
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& /*own*/, Counter* /*injected_loss*/) override {
    for (const OutgoingPacket& packet : packets) {
      results.insert(results.end(), ranks.size(), wire::load_header(packet.header));
    }
  }

  std::vector<wire::Header> results;

 protected:
  void send_due() override {}
};

// A pipeline with one job, whose ranks are at one port.
class Bench {
 public:
  explicit Bench(std::unique_ptr<SlotStore> slots) : pipeline_(std::move(slots), &ports_) {
    auto port = std::make_unique<RecordingPort>();
    port_ = port.get();
    ports_.add(std::move(port));
    std::vector<Replica> replicas;
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      const WorkerKey key{kPort, 0, 1, static_cast<uint16_t>(kFirstUdpPort + rank), kJob, rank, 0};
      pipeline_.tables.workers.set(key, {0, 0, 1}, {uint64_t{1} << rank, (1U << kRanks) - 1, kEpoch, kJob});
      pipeline_.tables.set_rank(kJob, rank, {0, 1, static_cast<uint16_t>(key.sender)});
      replicas.push_back({kPort, rank});
    }
    pipeline_.tables.set_group(kJob, replicas);
  }

  // Contributes without values, or with those that `values` has.
  std::optional<wire::Verdict> contribute(uint8_t rank, uint32_t phase, uint32_t chunk, const Values& values = {}) {
    const bool empty = values.words == nullptr && values.shared == nullptr;
    BareContribution one;
    one.header.kind = static_cast<uint8_t>(wire::Kind::contribution);
    one.header.format = static_cast<uint8_t>(wire::Format::int32);
    one.header.job = kJob;
    one.header.worker = rank;
    one.header.slot = static_cast<uint16_t>(kSlot | (phase & 1U));
    one.header.count = empty ? 0 : kValues;
    one.header.flags = empty ? wire::flag::without_values : 0;
    one.header.epoch = kEpoch;
    one.header.phase = phase;
    one.header.chunk = chunk;
    one.ipv4_src = 1;
    one.sender = static_cast<uint16_t>(kFirstUdpPort + rank);
    one.payload_bytes = empty ? 0 : kValues * sizeof(uint32_t);
    one.values = values;
    const auto verdict = pipeline_.contribute(*port_, one);
    pipeline_.flush();
    return verdict;
  }
  // Returns the chunks of the results that were sent since the last call.
  std::vector<uint32_t> chunks() {
    std::vector<uint32_t> found;
    for (const wire::Header& result : std::exchange(port_->results, {})) found.push_back(result.chunk);
    return found;
  }
  uint64_t smallest(uint32_t phase = 0) { return pipeline_.slots().read_register("slot_next", kSlot | (phase & 1U)); }
  Pipeline& pipeline() { return pipeline_; }

 private:
  PortTable ports_;
  RecordingPort* port_ = nullptr;
  Pipeline pipeline_;
};

class PacketsInPipeline : public testing::Test {
 protected:
  Bench bench_{std::make_unique<PacketSlotStore>(kSlots, kValues)};
};

TEST_F(PacketsInPipeline, ResultsNameTheSmallestChunk) {
  EXPECT_EQ(bench_.contribute(0, 0, 30), wire::Verdict::aggregated);
  EXPECT_EQ(bench_.contribute(1, 0, 10), wire::Verdict::aggregated);
  EXPECT_TRUE(bench_.chunks().empty());
  EXPECT_EQ(bench_.contribute(2, 0, 20), wire::Verdict::completed);
  EXPECT_EQ(bench_.chunks(), (std::vector<uint32_t>{10, 10, 10}));
  EXPECT_EQ(bench_.contribute(2, 0, 20), wire::Verdict::resent);
  EXPECT_EQ(bench_.chunks(), (std::vector<uint32_t>{10}));
}

TEST_F(PacketsInPipeline, ChunksAreComparedWithoutSign) {
  bench_.contribute(0, 0, wire::next::none);
  bench_.contribute(1, 0, 0x80000000);
  bench_.contribute(2, 0, 0x7FFFFFFF);
  EXPECT_EQ(bench_.chunks(), (std::vector<uint32_t>{0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}));
  bench_.contribute(0, 2, wire::next::none);
  EXPECT_EQ(bench_.smallest(), wire::next::none);
  bench_.contribute(1, 2, 0);
  EXPECT_EQ(bench_.smallest(), 0U);
}

TEST_F(PacketsInPipeline, FirstContributionOfAPhaseOverwritesTheChunk) {
  for (uint8_t rank = 0; rank < kRanks; ++rank) bench_.contribute(rank, 0, 5);
  bench_.chunks();
  bench_.contribute(0, 2, 700);
  EXPECT_EQ(bench_.smallest(), 700U);
  bench_.contribute(1, 2, 800);
  bench_.contribute(2, 2, 900);
  EXPECT_EQ(bench_.chunks(), (std::vector<uint32_t>{700, 700, 700}));
}

TEST_F(PacketsInPipeline, DuplicatesAndStalePacketsDoNotChangeTheChunk) {
  bench_.contribute(0, 2, 40);
  EXPECT_EQ(bench_.contribute(0, 2, 1), wire::Verdict::duplicate);
  EXPECT_EQ(bench_.contribute(1, 0, 1), wire::Verdict::stale);
  EXPECT_EQ(bench_.smallest(), 40U);
  bench_.contribute(1, 2, 41);
  bench_.contribute(2, 2, 42);
  EXPECT_EQ(bench_.chunks(), (std::vector<uint32_t>{40, 40, 40}));
  EXPECT_EQ(bench_.contribute(1, 2, 1), wire::Verdict::resent);
  EXPECT_EQ(bench_.chunks(), (std::vector<uint32_t>{40}));
  EXPECT_EQ(bench_.smallest(), 40U);
}

TEST(SharedMemoryInPipeline, ResultsNameTheSmallestChunk) {
  auto owned = std::make_unique<SharedSlotStore>(kSlots, kValues);
  SharedSlotStore* slots = owned.get();
  ShmJob job(ShmJobKey{kJob, kEpoch, 0, kRanks, kSlots, kValues});
  SumQueue sums;
  std::vector<channel::SharedMemory> memory;
  std::array<SharedValues, kRanks> shared;
  for (uint8_t rank = 0; rank < kRanks; ++rank) {
    memory.emplace_back("test-rank", channel::Channel::bytes(kSlots, kValues, true),
                        channel::SharedMemory::Others::may_read);
    job.set_contributions(rank, channel::Channel::contributions(memory.back().data(), kSlots));
    shared[rank] = {&job, rank, &sums};
  }
  Bench bench(std::move(owned));
  bench.contribute(0, 0, 30, {nullptr, &shared[0]});
  bench.contribute(1, 0, 10, {nullptr, &shared[1]});
  EXPECT_EQ(bench.contribute(2, 0, 20, {nullptr, &shared[2]}), wire::Verdict::completed);
  EXPECT_TRUE(bench.chunks().empty());  // the sum is not made yet
  std::vector<SumTask> made;
  sums.run_all(&made);
  ASSERT_EQ(made.size(), 1U);
  bench.pipeline().send_completed(made[0].half, *slots->finish(made[0]));
  bench.pipeline().flush();
  EXPECT_EQ(bench.chunks(), (std::vector<uint32_t>{10, 10, 10}));
  EXPECT_EQ(bench.contribute(0, 0, 30, {nullptr, &shared[0]}), wire::Verdict::resent);
  EXPECT_EQ(bench.chunks(), (std::vector<uint32_t>{10}));
  slots->forget(job);
}

}  // namespace
}  // namespace switchml::soft
