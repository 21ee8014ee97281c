// Decides when to poll a device again that cannot signal waiting frames, and how long to poll before going to sleep.
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>

namespace switchml::runtime {

// Adaptive: after traffic, the thread polls for a few more microseconds and then sleeps, until the device's descriptor
// wakes it or, if the device has none, for a hundredth of the time since the last traffic. Busy: the thread never
// sleeps. One thread uses a schedule.
class PollSchedule {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws std::system_error.
  explicit PollSchedule(bool busy) : busy_(busy), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (timer_ < 0) throw std::system_error(errno, std::generic_category(), "timerfd_create");
  }
  ~PollSchedule() { close(timer_); }
  PollSchedule(const PollSchedule&) = delete;
  PollSchedule& operator=(const PollSchedule&) = delete;

  // Readable when a pause is over.
  int timer() const { return timer_; }

  // `found` tells whether the last poll found anything; returns whether to poll again at once. A busy schedule returns
  // false once in a fixed number of polls, so that its thread looks at descriptors too.
  bool look_again(bool found, Clock::time_point now) {
    now_ = now;
    if (found) {
      last_found_ = now;
      return true;
    }
    if (busy_) return ++looks_ % kLooksBetweenWaits != 0;
    return now - last_found_ < kLookOn;
  }

  bool may_sleep() const { return !busy_; }

  // Starts a pause, at the end of which timer() is readable.
  void start_pause() const {
    const std::chrono::nanoseconds quiet = now_ - last_found_;
    itimerspec when{};
    when.it_value.tv_nsec =
        std::clamp<std::chrono::nanoseconds>(quiet / kShareOfQuiet, kShortestPause, kLongestPause).count();
    timerfd_settime(timer_, 0, &when, nullptr);
  }
  void end_pause() const {
    uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t got = read(timer_, &expirations, sizeof expirations);
  }

 private:
  static constexpr std::chrono::microseconds kLookOn{10};
  static constexpr std::chrono::microseconds kShortestPause{20};
  static constexpr std::chrono::milliseconds kLongestPause{10};
  static constexpr int kShareOfQuiet = 100;
  static constexpr uint32_t kLooksBetweenWaits = 256;

  bool busy_;
  int timer_;
  uint32_t looks_ = 0;
  Clock::time_point now_;
  Clock::time_point last_found_;
};

}  // namespace switchml::runtime
