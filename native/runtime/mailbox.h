// Messages from any thread to one worker.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "native/runtime/wake_event.h"

namespace switchml::runtime {

template <class Message>
class Mailbox {
 public:
  static constexpr size_t kCapacity = 4096;

  // `owner` wakes the thread that takes the messages; it must outlive the mailbox.
  explicit Mailbox(const WakeEvent* owner) : owner_(owner) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Called from any thread. A full mailbox drops the message, like a socket whose buffer is full.
  void put(Message message) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (messages_.size() >= kCapacity) return;
      messages_.push_back(std::move(message));
    }
    owner_->nudge();
  }

  // Removes all messages and returns them in the order in which they came.
  std::vector<Message> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(messages_, {});
  }

  bool empty() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return messages_.empty();
  }

 private:
  const WakeEvent* owner_;
  mutable std::mutex mutex_;
  std::vector<Message> messages_;  // guarded by mutex_
};

}  // namespace switchml::runtime
