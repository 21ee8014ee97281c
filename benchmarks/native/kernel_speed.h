// How fast the arithmetic between a tensor and packets is, on one core.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "switchml/native/kernels.h"

namespace switchml::benchmarks {

// What can be timed. `chooses_instructions`: it can be had with each set of instructions, not only with the best one.
struct KernelName {
  std::string name;
  bool chooses_instructions;
};
std::vector<KernelName> kernel_names();

// Seconds of each pass of a kernel over `bytes` of float32, block by block, once its memory is in the caches as far as
// it fits: as many passes as `seconds` allow, three at least. Throws std::invalid_argument for a kernel that is not in
// kernel_names(), for instructions that the processor lacks, and for less than a block.
std::vector<double> time_kernel(const std::string& name, kernels::Instructions instructions, size_t bytes,
                                double seconds);

}  // namespace switchml::benchmarks
