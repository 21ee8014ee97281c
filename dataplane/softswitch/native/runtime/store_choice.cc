#include "dataplane/softswitch/native/runtime/store_choice.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "native/kernels/accumulate.h"
#include "native/runtime/cpus.h"

namespace switchml::soft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = size_t{1} << 20U;  // a rank's pool of contributions
constexpr int kRounds = 12;                  // for each kind of store
constexpr std::chrono::milliseconds kLongest{200};
constexpr size_t kAlignment = 64;

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }  // NOLINT: of aligned_alloc
};
using Memory = std::unique_ptr<uint8_t, Free>;

Memory make_memory() {
  Memory memory(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBytes)));
  std::fill_n(memory.get(), kBytes, uint8_t{1});
  return memory;
}

// Measures two threads that rewrite the same memory in turns, as a rank and the switch do.
class Trial {
 public:
  Trial() : passed_(make_memory()), end_(Clock::now() + kLongest) {}

  // Returns the shortest time of a round with ordinary stores, and with stores that bypass the caches.
  std::array<Clock::duration, 2> run(int writer, int reader) {
    std::thread other([this, reader] {
      runtime::stay_on({reader});
      for (int round = 0; round < 2 * kRounds && wait_for(2 * round + 1); ++round) {
        rewrite(round % 2 == 1);
        turn_.store(2 * round + 2, std::memory_order_release);
      }
    });
    std::thread timed([this, writer] {
      runtime::stay_on({writer});
      for (int round = 0; round < 2 * kRounds; ++round) {
        const bool streaming = round % 2 == 1;
        const auto begin = Clock::now();
        rewrite(streaming);
        turn_.store(2 * round + 1, std::memory_order_release);
        if (!wait_for(2 * round + 2)) return;
        best_[streaming ? 1 : 0] = std::min(best_[streaming ? 1 : 0], Clock::now() - begin);
      }
    });
    other.join();
    timed.join();
    return best_;
  }

 private:
  // Adds up the two halves of the memory, which reads and writes all of it.
  void rewrite(bool streaming) const {
    const std::array<uint8_t*, 2> halves{passed_.get(), passed_.get() + kBytes / 2};
    kernels::sum_buffers({halves.data(), halves.size(), halves.size()}, kBytes / 2 / sizeof(uint32_t), streaming);
    kernels::fence_streaming_stores();
  }

  bool wait_for(int turn) const {
    while (turn_.load(std::memory_order_acquire) < turn) {
      if (Clock::now() > end_) return false;
      std::this_thread::yield();
    }
    return true;
  }

  Memory passed_;
  Clock::time_point end_;
  std::atomic<int> turn_{0};
  std::array<Clock::duration, 2> best_{Clock::duration::max(), Clock::duration::max()};
};

}  // namespace

bool streaming_is_faster() {
  const std::vector<int> cpus = runtime::cpus();
  if (cpus.size() < 2) return false;
  const auto best = Trial().run(cpus.front(), cpus.back());
  return best[1] < best[0];
}

}  // namespace switchml::soft
