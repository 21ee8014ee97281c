// Compares the kernels of every instruction set of this CPU with the portable ones, which the unit tests compare with
// numpy. tests/native/kernels.sh builds and runs it, also for 64-bit ARM under qemu. With --all, every one of the 2^32
// float32 numbers is narrowed and coded, and the results are also compared with the definitions of rounding and of
// dynamic8; a sample of them otherwise.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "native/kernels/accumulate.h"
#include "native/kernels/codes.h"
#include "native/kernels/crc32.h"
#include "native/kernels/half.h"
#include "native/kernels/instructions.h"
#include "native/kernels/kernel_functions.h"
#include "native/kernels/kernels.h"
#include "native/kernels/lanes.h"
#include "native/kernels/limbs.h"
#include "native/wire/codes.h"

using switchml::kernels::BFloat16;
using switchml::kernels::Float16;
using switchml::kernels::Instructions;
namespace kernels = switchml::kernels;
namespace wire = switchml::wire;

namespace {

constexpr std::array kNames = {"portable", "neon", "avx2", "avx512"};
constexpr size_t kMost = 2048;

std::mt19937 generator(1);  // NOLINT: the same run each time

uint32_t random32() { return static_cast<uint32_t>(generator()); }

kernels::Weights random_weights() {
  kernels::Weights weights;
  for (int32_t& weight : weights.of) weight = static_cast<int32_t>(random32());
  return weights;
}
const kernels::Weights kWeights = random_weights();

[[noreturn]] void fail(const char* what, kernels::Instructions instructions, size_t where) {
  std::printf("%s with %s differs from the portable one at %zu\n", what, kNames[static_cast<size_t>(instructions)],
              where);
  std::exit(1);
}

template <typename T>
void expect_equal(const std::vector<T>& found, const std::vector<T>& expected, const char* what,
                  kernels::Instructions instructions) {
  // Bits are compared: a NaN must be the same NaN, and -0 is not 0.
  const auto* found_bytes = reinterpret_cast<const unsigned char*>(found.data());
  const auto* expected_bytes = reinterpret_cast<const unsigned char*>(expected.data());
  const size_t bytes = found.size() * sizeof(T);
  if (std::equal(found_bytes, found_bytes + bytes, expected_bytes)) return;
  const auto* differs = std::mismatch(found_bytes, found_bytes + bytes, expected_bytes).first;
  fail(what, instructions, static_cast<size_t>(differs - found_bytes) / sizeof(T));
}

void expect_equal(uint64_t found, uint64_t expected, const char* what, kernels::Instructions instructions) {
  if (found != expected) fail(what, instructions, 0);
}

// Runs act(out) with the portable functions and with `instructions`; both must return and write the same.
template <typename T, typename Act>
void compare(kernels::Instructions instructions, const char* what, size_t size, Act act) {
  std::vector<T> expected(size);
  std::vector<T> found(size);
  kernels::use_instructions(kernels::Instructions::portable);
  const uint64_t of_portable = act(expected.data());
  kernels::use_instructions(instructions);
  expect_equal(act(found.data()), of_portable, what, instructions);
  expect_equal(found, expected, what, instructions);
}

template <typename Value>
Value random_value() {
  Value value;
  const uint32_t bits = random32();
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void compare_copies(kernels::Instructions instructions) {
  std::vector<uint8_t> bytes(4 * kMost);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random32());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{255}, size_t{1000}, 2 * kMost}) {
    for (const size_t from : {0, 16, 33}) {
      for (const size_t to : {0, 1, 48}) {
        for (const bool streamed : {false, true}) {
          compare<uint8_t>(instructions, "copy", 4 * kMost, [&](uint8_t* out) {
            kernels::copy(out + to, bytes.data() + from, size, streamed);
            return uint64_t{0};
          });
        }
      }
    }
  }
}

template <typename Value>
void compare_values(kernels::Instructions instructions, size_t count) {
  std::vector<Value> values(count);
  for (Value& value : values) value = random_value<Value>();
  const auto magnitude = [&](uint8_t*) { return kernels::largest_magnitude(values.data(), count); };
  compare<uint8_t>(instructions, "largest_magnitude", 0, magnitude);
  std::vector<Value> zeros(count, Value{});
  zeros.swap(values);
  compare<uint8_t>(instructions, "largest_magnitude of zeros", 0, magnitude);
  if (count > 0) kernels::narrow(-0.0F, &values[random32() % count]);
  compare<uint8_t>(instructions, "largest_magnitude of a negative zero", 0, magnitude);
  zeros.swap(values);
  for (Value& value : values) {
    if (!switchml::kernels::is_finite(value)) value = Value{};
  }
  const int exponent = kernels::block_exponent(values.data(), count);
  for (const int headroom : {0, 1, 6, 7, 12}) {
    for (const bool finer : {false, true}) {  // finer: as if another rank had larger values
      const int shift = 31 - headroom - (exponent - 126) - (finer ? static_cast<int>(random32() % 40) : 0);
      compare<uint8_t>(instructions, "quantize", 4 * count,
                       [&](uint8_t* words) { return kernels::quantize(kWeights, values.data(), count, shift, words); });
    }
  }
  std::vector<Value> reversed(values.rbegin(), values.rend());
  for (const size_t ranks : {2, 3, 8}) {
    std::vector<const Value*> rows;
    for (size_t rank = 0; rank < ranks; ++rank) rows.push_back(rank % 3 == 0 ? reversed.data() : values.data());
    const kernels::Parts<Value> parts{rows.data(), ranks};
    for (const float divisor : {1.0F, static_cast<float>(ranks), 3000.0F}) {
      const int shift = 31 - 3 - (exponent - 126);
      compare<Value>(instructions, "sum_parts", count, [&](Value* sums) {
        kernels::sum_parts(parts, count, shift, divisor, sums);
        return uint64_t{0};
      });
    }
  }
  std::vector<uint8_t> words(4 * count);
  for (int shift = -103; shift <= 157; ++shift) {
    for (size_t i = 0; i < count; ++i) {
      const uint32_t word = random32() >> (random32() % 32);
      std::memcpy(words.data() + 4 * i, &word, sizeof word);
    }
    for (const float divisor : {1.0F, 3.0F, 61.0F, 64.0F, 65.0F, 1000.0F, 2047.0F, 2049.0F, 4095.0F, 4096.0F}) {
      compare<Value>(instructions, "dequantize", count, [&](Value* out) {
        return kernels::dequantize(kWeights, words.data(), count, shift, divisor, out);
      });
    }
  }
}

void compare_words(kernels::Instructions instructions, size_t count) {
  std::vector<uint8_t> words(4 * count);
  for (uint8_t& byte : words) byte = static_cast<uint8_t>(random32());
  compare<uint8_t>(instructions, "pack", 4 * count,
                   [&](uint8_t* out) { return kernels::pack(kWeights, words.data(), count, out); });
  compare<uint8_t>(instructions, "unpack", 4 * count,
                   [&](uint8_t* out) { return kernels::unpack(kWeights, words.data(), count, out); });
  const size_t first = random32() % (kMost - count + 1);
  compare<uint8_t>(instructions, "weigh", 0,
                   [&](uint8_t*) { return kernels::weigh(kWeights, words.data(), first, count); });
}

kernels::Rounding random_rounding() {
  kernels::Rounding rounding(kernels::key_of_call(random32(), random32(), random32() % 4096), random32());
  rounding.stochastic = random32() % 2 == 0;
  return rounding;
}

template <typename Value>
void compare_float_lanes(kernels::Instructions instructions, size_t count) {
  std::vector<Value> values(count);
  for (Value& value : values) {
    value = random_value<Value>();
    if (!kernels::is_finite(value)) value = Value{};
  }
  const int exponent = kernels::block_exponent(values.data(), count);
  for (const int bits : {8, 16}) {
    const size_t bytes = 4 * kernels::words_for(count, bits);
    for (const uint32_t ranks : {1, 2, 3, 8, 63, 64, 127, 1024, 4095, 4096}) {
      if (ranks > kernels::largest_lane(bits)) continue;
      const int32_t levels = kernels::levels_for(bits, ranks);
      for (const int larger : {0, static_cast<int>(random32() % 40)}) {  // as if another rank had larger values
        const kernels::Rounding rounding = random_rounding();
        const int shift = 126 - std::min(254, exponent + larger);
        compare<uint8_t>(instructions, "quantize_lanes", bytes, [&](uint8_t* words) {
          return kernels::quantize_lanes(kWeights, values.data(), count, bits, shift, levels, rounding, words);
        });
      }
      std::vector<uint8_t> words(bytes);
      for (uint8_t& byte : words) byte = static_cast<uint8_t>(random32());
      for (const int scaled_by : {0, 1, 14, 100, 126, 140, 253, 254}) {
        for (const int32_t divisor : {levels, static_cast<int32_t>(ranks) * levels}) {
          compare<Value>(instructions, "dequantize_lanes", count, [&](Value* out) {
            return kernels::dequantize_lanes(kWeights, words.data(), count, bits, 126 - scaled_by, divisor, out);
          });
        }
      }
    }
  }
}

template <typename Integer>
void compare_integer_lanes(kernels::Instructions instructions, size_t count) {
  std::vector<Integer> values(count);
  for (const int bits : {8, 16, 32}) {
    for (Integer& value : values) {
      value = random_value<Integer>();
      if constexpr (std::is_integral_v<Integer>) {  // numbers that fit their lanes
        value = static_cast<Integer>(value % (kernels::largest_lane(bits) + 1));
      }
    }
    const size_t bytes = 4 * kernels::words_for(count, bits);
    compare<uint8_t>(instructions, "pack_lanes", bytes,
                     [&](uint8_t* words) { return kernels::pack_lanes(kWeights, values.data(), count, bits, words); });
    std::vector<uint8_t> words(bytes);
    for (uint8_t& byte : words) {  // with bytes that are 0, for false
      const uint32_t random = random32();
      byte = static_cast<uint8_t>(random & (random >> 8));
    }
    compare<Integer>(instructions, "unpack_lanes", count,
                     [&](Integer* out) { return kernels::unpack_lanes(kWeights, words.data(), count, bits, out); });
  }
}

// Compares codes of values with any bits, also NaN and infinity, which begin behind a first value that sets the scale.
// So neither the values nor their codes are aligned.
template <typename Value>
void compare_codes(kernels::Instructions instructions, size_t count) {
  std::vector<Value> values(1 + count);
  for (Value& value : values) value = random_value<Value>();
  const int exponent = kernels::block_exponent(values.data(), 1);
  for (const int unit_bits : {18, 25, 30}) {
    const int shift = unit_bits - (exponent - 126);
    const kernels::Rounding rounding(random32(), random32());
    compare<uint8_t>(instructions, "write_natural8", 1 + count, [&](uint8_t* codes) {
      kernels::write_natural8(values.data() + 1, count, shift, rounding, codes + 1);
      return 0;
    });
    compare<uint8_t>(instructions, "write_dynamic8", 1 + count, [&](uint8_t* codes) {
      kernels::write_dynamic8(values.data() + 1, count, shift, codes + 1);
      return 0;
    });
  }
}

void compare_expansion(kernels::Instructions instructions, size_t count) {
  std::vector<uint8_t> codes(1 + count);
  const uint32_t first = random32();
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(first + i);
  for (const wire::Format format : {wire::Format::natural8, wire::Format::dynamic8}) {
    compare<uint8_t>(instructions, "expand_codes", 1 + 4 * count, [&](uint8_t* words) {
      kernels::expand_codes(codes.data() + 1, count, format, words + 1);
      return kernels::weigh_codes(kWeights, codes.data() + 1, count, format);
    });
  }
}

// The magnitudes from which on dynamic8 has the next number: those halfway between two, as float32 numbers.
std::vector<float> dynamic8_bounds() {
  std::vector<float> bounds;
  for (size_t number = 1; number < wire::kCodeSign; ++number) {
    bounds.push_back(static_cast<float>(uint64_t{wire::kDynamic8[number - 1]} + wire::kDynamic8[number]) / 2);
  }
  return bounds;
}

// Returns the numbers at which a code may change, the largest and smallest ones of their kind, and their neighbours.
std::vector<float> special_floats() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> magnitudes = dynamic8_bounds();
  magnitudes.insert(magnitudes.end(), {0, Limits::min(), Limits::max(), INFINITY, Limits::quiet_NaN()});
  for (int power = 0; power < 32; ++power) magnitudes.push_back(std::ldexp(1.0F, power));
  for (uint32_t number = 1; number < wire::kCodeSign; ++number) {
    magnitudes.push_back(static_cast<float>(wire::kDynamic8[number]));
  }
  std::vector<float> floats;
  for (const float magnitude : magnitudes) {
    for (const float value : {magnitude, std::nextafter(magnitude, 0.0F), std::nextafter(magnitude, INFINITY)}) {
      floats.insert(floats.end(), {value, -value});
    }
  }
  return floats;
}

// Calls act(values) for the special float32 numbers, and for all or for a sample of all.
template <typename Act>
void for_floats(bool all, const Act& act) {
  act(special_floats());
  constexpr uint32_t kStep = (uint64_t{1} << 32) / kMost;
  std::vector<float> values(kMost);
  for (uint32_t first = 0; first < kStep; first += all ? 1 : 997) {
    for (uint32_t i = 0; i < kMost; ++i) values[i] = kernels::float_of(first + i * kStep);
    act(values);
  }
}

void compare_codes_of_floats(kernels::Instructions instructions, bool all) {
  for_floats(all, [&](const std::vector<float>& values) {
    const kernels::Rounding rounding(random32(), random32());
    compare<uint8_t>(instructions, "write_natural8", values.size(), [&](uint8_t* codes) {
      kernels::write_natural8(values.data(), values.size(), 0, rounding, codes);
      return 0;
    });
    compare<uint8_t>(instructions, "write_dynamic8", values.size(), [&](uint8_t* codes) {
      kernels::write_dynamic8(values.data(), values.size(), 0, codes);
      return 0;
    });
  });
}

void expect_code(uint8_t found, float value, uint32_t number, kernels::Instructions instructions) {
  if (found == (std::signbit(value) ? wire::kCodeSign | number : number)) return;
  std::printf("%a became the code %02x with %s\n", static_cast<double>(value), found,
              kNames[static_cast<size_t>(instructions)]);
  std::exit(1);
}

// Checks that a number becomes the upper of the two codes around it from the place on that its random number sets, and
// the lower one just below.
void check_natural8(kernels::Instructions instructions) {
  kernels::use_instructions(instructions);
  const kernels::Rounding rounding(random32(), random32());
  kernels::Thresholds thresholds;
  kernels::portable::write_thresholds(rounding, kMost, thresholds.of.data());
  std::vector<float> values(kMost);
  std::vector<uint8_t> codes(kMost);
  constexpr uint32_t kFractions = 1U << 23U;  // between two powers of two, and between 0 and 1
  for (const uint32_t up : {0U, 1U}) {
    for (uint32_t lower = 0; lower <= 30; ++lower) {  // the code
      for (uint32_t i = 0; i < kMost; ++i) {
        const uint32_t fraction = kFractions - 128U * thresholds.of[i] - 64 - (1 - up);
        const auto magnitude = static_cast<float>(fraction + (lower == 0 ? 0 : kFractions));
        values[i] = std::ldexp(i % 2 == 0 ? magnitude : -magnitude, std::max(static_cast<int>(lower) - 1, 0) - 23);
      }
      kernels::write_natural8(values.data(), kMost, 0, rounding, codes.data());
      for (uint32_t i = 0; i < kMost; ++i) expect_code(codes[i], values[i], lower + up, instructions);
    }
  }
}

// Checks that the code is the number of bounds at or below a magnitude.
void check_dynamic8(bool all) {
  kernels::use_instructions(kernels::Instructions::portable);
  const std::vector<float> bounds = dynamic8_bounds();
  std::vector<uint8_t> codes(kMost);
  for_floats(all, [&](const std::vector<float>& values) {
    kernels::write_dynamic8(values.data(), values.size(), 0, codes.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const auto number = std::upper_bound(bounds.begin(), bounds.end(), std::abs(values[i])) - bounds.begin();
      expect_code(codes[i], values[i], static_cast<uint32_t>(number), kernels::Instructions::portable);
    }
  });
}

void compare_all_codes(kernels::Instructions instructions, bool all) {
  for (size_t count = 0; count <= kMost; count = count < 100 ? count + 1 : count + kMost - 100) {
    compare_codes<float>(instructions, count);
    compare_codes<kernels::Float16>(instructions, count);
    compare_codes<kernels::BFloat16>(instructions, count);
    compare_expansion(instructions, count);
  }
  compare_codes_of_floats(instructions, all);
  check_natural8(instructions);
}

void compare_limbs(kernels::Instructions instructions, size_t count) {
  std::vector<int64_t> values(count);
  const uint32_t bits = random32() % 64;
  for (int64_t& value : values) value = (static_cast<int64_t>(random32()) << 32 | random32()) >> bits;
  compare<uint8_t>(instructions, "bits_of_largest", 0,
                   [&](uint8_t*) { return static_cast<uint32_t>(kernels::bits_of_largest(values.data(), count)); });
  for (const int limb_bits : {20, 22, 25, 26, 30, 31, 32}) {
    for (int limb = 0; limb * limb_bits < 64; ++limb) {
      compare<uint8_t>(instructions, "pack_limb", 4 * count, [&](uint8_t* words) {
        return kernels::pack_limb(kWeights, values.data(), count, limb * limb_bits, limb_bits, words);
      });
    }
    std::vector<uint32_t> lower(2 * count);
    for (uint32_t& limb : lower) limb = random32();
    std::vector<uint8_t> words(4 * count);
    for (uint8_t& byte : words) byte = static_cast<uint8_t>(random32());
    for (int lower_limbs = 0; lower_limbs <= 2; ++lower_limbs) {
      compare<int64_t>(instructions, "join_limbs", count, [&](int64_t* out) {
        return kernels::join_limbs(kWeights, words.data(), count, lower.data(), lower_limbs, limb_bits, out);
      });
    }
  }
}

template <typename Half>
void compare_conversions(kernels::Instructions instructions, bool all) {
  constexpr size_t kHalves = 1U << 16U;
  std::vector<Half> halves(kHalves);
  for (size_t i = 0; i < kHalves; ++i) halves[i] = Half{static_cast<uint16_t>(i)};
  compare<float>(instructions, "widen", kHalves, [&](float* out) {
    kernels::widen(halves.data(), kHalves, out);
    return 0;
  });
  std::vector<float> floats(kHalves);
  const uint32_t step = all ? 1 : 251;  // split by the upper 16 bits: all lower bits, or a sample of them
  for (uint32_t part = 0; part < kHalves; part += step) {
    for (uint32_t i = 0; i < kHalves; ++i) {
      floats[i] = switchml::kernels::float_of(all ? part << 16U | i : i << 16U | ((part + i) & 0xFFFFU));
    }
    compare<Half>(instructions, "narrow", kHalves, [&](Half* out) {
      kernels::narrow(floats.data(), kHalves, out);
      return 0;
    });
  }
}

// Returns the number for `bits` without a sign; for infinity, the number that would follow the largest one.
template <typename Half>
double magnitude_of(uint16_t bits) {
  const Half half{bits};
  if (switchml::kernels::is_finite(half)) return switchml::kernels::widen(half);
  const double largest = switchml::kernels::widen(Half{static_cast<uint16_t>(bits - 1)});
  return 2 * largest - switchml::kernels::widen(Half{static_cast<uint16_t>(bits - 2)});
}

// Checks that every float32 number is rounded to the nearest half, and to the even one of two.
template <typename Half>
void check_rounding() {
  for (uint32_t bits = 0; bits <= 0x7F800000; ++bits) {
    const double exact = switchml::kernels::float_of(bits);
    Half half;
    switchml::kernels::narrow(switchml::kernels::float_of(bits), &half);
    const uint16_t found = half.bits;
    const double value = magnitude_of<Half>(found);
    const double below = found == 0 ? -INFINITY : magnitude_of<Half>(static_cast<uint16_t>(found - 1));
    const double above =
        switchml::kernels::is_finite(half) ? magnitude_of<Half>(static_cast<uint16_t>(found + 1)) : INFINITY;
    const double error = std::abs(exact - value);
    const bool even = found % 2 == 0;
    const bool beyond = !switchml::kernels::is_finite(half) && exact > value;
    if (!beyond && (error > exact - below || error > above - exact ||
                    (!even && (error == exact - below || error == above - exact)))) {
      std::printf("float32 %08" PRIx32 " became %04x\n", bits, found);
      std::exit(1);
    }
    Half negative;
    switchml::kernels::narrow(switchml::kernels::float_of(bits | 0x80000000), &negative);
    if (negative.bits != (found | 0x8000)) {
      std::printf("float32 %08" PRIx32 " and its negative differ\n", bits);
      std::exit(1);
    }
  }
}

struct Aligned {
  explicit Aligned(size_t bytes) : memory(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64))) {}
  ~Aligned() { std::free(memory); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  uint8_t* memory;
};

// Sums the first `source_count` of several buffers, of which all but the first `kept` get the sum, and compares the
// results with the portable ones.
void compare_sums(kernels::Instructions instructions, size_t count, size_t source_count, size_t buffer_count,
                  size_t kept) {
  std::vector<std::unique_ptr<Aligned>> buffers;
  std::vector<uint8_t*> words;
  std::vector<std::vector<uint8_t>> before;
  for (size_t i = 0; i < buffer_count; ++i) {
    buffers.push_back(std::make_unique<Aligned>(4 * count));
    words.push_back(buffers.back()->memory);
    before.emplace_back(4 * count);
    for (uint8_t& byte : before.back()) byte = static_cast<uint8_t>(random32());
  }
  std::vector<uint8_t> expected(4 * count);
  const auto sum = [&](kernels::Instructions chosen) {
    for (size_t i = 0; i < buffer_count; ++i) std::copy(before[i].begin(), before[i].end(), words[i]);
    switchml::kernels::use_instructions_to_add(chosen);
    switchml::kernels::sum_buffers({words.data(), buffer_count, source_count, kept}, count);
  };
  sum(kernels::Instructions::portable);
  std::copy_n(words.back(), 4 * count, expected.begin());
  sum(instructions);
  for (size_t i = 0; i < buffer_count; ++i) {
    const std::vector<uint8_t>& right = i < kept ? before[i] : expected;
    if (!std::equal(right.begin(), right.end(), words[i])) fail("sum", instructions, source_count);
  }
  if (source_count < buffer_count || kept > 0) return;
  std::copy(before[0].begin(), before[0].end(), words[0]);
  std::vector<uint8_t> anywhere(4 * count + 1);
  for (size_t i = 1; i < buffer_count; ++i) {
    std::copy(before[i].begin(), before[i].end(), anywhere.begin() + 1);
    switchml::kernels::add_big_endian(words[0], anywhere.data() + 1, count);
  }
  if (!std::equal(expected.begin(), expected.end(), words[0])) fail("add", instructions, buffer_count);
}

// Every length up to 300 bytes, then some longer ones; before them, another CRC.
void compare_crcs() {
  std::vector<uint8_t> bytes(9000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random32());
  for (size_t count = 0; count <= bytes.size(); count += count < 300 ? 1 : 97) {
    const uint32_t before = random32();
    const auto crc = [&](bool fastest) {
      kernels::use_crc_instructions(fastest);
      return uint64_t{kernels::Crc32Join(count).join(before, 0)} << 32U | kernels::crc32(before, bytes.data(), count);
    };
    expect_equal(crc(true), crc(false), "CRC-32", kernels::best_instructions());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc == 2 && std::string(argv[1]) == "--all";
  std::printf("compared with the portable kernels:");
  for (const kernels::Instructions instructions : switchml::kernels::kAllInstructions) {
    if (instructions == kernels::Instructions::portable || !switchml::kernels::cpu_has(instructions)) continue;
    compare_copies(instructions);
    for (size_t count = 0; count <= kMost; count = count < 70 ? count + 1 : (count < 256 ? 256 : count + 1792)) {
      compare_values<float>(instructions, count);
      compare_values<kernels::Float16>(instructions, count);
      compare_values<kernels::BFloat16>(instructions, count);
      compare_words(instructions, count);
      compare_limbs(instructions, count);
      for (const size_t elements : {count, 4 * count - std::min<size_t>(count, 3)}) {
        compare_float_lanes<float>(instructions, std::min(elements, kMost * 2));
        compare_float_lanes<kernels::Float16>(instructions, std::min(elements, kMost * 2));
        compare_float_lanes<kernels::BFloat16>(instructions, std::min(elements, kMost * 2));
        compare_integer_lanes<kernels::Boolean>(instructions, std::min(elements, kMost));
        compare_integer_lanes<int8_t>(instructions, std::min(elements, kMost));
        compare_integer_lanes<uint8_t>(instructions, std::min(elements, kMost));
        compare_integer_lanes<int16_t>(instructions, std::min(elements, kMost));
        compare_integer_lanes<int32_t>(instructions, std::min(elements, kMost));
      }
      for (const size_t sources : {1, 2, 3, 4, 7, 8, 64}) {
        for (const size_t others : {0, 1, 7}) {
          for (const size_t kept : {size_t{0}, (sources + 1) / 2}) {
            compare_sums(instructions, count, sources, sources + others, kept);
          }
        }
      }
    }
    compare_conversions<kernels::Float16>(instructions, all);
    compare_conversions<kernels::BFloat16>(instructions, all);
    compare_all_codes(instructions, all);
    std::printf(" %s", kNames[static_cast<size_t>(instructions)]);
    std::fflush(stdout);
  }
  compare_crcs();
  std::printf(" crc32\n");
  check_natural8(kernels::Instructions::portable);
  check_dynamic8(all);
  if (all) {
    check_rounding<kernels::Float16>();
    check_rounding<kernels::BFloat16>();
    std::printf("every float32 number is rounded to the nearest float16 and bfloat16\n");
  }
  return 0;
}
