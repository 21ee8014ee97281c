// The additions for Python's tests and benchmarks.
#include "dataplane/softswitch/native/bindings/module_kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "native/kernels/accumulate.h"
#include "native/kernels/crc32.h"
#include "native/kernels/floats.h"
#include "native/wire/constants.h"

namespace nb = nanobind;

namespace switchml::soft {

namespace {

constexpr size_t kAlignment = 64;

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const std::vector<std::pair<std::string, kernels::Instructions>>& names() {
  static const std::vector<std::pair<std::string, kernels::Instructions>> known = {
      {"portable", kernels::Instructions::portable},
      {"neon", kernels::Instructions::neon},
      {"avx2", kernels::Instructions::avx2},
      {"avx512", kernels::Instructions::avx512}};
  return known;
}

std::vector<std::string> instructions_of_cpu() {
  std::vector<std::string> found;
  for (const auto& [name, instructions] : names()) {
    if (kernels::cpu_has(instructions)) found.push_back(name);
  }
  return found;
}

kernels::Instructions named(const std::string& name) {
  for (const auto& [known, instructions] : names()) {
    if (known == name) return instructions;
  }
  throw std::invalid_argument("there are no instructions called \"" + name + "\"");
}

void require_aligned(const void* memory) {
  if (reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
    throw std::invalid_argument("the words do not start at a multiple of 64 bytes");
  }
}

// Selects an instruction set while this object exists.
class Chosen {
 public:
  explicit Chosen(const std::string& name) : before_(kernels::instructions_to_add()) {
    kernels::use_instructions_to_add(named(name));
  }
  ~Chosen() { kernels::use_instructions_to_add(before_); }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;

 private:
  kernels::Instructions before_;
};

void add(const std::string& instructions, const Bytes& sums, const ConstBytes& values, size_t block) {
  if (sums.size() != values.size() || sums.size() % sizeof(uint32_t) != 0 || block == 0 || block % 16 != 0) {
    throw std::invalid_argument(
        "sums and values must have the same number of words, and a block must be a multiple of 16 words");
  }
  require_aligned(sums.data());
  const Chosen chosen(instructions);
  const size_t count = sums.size() / sizeof(uint32_t);
  for (size_t i = 0; i < count; i += block) {
    kernels::add_big_endian(sums.data() + 4 * i, values.data() + 4 * i, std::min(block, count - i));
  }
}

void sum_buffers(const std::string& instructions, const std::vector<Bytes>& sources, const std::vector<Bytes>& others,
                 size_t block, size_t kept) {
  std::vector<Bytes> buffers = sources;
  buffers.insert(buffers.end(), others.begin(), others.end());
  if (sources.empty() || buffers.size() > wire::protocol::max_workers + 1 || block == 0 || block % 16 != 0) {
    throw std::invalid_argument("there must be a source, 1 to 65 buffers, and a block of a multiple of 16 words");
  }
  if (kept > sources.size()) throw std::invalid_argument("`kept` is more than the number of sources");
  for (const Bytes& buffer : buffers) {
    require_aligned(buffer.data());
    if (buffer.size() != buffers.front().size() || buffer.size() % sizeof(uint32_t) != 0) {
      throw std::invalid_argument("all buffers must have the same number of words");
    }
  }
  const Chosen chosen(instructions);
  const size_t count = buffers.front().size() / sizeof(uint32_t);
  std::vector<uint8_t*> parts(buffers.size());
  for (size_t i = 0; i < count; i += block) {
    for (size_t buffer = 0; buffer < parts.size(); ++buffer) parts[buffer] = buffers[buffer].data() + 4 * i;
    kernels::sum_buffers({parts.data(), parts.size(), sources.size(), kept}, std::min(block, count - i));
  }
}

// Adds up what the slots of one packet would have: first all sources but the last `in_buffers` one after the other, and
// then those in one pass.
void sum_floats(const std::string& instructions, const std::vector<Bytes>& sources, size_t in_buffers,
                const Bytes& result) {
  if (sources.empty() || sources.size() > wire::protocol::max_workers || in_buffers > sources.size()) {
    throw std::invalid_argument("there must be 1 to 64 sources, of which `in_buffers` are added in one pass");
  }
  for (const Bytes& source : sources) {
    require_aligned(source.data());
    if (source.size() != result.size() || source.size() % kAlignment != 0) {
      throw std::invalid_argument("all buffers must have the same number of words, a multiple of 16");
    }
  }
  const Chosen chosen(instructions);
  const size_t count = result.size() / sizeof(uint32_t);
  const size_t in_memory = sources.size() - in_buffers;
  std::vector<uint32_t> memory(kernels::FloatSums::kArrays * count + kAlignment / sizeof(uint32_t));
  void* first = memory.data();
  size_t space = memory.size() * sizeof(uint32_t);
  const kernels::FloatSums sums(
      static_cast<uint32_t*>(std::align(kAlignment, kernels::FloatSums::kArrays * result.size(), first, space)), count);
  for (size_t source = 0; source < in_memory; ++source) {
    (source == 0 ? kernels::begin_floats : kernels::add_floats)(sources[source].data(), count, sums);
  }
  if (in_buffers == 0) return kernels::round_floats(sums, count, result.data());
  std::vector<uint8_t*> buffers;
  for (size_t source = in_memory; source < sources.size(); ++source) buffers.push_back(sources[source].data());
  buffers.push_back(result.data());
  kernels::sum_float_buffers({buffers.data(), buffers.size(), in_buffers, in_buffers}, count,
                             in_memory == 0 ? nullptr : &sums);
}

// Returns the CRC of the last block.
uint32_t crc32(bool fastest, const ConstBytes& data, size_t block) {
  if (block == 0) throw std::invalid_argument("a block must have at least one byte");
  kernels::use_crc_instructions(fastest);
  uint32_t crc = 0;
  for (size_t i = 0; i < data.size(); i += block) {
    crc = kernels::crc32(0, data.data() + i, std::min(block, data.size() - i));
  }
  kernels::use_crc_instructions(true);
  return crc;
}

}  // namespace

void define_kernels(nb::module_ module) {
  module.def("instructions", &instructions_of_cpu,
             "Return the names of the instruction sets that this CPU has, from the slowest to the fastest.");
  module.def("add", &add, nb::arg("instructions"), nb::arg("sums"), nb::arg("values"), nb::arg("block"),
             "Add `values` to `sums`, in blocks of `block` words.");
  module.def(
      "sum_buffers", &sum_buffers, nb::arg("instructions"), nb::arg("sources"), nb::arg("others"), nb::arg("block"),
      nb::arg("kept") = 0,
      "Replace the contents of each buffer, but of the first `kept` sources, by the sum of the sources, in blocks "
      "of `block` words.");
  module.def(
      "crc32", &crc32, nb::arg("fastest"), nb::arg("data"), nb::arg("block"),
      "Compute the CRC-32 of each block of `block` bytes, with the fastest code of this CPU or with the portable one; "
      "return that of the last block.");
  module.def(
      "sum_floats", &sum_floats, nb::arg("instructions"), nb::arg("sources"), nb::arg("in_buffers"), nb::arg("result"),
      "Set `result` to the sums of float32 words: the last `in_buffers` sources are added up in one pass, as are\n"
      "those that ranks share with the switch, and the others before, one after the other.");
}

}  // namespace switchml::soft
