// How many packets leave in one message, by measurement.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace switchml {

// At a job's start its first packets leave in messages of several sizes in turns; from then on in those of the size
// that took the least time for a packet. It is the time of the sender, which on one machine is the receiver's as well.
// As a rule the largest is the best: what a message costs is shared by its packets. Where a driver must cut messages up
// itself, or a tunnel copies them, it need not be.
class BurstChoice {
 public:
  // `largest` is what a message can take.
  explicit BurstChoice(size_t largest) {
    for (size_t packets = std::max<size_t>(largest, 1); packets > 0; packets /= 2) {
      trials_.push_back({packets, {}});
    }
  }

  // How many the next message should have.
  size_t packets() const { return trials_[turn_].packets; }
  bool settled() const { return settled_; }

  // So many packets took so long, in messages of packets() and what was left over. Not to be called once settled().
  void sent(size_t packets, uint64_t nanoseconds) {
    if (packets < kFewestPackets) return;
    trials_[turn_].nanoseconds[samples_] = nanoseconds / packets;
    if (++turn_ < trials_.size()) return;
    turn_ = 0;
    if (++samples_ == kSamples) settle();
  }

 private:
  static constexpr size_t kSamples = 15;
  static constexpr size_t kFewestPackets = 8;  // or else it is the call that takes the time, whatever the messages are
  struct Trial {
    size_t packets;
    std::array<uint64_t, kSamples> nanoseconds;  // of one packet
  };

  // The medians are compared: any call can be interrupted.
  void settle() {
    for (Trial& trial : trials_) {
      std::nth_element(trial.nanoseconds.begin(), &trial.nanoseconds[kSamples / 2], trial.nanoseconds.end());
    }
    const auto best = std::min_element(trials_.begin(), trials_.end(), [](const Trial& one, const Trial& other) {
      return one.nanoseconds[kSamples / 2] < other.nanoseconds[kSamples / 2];
    });
    turn_ = static_cast<size_t>(best - trials_.begin());
    settled_ = true;
  }

  std::vector<Trial> trials_;  // the largest first: it wins where two are equal
  size_t turn_ = 0;
  size_t samples_ = 0;
  bool settled_ = false;
};

}  // namespace switchml
