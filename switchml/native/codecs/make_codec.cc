#include "switchml/native/codecs/make_codec.h"

#include <stdexcept>

#include "switchml/native/codecs/block_float.h"
#include "switchml/native/codecs/limbs.h"
#include "switchml/native/codecs/words.h"

namespace switchml::client {

namespace {

template <typename Value>
std::unique_ptr<Codec> make_float(uint8_t* memory, uint64_t elements, bool average, const channel::Geometry& geometry,
                                  const Lanes& lanes) {
  if (lanes.bits == Codec::kWordBits) {
    return std::make_unique<BlockFloat<Value>>(memory, elements, average, geometry);
  }
  return std::make_unique<NarrowFloat<Value>>(memory, elements, average, lanes, geometry);
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

std::unique_ptr<Codec> make_integers(CallKind kind, uint8_t* memory, uint64_t elements,
                                     const channel::Geometry& geometry, const Lanes& lanes) {
  const bool streaming = geometry.streaming != 0;
  if (kind == CallKind::int32_sum && lanes.bits == Codec::kWordBits) {
    return std::make_unique<Integers>(memory, elements, geometry.values, streaming);
  }
  return with_integer(kind, [&](auto integer) -> std::unique_ptr<Codec> {
    return std::make_unique<NarrowIntegers<decltype(integer)>>(memory, elements, lanes.bits, geometry.values,
                                                               streaming);
  });
}

}  // namespace

uint32_t element_bytes(CallKind kind) {
  switch (kind) {
    case CallKind::int64_sum:
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

std::unique_ptr<Codec> make_codec(CallKind kind, uint8_t* memory, uint64_t elements, bool contributes,
                                  const channel::Geometry& geometry, const Lanes& lanes) {
  if (elements == 0) {
    return std::make_unique<NoValues>(geometry.values);
  }
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
      return make_float<float>(memory, elements, kind == CallKind::float32_average, geometry, lanes);
    case CallKind::float16_sum:
    case CallKind::float16_average:
      return make_float<kernels::Float16>(memory, elements, kind == CallKind::float16_average, geometry, lanes);
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return make_float<kernels::BFloat16>(memory, elements, kind == CallKind::bfloat16_average, geometry, lanes);
    case CallKind::int32_sum:
    case CallKind::int16_sum:
    case CallKind::int8_sum:
    case CallKind::uint8_sum:
    case CallKind::bool_sum:
      return make_integers(kind, memory, elements, geometry, lanes);
    case CallKind::int64_sum:
      return std::make_unique<LongIntegers>(memory, elements, geometry);
    case CallKind::bytes:
      return std::make_unique<Bytes>(memory, elements, contributes, geometry.values, geometry.streaming != 0);
    case CallKind::barrier:
      break;
  }
  return std::make_unique<NoValues>(geometry.values);
}

bool all_within(CallKind kind, const uint8_t* memory, uint64_t elements, int32_t bound) {
  return with_integer(kind, [&](auto integer) {
    return kernels::all_within(reinterpret_cast<const decltype(integer)*>(memory), elements, bound);
  });
}

}  // namespace switchml::client
