#include "dataplane/softswitch/native/ports/pipeline_port.h"

#include <algorithm>

namespace switchml::soft {
namespace {

constexpr uint64_t kEgressSeed = 0x9E3779B97F4A7C15;  // tells the two directions' random numbers apart

}  // namespace

void PortCounters::add(const PortCounters& other) {
  received += other.received;
  receive_overflow += other.receive_overflow;
  receive_errors += other.receive_errors;
  handed_over += other.handed_over;
  sending.sent += other.sending.sent;
  sending.lost += other.sending.lost;
  if (sending.last_error == 0) sending.last_error = other.sending.last_error;
  faults.dropped += other.faults.dropped;
  faults.duplicated += other.faults.duplicated;
  faults.delayed += other.faults.delayed;
  faults.flipped += other.faults.flipped;
  gso = gso && other.gso;
  gro = gro && other.gro;
}

void PipelinePort::set_faults(const FaultRates& rates, uint64_t seed) {
  ingress_faults_.configure(rates, seed);
  egress_faults_.configure(rates, ~seed * kEgressSeed);
}

int PipelinePort::copies_to_send(const uint8_t* header, size_t header_bytes, const uint8_t* payload,
                                 size_t payload_bytes, const sockaddr_in& destination, Counter* injected_loss) {
  const auto fate = egress_faults_.decide(header, header_bytes, payload, payload_bytes, destination, sheltered());
  if (fate == FaultInjector::Fate::dropped) {
    injected_loss->add(1, header_bytes + payload_bytes + (carries_frames_ ? 0 : wire::kHeadersBeforeUdpPayload));
  }
  egress_faults_.take_overtaken(&egress_due_);
  return fate == FaultInjector::Fate::pass_twice ? 2 : fate == FaultInjector::Fate::pass_once ? 1 : 0;
}

std::optional<PipelinePort::Clock::time_point> PipelinePort::next_deadline() const {
  const auto in = ingress_faults_.next_deadline();
  const auto out = egress_faults_.next_deadline();
  if (in && out) return std::min(*in, *out);
  return in ? in : out;
}

PortCounters PipelinePort::common_counters() const {
  const FaultCounters& in = ingress_faults_.counters();
  const FaultCounters& out = egress_faults_.counters();
  PortCounters counters;
  counters.received = received_;
  counters.faults = {in.dropped + out.dropped, in.duplicated + out.duplicated, in.delayed + out.delayed,
                     in.flipped + out.flipped};
  return counters;
}

}  // namespace switchml::soft
