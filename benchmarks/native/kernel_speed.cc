#include "benchmarks/native/kernel_speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "benchmarks/native/aligned_memory.h"
#include "dataplane/native/constants.h"
#include "dataplane/softswitch/native/accumulate.h"

namespace switchml::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBlock = protocol::max_values;
constexpr int kShift = 28;                        // of values below 1, eight of which are summed
constexpr size_t kBatchBytes = size_t{1} << 20U;  // are passed over between two looks at the clock
constexpr size_t kFewestPasses = 3;

// A tensor and its words: one block of each is what a kernel gets.
struct Block {
  float* values;
  const float* next;
  uint8_t* words;
};

using Kernel = uint32_t (*)(const Block& block);

struct Entry {
  const char* name;
  bool chooses_instructions;
  Kernel run;
};

uint32_t add(const Block& block) {
  add_big_endian(block.words, reinterpret_cast<const uint8_t*>(block.values), kBlock);
  return 0;
}

// Eight workers' contributions, which in the switch are in the caches already: here they are one.
uint32_t sum_of_eight(const Block& block) {
  std::array<const uint8_t*, 8> sources;
  sources.fill(reinterpret_cast<const uint8_t*>(block.values));
  sum_big_endian(sources.data(), sources.size(), block.words, kBlock, false);
  return 0;
}

namespace k = kernels;

// A row for every kernel; a test compares it with what switchml._native offers.
constexpr std::array kKernels{
    Entry{"block_exponent", true,
          [](const Block& block) -> uint32_t { return k::block_exponent(block.values, kBlock); }},
    Entry{"quantize", true,
          [](const Block& block) { return k::quantize(block.values, kBlock, kShift, block.words, false, block.next); }},
    Entry{"quantize, streaming", true,
          [](const Block& block) { return k::quantize(block.values, kBlock, kShift, block.words, true, block.next); }},
    Entry{"dequantize", true,
          [](const Block& block) { return k::dequantize(block.words, kBlock, kShift, 1.0F, block.values); }},
    Entry{"pack", true,
          [](const Block& block) {
            return k::pack(reinterpret_cast<const uint8_t*>(block.values), kBlock, block.words);
          }},
    Entry{"unpack", true,
          [](const Block& block) { return k::unpack(block.words, kBlock, reinterpret_cast<uint8_t*>(block.values)); }},
    Entry{"weigh", true, [](const Block& block) { return k::weigh(block.words, 0, kBlock); }},
    Entry{"add", false, &add},
    Entry{"sum of 8", false, &sum_of_eight},
};

const Entry& find(const std::string& name) {
  const auto* found =
      std::find_if(kKernels.begin(), kKernels.end(), [&](const Entry& entry) { return name == entry.name; });
  if (found == kKernels.end()) throw std::invalid_argument("there is no kernel " + name);
  return *found;
}

class Pass {
 public:
  explicit Pass(size_t blocks)
      : blocks_(blocks),
        values_(make_aligned_memory<float>((blocks + 1) * kBlock)),
        words_(make_aligned_memory<uint8_t>(blocks * kBlock * sizeof(uint32_t))) {
    for (size_t i = 0; i < (blocks + 1) * kBlock; ++i) values_[i] = static_cast<float>(i % 1000) / 1000.0F;
    std::fill_n(words_.get(), blocks * kBlock * sizeof(uint32_t), uint8_t{1});
  }

  uint32_t run(Kernel kernel) {
    uint32_t result = 0;
    for (size_t block = 0; block < blocks_; ++block) {
      float* values = values_.get() + block * kBlock;
      result += kernel({values, values + kBlock, words_.get() + block * kBlock * sizeof(uint32_t)});
    }
    return result;
  }

 private:
  size_t blocks_;
  AlignedMemory<float> values_;
  AlignedMemory<uint8_t> words_;
};

}  // namespace

std::vector<KernelName> kernel_names() {
  std::vector<KernelName> names;
  names.reserve(kKernels.size());
  for (const Entry& entry : kKernels) names.push_back({entry.name, entry.chooses_instructions});
  return names;
}

std::vector<double> time_kernel(const std::string& name, kernels::Instructions instructions, size_t bytes,
                                double seconds) {
  const Entry& entry = find(name);
  const size_t blocks = bytes / (kBlock * sizeof(float));
  if (blocks == 0) throw std::invalid_argument("a kernel is timed over one block at least, of 8192 bytes");
  k::use_instructions(instructions);
  Pass pass(blocks);
  const size_t batch = std::max<size_t>(1, kBatchBytes / bytes);
  std::vector<double> times;
  volatile uint32_t result = pass.run(entry.run);  // the work must not be optimized away
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (times.size() < kFewestPasses || Clock::now() < end) {
    const auto begin = Clock::now();
    for (size_t i = 0; i < batch; ++i) result = pass.run(entry.run);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(batch));
  }
  static_cast<void>(result);
  k::use_instructions(k::best_instructions());
  return times;
}

}  // namespace switchml::benchmarks
