// The binary interface between NCCL and its network plugins, versions 8 (NCCL 2.20) and 11 (NCCL 2.28), in our own
// words: NCCL installs no header for it. Where NCCL's headers say what each function must do, src/include/plugin/net of
// NCCL's sources is meant.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml::nccl {

enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

constexpr int kSum = 0;  // of NCCL's operations; it computes averages from sums

constexpr int kHostMemory = 1;        // of the kinds of memory that a plugin may register
constexpr size_t kHandleBytes = 128;  // that listen() may write for the other ranks
constexpr int kMostRequests = 32;     // in flight on a connection
constexpr int kLogWarning = 2;
constexpr unsigned long kLogNetwork = 0x10;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct PropertiesV8 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int speed;  // Mb/s
  int port;
  float latency;  // microseconds; 0: unknown
  int most_connections;
  int most_receives;  // in one irecv()
  int device_type;    // of GPUs that drive the network: 0, none
  int device_version;
};

struct PropertiesV11 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int pointer_support;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int device_type;
  int device_version;
  struct {
    int count;
    int devices[4];
  } physical;  // devices that this one consists of
  size_t most_bytes;
  size_t most_collective_bytes;
  int most_grouped_requests;
};

struct NetV8 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, void** device_handle);
  Result (*accept)(void* listener, void** receiver, void** device_handle);
  Result (*register_memory)(void* connection, void* data, size_t bytes, int kind, void** registration);
  Result (*register_dma_buffer)(void* connection, void* data, size_t bytes, int kind, uint64_t offset, int descriptor,
                                void** registration);
  Result (*deregister_memory)(void* connection, void* registration);
  Result (*isend)(void* sender, void* data, int bytes, int tag, void* registration, void** request);
  Result (*irecv)(void* receiver, int count, void** data, int* bytes, int* tags, void** registrations, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_sender)(void* sender);
  Result (*close_receiver)(void* receiver);
  Result (*close_listener)(void* listener);
  void* for_devices[2];  // functions of plugins that GPUs drive
};

struct NetV11 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, void* configuration, Logger logger, void* profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV11* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** sender, void** device_handle);
  Result (*accept)(void* listener, void** receiver, void** device_handle);
  Result (*register_memory)(void* connection, void* data, size_t bytes, int kind, void** registration);
  Result (*register_dma_buffer)(void* connection, void* data, size_t bytes, int kind, uint64_t offset, int descriptor,
                                void** registration);
  Result (*deregister_memory)(void* connection, void* registration);
  Result (*isend)(void* sender, void* data, size_t bytes, int tag, void* registration, void* profile, void** request);
  Result (*irecv)(void* receiver, int count, void** data, size_t* bytes, int* tags, void** registrations,
                  void** profiles, void** request);
  Result (*iflush)(void* receiver, int count, void** data, int* bytes, void** registrations, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_sender)(void* sender);
  Result (*close_receiver)(void* receiver);
  Result (*close_listener)(void* listener);
  void* for_devices[2];
  void* make_virtual_device;
  Result (*finalize)(void* context);
  void* set_attributes;
};

// One of the pieces of memory that a window of a larger array is in.
struct PieceV8 {
  void* registration;
  void* address;
  uint32_t bytes;
};

struct PieceV11 {
  void* registration;
  void* address;
  size_t bytes;
};

struct CollNetV8 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(void* handles[], int ranks, int rank, void* listener, void** group);
  Result (*reduce_support)(DataType type, int operation, int* supported);
  Result (*register_memory)(void* group, void* data, size_t bytes, int kind, void** registration);
  Result (*register_dma_buffer)(void* group, void* data, size_t bytes, int kind, uint64_t offset, int descriptor,
                                void** registration);
  Result (*deregister_memory)(void* group, void* registration);
  Result (*iallreduce)(void* group, void* input, void* output, int count, DataType type, int operation,
                       void* input_registration, void* output_registration, void** request);
  Result (*iallgather)(void* group, void* input, int pieces, PieceV8* output, size_t part_bytes, size_t window_offset,
                       size_t window_bytes, void* registration, void** request);
  Result (*ireducescatter)(void* group, int pieces, PieceV8* input, void* output, size_t part_bytes,
                           size_t window_offset, size_t window_bytes, DataType type, int operation, void* registration,
                           void** request);
  Result (*iflush)(void* group, void* data, int bytes, void* registration, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_group)(void* group);
  Result (*close_listener)(void* listener);
};

struct CollNetV11 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV11* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* handles[], int ranks, int rank, void* listener, void** group);
  Result (*reduce_support)(DataType type, int operation, int* supported);
  Result (*register_memory)(void* group, void* data, size_t bytes, int kind, void** registration);
  Result (*register_dma_buffer)(void* group, void* data, size_t bytes, int kind, uint64_t offset, int descriptor,
                                void** registration);
  Result (*deregister_memory)(void* group, void* registration);
  Result (*iallreduce)(void* group, void* input, void* output, size_t count, DataType type, int operation,
                       void* input_registration, void* output_registration, void** request);
  Result (*iallgather)(void* group, void* input, int pieces, PieceV11* output, size_t part_bytes, size_t window_offset,
                       size_t window_bytes, void* registration, void** request);
  Result (*ireducescatter)(void* group, int pieces, PieceV11* input, void* output, size_t part_bytes,
                           size_t window_offset, size_t window_bytes, DataType type, int operation, void* registration,
                           void** request);
  Result (*iflush)(void* group, void* data, int bytes, void* registration, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_group)(void* group);
  Result (*close_listener)(void* listener);
  void* make_virtual_device;
  Result (*finalize)(void* context);
};

}  // namespace switchml::nccl
