#include "switchml/benchmarks/native/cache_line.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace switchml::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRoundTrips = 1000;  // per batch, which then takes 0.1 to 0.5 ms

struct Lines {
  alignas(128) std::atomic<int> request{0};
  alignas(128) std::atomic<int> answer{0};
  alignas(128) std::atomic<bool> over{false};
};

bool stay_on(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  return sched_setaffinity(0, sizeof only, &only) == 0;
}

// Answers until the other thread has finished. If this thread fails, it ends the other one, too.
void answer_requests(Lines& lines, int cpu) {
  if (!stay_on(cpu)) {
    lines.over = true;
    return;
  }
  for (int next = 1; !lines.over.load(std::memory_order_relaxed);) {
    if (lines.request.load(std::memory_order_acquire) == next) {
      lines.answer.store(next, std::memory_order_release);
      ++next;
    }
  }
}

bool make_round_trip(Lines& lines, int number) {
  lines.request.store(number, std::memory_order_release);
  while (lines.answer.load(std::memory_order_acquire) != number) {
    if (lines.over.load(std::memory_order_relaxed)) return false;
  }
  return true;
}

// Runs in a separate thread that is pinned to a CPU, so that the affinity of the caller's thread stays as it is.
void measure(Lines& lines, int cpu, int batches, Clock::time_point end, std::vector<double>& seconds) {
  int number = 0;
  if (stay_on(cpu)) {
    for (int batch = 0; batch < batches && Clock::now() < end; ++batch) {
      const auto begin = Clock::now();
      for (int i = 0; i < kRoundTrips; ++i) {
        if (!make_round_trip(lines, ++number)) return;
      }
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kRoundTrips);
    }
  }
  lines.over = true;
}

}  // namespace

std::pair<int, int> two_cpus() {
  cpu_set_t allowed;
  int first = -1;
  int last = -1;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      if (first < 0) first = cpu;
      last = cpu;
    }
  }
  return first == last ? std::pair{-1, -1} : std::pair{first, last};
}

std::vector<double> cache_line_round_trips(int first, int second, int batches, double limit) {
  Lines lines;
  std::vector<double> seconds;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
  std::thread other([&] { answer_requests(lines, second); });
  std::thread timer([&] { measure(lines, first, batches, end, seconds); });
  timer.join();
  other.join();
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace switchml::benchmarks
