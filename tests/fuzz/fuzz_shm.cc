// Fuzzes the shared-memory ring of the soft switch: the processes of two ranks write arbitrary data into their memory
// at any time, and are frozen and let fetch in between. The switch must access no other memory, and must complete only
// contributions that it has taken and that the rank may still get.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/shared_memory/shared_memory_service.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_port.h"
#include "dataplane/softswitch/native/shared_memory/shm_worker.h"
#include "native/channel/channel.h"
#include "native/runtime/turns.h"
#include "tests/fuzz/memory_port.h"

using namespace switchml;  // NOLINT: a program of one page

namespace {

constexpr uint32_t kSlots = 4;
constexpr uint32_t kValues = 16;
constexpr uint16_t kJob = 1;
constexpr uint16_t kEpoch = 1;
constexpr uint16_t kPort = 1;
constexpr uint8_t kRanks = 2;
constexpr uint32_t kAgent = 0x7F000001;

// No thread runs: the input decides when a shard does its work.
struct Bench {
  soft::PortTable ports;
  soft::SharedSlotStore* the_slots = new soft::SharedSlotStore(kSlots, kValues);
  soft::Pipeline the_pipeline{std::unique_ptr<soft::SlotStore>(the_slots), &ports};
  runtime::Turns turns;
  soft::SharedMemoryService service{&turns, &ports, &the_pipeline, the_slots};
  soft::ShmPort* port = nullptr;
  std::shared_ptr<soft::ShmJob> job;
  std::array<soft::ShmConnection*, kRanks> connections{};
  std::array<uint16_t, kRanks> numbers{};
  std::array<channel::Channel, kRanks> processes;  // the processes' view of their memory
  std::array<uint32_t, kRanks> submitted{};
  std::array<std::array<uint32_t, kSlots>, kRanks> pools{};  // phases that each slot has passed in the stream
  std::array<std::vector<uint32_t>, kRanks> limits;          // for frozen ranks: allowed phases of each slot

  std::vector<soft::SumTask> tasks;  // sums in progress

  Bench() {
    auto made = std::make_unique<soft::ShmPort>(kPort, &service, 1);
    port = made.get();
    ports.add(std::move(made));
    job = std::make_shared<soft::ShmJob>(soft::ShmJobKey{kJob, kEpoch, 0, kRanks, kSlots, kValues});
    std::vector<soft::Replica> replicas;
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      auto connection =
          std::make_unique<soft::ShmConnection>(soft::RankBinding{job->key(), rank, rank, kRanks, kAgent}, job,
                                                eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), std::vector<int>{});
      connections[rank] = connection.get();
      processes[rank] = channel::Channel(connection->memory().data(), kSlots, kValues);
      job->set_contributions(rank, connection->contributions());
      const uint16_t number = port->attach(std::move(connection));
      numbers[rank] = number;
      the_pipeline.tables.set_rank(kJob, rank, {0, kAgent, number, uint64_t{1} << rank});
      admit(rank, (1U << kRanks) - 1);
      replicas.push_back({kPort, rank});
    }
    the_pipeline.tables.set_job(kJob, {0, 0});
    the_pipeline.tables.set_group(kJob, replicas);
  }

  // `everyone` may lack some ranks, as while a controller changes the entries of one rank after the other.
  void admit(uint8_t rank, uint64_t everyone) {
    the_pipeline.tables.workers.set({kPort, 0, kAgent, numbers[rank], kJob, rank}, {0, 0, 1},
                                    {uint64_t{1} << rank, everyone, kEpoch, kJob});
  }

  ~Bench() {
    finish_sums();
    the_pipeline.flush();
    for (uint8_t rank = 0; rank < kRanks; ++rank) the_slots->take_over(*job, rank);
    the_slots->forget(*job);
  }

  // Does one turn of a shard (ShmWorker), up to the sums that became possible.
  void serve() {
    const auto now = soft::ShmConnection::Clock::now();
    port->begin_turn(&the_pipeline, now);
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      soft::ShmConnection* connection = connections[rank];
      if (connection == nullptr) continue;
      wire::Header header;
      for (uint32_t taken = 0; taken < kSlots && connection->take(&header); ++taken) {
        port->contribute(&the_pipeline, numbers[rank], connection, header, now);
      }
      if (connection->next_retransmission() <= now) {
        connection->retransmit(now, [&](const wire::Header& repeated) {
          port->contribute(&the_pipeline, numbers[rank], connection, repeated, now);
        });
      }
    }
    the_pipeline.flush();
    publish(false);
  }

  void finish_sums() {
    const size_t made = tasks.size();
    for (const soft::SumTask& task : tasks) task.run();
    for (const soft::SumTask& task : tasks) {
      const soft::Completion* completion = the_slots->finish(task);
      if (completion != nullptr) the_pipeline.send_completed(task.half, *completion);
    }
    the_pipeline.flush();
    tasks.clear();
    port->sums().exchange(made, &tasks);
    publish(false);
  }

  void publish(bool nothing_left) {
    std::vector<channel::ChannelControl*> sleepers;
    port->publish(nothing_left, &sleepers);
    for (channel::ChannelControl* sleeper : sleepers) channel::wake_process(*sleeper);
  }
};

// Returns the current position of a slot, the slot's next position, or an arbitrary number.
uint32_t position_of(uint32_t* pools, uint16_t index, FuzzedDataProvider* input) {
  const int choice = input->ConsumeIntegralInRange<int>(0, 15);
  if (choice == 0) return input->ConsumeIntegral<uint32_t>();
  if (choice % 2 == 0) *pools += 1;
  return index + kSlots * *pools;
}

// Submits a contribution as SwitchML's library does, with fields that may be wrong.
void submit(Bench* bench, uint8_t rank, FuzzedDataProvider* input) {
  const channel::Channel& process = bench->processes[rank];
  const auto index = input->ConsumeIntegralInRange<uint16_t>(0, kSlots);
  if (index < kSlots) {
    channel::Ticket& ticket = process.contribution_tickets()[index];
    ticket.position = position_of(&bench->pools[rank][index], index, input);
    ticket.chunk = input->ConsumeIntegral<uint32_t>();
    ticket.exponent = input->ConsumeIntegralInRange<uint16_t>(0, 257);
    ticket.owner = input->ConsumeIntegralInRange<uint8_t>(0, 4);
    ticket.flags = input->ConsumeIntegralInRange<uint8_t>(0, 3);
    ticket.count =
        (ticket.flags & wire::flag::without_values) != 0 ? 0 : input->ConsumeIntegralInRange<uint16_t>(0, 17);
    ticket.format = input->ConsumeIntegralInRange<int>(0, 15) != 0 ? input->ConsumeIntegralInRange<uint16_t>(1, 2)
                                                                   : input->ConsumeIntegral<uint16_t>();
    ticket.check = input->ConsumeIntegral<uint32_t>();
    std::memset(process.contribution(index), input->ConsumeIntegral<uint8_t>(), kValues * sizeof(uint32_t));
  }
  process.submission_ring()[bench->submitted[rank]++ % kSlots] = index;
  process.control().submitted.store(bench->submitted[rank]);
}

// Does a step of an epoch change, as the listener does on request of an agent.
void quiesce(Bench* bench, uint8_t rank, FuzzedDataProvider* input) {
  std::vector<uint32_t> targets;
  if (input->ConsumeBool()) {
    targets.resize(input->ConsumeIntegralInRange<int>(0, 7) != 0 ? kSlots
                                                                 : input->ConsumeIntegralInRange<size_t>(0, 9));
    for (uint32_t& phase : targets) phase = input->ConsumeIntegralInRange<uint32_t>(0, 3);
  }
  while (bench->port->sums().any_left()) bench->finish_sums();  // as Turns::Control sees to it
  std::vector<uint32_t>& limits = bench->limits[rank];
  try {
    const std::vector<uint32_t> held = bench->port->quiesce(bench->numbers[rank], targets);
    REQUIRE(held.size() == kSlots);
    if (targets.empty()) limits = held;
  } catch (const std::invalid_argument&) {
    REQUIRE(limits.empty() || targets.size() != kSlots);
    return;
  }
  for (size_t slot = 0; slot < targets.size(); ++slot) limits[slot] = std::max(limits[slot], targets[slot]);
}

// Writes arbitrary bytes anywhere into the memory of the process.
void scribble(Bench* bench, uint8_t rank, FuzzedDataProvider* input) {
  const std::vector<uint8_t> bytes = input->ConsumeBytes<uint8_t>(input->ConsumeIntegralInRange<size_t>(1, 16));
  const size_t size = channel::Channel::bytes(kSlots, kValues, true);
  const size_t most =
      input->ConsumeBool() ? size : sizeof(channel::ChannelControl) + 4 * kSlots + 2 * kSlots * sizeof(channel::Ticket);
  const size_t at = input->ConsumeIntegralInRange<size_t>(0, most - 16);
  if (bytes.empty()) return;
  std::memcpy(bench->connections[rank]->memory().data() + at, bytes.data(), bytes.size());
}

// Checks that ranks whose buffers hold values, or get a sum, have contributed and still wait for the result, and that
// their memory is still mapped.
void verify(Bench* bench) {
  for (size_t half = 0; half < 2 * kSlots; ++half) {
    const soft::HalfState& state = bench->the_slots->state(half);
    const uint64_t sources = bench->the_slots->sources(half);
    const uint64_t lent = bench->the_slots->lent(half);
    REQUIRE((state.bitmap & ~uint64_t{3}) == 0);
    REQUIRE((lent & ~state.bitmap) == 0);
    REQUIRE((sources & ~lent) == 0);
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      if ((lent >> rank & 1U) == 0) continue;
      REQUIRE(bench->connections[rank] != nullptr);
      REQUIRE(bench->connections[rank]->held()[half / 2] == state.phase);
    }
    const bool in_buffers = state.values == soft::SlotValues::in_buffers || state.values == soft::SlotValues::in_both;
    REQUIRE(in_buffers == (sources != 0));
    REQUIRE(state.values != soft::SlotValues::in_results || lent == 0);
  }
  for (uint8_t rank = 0; rank < kRanks; ++rank) {
    if (bench->connections[rank] == nullptr || bench->limits[rank].empty()) continue;
    const std::vector<uint32_t> held = bench->connections[rank]->held();
    for (uint32_t slot = 0; slot < kSlots; ++slot) REQUIRE(held[slot] <= bench->limits[rank][slot]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  Bench bench;
  bool detached = false;
  const bool disagree = input.ConsumeBool();
  if (input.ConsumeBool()) bench.port->set_faults({0.2, 0.2, 0.2}, 7);
  while (input.remaining_bytes() > 0) {
    const auto rank = input.ConsumeIntegralInRange<uint8_t>(0, kRanks - 1);
    switch (input.ConsumeIntegralInRange<int>(0, 10)) {
      case 8:
        if (!(detached && rank == 1) && input.ConsumeIntegralInRange<int>(0, 3) == 0) quiesce(&bench, rank, &input);
        break;
      case 9:
        if (disagree) bench.admit(rank, input.ConsumeIntegralInRange<uint64_t>(1, 3));
        break;
      case 0:
        if (!(detached && rank == 1)) scribble(&bench, rank, &input);
        break;
      case 1:
        bench.publish(true);
        break;
      case 2:
        if (!detached && input.ConsumeIntegralInRange<int>(0, 15) == 0) {  // the process ends
          while (bench.port->sums().any_left()) bench.finish_sums();       // as Turns::Control sees to it
          bench.the_pipeline.flush();
          const auto ended = bench.port->detach(bench.numbers[1]);
          bench.the_slots->take_over(*bench.job, 1);
          bench.job->set_contributions(1, nullptr);
          bench.connections[1] = nullptr;
          detached = true;
        }
        break;
      case 3:
        bench.serve();
        break;
      case 4:
        bench.finish_sums();
        break;
      default:
        if (!(detached && rank == 1)) submit(&bench, rank, &input);
    }
    verify(&bench);
  }
  bench.serve();
  while (bench.port->sums().any_left()) bench.finish_sums();
  verify(&bench);
  return 0;
}
