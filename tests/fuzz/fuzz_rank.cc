// Fuzzes the agent's end of its ranks: RESULTs from a malicious switch, datagrams from other senders, and a training
// process that writes arbitrary data into the memory that it shares. The input controls the clock.
#include <fuzzer/FuzzedDataProvider.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "host_agent/native/job_ranks.h"
#include "host_agent/native/udp_transport.h"
#include "native/channel/shared_memory.h"
#include "tests/fuzz/memory_port.h"

using namespace switchml;  // NOLINT: a program of one page

namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kValues = 4;
constexpr uint16_t kJob = 1;
constexpr uint16_t kEpoch = 3;
constexpr uint16_t kSlotBase = 8;
constexpr uint32_t kSecret = 0x5EC2E7;

// A job with two ranks, one of which is in this process.
struct Bench {
  net::UdpSocket the_switch{"127.0.0.1", 0, 1 << 16};
  net::UdpSocket own{"127.0.0.1", 0, 1 << 16};
  agent::RankAssignment assignment{"127.0.0.1", "127.0.0.1", the_switch.port(), kJob, 1,      1, kEpoch, 2,
                                   kSlotBase,   kSlots,      kValues,           "",   kSecret};
  channel::SharedMemory results{"fuzz-results", channel::Channel::result_bytes(kSlots, kValues),
                                channel::SharedMemory::Others::may_read};
  agent::RankChannel channel{assignment, results.data(), 1};
  agent::JobRanks ranks{assignment,
                        0,
                        1,
                        std::make_unique<agent::UdpTransport>(
                            std::move(own), std::nullopt, wire::protocol::header_bytes + kValues * sizeof(uint32_t)),
                        results.data(),
                        std::make_shared<runtime::Precedence>()};
  channel::SharedMemory memory = map(&channel);
  channel::Channel process{memory.data(), kSlots, kValues, results.data()};
  uint32_t submitted = 0;
  uint32_t completed = 0;
  std::array<bool, kSlots> with_agent{};
  std::array<uint32_t, kSlots> positions{0, 1, 2, 3, 4, 5, 6, 7};  // of each slot, in stream order
  bool honest = true;                                              // until now
  agent::Clock::time_point now{std::chrono::hours(1)};
  net::SendBatch sent;
  std::vector<agent::StrayDatagram> strays;

  Bench() { ranks.add(assignment, &channel); }

  static channel::SharedMemory map(agent::RankChannel* channel) {
    const int descriptor = channel->open();
    channel::SharedMemory mapped = channel::SharedMemory::map(descriptor, channel::SharedMemory::Others::may_write);
    close(descriptor);
    return mapped;
  }
};

// Returns the current position of a slot, the slot's next position, or an arbitrary number.
uint32_t position_of(Bench* bench, uint16_t index, FuzzedDataProvider* input) {
  const int choice = input->ConsumeIntegralInRange<int>(0, 15);
  if (choice == 0) return input->ConsumeIntegral<uint32_t>();
  if (choice % 2 == 0) bench->positions[index] += kSlots;
  return bench->positions[index];
}

void submit(Bench* bench, FuzzedDataProvider* input) {
  const auto index = input->ConsumeIntegralInRange<uint16_t>(0, kSlots - 1);
  if (bench->with_agent[index]) return;
  channel::Ticket& ticket = bench->process.contribution_tickets()[index];
  ticket = channel::Ticket{};
  ticket.position = position_of(bench, index, input);
  ticket.chunk = input->ConsumeIntegral<uint32_t>();
  ticket.owner = input->ConsumeIntegralInRange<uint8_t>(0, 3);
  ticket.flags = input->ConsumeIntegralInRange<uint8_t>(0, 3);
  ticket.count = (ticket.flags & wire::flag::without_values) != 0 ? 0 : kValues;
  ticket.format = input->ConsumeIntegralInRange<int>(0, 15) != 0 ? 1 : input->ConsumeIntegral<uint16_t>();
  bench->process.submission_ring()[bench->submitted++ % kSlots] = index;
  bench->process.control().submitted.store(bench->submitted);
  bench->with_agent[index] = true;
}

void scribble(Bench* bench, FuzzedDataProvider* input) {
  const std::vector<uint8_t> bytes = input->ConsumeBytes<uint8_t>(input->ConsumeIntegralInRange<size_t>(1, 16));
  const size_t at = input->ConsumeIntegralInRange<size_t>(0, channel::Channel::bytes(kSlots, kValues, true) - 16);
  if (bytes.empty()) return;
  std::memcpy(bench->memory.data() + at, bytes.data(), bytes.size());
  bench->honest = false;
}

void send(Bench* bench, FuzzedDataProvider* input) {
  std::vector<uint8_t> datagram;
  if (input->ConsumeIntegralInRange<int>(0, 4) == 0) {
    datagram = input->ConsumeBytes<uint8_t>(input->ConsumeIntegralInRange<size_t>(0, 100));
  } else {
    wire::Header header;
    header.kind = static_cast<uint8_t>(wire::Kind::result);
    header.job = kJob;
    header.worker = input->ConsumeIntegralInRange<uint8_t>(0, 2);
    header.format = 1;
    header.slot = input->ConsumeIntegralInRange<uint16_t>(2 * kSlotBase - 1, 2 * (kSlotBase + kSlots));
    header.phase = input->ConsumeIntegralInRange<uint32_t>(0, 3);
    header.epoch = kEpoch;
    header.secret = input->ConsumeIntegralInRange<int>(0, 15) != 0 ? kSecret : input->ConsumeIntegral<uint32_t>();
    header.chunk = input->ConsumeIntegral<uint32_t>();
    header.owner = input->ConsumeIntegralInRange<uint8_t>(0, 3);
    header.flags = input->ConsumeIntegralInRange<uint8_t>(0, 7);
    datagram.resize(wire::protocol::header_bytes +
                    ((header.flags & wire::flag::without_values) != 0 ? 0 : 4 * kValues));
    wire::store_header(datagram.data(), header);
    if (input->ConsumeIntegralInRange<int>(0, 3) == 0) {
      datagram[input->ConsumeIntegralInRange<size_t>(0, datagram.size() - 1)] = input->ConsumeIntegral<uint8_t>();
    }
  }
  const bool from_switch = input->ConsumeIntegralInRange<int>(0, 9) != 0;
  const uint16_t port = from_switch ? bench->the_switch.port() : input->ConsumeIntegral<uint16_t>();
  bench->ranks.take({datagram.data(), datagram.size(), net::ipv4_endpoint(0x7F000001, port)}, bench->now,
                    &bench->strays);
}

// Checks that every slot that came back belonged to the agent.
void take_completed(Bench* bench) {
  if (!bench->honest) return;
  const uint32_t completed = bench->process.control().completed.load();
  REQUIRE(completed - bench->completed <= kSlots);
  for (; bench->completed != completed; ++bench->completed) {
    const uint16_t index = bench->process.completion_ring()[bench->completed % kSlots];
    REQUIRE(index < kSlots && bench->with_agent[index]);
    bench->with_agent[index] = false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  Bench bench;
  while (input.remaining_bytes() > 0) {
    switch (input.ConsumeIntegralInRange<int>(0, 9)) {
      case 0:
        scribble(&bench, &input);
        break;
      case 1:
        bench.now += std::chrono::microseconds(input.ConsumeIntegralInRange<int>(0, 400'000));
        break;
      case 2:
      case 3: {
        uint64_t others = 0;
        bench.ranks.take_submissions(&others);
        bench.ranks.transmit(bench.sent, bench.now);
        break;
      }
      case 4:
        bench.ranks.publish(input.ConsumeBool());
        take_completed(&bench);
        break;
      case 5:
      case 6:
        send(&bench, &input);
        break;
      default:
        submit(&bench, &input);
    }
  }
  bench.ranks.publish(true);
  take_completed(&bench);
  REQUIRE(bench.strays.empty());  // every slot belongs to the only thread
  const agent::RankStatus status = bench.channel.status();
  REQUIRE(status.received <= status.position && status.position <= status.sent);
  return 0;
}
