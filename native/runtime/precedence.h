// The order of jobs that share a path: as long as an urgent one has contributions in flight, others send next to
// nothing.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace switchml::runtime {

// The jobs of one tenant at one agent or soft switch. Any thread may use it.
class Precedence {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr unsigned kPriorities = 8;  // the highest is the most urgent
  // The window of a job that is held back, in stream positions. With this one it continues slowly, so that it holds up
  // no rank forever and learns of the end of the hold by its own results.
  static constexpr uint32_t kHeldBackWindow = 1;

  // A sender of a job of a certain priority.
  class Place {
   public:
    Place(std::shared_ptr<Precedence> precedence, unsigned priority)
        : precedence_(std::move(precedence)), priority_(priority) {
      precedence_->places_[priority_].fetch_add(1, std::memory_order_relaxed);
    }
    ~Place() {
      hold(false);
      precedence_->places_[priority_].fetch_sub(1, std::memory_order_relaxed);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Holds back the jobs of lower priorities from now on, or no longer.
    void hold(bool holds) {
      if (holds == holds_) return;
      holds_ = holds;
      precedence_->holders_[priority_].fetch_add(holds ? 1 : -1, std::memory_order_relaxed);
    }
    bool holds() const { return holds_; }
    // Returns whether a job of a higher priority holds this one back.
    bool held_back() const { return any_above(precedence_->holders_); }
    // Returns whether there is a job of a higher priority. This one must leave the queues of the path short for it.
    bool yields() const { return any_above(precedence_->places_); }
    // Returns the window of this sender: `allowed`, or less if it is held back.
    uint32_t window(uint32_t allowed) const { return held_back() ? kHeldBackWindow : allowed; }

    // Called when results come for packets that this job sent before it was held back. Up to then they may be in the
    // queues of the path, in front of the packets of more urgent jobs.
    void drained(TimePoint now) {
      precedence_->drained_[priority_].store(now.time_since_epoch().count(), std::memory_order_relaxed);
    }
    // Returns the time of the last drained() of a job of lower priority.
    TimePoint others_drained() const {
      TimePoint::rep last = 0;
      for (unsigned priority = 0; priority < priority_; ++priority) {
        last = std::max(last, precedence_->drained_[priority].load(std::memory_order_relaxed));
      }
      return TimePoint(TimePoint::duration(last));
    }

   private:
    bool any_above(const std::array<std::atomic<int>, kPriorities>& counts) const {
      return std::any_of(counts.begin() + priority_ + 1, counts.end(),
                         [](const auto& count) { return count.load(std::memory_order_relaxed) > 0; });
    }

    std::shared_ptr<Precedence> precedence_;
    unsigned priority_;
    bool holds_ = false;
  };

 private:
  // By the priority of the senders: how many there are, how many of them hold others back, and when those that are held
  // back were last drained.
  std::array<std::atomic<int>, kPriorities> places_{};
  std::array<std::atomic<int>, kPriorities> holders_{};
  std::array<std::atomic<TimePoint::rep>, kPriorities> drained_{};
};

// The precedence of each tenant's jobs: tenants do not hold each other back. The caller makes calls one at a time.
class TenantPrecedences {
 public:
  std::shared_ptr<Precedence> of(uint64_t tenant) {
    auto& known = by_tenant_[tenant];
    std::shared_ptr<Precedence> found = known.lock();
    if (found == nullptr) {
      found = std::make_shared<Precedence>();
      known = found;
      forget_unused();
    }
    return found;
  }

 private:
  void forget_unused() {
    for (auto each = by_tenant_.begin(); each != by_tenant_.end();) {
      each = each->second.expired() ? by_tenant_.erase(each) : std::next(each);
    }
  }

  std::map<uint64_t, std::weak_ptr<Precedence>> by_tenant_;
};

}  // namespace switchml::runtime
