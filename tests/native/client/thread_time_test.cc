// The times of calls, as the process records them and the agent reads them.
#include "switchml/native/thread_time.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "native/runtime/stopwatch.h"

namespace switchml::client {
namespace {

TEST(ThreadTime, ACallThatIsSubmittedWhileTheThreadWorksOnAnotherIsBelieved) {
  const auto control = std::make_unique<channel::ChannelControl>();
  ThreadTime time(control.get());
  time.enter(ThreadTime::State::quantize);
  const uint64_t entered = runtime::monotonic_nanoseconds();
  const auto call = std::make_shared<Call>();
  while (call->times.submitted <= entered) call->times.submitted = runtime::monotonic_nanoseconds();
  time.begun(call.get());
  time.enter(ThreadTime::State::wait);
  time.enter(ThreadTime::State::dequantize);
  time.answered(call.get());
  time.ended(std::vector{call});

  const std::vector<channel::CallTimes> found = control->calls.latest(1, runtime::monotonic_nanoseconds());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_GE(found[0].begun, found[0].submitted);
  EXPECT_EQ(found[0].quantize_ns + found[0].wait_ns + found[0].dequantize_ns, found[0].ended - found[0].begun);
}

}  // namespace
}  // namespace switchml::client
