// The GSO batch size of a job, chosen by measurement.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace switchml::agent {

// At a job's start its first packets leave in batches of several sizes in turns; from then on in the largest, unless
// another size took much less time for a packet. It is the time of the sender, which on one machine is the receiver's
// as well. As a rule the largest is the best: what a batch costs is shared by its packets. Where a driver must cut
// batches up itself, or a tunnel copies them, it need not be.
class GsoBatchSize {
 public:
  // `largest` is the most packets that a batch can have.
  explicit GsoBatchSize(size_t largest) {
    for (size_t packets = std::max<size_t>(largest, 1); packets > 0; packets /= 2) {
      trials_.push_back({packets, {}});
    }
  }

  // The size of the batches in which `packets` must leave now.
  size_t for_packets(size_t packets) const {
    return settled_ || packets >= fewest_packets() ? trials_[turn_].packets : trials_.front().packets;
  }
  // The size that was chosen; 0 before that.
  size_t chosen() const { return settled_ ? trials_[turn_].packets : 0; }

  // Takes the time in which `packets` left, in batches of for_packets() and a smaller last one.
  void sent(size_t packets, uint64_t nanoseconds) {
    if (settled_ || packets < fewest_packets()) return;
    trials_[turn_].nanoseconds[samples_] = nanoseconds / packets;
    if (++turn_ < trials_.size()) return;
    turn_ = 0;
    if (++samples_ == kSamples) settle();
  }

 private:
  static constexpr size_t kSamples = 63;
  struct Trial {
    size_t packets;
    std::array<uint64_t, kSamples> nanoseconds;  // of one packet
  };

  // Two large batches, as in a large tensor: what a few packets take is the waking up of processes. Packets of which
  // more go into a batch than are sent at once are judged by fewer.
  size_t fewest_packets() const { return std::min<size_t>(2 * trials_.front().packets, 32); }

  // The medians are compared: any call can be interrupted. A smaller size must take less than two thirds of the time:
  // on a busy machine samples of one size differ by a factor of ten, and the wrong size costs a job a tenth of its
  // time.
  void settle() {
    for (Trial& trial : trials_) {
      std::nth_element(trial.nanoseconds.begin(), &trial.nanoseconds[kSamples / 2], trial.nanoseconds.end());
    }
    const auto median = [this](size_t trial) { return trials_[trial].nanoseconds[kSamples / 2]; };
    for (size_t trial = 1; trial < trials_.size(); ++trial) {
      if (3 * median(trial) < 2 * median(turn_)) turn_ = trial;
    }
    settled_ = true;
  }

  std::vector<Trial> trials_;  // the largest first
  size_t turn_ = 0;
  size_t samples_ = 0;
  bool settled_ = false;
};

}  // namespace switchml::agent
