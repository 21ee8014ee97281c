#include "switchml/native/codecs/make_codec.h"

#include "switchml/native/codecs/block_float.h"
#include "switchml/native/codecs/words.h"

namespace switchml::client {

uint32_t element_bytes(CallKind kind) {
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
    case CallKind::int32_sum:
      return sizeof(uint32_t);
    case CallKind::float16_sum:
    case CallKind::float16_average:
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return sizeof(uint16_t);
    case CallKind::bytes:
    case CallKind::barrier:
      return 1;
  }
  return 1;
}

std::unique_ptr<Codec> make_codec(CallKind kind, uint8_t* memory, uint64_t elements, bool contributes,
                                  const channel::Geometry& geometry) {
  const bool streaming = geometry.streaming != 0;
  if (elements == 0) {
    return std::make_unique<NoValues>(geometry.values);
  }
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
      return std::make_unique<BlockFloat<float>>(memory, elements, kind == CallKind::float32_average, geometry);
    case CallKind::float16_sum:
    case CallKind::float16_average:
      return std::make_unique<BlockFloat<kernels::Float16>>(memory, elements, kind == CallKind::float16_average,
                                                            geometry);
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return std::make_unique<BlockFloat<kernels::BFloat16>>(memory, elements, kind == CallKind::bfloat16_average,
                                                             geometry);
    case CallKind::int32_sum:
      return std::make_unique<Integers>(memory, elements, geometry.values, streaming);
    case CallKind::bytes:
      return std::make_unique<Bytes>(memory, elements, contributes, geometry.values, streaming);
    case CallKind::barrier:
      break;
  }
  return std::make_unique<NoValues>(geometry.values);
}

}  // namespace switchml::client
