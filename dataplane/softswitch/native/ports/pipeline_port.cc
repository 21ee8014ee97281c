#include "dataplane/softswitch/native/ports/pipeline_port.h"

#include <algorithm>
#include <stdexcept>

namespace switchml::soft {
namespace {

constexpr uint64_t kEgressSeed = 0x9E3779B97F4A7C15;  // makes the random numbers of the two directions differ

}  // namespace

void PortCounters::set_sending(const net::SendCounters& sending) {
  sent = sending.sent;
  send_errors = sending.send_errors;
  last_send_errno = sending.last_send_errno;
}

void PortCounters::add(const PortCounters& other) {
  counters::Port::add(other);
  counters::Faults::add(other);
  if (last_send_errno == 0) last_send_errno = other.last_send_errno;
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
  egress_faults_.take_reordered(&egress_due_);
  return fate == FaultInjector::Fate::pass_twice ? 2 : fate == FaultInjector::Fate::pass_once ? 1 : 0;
}

std::optional<PipelinePort::Clock::time_point> PipelinePort::next_deadline() const {
  const auto in = ingress_faults_.next_deadline();
  const auto out = egress_faults_.next_deadline();
  if (in && out) return std::min(*in, *out);
  return in ? in : out;
}

PortCounters PipelinePort::common_counters() const {
  PortCounters counters;
  counters.received = received_;
  counters.counters::Faults::add(ingress_faults_.counters());
  counters.counters::Faults::add(egress_faults_.counters());
  return counters;
}

void require_one_shard(size_t shards) {
  if (shards > 1) throw std::invalid_argument("a switch with several shards can have only UDP and DPDK ports");
}

}  // namespace switchml::soft
