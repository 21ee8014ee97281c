#include "native/net/dpdk/interrupt_thread.h"

#include <rte_interrupts.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace switchml::net {

InterruptThread& InterruptThread::of_process() {
  static auto& thread = *new InterruptThread;
  return thread;
}

void InterruptThread::add(QueueLocks* device) {
  std::unique_lock<std::mutex> lock(mutex_);
  devices_.push_back(device);  // at once, because pauses end when there is no device
  try {
    await_pause(&lock);
  } catch (...) {
    forget(device);
    throw;
  }
}

void InterruptThread::remove(QueueLocks* device) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) return;
  changed_.wait_for(lock, kAnswers, [this] { return state_ == State::paused; });
  forget(device);
  changed_.wait_for(lock, kAnswers, [this] { return state_ == State::unhindered || !devices_.empty(); });
}

void InterruptThread::await_pause(std::unique_lock<std::mutex>* lock) {
  const auto give_up = std::chrono::steady_clock::now() + kAnswers;
  while (state_ != State::paused) {
    if (state_ == State::unhindered) begin_pauses();
    if (!changed_.wait_until(*lock, give_up, [this] { return state_ != State::drivers_turn; })) {
      throw std::system_error(ETIMEDOUT, std::generic_category(), "DPDK's interrupt thread does not answer");
    }
  }
}

// `locked_` has it only if the thread did not answer.
void InterruptThread::forget(const QueueLocks* device) {
  for (auto* list : {&devices_, &locked_}) list->erase(std::remove(list->begin(), list->end(), device), list->end());
}

void InterruptThread::begin_pauses() {
  const int due = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);  // is never read, so that it stays readable
  if (due < 0) throw std::system_error(errno, std::generic_category(), "cannot create an event for DPDK");
  rte_intr_handle* event = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  if (event == nullptr || rte_intr_fd_set(event, due) != 0 || rte_intr_type_set(event, RTE_INTR_HANDLE_EXT) != 0 ||
      rte_intr_callback_register(event, handle, this) != 0) {
    rte_intr_instance_free(event);
    ::close(due);
    throw std::system_error(ENOMEM, std::generic_category(), "DPDK accepts no handler of interrupts");
  }
  always_due_ = event;
  state_ = State::drivers_turn;
}

void InterruptThread::handle(void* self) { static_cast<InterruptThread*>(self)->pause(); }

void InterruptThread::pause() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (QueueLocks* device : locked_) device->unlock();
  locked_.clear();
  state_ = State::paused;
  changed_.notify_all();
  changed_.wait_for(lock, kBetweenTurns);
  state_ = State::drivers_turn;
  if (devices_.empty()) {
    end_pauses();
    return;
  }
  locked_ = devices_;
  for (QueueLocks* device : locked_) device->lock();
}

// Only a handler that runs can be removed without waiting; DPDK removes it, and its copy of the event, at its end.
void InterruptThread::end_pauses() {
  const auto end = [](rte_intr_handle* /*copy*/, void* self) { static_cast<InterruptThread*>(self)->ended(); };
  rte_intr_callback_unregister_pending(always_due_, handle, this, end);
}

void InterruptThread::ended() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ::close(rte_intr_fd_get(always_due_));
  rte_intr_instance_free(always_due_);
  always_due_ = nullptr;
  state_ = State::unhindered;
  changed_.notify_all();
}

}  // namespace switchml::net
