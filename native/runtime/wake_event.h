// An event through which other threads wake one that sleeps in poll(2) or epoll_wait(2).
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
  // Wakes the owner only if it is asleep: for work that it finds by itself when it is awake.
  void nudge() const;

  // The members below are for the owner. Its descriptor is readable once another thread has woken it.
  int fd() const { return fd_; }
  // Announces that the owner is about to sleep, so that nudge() wakes it from now on. Work that arrived before this
  // call does not wake it: look for work after this call, and do not sleep if there is any.
  void prepare_sleep();
  // Ends the sleep that prepare_sleep() announced. With `woken`, fd() is readable and is read.
  void end_sleep(bool woken);

 private:
  int fd_;
  std::atomic<bool> sleeping_{false};
};

}  // namespace switchml::runtime
