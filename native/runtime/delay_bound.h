// The bound of a sender's window by delay: as many bytes in flight as keep the path busy, and few in its queues.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace switchml::runtime {

// The estimates are those of BBR (Cardwell et al., 2017): the bound is gain x delivered rate x minimum round-trip time
// of path and hosts, plus the largest burst in which results came. The caller gives the time.
class DelayBound {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;  // seconds

  // The time and the state at which a packet was sent.
  struct Departure {
    TimePoint time;
    uint64_t delivered = 0;  // delivered() at that time
    TimePoint answered;      // when the packet was sent whose result was the last one before that time
  };

  // `packet_bytes` is the size of the largest packet.
  explicit DelayBound(double packet_bytes) : packet_bytes_(packet_bytes), bound_(kInitialPackets * packet_bytes) {}

  // Bytes of all packets that have their results.
  uint64_t delivered() const { return delivered_; }
  // The number of bytes that may be in flight.
  double bytes() const { return probing() ? kProbePackets * packet_bytes_ : bound_; }
  // The same for a sender that leaves the queues of the path to others. The rate that bursts reach for moments, and the
  // bursts themselves, do not count, so that a host that is busy for a moment may leave the path idle.
  double bytes_of_yielding() const {
    const double average = average_rate_.value();
    return probing() || average == 0 ? bytes() : std::min(bound_, at_least(path_bytes(average)));
  }

  // Called for each transmission; `alone` if no other packet is in flight. The caller keeps what it returns.
  Departure departure(TimePoint now, bool alone) {
    if (alone) answered_ = now;
    return {now, delivered_, answered_};
  }
  // Called for each result of this number of bytes.
  void result(uint64_t bytes) { delivered_ += bytes; }
  // Called for the result of a packet that was sent once, after result(). All ranks of a job see the same results, so
  // their rates and windows are alike.
  void sample(const Departure& departure) { last_sample_ = departure; }
  // Called for such a result if this packet completed the slot: other round trips include the wait for another rank.
  void round_trip(TimePoint sent, TimePoint now) {
    const Duration measured = now - sent;
    if (probing() && sent >= probe_began_) {
      probe_minimum_ = std::min(probe_minimum_, measured);
      probe_samples_ -= 1;
      if (!probing()) {
        minimum_ = probe_minimum_;
        minimum_seen_ = now;
      }
      return;
    }
    minimum_ = std::min(minimum_, measured);
    if (measured <= kGain * minimum_) minimum_seen_ = now;
  }
  // Called after results that were received together. `window` is the number of bytes that could be in flight.
  void end_batch(double window, TimePoint now) {
    if (delivered_ == delivered_before_batch_) return;
    if (last_sample_.time != TimePoint{}) take_rate(window, now);
    if (rate_.value() > 0 && minimum_ != Duration::max()) {
      take_burst(window, now);
      bound_ = at_least(path_bytes(rate_.value()) + burst_.value());
      probe_if_due(now);
    }
    if (last_sample_.time != TimePoint{}) answered_ = last_sample_.time;
    delivered_before_batch_ = delivered_;
    last_sample_ = {};
  }

 private:
  // The maximum of the values in the current and the previous period.
  class RecentMaximum {
   public:
    void add(double value) { current_ = std::max(current_, value); }
    void end_period() { previous_ = std::exchange(current_, 0); }
    double value() const { return std::max(current_, previous_); }

   private:
    double current_ = 0;
    double previous_ = 0;
  };

  static constexpr double kGain = 2;  // doubles the rate in each round trip until packets wait in a queue
  // Added to the minimum, because hosts do not react to a result at once. On a fast path the pool takes less time than
  // this, and is the only bound.
  static constexpr Duration kReaction{1e-3};
  static constexpr double kInitialPackets = 64;
  static constexpr double kLeastBytes = 128 << 10;  // two batches of segmentation offload, which save the hosts' CPUs
  static constexpr double kLeastPackets = 4;
  static constexpr unsigned kRoundsOfPeriod = 8;
  // A minimum that has not been seen for this time is measured again, with few packets in flight: the path may have
  // changed. The probe ends after its samples, or after the longest time.
  static constexpr Duration kMinimumHolds{10};
  static constexpr Duration kLongestProbe{0.5};
  static constexpr unsigned kProbeSamples = 4;
  static constexpr double kProbePackets = 4;

  bool probing() const { return probe_samples_ > 0; }
  double path_bytes(double rate) const { return kGain * rate * (minimum_ + kReaction).count(); }
  double at_least(double bytes) const { return std::max(bytes, std::max(kLeastBytes, kLeastPackets * packet_bytes_)); }

  // Results that have waited for this host come faster than the path is. But the packets that they answer were not sent
  // faster than it took them (Cheng et al., Delivery Rate Estimation).
  void take_rate(double window, TimePoint now) {
    const Duration elapsed = std::max(now - last_sample_.time, last_sample_.time - last_sample_.answered);
    const auto bytes = static_cast<double>(delivered_ - last_sample_.delivered);
    // If less than half the window was delivered, the application had no more to send: this says nothing of the path.
    if (probing() || elapsed.count() <= 0 || 2 * bytes < window) return;
    rate_.add(bytes / elapsed.count());
    if (last_sample_.delivered < round_began_) return;
    round_began_ = delivered_;  // a round ends with the result of the first packet that was sent in it
    rounds_ += 1;
    burst_bytes_ = 0;
    period_bytes_ += bytes;
    period_time_ += elapsed;
    if (rounds_ % kRoundsOfPeriod == 0) {
      rate_.end_period();
      burst_.end_period();
      average_rate_.end_period();
      average_rate_.add(std::exchange(period_bytes_, 0) / std::exchange(period_time_, Duration(0)).count());
    }
  }

  // A burst begins with each round, and when no more bytes have come than the rate explains. Its size is the number of
  // bytes beyond that.
  void take_burst(double window, TimePoint now) {
    double expected = rate_.value() * Duration(now - burst_began_).count();
    if (burst_bytes_ <= expected) {
      burst_began_ = now;
      burst_bytes_ = 0;
      expected = 0;
    }
    burst_bytes_ += static_cast<double>(delivered_ - delivered_before_batch_);
    burst_.add(std::min(burst_bytes_ - expected, window));
  }

  void probe_if_due(TimePoint now) {
    if (probing() && now - probe_began_ > kLongestProbe) {
      probe_samples_ = 0;
      minimum_seen_ = now;
    } else if (!probing() && now - minimum_seen_ > kMinimumHolds) {
      probe_samples_ = kProbeSamples;
      probe_minimum_ = Duration::max();
      probe_began_ = now;
    }
  }

  double packet_bytes_;
  double bound_;
  uint64_t delivered_ = 0;
  uint64_t delivered_before_batch_ = 0;
  Departure last_sample_;  // of the batch; without a time if it has none
  TimePoint answered_;     // as in a Departure

  RecentMaximum rate_;  // bytes per second; 0 before the first sample
  uint64_t round_began_ = 0;
  unsigned rounds_ = 0;
  RecentMaximum average_rate_;  // of whole periods; 0 before the end of the first one
  double period_bytes_ = 0;     // of the rounds since the last period
  Duration period_time_{0};

  Duration minimum_ = Duration::max();
  TimePoint minimum_seen_;
  unsigned probe_samples_ = 0;  // that are still to come; 0 outside of a probe
  Duration probe_minimum_{};
  TimePoint probe_began_;

  RecentMaximum burst_;
  double burst_bytes_ = 0;
  TimePoint burst_began_;
};

}  // namespace switchml::runtime
