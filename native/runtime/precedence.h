// The order of jobs that share a path: as long as an urgent one has contributions in flight, others send next to
// nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace switchml::runtime {

// The jobs of one tenant at one agent or soft switch. Any thread may use it.
class Precedence {
 public:
  static constexpr unsigned kPriorities = 8;  // the highest is the most urgent
  // The window of a job that is held back, in stream positions. With this one it continues slowly, so that it holds up
  // no rank forever and learns of the end of the hold by its own results.
  static constexpr uint32_t kHeldBackWindow = 1;

  // A sender of a job of a certain priority.
  class Place {
   public:
    Place(std::shared_ptr<Precedence> precedence, unsigned priority)
        : precedence_(std::move(precedence)), priority_(priority) {}
    ~Place() { hold(false); }
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
    bool held_back() const {
      for (unsigned priority = priority_ + 1; priority < kPriorities; ++priority) {
        if (precedence_->holders_[priority].load(std::memory_order_relaxed) > 0) return true;
      }
      return false;
    }
    // Returns the window of this sender: `allowed`, or less if it is held back.
    uint32_t window(uint32_t allowed) const { return held_back() ? kHeldBackWindow : allowed; }

   private:
    std::shared_ptr<Precedence> precedence_;
    unsigned priority_;
    bool holds_ = false;
  };

 private:
  std::array<std::atomic<int>, kPriorities> holders_{};  // senders that hold others back, by their priority
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
