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

  // `owner` belongs to the thread that takes the messages, and outlives the mailbox.
  explicit Mailbox(const WakeEvent* owner) : owner_(owner) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread. A full mailbox loses the message, as a socket does whose buffer is full.
  void put(Message message) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (messages_.size() >= kCapacity) return;
      messages_.push_back(std::move(message));
    }
    owner_->nudge();
  }

  // Returns the messages in the order in which they came, and leaves none.
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
