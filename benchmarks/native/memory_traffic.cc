#include "benchmarks/native/memory_traffic.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "benchmarks/native/aligned_memory.h"
#include "native/kernels/accumulate.h"

namespace switchml::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kVector = 64;  // bytes of the widest vector

// Adds up the two halves of a buffer, which reads and writes all of it, with the stores that the switch uses for its
// results.
void rewrite(const AlignedMemory<uint8_t>& memory, size_t bytes, bool streaming) {
  const size_t half = bytes / 2 / kVector * kVector;
  const std::array<uint8_t*, 2> halves{memory.get(), memory.get() + half};
  kernels::sum_buffers({halves.data(), halves.size(), halves.size()}, half / sizeof(uint32_t), streaming);
  kernels::fence_streaming_stores();
}

void in_threads(const std::vector<AlignedMemory<uint8_t>>& buffers, size_t bytes, bool streaming) {
  std::vector<std::thread> threads;
  threads.reserve(buffers.size());
  for (const auto& own : buffers) threads.emplace_back([&own, bytes, streaming] { rewrite(own, bytes, streaming); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

double memory_traffic(unsigned threads, size_t bytes, double seconds) {
  std::vector<AlignedMemory<uint8_t>> buffers(threads);
  for (auto& own : buffers) {
    own = make_aligned_memory<uint8_t>(bytes);
    std::fill_n(own.get(), bytes, uint8_t{1});
  }
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  double fastest = 0;
  bool streaming = false;
  do {
    streaming = !streaming;
    const auto begin = Clock::now();
    in_threads(buffers, bytes, streaming);
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    fastest = std::max(fastest, 2.0 * static_cast<double>(threads) * static_cast<double>(bytes) / elapsed);
  } while (Clock::now() < end);
  return fastest;
}

}  // namespace switchml::benchmarks
