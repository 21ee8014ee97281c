#include "switchml/benchmarks/native/memory_traffic.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "native/kernels/accumulate.h"
#include "switchml/benchmarks/native/aligned_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kVector = 64;  // bytes of the widest vector

// Adds up the two halves of a buffer, which reads and writes all of it, as the switch does for its results.
void rewrite(const AlignedMemory<uint8_t>& memory, size_t bytes) {
  const size_t half = bytes / 2 / kVector * kVector;
  const std::array<uint8_t*, 2> halves{memory.get(), memory.get() + half};
  kernels::sum_buffers({halves.data(), halves.size(), halves.size()}, half / sizeof(uint32_t));
}

#if defined(__x86_64__)
// Doubles all words of a buffer with stores that bypass the caches.
void rewrite_past_caches(const AlignedMemory<uint8_t>& memory, size_t bytes) {
  // NOLINTBEGIN(portability-simd-intrinsics)
  auto* const vectors = reinterpret_cast<__m128i*>(memory.get());
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i) {
    const __m128i words = _mm_load_si128(vectors + i);
    _mm_stream_si128(vectors + i, _mm_add_epi32(words, words));
  }
  _mm_sfence();
  // NOLINTEND(portability-simd-intrinsics)
}
#else
void rewrite_past_caches(const AlignedMemory<uint8_t>& memory, size_t bytes) { rewrite(memory, bytes); }
#endif

void in_threads(const std::vector<AlignedMemory<uint8_t>>& buffers, size_t bytes, bool past_caches) {
  std::vector<std::thread> threads;
  threads.reserve(buffers.size());
  for (const auto& own : buffers)
    threads.emplace_back(past_caches ? rewrite_past_caches : rewrite, std::cref(own), bytes);
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
  bool past_caches = false;
  do {
    past_caches = !past_caches;
    const auto begin = Clock::now();
    in_threads(buffers, bytes, past_caches);
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    fastest = std::max(fastest, 2.0 * static_cast<double>(threads) * static_cast<double>(bytes) / elapsed);
  } while (Clock::now() < end);
  return fastest;
}

}  // namespace switchml::benchmarks
