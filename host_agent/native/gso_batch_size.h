// The GSO batch size of a job, chosen by measurement.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace switchml::agent {

// The first packets of a job are sent in batches of several sizes in turn. After that the largest size is used, unless
// another size took much less time per packet. The measured time is that of the sender, which on one machine includes
// the receiver's. Normally the largest size is the best, because the packets of a batch share its cost; but it may not
// be if a driver must cut batches itself, or a tunnel copies them.
class GsoBatchSize {
 public:
  // `largest` is the largest number of packets in a batch.
  explicit GsoBatchSize(size_t largest) {
    for (size_t packets = std::max<size_t>(largest, 1); packets > 0; packets /= 2) {
      trials_.push_back({packets, {}});
    }
  }

  // Returns the size of the batches in which `packets` packets must be sent now.
  size_t for_packets(size_t packets) const {
    return settled_ || packets >= fewest_packets() ? trials_[turn_].packets : trials_.front().packets;
  }
  // Returns the chosen size; 0 before it is chosen.
  size_t chosen() const { return settled_ ? trials_[turn_].packets : 0; }

  // Adds the time in which `packets` were sent, in batches of for_packets() and a smaller last one.
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

  // A sample needs two large batches, as in a large tensor, because the time of a few packets is mostly that of waking
  // processes up. The limit is for small packets, of which a batch could hold more than are sent at once.
  size_t fewest_packets() const { return std::min<size_t>(2 * trials_.front().packets, 32); }

  // Medians are compared, because any call can be interrupted. A smaller size must take less than two thirds of the
  // time: on a busy machine samples of one size differ by a factor of ten, and the wrong size costs a job a tenth of
  // its time.
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
