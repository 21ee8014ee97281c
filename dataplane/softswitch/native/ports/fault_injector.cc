#include "dataplane/softswitch/native/ports/fault_injector.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace switchml::soft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kLongestReordering = 64;                   // a held packet is released after 1 to this many others
constexpr std::chrono::milliseconds kLongestDelay{5};         // or after this time, if traffic stops
constexpr double kTwoToMinus53 = 1.0 / (uint64_t{1} << 53U);  // spacing of doubles below 1

void check_rate(double rate, const char* name) {
  if (!(rate >= 0 && rate <= 1)) {
    throw std::invalid_argument(std::string("fault rate ") + name + " is " + std::to_string(rate) +
                                "; it must be 0 to 1");
  }
}

// Moves the packets for which due(packet) is true from `held` to `taken`, and keeps the order of the others.
template <class Due>
void take_if(std::vector<HeldPacket>* held, std::vector<HeldPacket>* taken, Due due) {
  auto kept = held->begin();
  for (auto packet = held->begin(); packet != held->end(); ++packet) {
    if (due(*packet)) {
      taken->push_back(std::move(*packet));
    } else {
      if (kept != packet) *kept = std::move(*packet);
      ++kept;
    }
  }
  held->erase(kept, held->end());
}

}  // namespace

void FaultInjector::configure(const FaultRates& rates, uint64_t seed) {
  check_rate(rates.drop, "drop");
  check_rate(rates.duplicate, "duplicate");
  check_rate(rates.delay, "delay");
  check_rate(rates.flip, "flip");
  rates_ = rates;
  injecting_ = rates.drop > 0 || rates.duplicate > 0 || rates.delay > 0 || rates.flip > 0;
  random_state_ = seed;
}

// splitmix64 (Steele, Lea, Flood 2014): any seed will do.
uint64_t FaultInjector::random() {
  random_state_ += 0x9E3779B97F4A7C15;
  uint64_t x = random_state_;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EB;
  return x ^ (x >> 31U);
}

bool FaultInjector::happens(double probability) {
  return static_cast<double>(random() >> 11U) * kTwoToMinus53 < probability;
}

FaultInjector::Fate FaultInjector::decide(const uint8_t* header, size_t header_bytes, const uint8_t* payload,
                                          size_t payload_bytes, const sockaddr_in& peer, size_t sheltered) {
  if (happens(rates_.drop)) {
    ++counters_.injected_drop;
    return Fate::dropped;
  }
  int copies = 1;
  if (happens(rates_.duplicate)) {
    ++counters_.injected_duplicate;
    copies = 2;
  }
  int passing = 0;
  for (int copy = 0; copy < copies; ++copy) {
    const bool delayed = happens(rates_.delay);
    const bool flipped = rates_.flip > 0 && header_bytes + payload_bytes > sheltered && happens(rates_.flip);
    if (!delayed && !flipped) {
      ++passing;
      continue;
    }
    HeldPacket packet;
    packet.bytes.reserve(header_bytes + payload_bytes);
    packet.bytes.assign(header, header + header_bytes);
    packet.bytes.insert(packet.bytes.end(), payload, payload + payload_bytes);
    packet.peer = peer;
    packet.deadline = Clock::now();
    if (flipped) flip_a_bit(&packet, sheltered);
    if (delayed) {
      ++counters_.injected_delay;
      packet.release_at = passed_ + 1 + random() % kLongestReordering;
      packet.deadline += kLongestDelay;
    }
    held_.push_back(std::move(packet));
  }
  passed_ += static_cast<uint64_t>(passing);
  return passing == 0 ? Fate::held : passing == 1 ? Fate::pass_once : Fate::pass_twice;
}

void FaultInjector::flip_a_bit(HeldPacket* packet, size_t sheltered) {
  ++counters_.injected_flip;
  const uint64_t bit = random() % (8 * (packet->bytes.size() - sheltered));
  packet->bytes[sheltered + bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
}

void FaultInjector::take_reordered(std::vector<HeldPacket>* due) {
  if (held_.empty()) return;
  take_if(&held_, due, [this](const HeldPacket& packet) { return packet.release_at <= passed_; });
}

void FaultInjector::take_expired(Clock::time_point now, std::vector<HeldPacket>* due) {
  if (held_.empty()) return;
  take_if(&held_, due, [now](const HeldPacket& packet) { return packet.deadline <= now; });
}

std::optional<Clock::time_point> FaultInjector::next_deadline() const {
  if (held_.empty()) return std::nullopt;
  return std::min_element(held_.begin(), held_.end(),
                          [](const HeldPacket& one, const HeldPacket& other) { return one.deadline < other.deadline; })
      ->deadline;
}

}  // namespace switchml::soft
