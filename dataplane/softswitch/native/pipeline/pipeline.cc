#include "dataplane/softswitch/native/pipeline/pipeline.h"

#include <algorithm>
#include <utility>

#include "native/kernels/codes.h"

namespace switchml::soft {
namespace {

// Returns the drop reason of a verdict that drops its packet.
std::optional<wire::DropReason> drop_reason_of(wire::Verdict verdict) {
  switch (verdict) {
    case wire::Verdict::wrong_epoch:
      return wire::DropReason::wrong_epoch;
    case wire::Verdict::stale:
      return wire::DropReason::stale;
    case wire::Verdict::duplicate:
      return wire::DropReason::duplicate;
    case wire::Verdict::aggregated:
    case wire::Verdict::completed:
    case wire::Verdict::resent:
    case wire::Verdict::forwarded:
      break;
  }
  return std::nullopt;
}

}  // namespace

Pipeline::Pipeline(std::unique_ptr<SlotStore> slots, const PortTable* ports)
    : slots_(std::move(slots)),
      job_counters_(kJobCounterEntries),
      expanded_(slots_->values_per_packet() * sizeof(uint32_t)),
      egress_(&tables, ports, &drops),
      results_(&tables, &egress_, &drops),
      forwarding_(&tables, &egress_, &drops) {}

void Pipeline::receive(PipelinePort* ingress, const net::Datagram& packet) {
  ingress->deliver(packet, &drops[wire::DropReason::injected_loss],
                   [this, ingress](const net::Datagram& delivered) { process(*ingress, delivered); });
}

void Pipeline::release_expired(PipelinePort* port, PipelinePort::Clock::time_point now) {
  port->release_expired(now, [this, port](const net::Datagram& delivered) { process(*port, delivered); });
}

void Pipeline::flush() {
  results_.flush();
  egress_.flush();
}

void Pipeline::process(const PipelinePort& ingress, const net::Datagram& received) {
  const PacketView packet =
      ingress.carries_frames() ? view_of_frame(received.data, received.length) : view_of_datagram(received);
  if (tables.loss_ingress.loses(ingress.number())) {
    drops[wire::DropReason::injected_loss].add(1, packet.frame_bytes);
    return;
  }
  switch (packet.content) {
    case PacketView::Content::ours:
      contribute_packet(ingress, packet);
      break;
    case PacketView::Content::ordinary:
      results_.flush();  // packets leave a port in the order of the packets that caused them
      forwarding_.process(ingress, packet);
      break;
    case PacketView::Content::runt:
      drops[wire::DropReason::runt].add(1, packet.frame_bytes);
      break;
  }
}

void Pipeline::contribute_packet(const PipelinePort& ingress, const PacketView& packet) {
  if (packet.payload_bytes < wire::protocol::header_bytes || (packet.frame != nullptr && ends_early(packet))) {
    drops[wire::DropReason::runt].add(1, packet.frame_bytes);
    return;
  }
  const wire::Header header = wire::load_header(packet.payload);
  decide(ingress, packet, header, {packet.payload + wire::protocol::header_bytes, nullptr});
}

// Returns a view of the packet that would have carried a contribution without a packet.
PacketView Pipeline::view_without_packet(size_t payload_bytes) {
  PacketView packet;
  packet.content = PacketView::Content::ours;
  packet.payload_bytes = wire::protocol::header_bytes + payload_bytes;
  packet.udp_length = wire::udp::bytes + packet.payload_bytes;
  packet.ipv4_length = wire::ipv4::bytes + packet.udp_length;
  packet.frame_bytes = wire::kHeadersBeforeUdpPayload + packet.payload_bytes;
  return packet;
}

std::optional<wire::Verdict> Pipeline::contribute(const PipelinePort& ingress, const BareContribution& contribution) {
  PacketView packet = view_without_packet(contribution.payload_bytes);
  packet.ipv4_src = contribution.ipv4_src;
  packet.sender = contribution.sender;
  return decide(ingress, packet, contribution.header, contribution.values);
}

void Pipeline::send_completed(size_t half, const Completion& completion) {
  const size_t payload = payload_bytes(completion.answer);
  results_.multicast(completion.group, view_without_packet(payload),
                     {completion.answer, payload, &slots_->state(half), slots_->values(half)});
}

std::optional<wire::Verdict> Pipeline::decide(const PipelinePort& ingress, const PacketView& packet,
                                              const wire::Header& header, const Values& values) {
  auto reason = malformed(ingress, packet, header);
  const bool intact = reason || is_intact(packet);
  WorkerEntry* worker = reason || !intact ? nullptr : find_sender(ingress, packet, header);
  if (worker == nullptr) {
    if (!reason) reason = why_not_admitted(header, intact);
    // Only a parent sends RESULTs.
    if (is_result(header)) reason = std::min(*reason, wire::DropReason::forged_result);
    drops[*reason].add(1, packet.frame_bytes);
    return std::nullopt;
  }
  worker->counter.add(1, packet.frame_bytes);
  const wire::Verdict verdict = aggregate(ingress, packet, header, in_words(header, values), worker->admission);
  const size_t job_index = static_cast<size_t>(header.job) << 4U | static_cast<size_t>(verdict);
  if (job_index < job_counters_.size()) job_counters_[job_index].add(1, packet.frame_bytes);
  if (const auto dropped = drop_reason_of(verdict)) drops[*dropped].add(1, packet.frame_bytes);
  return verdict;
}

// Ranks that share memory with the switch write words there, so the codes are in a packet.
Values Pipeline::in_words(const wire::Header& header, const Values& values) {
  if (!wire::is_coded(header.format) || !has_values(header)) return values;
  kernels::expand_codes(values.words, slots_->values_per_packet(), static_cast<wire::Format>(header.format),
                        expanded_.data());
  return {expanded_.data(), nullptr};
}

WorkerEntry* Pipeline::find_sender(const PipelinePort& ingress, const PacketView& packet, const wire::Header& header) {
  if (header.slot >= slots_->halves()) return nullptr;  // an entry may cover more slots than there are registers
  const WorkerKey key{ingress.number(), packet.eth_src, packet.ipv4_src, packet.sender,
                      header.job,       header.worker,  header.secret,   static_cast<wire::Kind>(header.kind)};
  return tables.workers.find(key, header.slot);
}

// Does what the first rows of malformed_table do in the P4 program. A frame that ends before its values is reported
// here only if its UDP length includes the values, or their codes; a frame with any other UDP length is a bad_length.
bool Pipeline::ends_early(const PacketView& packet) const {
  constexpr size_t kEmpty = wire::protocol::header_bytes;
  constexpr size_t kBeforePayload = wire::ipv4::bytes + wire::udp::bytes;
  if (packet.udp_length < wire::udp::bytes + kEmpty || packet.ipv4_length < kBeforePayload + kEmpty) return true;
  const auto ends_before = [&](size_t full) {
    return packet.udp_length == wire::udp::bytes + full &&
           (packet.payload_bytes < full + packet.icrc_bytes || packet.ipv4_length < kBeforePayload + full);
  };
  const size_t values = slots_->values_per_packet();
  return ends_before(kEmpty) || ends_before(kEmpty + values * sizeof(uint32_t)) || ends_before(kEmpty + values);
}

// Checks in the order of precedence of drop_reason in constants.toml.
std::optional<wire::DropReason> Pipeline::malformed(const PipelinePort& ingress, const PacketView& packet,
                                                    const wire::Header& header) const {
  const bool empty = !has_values(header);
  if (header.version != wire::protocol::version) return wire::DropReason::bad_version;
  if (!is_result(header) && header.kind != static_cast<uint8_t>(wire::Kind::contribution)) {
    return wire::DropReason::bad_kind;
  }
  if (ingress.has_own_source(packet, tables.switch_address)) return wire::DropReason::forged_result;
  // Codes are in contributions only: a parent's RESULT has the words of their sum.
  if (!wire::is_known(header.format) || (is_result(header) && wire::is_coded(header.format))) {
    return wire::DropReason::bad_format;
  }
  if (header.exponent > wire::exponent::unknown) return wire::DropReason::bad_exponent;
  if (header.count > slots_->values_per_packet() || (header.count == 0) != empty) return wire::DropReason::bad_count;
  if (packet.udp_length != wire::udp::bytes + wire::protocol::header_bytes + payload_bytes(header) ||
      packet.ipv4_length != wire::ipv4::bytes + packet.udp_length) {
    return wire::DropReason::bad_length;
  }
  if ((header.slot & 1U) != (header.phase & 1U)) return wire::DropReason::bad_half;
  return std::nullopt;
}

wire::DropReason Pipeline::why_not_admitted(const wire::Header& header, bool intact) const {
  const SlotRange* range = tables.find_job(header.job);
  if (range == nullptr) return wire::DropReason::unknown_job;
  const bool known_slot = header.slot < slots_->halves() && (header.slot & range->mask) == range->value;
  if (!known_slot) return wire::DropReason::slot_out_of_range;
  return intact ? wire::DropReason::unknown_worker : wire::DropReason::bad_icrc;
}

wire::Verdict Pipeline::aggregate(const PipelinePort& ingress, const PacketView& packet, const wire::Header& header,
                                  const Values& values, const Admission& admission) {
  if (header.epoch != admission.epoch) return wire::Verdict::wrong_epoch;
  HalfState& half = slots_->state(header.slot);
  const bool from_parent = admission.action == Admission::Action::admit_parent;
  const wire::Verdict verdict = from_parent ? take_parents_result(header, values, admission, &half)
                                            : take_contribution(header, values, admission, &half);
  if (verdict == wire::Verdict::stale) return verdict;
  if (half.bitmap != admission.full()) {
    const bool has_parent = admission.action == Admission::Action::admit_below;
    if (!has_parent || half.bitmap != admission.job_mask) return verdict;
    send_to_parent(packet, header, admission, &half);
    return wire::Verdict::forwarded;
  }
  if (verdict == wire::Verdict::duplicate) return verdict;

  wire::Header answer = header_of(half, header, wire::Kind::result);
  if (from_parent) {
    // Names the rank below whose packet the parent has answered, if any: this rank may measure the time. The owner is
    // that of the ranks here, since the field has another meaning between switches.
    answer.worker = admission.completed_here ? header.owner : wire::tree::no_rank;
    answer.owner = half.owner;
  }
  if (verdict == wire::Verdict::resent) {
    const bool reads = (admission.worker_bit & wire::readers_of(answer.owner)) != 0;
    slots_->resend(header.slot, admission.worker_bit, reads);
  } else if (!slots_->complete(header.slot, values, {answer, admission.group}, admission.full())) {
    return wire::Verdict::completed;
  }
  const ResultSender::Result result{answer, payload_bytes(answer), &half, slots_->values(header.slot)};
  if (verdict == wire::Verdict::resent) {
    results_.resend(ingress.number(), packet, result);
    return verdict;
  }
  results_.multicast(admission.group, packet, result);
  return wire::Verdict::completed;
}

wire::Verdict Pipeline::take_contribution(const wire::Header& header, const Values& values, const Admission& admission,
                                          HalfState* half) {
  if (half->epoch != header.epoch || header.phase > half->phase) {
    store_first(header, values, admission, half);
    return wire::Verdict::aggregated;
  }
  if (header.phase < half->phase) return wire::Verdict::stale;
  if ((half->bitmap & admission.worker_bit) == 0) {
    add(header, values, admission, half);
    return wire::Verdict::aggregated;
  }
  const bool complete = half->bitmap == admission.full();
  if (has_values(header) && !half->filled()) {
    // The rank has contributed before, but without values, and no rank has brought any. Its values overwrite those of
    // the previous phase all the same, as in a P4 pipeline, which cannot test both conditions; otherwise the old values
    // would become those of this phase.
    slots_->add(header.slot, values);
    slots_->settle(header.slot);
    return complete ? wire::Verdict::resent : wire::Verdict::duplicate;
  }
  return complete && !is_summing(half->values) ? wire::Verdict::resent : wire::Verdict::duplicate;
}

wire::Verdict Pipeline::take_parents_result(const wire::Header& header, const Values& values,
                                            const Admission& admission, HalfState* half) {
  if (half->epoch != header.epoch || header.phase != half->phase) return wire::Verdict::stale;
  if ((half->bitmap & admission.worker_bit) != 0) return wire::Verdict::duplicate;
  if (results_.holds(*half)) results_.flush();
  half->bitmap |= admission.worker_bit;
  half->exponent = header.exponent;
  half->check = header.check;
  half->next = header.chunk;
  slots_->begin(header.slot, wire::format_of_sums(header.format));
  store_values(header, values);
  return wire::Verdict::aggregated;
}

wire::Header Pipeline::header_of(const HalfState& half, const wire::Header& trigger, wire::Kind kind) const {
  wire::Header header = trigger;
  header.kind = static_cast<uint8_t>(kind);
  header.format = static_cast<uint8_t>(half.format);
  header.exponent = half.exponent;
  header.check = half.check;
  header.chunk = half.next;
  // It has values if the phase has, whether or not this packet brought any.
  if (half.filled() && !has_values(trigger)) {
    header.flags &= static_cast<uint8_t>(~wire::flag::without_values);
    header.count = static_cast<uint16_t>(slots_->values_per_packet());
  }
  return header;
}

// A retransmission from below sends it again: it, or the parent's RESULT, may be lost. The parent's RESULT returns
// `worker` and `owner` of the contribution that it answers.
void Pipeline::send_to_parent(const PacketView& packet, const wire::Header& header, const Admission& admission,
                              HalfState* half) {
  const uint16_t group = parent_group(admission.group);
  const std::vector<Replica>* replicas = tables.find_group(group);
  if (replicas == nullptr || replicas->empty()) return;
  slots_->settle(header.slot);
  wire::Header contribution = header_of(*half, header, wire::Kind::contribution);
  contribution.owner = header.worker;
  contribution.worker = static_cast<uint8_t>(replicas->front().instance);  // this switch's number at the parent
  results_.multicast(group, packet, {contribution, payload_bytes(contribution), half, slots_->values(header.slot)});
}

// The first values of a phase overwrite those of the phase before, so nothing ever needs to be cleared.
void Pipeline::store_first(const wire::Header& header, const Values& values, const Admission& admission,
                           HalfState* half) {
  if (results_.holds(*half)) results_.flush();
  half->epoch = header.epoch;
  half->phase = header.phase;
  half->bitmap = admission.worker_bit;
  half->exponent = header.exponent;
  half->check = header.check;
  half->next = header.chunk;
  half->owner = header.owner;
  slots_->begin(header.slot, wire::format_of_sums(header.format));
  store_values(header, values);
}

void Pipeline::add(const wire::Header& header, const Values& values, const Admission& admission, HalfState* half) {
  // A half can be complete for one worker and not for another only while a job's entries disagree about its mask.
  if (results_.holds(*half)) results_.flush();
  half->bitmap |= admission.worker_bit;
  half->exponent = std::max(half->exponent, header.exponent);
  half->check += header.check;
  half->next = std::min(half->next, header.chunk);
  half->owner = header.owner;
  store_values(header, values);
}

void Pipeline::store_values(const wire::Header& header, const Values& values) {
  if (has_values(header)) {
    slots_->add(header.slot, values);
  } else {
    slots_->lend(header.slot, values);
  }
}

}  // namespace switchml::soft
