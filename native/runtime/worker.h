// A thread that serves a state of its own, and the one way in for everybody else.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "native/runtime/turns.h"
#include "native/runtime/wake_event.h"

namespace switchml::runtime {

// The thread touches the state in its turns only, one after another, and sleeps between two of them. A control
// operation runs between two turns, in the caller's thread. start() and stop() are for one thread at a time; everything
// else is for any thread.
class Worker {
 public:
  // `name` has at most 15 characters. Workers that serve one state together share `turns`, which outlive them; without
  // them the worker has its own. Throws std::system_error.
  explicit Worker(std::string name, Turns* turns = nullptr)
      : name_(std::move(name)), turns_(turns == nullptr ? &own_turns_ : turns) {}
  // `body` uses members of its owner, so the owner stops its worker before those go away.
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Calls `body` in a new thread, which returns soon after stopping() has become true. No effect while one runs.
  void start(std::function<void()> body);
  // Ends the thread and waits for it; no effect without one.
  void stop();
  // For the body: whether to return.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  // For the body: its next turn, which lasts as long as the result lives.
  Turns::Data turn() { return Turns::Data(turns_); }
  // Runs `operation` between two turns and returns what it returns.
  template <class Operation>
  auto control(Operation&& operation) {
    const Turns::Control turn(turns_);
    return operation();
  }
  // The same for an operation that changes what the thread must look at: wakes it afterwards.
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
