// What the progress thread does with its time, and with that of each call.
#pragma once

#include "native/channel/channel.h"
#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"
#include "switchml/native/call.h"

namespace switchml::client {

// The thread is in one state at any time. The clock is read where the state changes, not for each chunk. One thread
// uses it.
class ThreadTime {
 public:
  using State = channel::ThreadState;

  explicit ThreadTime(channel::ChannelControl* control) : control_(control) {}

  void enter(State state) {
    if (state != state_) restart(state);
  }
  // The same, but what was found is new even if the state is not.
  void restart(State state) { settle(state); }

  void begun(Call* call) const {
    call->times.begun = since_;
    call->times.quantize = total(control_->process.quantize);
    call->times.waiting = total(control_->process.waiting);
    call->times.dequantize = total(control_->process.dequantize);
  }
  void answered(Call* call) const { call->times.answered = since_; }
  // Of one or more calls; all of them end now.
  template <class Calls>
  void ended(const Calls& calls) {
    settle(state_);
    for (const auto& call : calls) {
      channel::CallTimes times = call->times;
      times.sequence = call->sequence;
      times.ended = since_;
      times.quantize = total(control_->process.quantize) - times.quantize;
      times.waiting = total(control_->process.waiting) - times.waiting;
      times.dequantize = total(control_->process.dequantize) - times.dequantize;
      control_->calls.note(times);
    }
  }

 private:
  // Counts the time in the present state, and goes on in `next`.
  void settle(State next) {
    channel::ProcessCounters& shared = control_->process;
    const uint64_t now = runtime::monotonic_nanoseconds();
    shared.since.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    if (std::atomic<uint64_t>* counter = counter_of(state_)) {
      counter->store(total(*counter) + (now - since_), std::memory_order_relaxed);
    }
    shared.state.store(static_cast<uint64_t>(next), std::memory_order_relaxed);
    shared.since.store(now, std::memory_order_release);
    state_ = next;
    since_ = now;
  }
  std::atomic<uint64_t>* counter_of(State state) const {
    switch (state) {
      case State::quantize:
        return &control_->process.quantize;
      case State::waiting:
        return &control_->process.waiting;
      case State::dequantize:
        return &control_->process.dequantize;
      case State::idle:
        break;
    }
    return nullptr;
  }
  static uint64_t total(const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); }

  channel::ChannelControl* control_;
  State state_ = State::idle;
  uint64_t since_ = runtime::monotonic_nanoseconds();
};

}  // namespace switchml::client
