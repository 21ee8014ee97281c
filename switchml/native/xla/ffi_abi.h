// The part of XLA's foreign function interface that a handler needs: xla/ffi/api/c_api.h, version 0.3, in this
// project's words. XLA keeps the layout of these structs and adds members at their ends. They are declared here so that
// the wheel can be built without JAX; tests/jax compares them with the header of the installed JAX.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml::xla {

constexpr int kMajorVersion = 0;
constexpr int kMinorVersion = 3;
constexpr int kSilentMinorVersion = 1;  // of an XLA that does not say its version when it asks for metadata

constexpr int32_t kMetadataExtension = 1;
constexpr int32_t kExecute = 3;  // the stage of a call
constexpr int32_t kScalar = 3;   // a type of attribute

// Codes of errors, which JAX puts before their text.
enum class ErrorCode : int32_t { invalid_argument = 3, aborted = 10, internal = 13 };

// Types of elements.
enum class DataType : int32_t {
  boolean = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  uint8 = 6,
  uint16 = 7,
  uint32 = 8,
  uint64 = 9,
  float16 = 10,
  float32 = 11,
  float64 = 12,
  bfloat16 = 16,
  token = 17
};

struct Extension {
  size_t size;
  int32_t type;
  Extension* next;
};

struct Version {
  size_t size;
  Extension* extensions;
  int major;
  int minor;
};

// XLA's object for the error of a call.
struct Error;

struct ErrorArguments {
  size_t size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

// The functions that XLA offers to handlers, up to the first.
struct Api {
  size_t size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorArguments* arguments);
};

struct Buffer {
  size_t size;
  Extension* extensions;
  DataType type;
  void* data;
  int64_t dimensions;
  const int64_t* lengths;
};

// Arguments or results; all are buffers.
struct Buffers {
  size_t size;
  Extension* extensions;
  int64_t count;
  const int32_t* types;
  void** values;
};

struct ByteSpan {
  const char* begin;
  size_t size;
};

struct Scalar {
  DataType type;
  void* value;
};

struct Attributes {
  size_t size;
  Extension* extensions;
  int64_t count;
  const int32_t* types;
  ByteSpan** names;
  void** values;
};

struct CallFrame {
  size_t size;
  Extension* extensions;
  const Api* api;
  void* context;
  int32_t stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

// The properties of a handler, which it tells XLA.
struct Metadata {
  size_t size;
  Version version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace switchml::xla
