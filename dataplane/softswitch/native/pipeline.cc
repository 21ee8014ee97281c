#include "dataplane/softswitch/native/pipeline.h"

#include <algorithm>
#include <cstring>

#include "dataplane/softswitch/native/accumulate.h"

namespace switchml {
namespace {

// A verdict that drops its packet has a drop reason, too.
std::optional<DropReason> drop_reason_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::wrong_epoch:
      return DropReason::wrong_epoch;
    case Verdict::stale:
      return DropReason::stale;
    case Verdict::duplicate:
      return DropReason::duplicate;
    case Verdict::aggregated:
    case Verdict::completed:
    case Verdict::resent:
      break;
  }
  return std::nullopt;
}

}  // namespace

Pipeline::Pipeline(size_t slot_count, size_t values, const Ports* ports)
    : slots(slot_count, values), job_counters_(kJobCounterEntries), results_(&tables, ports, &drops) {}

void Pipeline::receive(UdpPort* ingress, const Datagram& datagram) {
  ingress->deliver(datagram, &drops[DropReason::injected_loss],
                   [this, ingress](const Datagram& delivered) { process(*ingress, delivered); });
}

void Pipeline::release_expired(UdpPort* port, UdpPort::Clock::time_point now) {
  port->release_expired(now, [this, port](const Datagram& delivered) { process(*port, delivered); });
}

void Pipeline::process(const UdpPort& ingress, const Datagram& datagram) {
  const size_t frame_bytes = datagram.length + kHeadersBeforeUdpPayload;
  if (datagram.length < protocol::header_bytes) {
    drops[DropReason::runt].add(1, frame_bytes);
    return;
  }
  const Header header = wire::load_header(datagram.data);
  if (const auto reason = malformed(ingress, datagram, header)) {
    drops[*reason].add(1, frame_bytes);
    return;
  }
  const WorkerKey key{ingress.number(),
                      0,  // a UDP port has no Ethernet header
                      ntohl(datagram.source.sin_addr.s_addr),
                      ntohs(datagram.source.sin_port),
                      header.job,
                      header.worker};
  // An entry may cover more slots than there are registers.
  WorkerEntry* worker = header.slot < slots.halves() ? tables.workers.find(key, header.slot) : nullptr;
  if (worker == nullptr) {
    drops[why_not_admitted(header)].add(1, frame_bytes);
    return;
  }
  worker->counter.add(1, frame_bytes);
  const Verdict verdict = aggregate(ingress, header, datagram.data + protocol::header_bytes, worker->admission);
  const size_t job_index = static_cast<size_t>(header.job) << 4U | static_cast<size_t>(verdict);
  if (job_index < job_counters_.size()) job_counters_[job_index].add(1, frame_bytes);
  if (const auto reason = drop_reason_of(verdict)) drops[*reason].add(1, frame_bytes);
}

// In the order of precedence of drop_reason in constants.toml.
std::optional<DropReason> Pipeline::malformed(const UdpPort& ingress, const Datagram& datagram,
                                              const Header& header) const {
  const bool exponent_only = !has_values(header);
  if (header.version != protocol::version) return DropReason::bad_version;
  const bool result = header.kind == static_cast<uint8_t>(Kind::result);
  if (!result && header.kind != static_cast<uint8_t>(Kind::contribution)) return DropReason::bad_kind;
  if (result || has_own_source(ingress, datagram)) return DropReason::forged_result;
  if (header.format != static_cast<uint8_t>(Format::int32)) return DropReason::bad_format;
  if (header.exponent > exponent::unknown) return DropReason::bad_exponent;
  if (header.count > slots.values_per_packet() || (header.count == 0) != exponent_only) return DropReason::bad_count;
  if (datagram.length != protocol::header_bytes + payload_bytes(header)) return DropReason::bad_length;
  if ((header.slot & 1U) != (header.phase & 1U)) return DropReason::bad_half;
  return std::nullopt;
}

// Hosts may share the switch's IPv4 address (127.0.0.1), so a packet is the switch's own only by the port as well.
bool Pipeline::has_own_source(const UdpPort& ingress, const Datagram& datagram) const {
  if (ntohs(datagram.source.sin_port) != ingress.socket().port()) return false;
  const uint32_t bound = ingress.socket().address();
  return ntohl(datagram.source.sin_addr.s_addr) == (bound != 0 ? bound : tables.switch_address.ip);
}

DropReason Pipeline::why_not_admitted(const Header& header) const {
  const SlotRange* range = tables.find_job(header.job);
  if (range == nullptr) return DropReason::unknown_job;
  const bool known_slot = header.slot < slots.halves() && (header.slot & range->mask) == range->value;
  return known_slot ? DropReason::unknown_worker : DropReason::slot_out_of_range;
}

Verdict Pipeline::aggregate(const UdpPort& ingress, const Header& header, const uint8_t* values,
                            const Admission& admission) {
  if (header.epoch != admission.epoch) return Verdict::wrong_epoch;
  HalfState& half = slots.state(header.slot);
  Verdict verdict = Verdict::aggregated;
  if (half.epoch != header.epoch || header.phase > half.phase) {
    store_first(header, values, admission, &half);
  } else if (header.phase < half.phase) {
    return Verdict::stale;
  } else if ((half.bitmap & admission.worker_bit) == 0) {
    add(header, values, admission, &half);
  } else if (half.bitmap == admission.job_mask) {
    verdict = Verdict::resent;
  } else {
    return Verdict::duplicate;
  }
  if (half.bitmap != admission.job_mask) return verdict;

  Header result = header;
  result.kind = static_cast<uint8_t>(Kind::result);
  result.exponent = half.exponent;
  result.check = half.check;
  const uint8_t* sums = slots.values(header.slot);
  if (verdict == Verdict::resent) {
    results_.resend(ingress.number(), result, payload_bytes(header), &half, sums);
    return verdict;
  }
  results_.multicast(admission.group, result, payload_bytes(header), &half, sums);
  return Verdict::completed;
}

// The first of a phase overwrites: nothing is ever cleared.
void Pipeline::store_first(const Header& header, const uint8_t* values, const Admission& admission, HalfState* half) {
  if (results_.holds(*half)) results_.flush();
  half->epoch = header.epoch;
  half->phase = header.phase;
  half->bitmap = admission.worker_bit;
  half->exponent = header.exponent;
  half->check = header.check;
  if (has_values(header)) std::memcpy(slots.values(header.slot), values, payload_bytes(header));
}

void Pipeline::add(const Header& header, const uint8_t* values, const Admission& admission, HalfState* half) {
  // Only while a job's entries disagree about its mask can a half be complete for one worker and not for another.
  if (results_.holds(*half)) results_.flush();
  half->bitmap |= admission.worker_bit;
  half->exponent = std::max(half->exponent, header.exponent);
  half->check += header.check;
  if (has_values(header)) add_big_endian(slots.values(header.slot), values, slots.values_per_packet());
}

}  // namespace switchml
