#include "native/runtime/worker.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <string>

namespace switchml::runtime {
namespace {

using std::chrono::seconds;

constexpr seconds kPatience{20};
constexpr std::chrono::milliseconds kWhile{20};  // the time during which something must not happen

// A worker whose thread counts its turns, and sleeps between them if it is told to.
class Counting : public testing::Test {
 protected:
  ~Counting() override { worker_.stop(); }

  void start(bool sleeps) {
    worker_.start([this, sleeps] {
      while (!worker_.stopping()) {
        {
          const Turns::Data turn = worker_.turn();
          count_ += 1;
        }
        if (!sleeps) continue;
        worker_.wake_event().prepare_sleep();
        pollfd polled{worker_.wake_event().fd(), POLLIN, 0};
        const bool woken = poll(&polled, 1, static_cast<int>(kPatience.count()) * 1000) == 1;
        worker_.wake_event().end_sleep(woken);
      }
    });
  }
  int count() {
    return worker_.control([this] { return count_; });
  }
  // Returns whether the count exceeds `than` in time.
  bool counts_above(int than) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (count() <= than) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  Worker worker_{"test-worker"};
  int count_ = 0;  // used in turns
};

TEST_F(Counting, ControlGetsInBesideAThreadUnderLoad) {
  start(false);
  for (int i = 0; i < 200; ++i) {
    worker_.control([this] { count_ = 0; });
    ASSERT_TRUE(counts_above(0));
  }
}

TEST_F(Counting, TurnsAndControlOperationsExcludeEachOther) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  const auto enter = [&] {
    const int now = ++inside;
    if (now > most) most = now;
    std::this_thread::yield();
    --inside;
  };
  worker_.start([&] {
    while (!worker_.stopping()) {
      const Turns::Data turn = worker_.turn();
      enter();
    }
  });
  for (int i = 0; i < 500; ++i) worker_.control(enter);
  worker_.stop();
  EXPECT_EQ(most, 1);
}

TEST_F(Counting, ControlAndWakeEndsASleep) {
  start(true);
  ASSERT_TRUE(counts_above(0));
  for (int i = 0; i < 50; ++i) {
    const int before = worker_.control_and_wake([this] { return count_; });
    ASSERT_TRUE(counts_above(before));
  }
}

TEST_F(Counting, OperationsThatThrowGiveTheTurnBack) {
  start(true);
  EXPECT_THROW(worker_.control([]() -> int { throw std::out_of_range("no rank"); }), std::out_of_range);
  const int before = count();
  EXPECT_THROW(worker_.control_and_wake([]() -> int { throw std::out_of_range("no rank"); }), std::out_of_range);
  EXPECT_TRUE(counts_above(before));
}

TEST_F(Counting, StoppedWorkerStartsAgain) {
  worker_.stop();
  start(true);
  start(true);  // no second thread
  ASSERT_TRUE(counts_above(0));
  worker_.stop();
  const int before = count();
  worker_.wake_event().wake();
  EXPECT_EQ(count(), before);
  start(true);
  EXPECT_TRUE(counts_above(before));
}

TEST_F(Counting, ThreadHasItsNameAndNoSignals) {
  std::promise<std::pair<std::string, bool>> seen;
  worker_.start([&] {
    std::array<char, 16> name{};
    // The name is set by the thread that starts this one.
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    do {
      pthread_getname_np(pthread_self(), name.data(), name.size());
    } while (name.data() != std::string("test-worker") && std::chrono::steady_clock::now() < deadline);
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    seen.set_value({name.data(), sigismember(&blocked, SIGTERM) == 1});
  });
  auto future = seen.get_future();
  ASSERT_EQ(future.wait_for(2 * kPatience), std::future_status::ready);
  EXPECT_EQ(future.get(), (std::pair<std::string, bool>{"test-worker", true}));
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
}

TEST(Turns, ControlWaitsForWorkOutsideOfTurns) {
  Turns turns;
  Turns::Outside outside;
  {
    const Turns::Data turn(&turns);
    outside = turns.work_outside();
  }
  auto control = std::async(std::launch::async, [&] { const Turns::Control turn(&turns); });
  EXPECT_EQ(control.wait_for(kWhile), std::future_status::timeout);
  outside.unlock();
  EXPECT_EQ(control.wait_for(kPatience), std::future_status::ready);
}

TEST(Turns, DataThreadsWorkOutsideAtOneTime) {
  Turns turns;
  Turns::Outside outside;
  {
    const Turns::Data turn(&turns);
    outside = turns.work_outside();
  }
  auto other = std::async(std::launch::async, [&] {
    const Turns::Data turn(&turns);
    const Turns::Outside as_well = turns.work_outside();
  });
  EXPECT_EQ(other.wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace switchml::runtime
