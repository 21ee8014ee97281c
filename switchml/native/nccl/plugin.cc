// The tables of functions that NCCL looks for in libnccl-net-switchml.so.
#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "switchml/native/nccl/collective_group.h"
#include "switchml/native/nccl/host_interfaces.h"
#include "switchml/native/nccl/log.h"
#include "switchml/native/nccl/nccl_interface.h"
#include "switchml/native/nccl/tcp_net.h"

namespace switchml::nccl {

namespace {

constexpr const char* kName = "SwitchML";
constexpr size_t kMostBytes = size_t{1} << 30;  // of a call

// Runs the body of a function that NCCL calls; no exception leaves it.
template <typename Body>
Result guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return warn(kInternalError, error.what());
  }
}

const std::vector<HostInterface>& interfaces() {
  static const std::vector<HostInterface> kFound = host_interfaces();
  return kFound;
}

bool is_device(int device) { return device >= 0 && static_cast<size_t>(device) < interfaces().size(); }

// Memory needs no registration, but it must be the host's.
Result register_memory(void*, void*, size_t, int kind, void** registration) {
  *registration = nullptr;
  return kind == kHostMemory
             ? kSuccess
             : warn(kInvalidUsage, "memory of a GPU cannot be sent; NCCL should have copied it to the host");
}

Result register_dma_buffer(void*, void*, size_t, int, uint64_t, int, void**) {
  return warn(kInvalidUsage, "memory of a GPU cannot be sent; NCCL should have copied it to the host");
}

Result deregister_memory(void*, void*) { return kSuccess; }

Result finalize(void*) { return kSuccess; }

template <typename Properties>
Result get_properties(int device, Properties* properties) {
  return guarded([&] {
    if (!is_device(device)) return warn(kInvalidArgument, "there is no network device " + std::to_string(device));
    const HostInterface& interface = interfaces()[static_cast<size_t>(device)];
    *properties = {};
    properties->name = interface.name.c_str();
    properties->pci_path = interface.pci_path.empty() ? nullptr : interface.pci_path.c_str();
    properties->guid = static_cast<uint64_t>(device);
    properties->pointer_support = kHostMemory;
    properties->speed = interface.megabits_per_second;
    properties->most_connections = 65536;
    properties->most_receives = 1;
    return kSuccess;
  });
}

template <>
Result get_properties(int device, PropertiesV11* properties) {
  PropertiesV8 common{};
  const Result result = get_properties(device, &common);
  *properties = {};
  properties->name = common.name;
  properties->pci_path = common.pci_path;
  properties->guid = common.guid;
  properties->pointer_support = common.pointer_support;
  properties->speed = common.speed;
  properties->most_connections = common.most_connections;
  properties->most_receives = common.most_receives;
  properties->physical = {1, {device}};
  properties->most_bytes = kMostBytes;
  properties->most_collective_bytes = kMostBytes;
  properties->most_grouped_requests = 1;
  return result;
}

// ---- point to point ---------------------------------------------------------------------------------------------

Result count_devices(int* count) {
  return guarded([&] {
    *count = static_cast<int>(interfaces().size());
    return *count > 0 ? kSuccess : warn(kSystemError, "no network interface is up that NCCL_SOCKET_IFNAME admits");
  });
}

Result listen(int device, void* handle, void** listener) {
  return guarded([&] {
    *listener = nullptr;
    if (!is_device(device)) return warn(kInvalidArgument, "there is no network device " + std::to_string(device));
    *listener = Listener::listen(interfaces()[static_cast<size_t>(device)], handle).release();
    return *listener == nullptr ? kSystemError : kSuccess;
  });
}

Result connect(int, void* handle, void** sender, void**) {
  return guarded([&] {
    static Connector connector;
    std::unique_ptr<Sender> connected;
    const Result result = connector.connect(handle, &connected);
    *sender = static_cast<Connection*>(connected.release());
    return result;
  });
}

Result accept(void* listener, void** receiver, void**) {
  return guarded([&] {
    *receiver = static_cast<Connection*>(static_cast<Listener*>(listener)->accept().release());
    return kSuccess;
  });
}

Result post(void* connection, void* data, size_t bytes, void** request) {
  return guarded([&] {
    auto* const used = static_cast<Connection*>(connection);
    *request = used->post(data, bytes);
    return used->progress();
  });
}

Result iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;  // what arrived is in the host's memory
  return kSuccess;
}

Result test_message(void* request, int* done, int* bytes) {
  return guarded([&] {
    auto* const message = static_cast<Message*>(request);
    const Result result = message->done ? kSuccess : message->connection->progress();
    *done = message->done ? 1 : 0;
    if (!message->done) return result;
    if (bytes != nullptr) *bytes = static_cast<int>(message->bytes);
    message->connection->release(message);
    return kSuccess;
  });
}

Result close_connection(void* connection) {
  delete static_cast<Connection*>(connection);
  return kSuccess;
}

Result close_listener(void* listener) {
  delete static_cast<Listener*>(listener);
  return kSuccess;
}

template <typename Size>
Result receive(void* receiver, int count, void** data, const Size* bytes, void** request) {
  if (count != 1) return warn(kInvalidUsage, std::to_string(count) + " messages in one irecv(); the plugin offers one");
  return post(receiver, data[0], static_cast<size_t>(bytes[0]), request);
}

// ---- collectives ------------------------------------------------------------------------------------------------

// One device: the network of the agent on this host. Whether there is an agent is found, and said, by join_group().
Result count_collective_devices(int* count) {
  *count = 1;
  return kSuccess;
}

Result listen_for_group(int, void* handle, void** listener) {
  *listener = nullptr;  // the agents find the ranks
  return write_group_handle(handle);
}

Result close_group_listener(void*) { return kSuccess; }

Result join_group(void* handles[], int ranks, int rank, void*, void** group) {
  return guarded([&] {
    *group = CollectiveGroup::join(handles, ranks, rank).release();
    return *group == nullptr ? kSystemError : kSuccess;
  });
}

Result reduce_support(DataType type, int operation, int* supported) {
  *supported = operation == kSum && has_sum(type) ? 1 : 0;
  return kSuccess;
}

// Begins a call of a group by `begin(group, &request)`.
template <typename Begin>
Result begin(void* group, int operation, int pieces, void** request, Begin begin) {
  return guarded([&] {
    *request = nullptr;
    if (operation != kSum) return warn(kInvalidArgument, "operation " + std::to_string(operation) + " is not a sum");
    if (pieces != 1)
      return warn(kInvalidUsage, "a window is in " + std::to_string(pieces) + " pieces of memory, not 1");
    std::unique_ptr<CollectiveGroup::Request> begun;
    const Result result = begin(static_cast<CollectiveGroup*>(group), &begun);
    *request = begun.release();
    return result;
  });
}

template <typename Count>
Result iallreduce(void* group, void* input, void* output, Count count, DataType type, int operation, void*, void*,
                  void** request) {
  return begin(group, operation, 1, request, [&](CollectiveGroup* joined, auto* begun) {
    return joined->all_reduce(input, output, static_cast<size_t>(count), type, begun);
  });
}

template <typename Piece>
Result iallgather(void* group, void* input, int pieces, Piece* output, size_t part_bytes, size_t window_offset,
                  size_t window_bytes, void*, void** request) {
  return begin(group, kSum, pieces, request, [&](CollectiveGroup* joined, auto* begun) {
    return joined->all_gather(input, output->address, {part_bytes, window_offset, window_bytes}, begun);
  });
}

template <typename Piece>
Result ireducescatter(void* group, int pieces, Piece* input, void* output, size_t part_bytes, size_t window_offset,
                      size_t window_bytes, DataType type, int operation, void*, void** request) {
  return begin(group, operation, pieces, request, [&](CollectiveGroup* joined, auto* begun) {
    return joined->reduce_scatter(input->address, output, {part_bytes, window_offset, window_bytes}, type, begun);
  });
}

Result flush_group(void*, void*, int, void*, void** request) {
  *request = nullptr;
  return kSuccess;
}

Result test_call(void* request, int* done, int* bytes) {
  return guarded([&] {
    auto* const call = static_cast<CollectiveGroup::Request*>(request);
    bool ended = false;
    const Result result = call->test(&ended);
    *done = ended ? 1 : 0;
    if (ended && bytes != nullptr) *bytes = static_cast<int>(std::min(call->bytes(), kMostBytes));
    if (ended || result != kSuccess) delete call;
    return result;
  });
}

Result close_group(void* group) {
  delete static_cast<CollectiveGroup*>(group);
  return kSuccess;
}

// ---- functions of one version ---------------------------------------------------------------------------------

Result init(Logger logger) {
  set_logger(logger);
  return kSuccess;
}

Result init_net(void** context, uint64_t, void*, Logger logger, void*) {
  *context = nullptr;
  return init(logger);
}

Result init_collnet(void** context, uint64_t, Logger logger) {
  *context = nullptr;
  return init(logger);
}

Result isend_v8(void* sender, void* data, int bytes, int, void*, void** request) {
  return post(sender, data, static_cast<size_t>(bytes), request);
}

Result isend_v11(void* sender, void* data, size_t bytes, int, void*, void*, void** request) {
  return post(sender, data, bytes, request);
}

Result irecv_v8(void* receiver, int count, void** data, int* bytes, int*, void**, void** request) {
  return receive(receiver, count, data, bytes, request);
}

Result irecv_v11(void* receiver, int count, void** data, size_t* bytes, int*, void**, void**, void** request) {
  return receive(receiver, count, data, bytes, request);
}

Result listen_v11(void*, int device, void* handle, void** listener) { return listen(device, handle, listener); }

Result connect_v11(void*, int device, void* handle, void** sender, void** device_handle) {
  return connect(device, handle, sender, device_handle);
}

Result listen_for_group_v11(void*, int device, void* handle, void** listener) {
  return listen_for_group(device, handle, listener);
}

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED extern const NetV8 ncclNetPlugin_v8;
EXPORTED extern const NetV11 ncclNetPlugin_v11;
EXPORTED extern const CollNetV8 ncclCollNetPlugin_v8;
EXPORTED extern const CollNetV11 ncclCollNetPlugin_v11;

const NetV8 ncclNetPlugin_v8{kName,
                             init,
                             count_devices,
                             get_properties<PropertiesV8>,
                             listen,
                             connect,
                             accept,
                             register_memory,
                             register_dma_buffer,
                             deregister_memory,
                             isend_v8,
                             irecv_v8,
                             iflush,
                             test_message,
                             close_connection,
                             close_connection,
                             close_listener,
                             {}};

const NetV11 ncclNetPlugin_v11{kName,
                               init_net,
                               count_devices,
                               get_properties<PropertiesV11>,
                               listen_v11,
                               connect_v11,
                               accept,
                               register_memory,
                               register_dma_buffer,
                               deregister_memory,
                               isend_v11,
                               irecv_v11,
                               iflush,
                               test_message,
                               close_connection,
                               close_connection,
                               close_listener,
                               {},
                               nullptr,
                               finalize,
                               nullptr};

const CollNetV8 ncclCollNetPlugin_v8{kName,
                                     init,
                                     count_collective_devices,
                                     get_properties<PropertiesV8>,
                                     listen_for_group,
                                     join_group,
                                     reduce_support,
                                     register_memory,
                                     register_dma_buffer,
                                     deregister_memory,
                                     iallreduce<int>,
                                     iallgather<PieceV8>,
                                     ireducescatter<PieceV8>,
                                     flush_group,
                                     test_call,
                                     close_group,
                                     close_group_listener};

const CollNetV11 ncclCollNetPlugin_v11{kName,
                                       init_collnet,
                                       count_collective_devices,
                                       get_properties<PropertiesV11>,
                                       listen_for_group_v11,
                                       join_group,
                                       reduce_support,
                                       register_memory,
                                       register_dma_buffer,
                                       deregister_memory,
                                       iallreduce<size_t>,
                                       iallgather<PieceV11>,
                                       ireducescatter<PieceV11>,
                                       flush_group,
                                       test_call,
                                       close_group,
                                       close_group_listener,
                                       nullptr,
                                       finalize};

}  // extern "C"

}  // namespace switchml::nccl
