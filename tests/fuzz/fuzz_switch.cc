// Fuzzes the parser and the aggregator of the soft switch: arbitrary frames and datagrams at its ports, with changes of
// its tables in between. Each packet must be counted once, and the registers must hold the sum of the counted
// contributions.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/rocev2_frame.h"
#include "native/kernels/accumulate.h"
#include "native/kernels/floats.h"
#include "native/kernels/instructions.h"
#include "native/wire/frame_headers.h"
#include "native/wire/frame_slot.h"
#include "tests/fuzz/memory_port.h"

using namespace switchml;  // NOLINT: a program of one page

namespace {

constexpr size_t kSlots = 4;
constexpr size_t kValues = 4;
constexpr uint16_t kPortCount = 4;  // 1 and 2 carry frames, 3 and 4 datagrams
constexpr uint32_t kHosts = 0x0A000000;
constexpr uint32_t kSecret = 0x5EC2E7;  // the same for all jobs
constexpr soft::SwitchAddress kOwn{0x020000000001, 0x0A0000FE};

uint64_t mac_of(unsigned worker) { return 0x020000000100 + worker; }

struct Bench {
  soft::PortTable ports;
  soft::Pipeline pipeline{std::make_unique<soft::PacketSlotStore>(kSlots, kValues), &ports};
  std::array<std::array<uint32_t, kValues>, 2 * kSlots> sums{};             // expected contents of the registers
  std::array<std::array<kernels::FloatSum, kValues>, 2 * kSlots> floats{};  // the digits of sums of floats
  uint64_t packets = 0;                                                     // number given to the pipeline

  Bench() {
    for (uint16_t number = 1; number <= kPortCount; ++number) {
      ports.add(std::make_unique<fuzz::MemoryPort>(number, number <= 2));
    }
    soft::Tables& tables = pipeline.tables;
    tables.switch_address = kOwn;
    // Job 1: frames, two workers. Job 2: datagrams, three workers. Job 3: one of each, and a single slot.
    add_job(1, {1, 2}, 0, 0xFFFC, 1);
    add_job(2, {3, 4, 3}, 4, 0xFFFE, 5);
    add_job(3, {1, 3}, 6, 0xFFFE, 9);
    tables.set_l2(mac_of(0), {soft::L2Action::Kind::forward, 1});
    tables.set_l2(mac_of(1), {soft::L2Action::Kind::flood, 1});
    tables.l2_default = {soft::L2Action::Kind::forward, 3};
  }

  void add_job(uint16_t job, const std::vector<uint16_t>& worker_ports, uint16_t first_half, uint16_t mask,
               uint16_t epoch) {
    pipeline.tables.set_job(job, {first_half, mask});
    std::vector<soft::Replica> replicas;
    for (uint8_t worker = 0; worker < worker_ports.size(); ++worker) {
      replicas.push_back({worker_ports[worker], worker});
      soft::RankAddress address{mac_of(worker), kHosts + worker, 50000, uint64_t{1} << worker};
      if (worker_ports[worker] == 2) address.queue_pair = 50000;
      pipeline.tables.set_rank(job, worker, address);
      admit(job, worker, worker_ports[worker], {first_half, mask, 1}, static_cast<unsigned>(worker_ports.size()),
            epoch);
    }
    pipeline.tables.set_group(job, replicas);
  }

  void admit(uint16_t job, uint8_t worker, uint16_t port, const soft::SlotMatch& match, unsigned world_size,
             uint16_t epoch) {
    const soft::Admission admission{uint64_t{1} << worker, (uint64_t{1} << world_size) - 1, epoch, job};
    soft::WorkerKey key = key_of(job, worker, port);
    pipeline.tables.workers.set(key, match, admission);
    key.sender |= wire::kIsQueuePair;
    pipeline.tables.workers.set(key, match, admission);
  }

  static soft::WorkerKey key_of(uint16_t job, uint8_t worker, uint16_t port) {
    return {port, port <= 2 ? mac_of(worker) : 0, kHosts + worker, 50000, job, worker, kSecret};
  }

  uint64_t verdicts() {
    uint64_t all = 0;
    for (size_t index = 0; index < soft::Pipeline::kJobCounterEntries; ++index)
      all += pipeline.job_counter(index).packets;
    return all;
  }
};

// Makes the frame of a contribution one of an RDMA card.
void make_ud_send(std::vector<uint8_t>* frame, size_t packet_bytes) {
  frame->insert(frame->begin() + wire::kHeadersBeforeUdpPayload, wire::kBetweenUdpAndHeader, 0);
  frame->resize(frame->size() + wire::kIcrcBytes);
  soft::store_ud_send(frame->data(), wire::rocev2::queue_pair, 0);
  uint8_t* ip = frame->data() + wire::ethernet::bytes;
  uint8_t* packet = frame->data() + wire::kHeadersBeforeUdpPayload + wire::kBetweenUdpAndHeader;
  wire::store24(packet - wire::deth::bytes + wire::deth::source_queue_pair, 50000);
  soft::CopiedIcrc icrc;
  icrc.start(packet, packet_bytes, nullptr, 0);
  icrc.store(ip, packet + packet_bytes);
}

// Returns a contribution in which most fields are right; the input decides which are wrong.
std::vector<uint8_t> contribution(FuzzedDataProvider* input, uint16_t* from, uint8_t* host) {
  struct Admitted {
    uint16_t job, epoch, first_half, halves;
    std::vector<uint16_t> ports;
  };
  static const std::array<Admitted, 3> kAdmitted = {
      {{1, 1, 0, 4, {1, 2}}, {2, 5, 4, 2, {3, 4, 3}}, {3, 9, 6, 2, {1, 3}}}};
  wire::Header header;
  header.kind = static_cast<uint8_t>(wire::Kind::contribution);
  header.format = static_cast<uint8_t>(input->ConsumeBool() ? wire::Format::int32 : wire::Format::float32);
  if (input->ConsumeIntegralInRange<int>(0, 7) != 0) {  // an admitted worker, with an arbitrary phase
    const Admitted& one = kAdmitted[input->ConsumeIntegralInRange<size_t>(0, kAdmitted.size() - 1)];
    header.job = one.job;
    header.epoch = one.epoch;
    header.worker = input->ConsumeIntegralInRange<uint8_t>(0, static_cast<uint8_t>(one.ports.size() - 1));
    header.slot = static_cast<uint16_t>(one.first_half + input->ConsumeIntegralInRange<int>(0, one.halves - 1));
    *from = one.ports[header.worker];
    *host = header.worker;
  } else {
    header.kind = input->ConsumeIntegral<uint8_t>();
    header.job = input->ConsumeIntegralInRange<uint16_t>(0, 4);
    header.worker = input->ConsumeIntegralInRange<uint8_t>(0, 3);
    header.slot = input->ConsumeIntegralInRange<uint16_t>(0, 2 * kSlots + 1);
    header.epoch = std::array<uint16_t, 4>{1, 5, 9, 2}[input->ConsumeIntegralInRange<size_t>(0, 3)];
  }
  const uint16_t port = *from;
  header.phase = input->ConsumeIntegralInRange<uint32_t>(0, 2) * 2 + (header.slot & 1U);
  header.exponent = input->ConsumeIntegralInRange<uint16_t>(0, 256);
  header.owner = input->ConsumeIntegralInRange<int>(0, 3) != 0 ? 0 : input->ConsumeIntegral<uint8_t>();
  header.flags = input->ConsumeIntegralInRange<int>(0, 3) != 0 ? 0 : input->ConsumeIntegralInRange<uint8_t>(0, 7);
  header.count = (header.flags & wire::flag::without_values) != 0 ? 0 : input->ConsumeIntegralInRange<uint16_t>(1, 4);
  header.check = input->ConsumeIntegral<uint8_t>();
  header.secret = input->ConsumeIntegralInRange<int>(0, 15) != 0 ? kSecret : input->ConsumeIntegral<uint32_t>();
  const size_t payload = (header.flags & wire::flag::without_values) != 0 ? 0 : kValues * sizeof(uint32_t);
  const size_t ours = wire::protocol::header_bytes + payload;
  const size_t before = port <= 2 ? wire::kHeadersBeforeUdpPayload : 0;
  std::vector<uint8_t> packet(before + ours);
  wire::store_header(packet.data() + before, header);
  // All values are made from a few bytes of the input, so that one input contains many packets.
  uint32_t value = input->ConsumeIntegral<uint16_t>() * 0x9E3779B1U;
  for (size_t i = 0; i < payload; i += sizeof value, value *= 5) {
    wire::store32(packet.data() + before + wire::protocol::header_bytes + i, value);
  }
  if (before != 0) {
    uint8_t* frame = packet.data();
    wire::store48(frame + wire::ethernet::dst, kOwn.mac);
    wire::store48(frame + wire::ethernet::src, mac_of(header.worker));
    wire::store16(frame + wire::ethernet::type, wire::ethernet::type_ipv4);
    uint8_t* ip = frame + wire::ethernet::bytes;
    ip[wire::ipv4::version_and_length] = wire::ipv4::version_4_without_options;
    wire::store16(ip + wire::ipv4::total_length, static_cast<uint16_t>(wire::ipv4::bytes + wire::udp::bytes + ours));
    ip[wire::ipv4::protocol] = wire::ipv4::protocol_udp;
    wire::store32(ip + wire::ipv4::src, kHosts + header.worker);
    uint8_t* datagram = ip + wire::ipv4::bytes;
    wire::store16(datagram + wire::udp::src, 50000);
    wire::store16(datagram + wire::udp::dst, wire::protocol::udp_port);
    wire::store16(datagram + wire::udp::length, static_cast<uint16_t>(wire::udp::bytes + ours));
  }
  if (before != 0 && input->ConsumeIntegralInRange<int>(0, 2) == 0) make_ud_send(&packet, ours);
  if (input->ConsumeIntegralInRange<int>(0, 7) == 0) {  // damage: one byte, or another length
    if (input->ConsumeBool()) {
      packet[input->ConsumeIntegralInRange<size_t>(0, packet.size() - 1)] = input->ConsumeIntegral<uint8_t>();
    } else {
      packet.resize(input->ConsumeIntegralInRange<size_t>(0, packet.size() + 40));
    }
  }
  return packet;
}

// Gives one packet to the pipeline and updates `sums` according to its verdict.
void deliver(Bench* bench, uint16_t port, std::vector<uint8_t> packet, uint8_t host) {
  net::Datagram datagram{packet.data(), packet.size(), net::ipv4_endpoint(kHosts + host, 50000)};
  const soft::PacketView view =
      port <= 2 ? soft::view_of_frame(datagram.data, datagram.length) : soft::view_of_datagram(datagram);
  REQUIRE(view.payload_bytes <= packet.size());
  const bool ours =
      view.content == soft::PacketView::Content::ours && view.payload_bytes >= wire::protocol::header_bytes;
  const wire::Header header = ours ? wire::load_header(view.payload) : wire::Header{};
  // Threads that share a device use this to hand frames to each other.
  REQUIRE(!ours || port > 2 ||
          wire::slot_of_frame(datagram.data, datagram.length) == std::optional<uint32_t>(header.slot >> 1U));
  const bool known = ours && header.slot < 2 * kSlots && header.job < wire::protocol::max_jobs;
  const auto counted = [&](wire::Verdict one, wire::Verdict other) {
    const size_t index = static_cast<size_t>(header.job) << 4U;
    return bench->pipeline.job_counter(index | static_cast<size_t>(one)).packets +
           bench->pipeline.job_counter(index | static_cast<size_t>(other)).packets;
  };
  const auto accepted = [&] { return counted(wire::Verdict::aggregated, wire::Verdict::completed); };
  const auto repeated = [&] { return counted(wire::Verdict::resent, wire::Verdict::duplicate); };
  const uint64_t before = known ? accepted() : 0;
  const uint64_t repeated_before = known ? repeated() : 0;
  const soft::HalfState state = known ? bench->pipeline.slots().state(header.slot) : soft::HalfState{};
  bench->pipeline.receive(bench->ports.find(port), datagram);
  bench->packets += view.content == soft::PacketView::Content::ordinary ? 0 : 1;
  if (!known || (header.flags & wire::flag::without_values) != 0) return;
  const bool brings_the_first = repeated() != repeated_before && !state.filled();
  if (accepted() == before && !brings_the_first) return;
  // The first values of a phase overwrite.
  const bool first = state.epoch != header.epoch || header.phase > state.phase || !state.filled();
  const bool as_floats = bench->pipeline.slots().state(header.slot).format == wire::Format::float32;
  for (size_t lane = 0; lane < kValues; ++lane) {
    const uint32_t word = wire::load32(view.payload + wire::protocol::header_bytes + 4 * lane);
    uint32_t& sum = bench->sums[header.slot][lane];
    if (!as_floats) {
      sum = (first ? 0 : sum) + word;
      continue;
    }
    kernels::FloatSum& digits = bench->floats[header.slot][lane];
    if (first || state.rounded) digits = {};
    if (!first && state.rounded) kernels::add_float(sum, &digits);  // of what was sent already
    kernels::add_float(word, &digits);
    sum = kernels::rounded_float(digits);
  }
}

void verify(Bench* bench) {
  uint64_t counted = bench->verdicts();
  for (size_t reason = 0; reason < soft::DropCounters::kEntries; ++reason) {
    const auto dropped = static_cast<wire::DropReason>(reason);
    // These are counted in addition to a verdict, for sent packets, or for ordinary frames.
    if (dropped == wire::DropReason::wrong_epoch || dropped == wire::DropReason::stale ||
        dropped == wire::DropReason::duplicate || dropped == wire::DropReason::no_rank_address ||
        dropped == wire::DropReason::no_route) {
      continue;
    }
    counted += bench->pipeline.drops[dropped].packets;
  }
  REQUIRE(counted >= bench->packets);  // more, because of ordinary frames from the switch's own address
  for (size_t half = 0; half < 2 * kSlots; ++half) {
    for (size_t lane = 0; lane < kValues; ++lane) {
      REQUIRE(!bench->pipeline.slots().state(half).filled() ||
              bench->pipeline.slots().word(half, lane) == bench->sums[half][lane]);
    }
  }
}

void change_tables(Bench* bench, FuzzedDataProvider* input) {
  soft::Tables& tables = bench->pipeline.tables;
  const auto job = input->ConsumeIntegralInRange<uint16_t>(1, 3);
  const auto worker = input->ConsumeIntegralInRange<uint8_t>(0, 2);
  const auto port = input->ConsumeIntegralInRange<uint16_t>(1, kPortCount);
  const soft::SlotMatch match{0, static_cast<uint16_t>(input->ConsumeBool() ? 0xFFFC : 0), 1};
  bench->pipeline.flush();
  switch (input->ConsumeIntegralInRange<int>(0, 5)) {
    case 0:
      bench->admit(job, worker, port, match, input->ConsumeIntegralInRange<unsigned>(1, 3),
                   input->ConsumeIntegralInRange<uint16_t>(1, 9));
      break;
    case 1:
      try {
        tables.workers.remove(Bench::key_of(job, worker, port), match);
      } catch (const std::out_of_range&) {  // the entry did not exist
      }
      break;
    case 2:
      tables.set_rank(
          job, worker,
          {mac_of(worker), kHosts + worker, input->ConsumeIntegral<uint16_t>(), input->ConsumeIntegral<uint8_t>()});
      break;
    case 3:
      tables.set_group(job, {{port, worker}, {static_cast<uint16_t>(port + 1), 0}});
      break;
    case 4:
      tables.set_job(job, {0, static_cast<uint16_t>(input->ConsumeBool() ? 0xFFF8 : 0xFFFF)});
      break;
    default:
      tables.l2_default = {static_cast<soft::L2Action::Kind>(input->ConsumeIntegralInRange<int>(0, 2)), port};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  kernels::use_instructions_to_add(input.ConsumeBool() ? kernels::best_of_processor()
                                                       : kernels::Instructions::portable);
  Bench bench;
  while (input.remaining_bytes() > 0) {
    auto port = input.ConsumeIntegralInRange<uint16_t>(1, kPortCount);
    auto host = input.ConsumeIntegralInRange<uint8_t>(0, 3);
    switch (input.ConsumeIntegralInRange<int>(0, 9)) {
      case 0:
        change_tables(&bench, &input);
        break;
      case 1:
        bench.pipeline.flush();
        break;
      case 2:
        deliver(&bench, port, input.ConsumeBytes<uint8_t>(input.ConsumeIntegralInRange<size_t>(0, 200)), host);
        break;
      default: {
        const std::vector<uint8_t> packet = contribution(&input, &port, &host);
        deliver(&bench, port, packet, host);
      }
    }
  }
  bench.pipeline.flush();
  verify(&bench);
  return 0;
}
