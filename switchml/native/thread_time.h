// Measures the time that the threads that move the values spend in each state, in total and during each call.
#pragma once

#include "native/channel/channel.h"
#include "native/channel/thread_states.h"
#include "native/runtime/stopwatch.h"
#include "switchml/native/call.h"

namespace switchml::client {

// The thread is in one state at any time. The clock is read when the state changes, not for each chunk. One thread at a
// time uses this object.
class ThreadTime {
 public:
  using State = channel::ThreadState;

  explicit ThreadTime(channel::ChannelControl* control) : control_(control) {}

  void enter(State state) {
    if (state != state_) restart(state);
  }
  // Enters a state, and reads the clock even if the thread is in it already.
  void restart(State state) { settle(state); }

  void begun(Call* call) {
    // Since the thread entered its state, another one may have submitted the call, which cannot have begun before that.
    if (since_ < call->times.submitted) settle(state_);
    call->times.begun = since_;
    call->times.quantize_ns = total(control_->process.quantize_ns);
    call->times.wait_ns = total(control_->process.wait_ns);
    call->times.dequantize_ns = total(control_->process.dequantize_ns);
  }
  void answered(Call* call) const { call->times.answered = since_; }
  // Records the times of calls that end now.
  template <class Calls>
  void ended(const Calls& calls) {
    settle(state_);
    for (const auto& call : calls) {
      channel::CallTimes times = call->times;
      times.sequence = call->sequence;
      times.ended = since_;
      times.quantize_ns = total(control_->process.quantize_ns) - times.quantize_ns;
      times.wait_ns = total(control_->process.wait_ns) - times.wait_ns;
      times.dequantize_ns = total(control_->process.dequantize_ns) - times.dequantize_ns;
      control_->calls.note(times);
    }
  }

 private:
  // Adds the elapsed time to the current state, and enters `next`.
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
        return &control_->process.quantize_ns;
      case State::wait:
        return &control_->process.wait_ns;
      case State::dequantize:
        return &control_->process.dequantize_ns;
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
