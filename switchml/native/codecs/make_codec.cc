#include "switchml/native/codecs/make_codec.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "switchml/native/codecs/agreed.h"
#include "switchml/native/codecs/block_float.h"
#include "switchml/native/codecs/codes.h"
#include "switchml/native/codecs/doubles.h"
#include "switchml/native/codecs/floats.h"
#include "switchml/native/codecs/limbs.h"
#include "switchml/native/codecs/sample.h"
#include "switchml/native/codecs/sparse.h"
#include "switchml/native/codecs/words.h"

namespace switchml::client {

namespace {

template <typename Value>
std::unique_ptr<BlockCodec> make_float(const Arrays& arrays, bool average, const Geometry& geometry,
                                       const Lanes& lanes) {
  if (lanes.format != wire::Format::int32) {
    return std::make_unique<CodedFloat<Value>>(arrays, average, lanes, geometry);
  }
  if (lanes.bits == Codec::kWordBits) {
    return std::make_unique<BlockFloat<Value>>(arrays, average, geometry);
  }
  return std::make_unique<NarrowFloat<Value>>(arrays, average, lanes, geometry);
}

// Calls act(Integer{}) for the integers of a kind. Throws std::invalid_argument for other kinds.
template <typename Act>
auto with_integer(CallKind kind, Act&& act) {
  switch (kind) {
    case CallKind::int32_sum:
      return act(int32_t{});
    case CallKind::int16_sum:
      return act(int16_t{});
    case CallKind::int8_sum:
      return act(int8_t{});
    case CallKind::uint8_sum:
      return act(uint8_t{});
    case CallKind::bool_sum:
      return act(kernels::Boolean{});
    default:
      throw std::invalid_argument("calls of this kind have no integers");
  }
}

std::unique_ptr<BlockCodec> make_integers(CallKind kind, const Arrays& arrays, const Geometry& geometry,
                                          const Lanes& lanes) {
  if (kind == CallKind::int32_sum && lanes.bits == Codec::kWordBits) {
    return std::make_unique<Integers>(arrays, geometry);
  }
  return with_integer(kind, [&](auto integer) -> std::unique_ptr<BlockCodec> {
    return std::make_unique<NarrowIntegers<decltype(integer)>>(arrays, lanes.bits, geometry);
  });
}

bool has_floats(CallKind kind) {
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
    case CallKind::float16_sum:
    case CallKind::float16_average:
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return true;
    default:
      return false;
  }
}

// Returns the codec for a sum or an average of values that take a word or less.
std::unique_ptr<BlockCodec> make_sum(CallKind kind, const Arrays& arrays, const Geometry& geometry,
                                     const Lanes& lanes) {
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
      return make_float<float>(arrays, kind == CallKind::float32_average, geometry, lanes);
    case CallKind::float16_sum:
    case CallKind::float16_average:
      return make_float<kernels::Float16>(arrays, kind == CallKind::float16_average, geometry, lanes);
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return make_float<kernels::BFloat16>(arrays, kind == CallKind::bfloat16_average, geometry, lanes);
    default:
      return make_integers(kind, arrays, geometry, lanes);
  }
}

// Sums are scattered, and bytes are gathered; every part has the same number of elements.
void require_division(CallKind kind, const Arrays& arrays, uint32_t world_size) {
  if (arrays.division == Division::whole) {
    return;
  }
  if (kind == CallKind::barrier || (kind == CallKind::bytes) != (arrays.division == Division::gather)) {
    throw std::invalid_argument("calls of this kind have no such parts");
  }
  if (arrays.elements % world_size != 0) {
    throw std::invalid_argument(std::to_string(arrays.elements) + " elements are not divisible by " +
                                std::to_string(world_size) + " ranks");
  }
}

// A lane must hold the sum of one level of each rank, and of one flag.
void require_lanes(const Lanes& lanes, uint32_t world_size) {
  if (lanes.bits != 32 && lanes.bits != 16 && lanes.bits != 8) {
    throw std::invalid_argument("a lane has 8, 16 or 32 bits, not " + std::to_string(lanes.bits));
  }
  const int64_t most = kernels::largest_lane(static_cast<int>(lanes.bits));
  if (world_size > most) {
    throw std::invalid_argument("lanes of " + std::to_string(lanes.bits) + " bits hold the sums of at most " +
                                std::to_string(most) + " ranks, and this job has " + std::to_string(world_size));
  }
}

// Only floating-point numbers have another format than int32, and the blocks of a sparse call have none.
void require_format(CallKind kind, const Lanes& lanes, Form form, const Geometry& geometry) {
  if (lanes.format == wire::Format::int32) {
    return;
  }
  const std::string format = std::to_string(static_cast<unsigned>(lanes.format));
  if (!has_floats(kind) || lanes.bits != Codec::kWordBits || form != Form::dense) {
    throw std::invalid_argument("calls of this kind have no values of format " + format);
  }
  if ((geometry.formats >> static_cast<unsigned>(lanes.format) & 1U) == 0) {
    throw std::invalid_argument("the switches of this job do not take values of format " + format);
  }
}

// Returns the codec for floating-point numbers that the switch adds up as such.
std::unique_ptr<Codec> make_float_words(CallKind kind, const Arrays& arrays, const Geometry& geometry) {
  switch (kind) {
    case CallKind::float16_sum:
    case CallKind::float16_average:
      return std::make_unique<FloatWords<kernels::Float16>>(arrays, kind == CallKind::float16_average, geometry);
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return std::make_unique<FloatWords<kernels::BFloat16>>(arrays, kind == CallKind::bfloat16_average, geometry);
    default:
      return std::make_unique<FloatWords<float>>(arrays, kind == CallKind::float32_average, geometry);
  }
}

}  // namespace

uint32_t element_bytes(CallKind kind) {
  switch (kind) {
    case CallKind::int64_sum:
    case CallKind::float64_sum:
    case CallKind::float64_average:
      return sizeof(uint64_t);
    case CallKind::float32_sum:
    case CallKind::float32_average:
    case CallKind::int32_sum:
      return sizeof(uint32_t);
    case CallKind::float16_sum:
    case CallKind::float16_average:
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
    case CallKind::int16_sum:
      return sizeof(uint16_t);
    case CallKind::int8_sum:
    case CallKind::uint8_sum:
    case CallKind::bool_sum:
    case CallKind::bytes:
    case CallKind::barrier:
      return 1;
  }
  return 1;
}

void require_memory(const uint8_t* memory, uint64_t elements, CallKind kind) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (address % element_bytes(kind) != 0) {
    throw std::invalid_argument("the array's memory is not aligned to its elements");
  }
  if (elements > UINT64_MAX / 8 || (elements > 0 && address == 0)) {
    throw std::invalid_argument("no array has " + std::to_string(elements) + " elements at address " +
                                std::to_string(address));
  }
}

// A block that no rank sends is written by none, so its sums must be where its values are.
bool can_be_sparse(const Arrays& arrays, const Geometry& geometry) {
  return geometry.optional_values != 0 && arrays.division == Division::whole && arrays.input == arrays.output;
}

std::unique_ptr<Codec> make_codec(CallKind kind, const Arrays& arrays, bool contributes, const Geometry& geometry,
                                  const Lanes& lanes, Form form) {
  require_division(kind, arrays, geometry.world_size);
  require_lanes(lanes, geometry.world_size);
  require_format(kind, lanes, form, geometry);
  if (arrays.elements == 0 || kind == CallKind::barrier) {
    return std::make_unique<NoValues>(geometry);
  }
  if (lanes.format == wire::Format::float32) {
    return make_float_words(kind, arrays, geometry);
  }
  if (kind == CallKind::int64_sum) {
    return std::make_unique<LongIntegers>(arrays, geometry);
  }
  if (kind == CallKind::float64_sum || kind == CallKind::float64_average) {
    return std::make_unique<Doubles>(arrays, kind == CallKind::float64_average, geometry);
  }
  if (kind == CallKind::bytes) {
    return std::make_unique<Bytes>(arrays, contributes, geometry);
  }
  const auto make_dense = [=] { return make_sum(kind, arrays, geometry, lanes); };
  if (form == Form::dense || !can_be_sparse(arrays, geometry)) {
    return make_dense();
  }
  const bool agrees = AgreedBlocks::suit(geometry);
  auto blocks = agrees ? make_sum(kind, arrays, AgreedBlocks::geometry_of(geometry), lanes) : make_dense();
  if (!agrees && !Sparse::can_name(blocks->chunks(), geometry)) {
    return blocks;
  }
  const auto make_sparse = [=](std::unique_ptr<BlockCodec> of_blocks) -> std::unique_ptr<Codec> {
    if (agrees) {
      return std::make_unique<Agreement>(std::move(of_blocks), make_dense, geometry);
    }
    return std::make_unique<Sparse>(std::move(of_blocks), geometry);
  };
  if (form == Form::sparse && Sample::suits(blocks->chunks())) {
    const double largest_share = agrees ? AgreedBlocks::kLargestShare : Sparse::kLargestShare;
    return std::make_unique<Sample>(std::move(blocks), largest_share, make_sparse, make_dense, geometry);
  }
  return make_sparse(std::move(blocks));
}

bool all_within(CallKind kind, const uint8_t* memory, uint64_t elements, int32_t bound) {
  return with_integer(kind, [&](auto integer) {
    return kernels::all_within(reinterpret_cast<const decltype(integer)*>(memory), elements, bound);
  });
}

}  // namespace switchml::client
