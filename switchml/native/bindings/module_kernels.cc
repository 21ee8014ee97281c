// The kernels for Python's tests and benchmarks: one block at a time, and whole arrays.
#include "switchml/native/bindings/module_kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "native/kernels/codes.h"
#include "native/kernels/kernels.h"
#include "native/kernels/limbs.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace nb = nanobind;

namespace switchml::client {

namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An epoch draws its weights; these are as irregular.
constexpr kernels::Weights weights_of_tests() {
  kernels::Weights weights;
  uint32_t state = 1;
  for (int32_t& weight : weights.of) {
    state = state * 1664525 + 1013904223;
    weight = static_cast<int32_t>(state ^ state >> 15);
  }
  return weights;
}
constexpr kernels::Weights kWeights = weights_of_tests();

enum class Type : uint8_t { float32, float16, bfloat16, int32, int16, int8, uint8, boolean, int64 };

template <typename Value>
Value* as(const Bytes& bytes) {
  return reinterpret_cast<Value*>(bytes.data());
}

template <typename Value>
const Value* as(const ConstBytes& bytes) {
  return reinterpret_cast<const Value*>(bytes.data());
}

// Calls act(Value{}) for the type that `type` names.
template <typename Act>
auto with_type(Type type, Act&& act) {
  switch (type) {
    case Type::float16:
      return act(kernels::Float16{});
    case Type::bfloat16:
      return act(kernels::BFloat16{});
    default:
      return act(float{});
  }
}

size_t size_of(Type type) {
  switch (type) {
    case Type::int64:
      return 8;
    case Type::float32:
    case Type::int32:
      return 4;
    case Type::float16:
    case Type::bfloat16:
    case Type::int16:
      return 2;
    default:
      return 1;
  }
}

template <typename Values, typename Words>
size_t checked_count(Type type, const Values& values, const Words& words, size_t most) {
  const size_t count = values.size() / size_of(type);
  if (values.size() % size_of(type) != 0 || words.size() != count * sizeof(uint32_t) || count > most) {
    throw std::invalid_argument("there must be at most " + std::to_string(most) +
                                " values, and one word or float of four bytes for each");
  }
  if (reinterpret_cast<uintptr_t>(values.data()) % size_of(type) != 0 ||
      reinterpret_cast<uintptr_t>(words.data()) % alignof(float) != 0) {
    throw std::invalid_argument("the arrays are not aligned to their elements");
  }
  return count;
}

template <typename Values, typename Words>
size_t block_size(Type type, const Values& values, const Words& words) {
  return checked_count(type, values, words, wire::protocol::max_values);
}

uint16_t block_exponent(Type type, const ConstBytes& values) {
  return with_type(type, [&](auto value) {
    return kernels::block_exponent(as<decltype(value)>(values), values.size() / sizeof value);
  });
}

uint64_t quantize(Type type, const ConstBytes& values, int shift, const Bytes& words) {
  const size_t count = block_size(type, values, words);
  return with_type(type, [&](auto value) {
    return kernels::quantize(kWeights, as<decltype(value)>(values), count, shift, words.data());
  });
}

uint64_t dequantize(Type type, const ConstBytes& words, int shift, float divisor, const Bytes& values) {
  const size_t count = block_size(type, values, words);
  return with_type(type, [&](auto value) {
    return kernels::dequantize(kWeights, words.data(), count, shift, divisor, as<decltype(value)>(values));
  });
}

// Calls act(Value{}) for Float16 or BFloat16. Throws std::invalid_argument for other types.
template <typename Act>
void with_half(Type type, Act&& act) {
  if (type == Type::float16) {
    act(kernels::Float16{});
  } else if (type == Type::bfloat16) {
    act(kernels::BFloat16{});
  } else {
    throw std::invalid_argument("only float16 and bfloat16 are converted");
  }
}

void widen_all(Type type, const ConstBytes& values, const Bytes& floats) {
  with_half(type, [&](auto half) {
    kernels::widen(as<decltype(half)>(values), checked_count(type, values, floats, SIZE_MAX), as<float>(floats));
  });
}

void narrow_all(Type type, const ConstBytes& floats, const Bytes& values) {
  with_half(type, [&](auto half) {
    kernels::narrow(as<float>(floats), checked_count(type, values, floats, SIZE_MAX), as<decltype(half)>(values));
  });
}

// Calls act(Integer{}) for the type that `type` names. Throws std::invalid_argument for floating-point types.
template <typename Act>
auto with_integer(Type type, Act&& act) {
  switch (type) {
    case Type::int32:
      return act(int32_t{});
    case Type::int16:
      return act(int16_t{});
    case Type::int8:
      return act(int8_t{});
    case Type::uint8:
      return act(uint8_t{});
    case Type::boolean:
      return act(kernels::Boolean{});
    default:
      throw std::invalid_argument("only integers and truth values are packed into lanes");
  }
}

// Returns the number of elements of a block of narrow lanes.
template <typename Values, typename Words>
size_t lanes_size(Type type, const Values& values, const Words& words, int lane_bits) {
  if (lane_bits != 8 && lane_bits != 16 && lane_bits != 32) {
    throw std::invalid_argument("a lane has 8, 16 or 32 bits");
  }
  const size_t count = values.size() / size_of(type);
  const size_t of_words = kernels::words_for(count, lane_bits);
  if (values.size() % size_of(type) != 0 || words.size() != of_words * sizeof(uint32_t) ||
      of_words > wire::protocol::max_values) {
    throw std::invalid_argument("the words do not have one lane for each value");
  }
  if (reinterpret_cast<uintptr_t>(values.data()) % size_of(type) != 0) {
    throw std::invalid_argument("the array is not aligned to its elements");
  }
  return count;
}

// Seed, call, rank and element of stochastic rounding; none to round to nearest.
using Counter = std::optional<std::tuple<uint64_t, uint64_t, uint32_t, uint64_t>>;

kernels::Rounding rounding_of(const Counter& counter) {
  if (!counter) return {};
  const auto [seed, call, rank, element] = *counter;
  return {kernels::key_of_call(seed, call, rank), element};
}

uint64_t quantize_lanes(Type type, const ConstBytes& values, int lane_bits, int shift, int32_t levels,
                        const Bytes& words, const Counter& counter) {
  const size_t count = lanes_size(type, values, words, lane_bits);
  return with_type(type, [&](auto value) {
    return kernels::quantize_lanes(kWeights, as<decltype(value)>(values), count, lane_bits, shift, levels,
                                   rounding_of(counter), words.data());
  });
}

uint64_t dequantize_lanes(Type type, const ConstBytes& words, int lane_bits, int shift, int32_t divisor,
                          const Bytes& values) {
  const size_t count = lanes_size(type, values, words, lane_bits);
  return with_type(type, [&](auto value) {
    return kernels::dequantize_lanes(kWeights, words.data(), count, lane_bits, shift, divisor,
                                     as<decltype(value)>(values));
  });
}

uint64_t pack_lanes(Type type, const ConstBytes& values, int lane_bits, const Bytes& words) {
  const size_t count = lanes_size(type, values, words, lane_bits);
  return with_integer(type, [&](auto value) {
    return kernels::pack_lanes(kWeights, as<decltype(value)>(values), count, lane_bits, words.data());
  });
}

uint64_t unpack_lanes(Type type, const ConstBytes& words, int lane_bits, const Bytes& values) {
  const size_t count = lanes_size(type, values, words, lane_bits);
  return with_integer(type, [&](auto value) {
    return kernels::unpack_lanes(kWeights, words.data(), count, lane_bits, as<decltype(value)>(values));
  });
}

bool all_within(Type type, const ConstBytes& values, int32_t bound) {
  return with_integer(type, [&](auto value) {
    return kernels::all_within(as<decltype(value)>(values), values.size() / size_of(type), bound);
  });
}

void define_lanes(nb::module_& module) {
  module.def("levels_for", &kernels::levels_for, nb::arg("lane_bits"), nb::arg("ranks"));
  module.def(
      "quantize_lanes", &quantize_lanes, nb::arg("dtype"), nb::arg("values"), nb::arg("lane_bits"), nb::arg("shift"),
      nb::arg("levels"), nb::arg("words"), nb::arg("counter") = nb::none(),
      "Quantize a block to narrow lanes. With a `counter` (seed, call, rank, element) it rounds stochastically.");
  module.def("dequantize_lanes", &dequantize_lanes, nb::arg("dtype"), nb::arg("words"), nb::arg("lane_bits"),
             nb::arg("shift"), nb::arg("divisor"), nb::arg("values"));
  module.def("pack_lanes", &pack_lanes, nb::arg("dtype"), nb::arg("values"), nb::arg("lane_bits"), nb::arg("words"));
  module.def("unpack_lanes", &unpack_lanes, nb::arg("dtype"), nb::arg("words"), nb::arg("lane_bits"),
             nb::arg("values"));
  module.def("all_within", &all_within, nb::arg("dtype"), nb::arg("values"), nb::arg("bound"),
             "Return whether no value of an array of any length is farther from 0 than `bound`.");
}

wire::Format checked_format(uint32_t format) {
  if (!wire::is_coded(format)) throw std::invalid_argument("no codes have format " + std::to_string(format));
  return static_cast<wire::Format>(format);
}

void write_codes(Type type, const ConstBytes& values, uint32_t format, int shift, const Bytes& codes,
                 const Counter& counter) {
  const wire::Format of = checked_format(format);
  const size_t count = values.size() / size_of(type);
  if (codes.size() != count || count > wire::protocol::max_values) {
    throw std::invalid_argument("the arrays do not belong to one block");
  }
  with_type(type, [&](auto value) {
    if (of == wire::Format::natural8) {
      kernels::write_natural8(as<decltype(value)>(values), count, shift, rounding_of(counter), codes.data());
    } else {
      kernels::write_dynamic8(as<decltype(value)>(values), count, shift, codes.data());
    }
    return 0U;
  });
}

uint64_t expand_codes(const ConstBytes& codes, uint32_t format, const Bytes& words) {
  const wire::Format of = checked_format(format);
  if (words.size() != 4 * codes.size() || codes.size() > wire::protocol::max_values) {
    throw std::invalid_argument("the arrays do not belong to one block");
  }
  kernels::expand_codes(codes.data(), codes.size(), of, words.data());
  return kernels::weigh_codes(kWeights, codes.data(), codes.size(), of);
}

void define_codes(nb::module_& module) {
  module.def("write_codes", &write_codes, nb::arg("dtype"), nb::arg("values"), nb::arg("format"), nb::arg("shift"),
             nb::arg("codes"), nb::arg("counter") = nb::none(),
             "Write the codes of the values of a block times 2^shift. `counter` as for quantize_lanes, for natural8.");
  module.def("expand_codes", &expand_codes, nb::arg("codes"), nb::arg("format"), nb::arg("words"),
             "Write the words that codes stand for, and return their weighed sum as computed from the codes.");
}

// Runs a kernel over `count` values in blocks of `block`, as a rank does. The scale is arbitrary.
template <typename Value>
void pass(const std::string& kernel, Value* values, uint8_t* words, size_t count, size_t block) {
  constexpr int kShift = 20;
  for (size_t first = 0; first < count; first += block) {
    const size_t size = std::min(block, count - first);
    Value* part = values + first;
    uint8_t* of_words = words + 4 * first;
    if (kernel == "block_exponent") {
      kernels::block_exponent(part, size);
    } else if (kernel == "quantize") {
      kernels::quantize(kWeights, part, size, kShift, of_words, first + 2 * block <= count ? part + block : nullptr);
    } else if (kernel == "dequantize") {
      kernels::dequantize(kWeights, of_words, size, kShift, 1.0F, part);
    } else if (kernel == "pack") {
      kernels::pack(kWeights, reinterpret_cast<const uint8_t*>(part), size, of_words);
    } else if (kernel == "unpack") {
      kernels::unpack(kWeights, of_words, size, reinterpret_cast<uint8_t*>(part));
    } else if (kernel == "weigh") {
      kernels::weigh(kWeights, of_words, 0, size);
    } else if constexpr (sizeof(Value) == sizeof(uint16_t)) {
      if (kernel == "widen") {
        kernels::widen(part, size, reinterpret_cast<float*>(of_words));
      } else {
        kernels::narrow(reinterpret_cast<const float*>(of_words), size, part);
      }
    }
  }
}

// The kernels of narrow lanes; their names in `run` are that of the function, a blank and the bits of a lane.
struct LaneKernel {
  std::string function;
  int lane_bits = 0;

  bool of_integers() const { return function == "pack_lanes" || function == "unpack_lanes"; }
};

std::optional<LaneKernel> lane_kernel(const std::string& name) {
  for (const char* const function :
       {"quantize_lanes", "quantize_lanes stochastic", "dequantize_lanes", "pack_lanes", "unpack_lanes"}) {
    for (const int bits : {16, 8}) {
      if (name == std::string(function) + " " + std::to_string(bits)) return LaneKernel{function, bits};
    }
  }
  return std::nullopt;
}

// Does the same as pass() in narrow lanes; a block has `block` words. The words take a part of their array.
template <typename Value>
void pass_lanes(const LaneKernel& kernel, Value* values, uint8_t* words, size_t count, size_t block) {
  constexpr int32_t kLevels = 31;
  const size_t elements = block * kernels::lanes_per_word(kernel.lane_bits);
  for (size_t first = 0; first < count; first += elements) {
    const size_t size = std::min(elements, count - first);
    uint8_t* of_words = words + 4 * first / kernels::lanes_per_word(kernel.lane_bits);
    if (kernel.function == "dequantize_lanes") {
      kernels::dequantize_lanes(kWeights, of_words, size, kernel.lane_bits, 0, kLevels, values + first);
    } else {
      const bool stochastic = kernel.function == "quantize_lanes stochastic";
      const kernels::Rounding rounding = stochastic ? kernels::Rounding(1, first) : kernels::Rounding();
      const Value* const next = first + 2 * elements <= count ? values + first + elements : nullptr;
      kernels::quantize_lanes(kWeights, values + first, size, kernel.lane_bits, 0, kLevels, rounding, of_words, next);
    }
  }
}

// Does the same as pass_lanes() for integers and truth values.
template <typename Integer>
void pass_integer_lanes(const LaneKernel& kernel, Integer* values, uint8_t* words, size_t count, size_t block) {
  const size_t elements = block * kernels::lanes_per_word(kernel.lane_bits);
  for (size_t first = 0; first < count; first += elements) {
    const size_t size = std::min(elements, count - first);
    uint8_t* of_words = words + 4 * first / kernels::lanes_per_word(kernel.lane_bits);
    if (kernel.function == "pack_lanes") {
      kernels::pack_lanes(kWeights, values + first, size, kernel.lane_bits, of_words);
    } else {
      kernels::unpack_lanes(kWeights, of_words, size, kernel.lane_bits, values + first);
    }
  }
}

// The kernels of codes; their names in `run` are that of the function, a blank and that of the format.
struct CodeKernel {
  bool writes = false;
  wire::Format format = wire::Format::natural8;
};

std::optional<CodeKernel> code_kernel(const std::string& name) {
  for (const bool writes : {true, false}) {
    const std::string function = writes ? "write_codes " : "expand_codes ";
    if (name == function + "natural8") return CodeKernel{writes, wire::Format::natural8};
    if (name == function + "dynamic8") return CodeKernel{writes, wire::Format::dynamic8};
  }
  return std::nullopt;
}

// Does the same as pass() for codes. Those that are expanded are some bytes of the values.
template <typename Value>
void pass_codes(const CodeKernel& kernel, const Value* values, uint8_t* words, size_t count, size_t block) {
  constexpr int kShift = 20;
  for (size_t first = 0; first < count; first += block) {
    const size_t size = std::min(block, count - first);
    if (!kernel.writes) {
      kernels::expand_codes(reinterpret_cast<const uint8_t*>(values) + first, size, kernel.format, words + 4 * first);
    } else if (kernel.format == wire::Format::natural8) {
      kernels::write_natural8(values + first, size, kShift, kernels::Rounding(1, first), words + first);
    } else {
      kernels::write_dynamic8(values + first, size, kShift, words + first);
    }
  }
}

// Does the same as pass() for int64: one word of each value, or with "join_limbs N" values of N words.
void pass_limbs(const std::string& kernel, int64_t* values, uint8_t* words, size_t count, size_t block) {
  constexpr int kLimbBits = 30;
  const std::vector<uint32_t> lower(2 * block);
  for (size_t first = 0; first < count; first += block) {
    const size_t size = std::min(block, count - first);
    if (kernel == "bits_of_largest") {
      kernels::bits_of_largest(values + first, size);
    } else if (kernel == "pack_limb") {
      kernels::pack_limb(kWeights, values + first, size, 0, kLimbBits, words + 4 * first);
    } else {
      const int lower_limbs = kernel.back() - '1';
      kernels::join_limbs(kWeights, words + 4 * first, size, lower.data(), lower_limbs, kLimbBits, values + first);
    }
  }
}

template <typename... Names>
bool is_one_of(const std::string& kernel, const Names&... names) {
  return ((kernel == names) || ...);
}

bool is_offered(const std::string& kernel, Type type) {
  const bool is_half = type == Type::float16 || type == Type::bfloat16;
  const bool is_float = type == Type::float32 || is_half;
  if (const std::optional<LaneKernel> of_lanes = lane_kernel(kernel)) {
    return of_lanes->of_integers() ? !is_float && type != Type::int64 : is_float;
  }
  if (code_kernel(kernel)) return is_float;
  if (is_one_of(kernel, "widen", "narrow")) return is_half;
  if (is_one_of(kernel, "pack", "unpack", "weigh")) return type == Type::int32;
  if (is_one_of(kernel, "bits_of_largest", "pack_limb", "join_limbs 1", "join_limbs 2", "join_limbs 3")) {
    return type == Type::int64;
  }
  return is_one_of(kernel, "block_exponent", "quantize", "dequantize") && is_float;
}

void run_with_instructions_in_use(const std::string& kernel, Type type, const Bytes& values, uint8_t* words,
                                  size_t count, size_t block) {
  const std::optional<LaneKernel> of_lanes = lane_kernel(kernel);
  const std::optional<CodeKernel> of_codes = code_kernel(kernel);
  if (type == Type::int64) {
    pass_limbs(kernel, as<int64_t>(values), words, count, block);
  } else if (of_lanes && of_lanes->of_integers()) {
    with_integer(type,
                 [&](auto value) { pass_integer_lanes(*of_lanes, as<decltype(value)>(values), words, count, block); });
  } else {
    with_type(type, [&](auto value) {
      if (of_lanes) return pass_lanes(*of_lanes, as<decltype(value)>(values), words, count, block);
      if (of_codes) return pass_codes(*of_codes, as<decltype(value)>(values), words, count, block);
      pass(kernel, as<decltype(value)>(values), words, count, block);
    });
  }
}

void run(const std::string& kernel, Type type, kernels::Instructions instructions, const Bytes& values,
         const Bytes& words, size_t block) {
  const size_t count = checked_count(type, values, words, SIZE_MAX);
  if (!is_offered(kernel, type)) {
    throw std::invalid_argument("there is no kernel \"" + kernel + "\" for this type");
  }
  if (block == 0 || block > wire::protocol::max_values) {
    throw std::invalid_argument("a block must have 1 to " + std::to_string(wire::protocol::max_values) + " values");
  }
  const nb::gil_scoped_release release;
  const kernels::Instructions before = kernels::instructions_in_use();
  kernels::use_instructions(instructions);
  run_with_instructions_in_use(kernel, type, values, words.data(), count, block);
  kernels::use_instructions(before);
}

}  // namespace

void define_kernels(nb::module_ module) {
  nb::enum_<kernels::Instructions>(module, "Instructions",
                                   "The instruction sets; `cpu_has` returns whether the CPU has one.")
      .value("PORTABLE", kernels::Instructions::portable)
      .value("NEON", kernels::Instructions::neon)
      .value("AVX2", kernels::Instructions::avx2)
      .value("AVX512", kernels::Instructions::avx512);
  nb::enum_<Type>(module, "Type", "Types of values.")
      .value("FLOAT32", Type::float32)
      .value("FLOAT16", Type::float16)
      .value("BFLOAT16", Type::bfloat16)
      .value("INT32", Type::int32)
      .value("INT16", Type::int16)
      .value("INT8", Type::int8)
      .value("UINT8", Type::uint8)
      .value("BOOL", Type::boolean)
      .value("INT64", Type::int64);
  module.def(
      "weights", [] { return std::vector<int32_t>(kWeights.of.begin(), kWeights.of.end()); },
      "Return the weights of the weighed sums of a block's words, which most of these functions return.");
  module.def("best_instructions", &kernels::best_instructions);
  module.def("cpu_has", &kernels::cpu_has, nb::arg("instructions"));
  module.def("use_instructions", &kernels::use_instructions, nb::arg("instructions"));
  module.def("block_exponent", &block_exponent, nb::arg("dtype"), nb::arg("values"));
  module.def("quantize", &quantize, nb::arg("dtype"), nb::arg("values"), nb::arg("shift"), nb::arg("words"));
  module.def("dequantize", &dequantize, nb::arg("dtype"), nb::arg("words"), nb::arg("shift"), nb::arg("divisor"),
             nb::arg("values"));
  module.def("widen", &widen_all, nb::arg("dtype"), nb::arg("values"), nb::arg("floats"));
  module.def("narrow", &narrow_all, nb::arg("dtype"), nb::arg("floats"), nb::arg("values"));
  module.def(
      "pack",
      [](const ConstBytes& values, const Bytes& words) {
        return kernels::pack(kWeights, values.data(), block_size(Type::int32, values, words), words.data());
      },
      nb::arg("values"), nb::arg("words"));
  module.def(
      "unpack",
      [](const ConstBytes& words, const Bytes& values) {
        return kernels::unpack(kWeights, words.data(), block_size(Type::int32, values, words), values.data());
      },
      nb::arg("words"), nb::arg("values"));
  module.def(
      "weigh",
      [](const ConstBytes& words, size_t first) {
        if (words.size() % 4 != 0 || first + words.size() / 4 > wire::protocol::max_values) {
          throw std::invalid_argument("the words must be within one block");
        }
        return kernels::weigh(kWeights, words.data(), first, words.size() / 4);
      },
      nb::arg("words"), nb::arg("first") = 0);
  define_lanes(module);
  define_codes(module);
  module.def(
      "run", &run, nb::arg("kernel"), nb::arg("dtype"), nb::arg("instructions"), nb::arg("values"), nb::arg("words"),
      nb::arg("block"),
      "Run a kernel once over whole arrays, in blocks.\n\n"
      "`kernel` is quantize, dequantize or block_exponent for a floating-point type; widen (from values to words, "
      "which are\nfloat32 then) or narrow (back) for a 16-bit type; quantize_lanes, quantize_lanes stochastic or "
      "dequantize_lanes, a\nblank and 16 or 8, for a floating-point type; pack_lanes or unpack_lanes, a blank and 16 "
      "or 8, for integers of up to\n32 bits; write_codes or expand_codes, a blank and natural8 or dynamic8, for a "
      "floating-point type; pack, unpack or weigh for INT32; bits_of_largest, pack_limb, or "
      "join_limbs, a blank and the words of a value,\nfor INT64. No other thread may use the kernels at the same "
      "time.");
}

}  // namespace switchml::client
