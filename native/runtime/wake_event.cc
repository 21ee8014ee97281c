#include "native/runtime/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace switchml::runtime {

WakeEvent::WakeEvent() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open an eventfd");
}

WakeEvent::~WakeEvent() { close(fd_); }

void WakeEvent::wake() const {
  const uint64_t one = 1;
  // Fails only if the counter is full, and then fd_ is readable already.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

// The owner announces its sleep before it looks for work. So either this call sees that the owner sleeps, or the owner
// sees the work.
void WakeEvent::nudge() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_relaxed)) wake();
}

void WakeEvent::prepare_sleep() {
  sleeping_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void WakeEvent::end_sleep(bool woken) {
  sleeping_.store(false, std::memory_order_relaxed);
  if (!woken) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof count);
}

}  // namespace switchml::runtime
