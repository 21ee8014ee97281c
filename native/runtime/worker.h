// A thread that owns a state, and the interface through which other threads use that state.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "native/runtime/turns.h"
#include "native/runtime/wake_event.h"

namespace switchml::runtime {

// The thread touches the state only during its turns, and sleeps between them. A control operation runs between two
// turns, in the caller's thread. start() and stop() may be called by one thread at a time, everything else by any
// thread.
class Worker {
 public:
  // `name` has at most 15 characters. Workers that share a state also share `turns`, which must outlive them; if it is
  // null, the worker has its own. Throws std::system_error.
  explicit Worker(std::string name, Turns* turns = nullptr)
      : name_(std::move(name)), turns_(turns == nullptr ? &own_turns_ : turns) {}
  // `body` uses members of its owner, so the owner must stop its worker before it destroys them.
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Calls `body` in a new thread; `body` must return soon after stopping() becomes true. No effect while a thread runs.
  void start(std::function<void()> body);
  // Ends the thread and waits for it; no effect if it does not run.
  void stop();
  // For the body: returns whether it must return.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  // For the body: waits for its next turn, which lasts as long as the result exists.
  Turns::Data turn() { return Turns::Data(turns_); }
  // Runs `operation` between two turns and returns what it returns.
  template <class Operation>
  auto control(Operation&& operation) {
    const Turns::Control turn(turns_);
    return operation();
  }
  // Does the same, and then wakes the thread, for an operation that gives it something to do.
  template <class Operation>
  auto control_and_wake(Operation&& operation) {
    const WakeAtEnd wakes{wake_event_};
    return control(operation);
  }

  Turns& turns() { return *turns_; }
  WakeEvent& wake_event() { return wake_event_; }

 private:
  struct WakeAtEnd {
    const WakeEvent& event;
    ~WakeAtEnd() { event.wake(); }
  };

  std::string name_;
  Turns own_turns_;
  Turns* turns_;
  WakeEvent wake_event_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchml::runtime
