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
  if (always_due_ == nullptr) start();
  if (!await_pause(&lock)) {
    throw std::system_error(ETIMEDOUT, std::generic_category(), "DPDK's interrupt thread does not answer");
  }
  devices_.push_back(device);
}

void InterruptThread::remove(QueueLocks* device) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) return;
  await_pause(&lock);
  devices_.erase(std::find(devices_.begin(), devices_.end(), device));
}

void InterruptThread::start() {
  const int due = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);  // is never read, so that it stays readable
  if (due < 0) throw std::system_error(errno, std::generic_category(), "cannot create an event for DPDK");
  rte_intr_handle* event = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  const auto handler = [](void* thread) { static_cast<InterruptThread*>(thread)->pause(); };
  if (event == nullptr || rte_intr_fd_set(event, due) != 0 || rte_intr_type_set(event, RTE_INTR_HANDLE_EXT) != 0 ||
      rte_intr_callback_register(event, handler, this) != 0) {
    rte_intr_instance_free(event);
    ::close(due);
    throw std::system_error(ENOMEM, std::generic_category(), "DPDK accepts no handler of interrupts");
  }
  always_due_ = event;
}

bool InterruptThread::await_pause(std::unique_lock<std::mutex>* lock) {
  return paused_.wait_for(*lock, kAnswers, [this] { return !drivers_turn_; });
}

void InterruptThread::pause() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (QueueLocks* device : devices_) device->unlock();
  drivers_turn_ = false;
  paused_.notify_all();
  paused_.wait_for(lock, kBetweenTurns);
  for (QueueLocks* device : devices_) device->lock();
  drivers_turn_ = true;
}

}  // namespace switchml::net
