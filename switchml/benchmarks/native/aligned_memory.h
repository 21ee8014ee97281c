// Memory for measured data, aligned to page boundaries; the thread that fills it first touches its pages.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace switchml::benchmarks {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }  // NOLINT: of aligned_alloc
};

template <typename Value>
using AlignedMemory = std::unique_ptr<Value[], FreeMemory>;  // NOLINT: of a size that is known at run time

template <typename Value>
AlignedMemory<Value> make_aligned_memory(size_t count) {
  constexpr size_t kAlignment = 4096;
  const size_t bytes = (count * sizeof(Value) + kAlignment - 1) / kAlignment * kAlignment;
  AlignedMemory<Value> memory(static_cast<Value*>(std::aligned_alloc(kAlignment, bytes)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace switchml::benchmarks
