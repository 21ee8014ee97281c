#include "native/runtime/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace switchml::runtime {
namespace {

constexpr int kPatienceMs = 20'000;

bool readable(const WakeEvent& event, int timeout_ms = 0) {
  pollfd polled{event.fd(), POLLIN, 0};
  return poll(&polled, 1, timeout_ms) == 1;
}

class MailboxOfOwner : public testing::Test {
 protected:
  WakeEvent owner_;
  Mailbox<int> box_{&owner_};
};

TEST_F(MailboxOfOwner, MessagesAreTakenOnceInOrder) {
  EXPECT_TRUE(box_.empty());
  for (int number = 0; number < 3; ++number) box_.put(number);
  EXPECT_FALSE(box_.empty());
  EXPECT_EQ(box_.take(), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(box_.empty());
  EXPECT_TRUE(box_.take().empty());
}

TEST_F(MailboxOfOwner, MessagesBeyondItsCapacityAreLost) {
  constexpr auto kCapacity = static_cast<int>(Mailbox<int>::kCapacity);
  for (int number = 0; number < kCapacity + 10; ++number) box_.put(number);
  std::vector<int> kept(kCapacity);
  std::iota(kept.begin(), kept.end(), 0);
  EXPECT_EQ(box_.take(), kept);
  box_.put(7);
  EXPECT_EQ(box_.take(), std::vector<int>{7});
}

TEST_F(MailboxOfOwner, OwnerThatIsAwakeIsNotWoken) {
  box_.put(1);
  EXPECT_FALSE(readable(owner_));
}

TEST_F(MailboxOfOwner, MessageWakesAnOwnerThatSleeps) {
  owner_.prepare_sleep();
  EXPECT_FALSE(readable(owner_));
  box_.put(1);
  EXPECT_TRUE(readable(owner_));
}

TEST_F(MailboxOfOwner, MessagesMayBeMovedOnly) {
  Mailbox<std::unique_ptr<int>> box(&owner_);
  box.put(std::make_unique<int>(5));
  EXPECT_EQ(*box.take().at(0), 5);
}

TEST(WakeEvent, WakeReachesAnOwnerThatIsAwake) {
  WakeEvent event;
  event.wake();
  EXPECT_TRUE(readable(event));
}

TEST(WakeEvent, NudgeIsForSleepersOnly) {
  WakeEvent event;
  event.nudge();
  EXPECT_FALSE(readable(event));
  event.prepare_sleep();
  event.nudge();
  EXPECT_TRUE(readable(event));
}

TEST(WakeEvent, NextSleepIsNotEndedByTheLastWaking) {
  WakeEvent event;
  event.prepare_sleep();
  event.nudge();
  event.nudge();
  ASSERT_TRUE(readable(event));
  event.end_sleep(true);
  EXPECT_FALSE(readable(event));
  event.nudge();
  EXPECT_FALSE(readable(event));
}

TEST(WakeEvent, WakingThatWasNotSeenEndsTheNextSleep) {
  WakeEvent event;
  event.prepare_sleep();
  event.nudge();
  event.end_sleep(false);
  event.prepare_sleep();
  EXPECT_TRUE(readable(event));
}

// Each sender waits until its message was taken, and the owner sleeps whenever it may: a lost wake-up leaves
// all of them waiting.
TEST_F(MailboxOfOwner, NoWakingIsLostBetweenThreads) {
  constexpr int kSenders = 2;
  constexpr int kEach = 2000;
  std::mutex mutex;
  std::condition_variable changed;
  std::array<int, kSenders> taken{};  // guarded by mutex
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back([&, sender] {
      for (int sent = 1; sent <= kEach; ++sent) {
        box_.put(sender);
        std::unique_lock<std::mutex> lock(mutex);
        const auto is_taken = [&] { return taken[sender] >= sent; };
        if (!changed.wait_for(lock, std::chrono::milliseconds(kPatienceMs), is_taken)) return;
      }
    });
  }
  int left = kSenders * kEach;
  bool overslept = false;
  while (left > 0 && !overslept) {
    for (const int sender : box_.take()) {
      const std::lock_guard<std::mutex> lock(mutex);
      taken[sender] += 1;
      left -= 1;
    }
    changed.notify_all();
    if (left == 0) break;
    owner_.prepare_sleep();
    const bool sleeps = box_.empty();
    const bool woken = readable(owner_, sleeps ? kPatienceMs : 0);
    overslept = sleeps && !woken;
    owner_.end_sleep(woken);
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_FALSE(overslept);
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace switchml::runtime
