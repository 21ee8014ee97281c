// How other threads wake one that sleeps in poll(2) or epoll_wait(2).
#pragma once

#include <atomic>

namespace switchml::runtime {

// One thread, the owner, sleeps; every thread may wake it.
class WakeEvent {
 public:
  // Throws std::system_error when the kernel gives no event descriptor.
  WakeEvent();
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  // Wakes the owner unconditionally: an owner that is awake returns at once from its next sleep.
  void wake() const;
  // Wakes the owner only if it is asleep: for work that an owner awake finds by itself.
  void nudge() const;

  // What follows is the owner's. Readable once somebody has woken it.
  int fd() const { return fd_; }
  // Announces that the owner is about to sleep, so that nudge() wakes it from now on. Work that was left before is not
  // announced: look for it after this call, and sleep only if there is none.
  void prepare_sleep();
  // Ends what prepare_sleep() began. `woken`: fd() is readable, and becomes unreadable.
  void end_sleep(bool woken);

 private:
  int fd_;
  std::atomic<bool> sleeping_{false};
};

}  // namespace switchml::runtime
