// Compares the declarations of switchml/native/xla/ffi_abi.h with JAX's header. It is only compiled.
#include "switchml/native/xla/ffi_abi.h"

#include "xla/ffi/api/c_api.h"

namespace ours = switchml::xla;

#define SAME_PLACE(type, member, xla_type, xla_member)                                  \
  static_assert(offsetof(ours::type, member) == offsetof(xla_type, xla_member), #type); \
  static_assert(sizeof(ours::type::member) == sizeof(xla_type::xla_member), #type)

#define SAME_NUMBER(number, xla_number) static_assert(static_cast<int>(number) == static_cast<int>(xla_number), #number)

SAME_NUMBER(ours::kMajorVersion, XLA_FFI_API_MAJOR);
SAME_NUMBER(ours::kMetadataExtension, XLA_FFI_Extension_Metadata);
SAME_NUMBER(ours::kExecute, XLA_FFI_ExecutionStage_EXECUTE);
SAME_NUMBER(ours::kScalar, XLA_FFI_AttrType_SCALAR);
SAME_NUMBER(ours::ErrorCode::invalid_argument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_NUMBER(ours::ErrorCode::aborted, XLA_FFI_Error_Code_ABORTED);
SAME_NUMBER(ours::ErrorCode::internal, XLA_FFI_Error_Code_INTERNAL);
SAME_NUMBER(ours::DataType::boolean, XLA_FFI_DataType_PRED);
SAME_NUMBER(ours::DataType::int8, XLA_FFI_DataType_S8);
SAME_NUMBER(ours::DataType::int16, XLA_FFI_DataType_S16);
SAME_NUMBER(ours::DataType::int32, XLA_FFI_DataType_S32);
SAME_NUMBER(ours::DataType::int64, XLA_FFI_DataType_S64);
SAME_NUMBER(ours::DataType::uint8, XLA_FFI_DataType_U8);
SAME_NUMBER(ours::DataType::uint16, XLA_FFI_DataType_U16);
SAME_NUMBER(ours::DataType::uint32, XLA_FFI_DataType_U32);
SAME_NUMBER(ours::DataType::uint64, XLA_FFI_DataType_U64);
SAME_NUMBER(ours::DataType::float16, XLA_FFI_DataType_F16);
SAME_NUMBER(ours::DataType::float32, XLA_FFI_DataType_F32);
SAME_NUMBER(ours::DataType::float64, XLA_FFI_DataType_F64);
SAME_NUMBER(ours::DataType::bfloat16, XLA_FFI_DataType_BF16);
SAME_NUMBER(ours::DataType::token, XLA_FFI_DataType_TOKEN);

SAME_PLACE(Extension, size, XLA_FFI_Extension_Base, struct_size);
SAME_PLACE(Extension, type, XLA_FFI_Extension_Base, type);
SAME_PLACE(Extension, next, XLA_FFI_Extension_Base, next);

SAME_PLACE(Version, major, XLA_FFI_Api_Version, major_version);
SAME_PLACE(Version, minor, XLA_FFI_Api_Version, minor_version);
static_assert(sizeof(ours::Version) == sizeof(XLA_FFI_Api_Version));

SAME_PLACE(ErrorArguments, size, XLA_FFI_Error_Create_Args, struct_size);
SAME_PLACE(ErrorArguments, message, XLA_FFI_Error_Create_Args, message);
SAME_PLACE(ErrorArguments, code, XLA_FFI_Error_Create_Args, errc);

SAME_PLACE(Api, version, XLA_FFI_Api, api_version);
SAME_PLACE(Api, create_error, XLA_FFI_Api, XLA_FFI_Error_Create);

SAME_PLACE(Buffer, type, XLA_FFI_Buffer, dtype);
SAME_PLACE(Buffer, data, XLA_FFI_Buffer, data);
SAME_PLACE(Buffer, dimensions, XLA_FFI_Buffer, rank);
SAME_PLACE(Buffer, lengths, XLA_FFI_Buffer, dims);

SAME_PLACE(Buffers, count, XLA_FFI_Args, size);
SAME_PLACE(Buffers, types, XLA_FFI_Args, types);
SAME_PLACE(Buffers, values, XLA_FFI_Args, args);
SAME_PLACE(Buffers, count, XLA_FFI_Rets, size);
SAME_PLACE(Buffers, types, XLA_FFI_Rets, types);
SAME_PLACE(Buffers, values, XLA_FFI_Rets, rets);
static_assert(sizeof(ours::Buffers) == sizeof(XLA_FFI_Args) && sizeof(ours::Buffers) == sizeof(XLA_FFI_Rets));

SAME_PLACE(ByteSpan, begin, XLA_FFI_ByteSpan, ptr);
SAME_PLACE(ByteSpan, size, XLA_FFI_ByteSpan, len);
SAME_PLACE(Scalar, type, XLA_FFI_Scalar, dtype);
SAME_PLACE(Scalar, value, XLA_FFI_Scalar, value);

SAME_PLACE(Attributes, count, XLA_FFI_Attrs, size);
SAME_PLACE(Attributes, types, XLA_FFI_Attrs, types);
SAME_PLACE(Attributes, names, XLA_FFI_Attrs, names);
SAME_PLACE(Attributes, values, XLA_FFI_Attrs, attrs);

SAME_PLACE(CallFrame, extensions, XLA_FFI_CallFrame, extension_start);
SAME_PLACE(CallFrame, api, XLA_FFI_CallFrame, api);
SAME_PLACE(CallFrame, stage, XLA_FFI_CallFrame, stage);
SAME_PLACE(CallFrame, arguments, XLA_FFI_CallFrame, args);
SAME_PLACE(CallFrame, results, XLA_FFI_CallFrame, rets);
SAME_PLACE(CallFrame, attributes, XLA_FFI_CallFrame, attrs);

SAME_PLACE(Metadata, version, XLA_FFI_Metadata, api_version);
SAME_PLACE(Metadata, traits, XLA_FFI_Metadata, traits);
SAME_PLACE(MetadataExtension, base, XLA_FFI_Metadata_Extension, extension_base);
SAME_PLACE(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
