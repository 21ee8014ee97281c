// The window of a host's own switch: its ranks share memory with it, and it sends their sums to its parent.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/shared_memory/shared_memory_service.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_port.h"
#include "native/channel/channel.h"
#include "native/runtime/turns.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

constexpr uint16_t kPort = 1;
constexpr uint16_t kUplink = 2;
constexpr uint16_t kJob = 7;
constexpr uint16_t kEpoch = 9;
constexpr uint32_t kSecret = 0x5EC2E7;
constexpr uint32_t kAgent = 10;  // IPv4 addresses
constexpr uint32_t kParent = 20;
constexpr uint16_t kParentPort = 4000;
constexpr uint32_t kSlots = 512;
constexpr uint32_t kValues = 4;
constexpr uint8_t kRanks = 2;
constexpr uint64_t kBelow = (1U << kRanks) - 1;
constexpr uint64_t kFinal = uint64_t{1} << 63U;
constexpr uint32_t kFirstWindow = 64;
constexpr std::chrono::seconds kDeadline{30};

// Keeps the headers of the sums that leave through it.
class UplinkPort final : public PipelinePort {
 public:
  UplinkPort() : PipelinePort(kUplink, false) {}

  PortCounters counters() const override { return common_counters(); }
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& /*ranks*/,
                    const SwitchAddress& /*own*/, Counter* /*injected_loss*/) override {
    for (const OutgoingPacket& packet : packets) {
      const wire::Header header = wire::load_header(packet.header);
      const bool again = (header.flags & wire::flag::retransmission) != 0;
      (again ? repeated : sums).push_back(header);
    }
  }

  std::vector<wire::Header> sums;  // those that were not answered
  std::vector<wire::Header> repeated;

 protected:
  void send_due() override {}
};

class HostLeafWindow : public testing::Test {
 protected:
  HostLeafWindow() {
    auto port = std::make_unique<ShmPort>(kPort, &service_, 1);
    auto uplink = std::make_unique<UplinkPort>();
    port_ = port.get();
    uplink_ = uplink.get();
    ports_.add(std::move(port));
    ports_.add(std::move(uplink));
    std::vector<Replica> replicas;
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      add_rank(rank);
      replicas.push_back({kPort, rank});
    }
    Tables& tables = pipeline_.tables;
    tables.set_job(kJob, {0, 0});
    tables.set_group(kJob, replicas);
    Admission results{kFinal, kBelow, kEpoch, kJob, Admission::Action::admit_parent};
    results.completed_here = true;
    tables.workers.set({kUplink, 0, kParent, kParentPort, kJob, 0, kSecret, wire::Kind::result}, {0, 0, 1}, results);
    const uint16_t instance = wire::tree::first_parent_instance;
    tables.set_rank(kJob, instance, {0, kParent, kParentPort, UINT64_MAX});
    tables.set_group(parent_group(kJob), {{kUplink, instance}});
    port_->start();
  }
  ~HostLeafWindow() override {
    port_->stop();
    for (uint8_t rank = 0; rank < kRanks; ++rank) slots_->take_over(*job_, rank);
    slots_->forget(*job_);
  }

  // Each process submits the contributions to these positions of the stream.
  void submit(uint32_t first, uint32_t end) {
    for (ShmConnection* connection : connections_) {
      channel::Channel process(connection->memory().data(), kSlots, kValues);
      for (uint32_t position = first; position < end; ++position) {
        process.contribution_tickets()[position % kSlots] = {position, position, 0, 0, kValues, 1, 0, 0};
        process.submission_ring()[position % kSlots] = static_cast<uint16_t>(position % kSlots);
      }
      process.control().submitted.store(end);
      channel::ring(connection->doorbell());
    }
  }
  // Waits until this number of sums is on its way to the parent. Returns false after the deadline.
  bool wait_for_sums(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < deadline) {
      {
        const runtime::Turns::Data turn(&turns_);
        if (uplink_->sums.size() >= count) return true;
      }
      std::this_thread::yield();
    }
    return false;
  }
  // The parent answers all sums that are on their way, in one burst. Returns their positions.
  std::vector<uint32_t> answer() {
    const runtime::Turns::Data turn(&turns_);
    std::vector<uint32_t> positions;
    const std::vector<uint8_t> words(kValues * sizeof(uint32_t));
    for (wire::Header header : std::exchange(uplink_->sums, {})) {
      positions.push_back(header.chunk);
      header.kind = static_cast<uint8_t>(wire::Kind::result);
      BareContribution result;
      result.header = header;
      result.ipv4_src = kParent;
      result.sender = kParentPort;
      result.payload_bytes = words.size();
      result.values = {words.data(), nullptr};
      EXPECT_EQ(pipeline_.contribute(*uplink_, result), wire::Verdict::completed);
    }
    pipeline_.flush();
    return positions;
  }
  // Lets all contributions in flight be repeated, as the ranks' timers do.
  void repeat_all() {
    const runtime::Turns::Data turn(&turns_);
    const auto now = ShmConnection::Clock::now();
    for (size_t rank = 0; rank < kRanks; ++rank) {
      connections_[rank]->retransmit(now, [&](const wire::Header& header) {
        port_->contribute(&pipeline_, numbers_[rank], connections_[rank], header, now);
      });
    }
    pipeline_.flush();
  }

  runtime::Turns turns_;
  UplinkPort* uplink_ = nullptr;
  std::shared_ptr<ShmJob> job_ = std::make_shared<ShmJob>(ShmJobKey{kJob, kEpoch, 0, kRanks, kSlots, kValues});

 private:
  void add_rank(uint8_t rank) {
    RankBinding binding{job_->key(), rank, rank, kRanks, kAgent, kSecret};
    auto connection =
        std::make_unique<ShmConnection>(binding, job_, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), std::vector<int>{});
    connections_[rank] = connection.get();
    job_->set_contributions(rank, connection->contributions());
    const uint16_t number = numbers_[rank] = port_->attach(std::move(connection));
    pipeline_.tables.set_rank(kJob, rank, {0, kAgent, number, uint64_t{1} << rank});
    pipeline_.tables.workers.set({kPort, 0, kAgent, number, kJob, rank, kSecret}, {0, 0, 1},
                                 {uint64_t{1} << rank, kBelow, kEpoch, kJob, Admission::Action::admit_below});
  }

  PortTable ports_;
  SharedSlotStore* slots_ = new SharedSlotStore(kSlots, kValues);
  Pipeline pipeline_{std::unique_ptr<SlotStore>(slots_), &ports_};
  SharedMemoryService service_{&turns_, &ports_, &pipeline_, slots_};
  ShmPort* port_ = nullptr;
  std::array<ShmConnection*, kRanks> connections_{};
  std::array<uint16_t, kRanks> numbers_{};
};

// All ranks submit a pool at once. Only the results of the parent let the worker send more.
TEST_F(HostLeafWindow, SumsLeaveInOrderAndNoMoreThanTheWindow) {
  submit(0, kSlots);
  uint32_t next = 0;
  for (uint32_t window = kFirstWindow; next < kSlots; window = std::min(2 * window, kSlots)) {
    ASSERT_TRUE(wait_for_sums(std::min(window, kSlots - next)));
    const std::vector<uint32_t> positions = answer();
    EXPECT_LE(positions.size(), window);
    for (const uint32_t position : positions) EXPECT_EQ(position, next++);
  }
}

TEST_F(HostLeafWindow, RepeatedContributionsReleaseNoOtherSum) {
  submit(0, kSlots);
  ASSERT_TRUE(wait_for_sums(kFirstWindow));
  repeat_all();
  const runtime::Turns::Data turn(&turns_);
  EXPECT_EQ(uplink_->sums.size(), kFirstWindow);
  ASSERT_GE(uplink_->repeated.size(), kFirstWindow);
  for (const wire::Header& header : uplink_->repeated) EXPECT_LT(header.chunk, kFirstWindow);
}

}  // namespace
}  // namespace switchml::soft
