#include "native/runtime/poll_schedule.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace switchml::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kPatienceMs = 20'000;

class Schedule : public testing::Test {
 protected:
  PollSchedule::Clock::time_point now_ = PollSchedule::Clock::time_point() + std::chrono::hours(1);
};

TEST_F(Schedule, LooksOnForTenMicrosecondsAfterTraffic) {
  PollSchedule schedule(false);
  EXPECT_TRUE(schedule.may_sleep());
  EXPECT_TRUE(schedule.look_again(true, now_));
  EXPECT_TRUE(schedule.look_again(false, now_ + microseconds(9)));
  EXPECT_FALSE(schedule.look_again(false, now_ + microseconds(10)));
  EXPECT_TRUE(schedule.look_again(true, now_ + milliseconds(1)));
  EXPECT_TRUE(schedule.look_again(false, now_ + milliseconds(1) + microseconds(9)));
}

TEST_F(Schedule, BusyThreadLooksAtDescriptorsOnceIn256Looks) {
  PollSchedule schedule(true);
  EXPECT_FALSE(schedule.may_sleep());
  int waits = 0;
  for (int look = 0; look < 1024; ++look) waits += schedule.look_again(false, now_ + milliseconds(look)) ? 0 : 1;
  EXPECT_EQ(waits, 4);
}

TEST_F(Schedule, PauseEndsByItself) {
  PollSchedule schedule(false);
  schedule.look_again(true, now_);
  schedule.look_again(false, now_ + milliseconds(1));
  schedule.start_pause();
  pollfd polled{schedule.timer(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, kPatienceMs), 1);
  schedule.end_pause();
  EXPECT_EQ(poll(&polled, 1, 0), 0);
}

}  // namespace
}  // namespace switchml::runtime
