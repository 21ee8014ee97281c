#include "switchml/native/c_api/switchml.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "switchml/native/c_api/place_in_job.h"
#include "switchml/native/membership/failure.h"
#include "switchml/native/membership/membership.h"
#include "switchml/native/membership/version.h"

using switchml::client::CollectivePointer;
using switchml::client::CollectiveRequest;
using switchml::client::Failure;
using switchml::client::FailureError;
using switchml::client::FailureKind;
using switchml::client::Form;
using switchml::client::Membership;
using switchml::client::Operation;
using switchml::client::WireChoice;

struct switchml_comm {
  std::shared_ptr<Membership> membership;
  std::string job;
};

struct switchml_work {
  std::unique_ptr<Membership::Work> work;
};

namespace {

constexpr double kCallSeconds = 300;

#define EXPORTED __attribute__((visibility("default")))

// The error of a thread, with the memory that the caller sees.
struct LastError {
  Failure failure;
  switchml_error seen{};
};
thread_local LastError last_error;

switchml_status set_error(switchml_status status, Failure failure) {
  last_error.failure = std::move(failure);
  const Failure& kept = last_error.failure;
  last_error.seen = {status,
                     kept.message.c_str(),
                     kept.reason.c_str(),
                     kept.ranks.data(),
                     kept.ranks.size(),
                     kept.indices.data(),
                     kept.indices.size(),
                     kept.count,
                     kept.world.completed};
  return status;
}

switchml_status set_error(switchml_status status, const char* message) {
  Failure failure;
  failure.message = message;
  return set_error(status, std::move(failure));
}

switchml_status status_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::connect:
      return SWITCHML_CONNECT_ERROR;
    case FailureKind::unsupported_tensor:
      return SWITCHML_UNSUPPORTED_TYPE;
    case FailureKind::non_finite:
      return SWITCHML_NON_FINITE;
    case FailureKind::collective_timeout:
      return SWITCHML_COLLECTIVE_TIMEOUT;
    case FailureKind::collective_mismatch:
      return SWITCHML_COLLECTIVE_MISMATCH;
    case FailureKind::integrity:
      return SWITCHML_INTEGRITY_ERROR;
    case FailureKind::worker_lost:
      return SWITCHML_WORKER_LOST;
    case FailureKind::world_changed:
      return SWITCHML_WORLD_CHANGED;
    case FailureKind::rank_closed:
      return SWITCHML_RANK_CLOSED;
    case FailureKind::job_ended:
      return SWITCHML_JOB_ENDED;
    case FailureKind::job_failed:
      return SWITCHML_JOB_FAILED;
    case FailureKind::switch_lost:
      return SWITCHML_SWITCH_LOST;
    case FailureKind::epoch_spent:
      return SWITCHML_EPOCH_SPENT;
    case FailureKind::agent_lost:
      return SWITCHML_AGENT_LOST;
    case FailureKind::closed:
      return SWITCHML_COMM_CLOSED;
  }
  return SWITCHML_INTERNAL_ERROR;
}

// Runs the body of a function of the interface; no exception leaves it.
template <typename Body>
switchml_status guarded(Body body) {
  try {
    body();
    return SWITCHML_OK;
  } catch (const FailureError& error) {
    return set_error(status_of(error.failure().kind), error.failure());
  } catch (const std::invalid_argument& error) {
    return set_error(SWITCHML_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return set_error(SWITCHML_NO_MEMORY, "this process can get no more memory. Nothing was sent");
  } catch (const std::exception& error) {
    return set_error(SWITCHML_INTERNAL_ERROR, error.what());
  }
}

template <typename Pointer>
Pointer* required(Pointer* given, const char* name) {
  if (given == nullptr) throw std::invalid_argument(std::string(name) + " is NULL");
  return given;
}

// Returns the caller's struct, with the members that it lacks as in `usual`.
template <typename Options>
Options complete(const Options* given, Options usual) {
  if (given == nullptr) return usual;
  if (given->size < sizeof given->size || given->size > 4 * sizeof usual) {
    throw std::invalid_argument("the `size` of the options is " + std::to_string(given->size) +
                                "; initialize them with the macro of their name");
  }
  std::memcpy(&usual, given, std::min(given->size, sizeof usual));
  return usual;
}

double seconds(double given, double usual) {
  if (!(std::isfinite(given) && given >= 0)) {
    throw std::invalid_argument("timeout is " + std::to_string(given) + "; it must be a positive number of seconds");
  }
  return given == 0 ? usual : given;
}

struct Type {
  const char* name;
  uint32_t bytes;
};

const Type& type_of(switchml_type type) {
  static constexpr std::array<Type, 13> kTypes{{{"float32", 4},
                                                {"float16", 2},
                                                {"bfloat16", 2},
                                                {"float64", 8},
                                                {"int8", 1},
                                                {"int16", 2},
                                                {"int32", 4},
                                                {"int64", 8},
                                                {"uint8", 1},
                                                {"uint16", 2},
                                                {"uint32", 4},
                                                {"uint64", 8},
                                                {"bool", 1}}};
  const auto number = static_cast<size_t>(type);
  if (number >= kTypes.size())
    throw std::invalid_argument("type " + std::to_string(number) + " is not a switchml_type");
  return kTypes[number];
}

// The memory of a call. `count` is in elements: of a part, if there is one for each rank.
struct Arrays {
  const void* input;
  void* output;
  uint64_t count;
};

void require_memory(const void* memory, const Arrays& arrays, uint32_t bytes) {
  if (memory == nullptr && arrays.count > 0) {
    throw std::invalid_argument("memory of " + std::to_string(arrays.count) + " elements is NULL");
  }
  if (reinterpret_cast<uintptr_t>(memory) % bytes != 0) {
    throw std::invalid_argument("memory is not aligned to its type, which has " + std::to_string(bytes) + " bytes");
  }
}

// Makes a call; waits for it if `work` is null.
switchml_status call(switchml_comm* comm, CollectiveRequest request, const Arrays& arrays, bool parts,
                     const switchml_call_options* given, switchml_work** work) {
  return guarded([&] {
    Membership& membership = *required(comm, "comm")->membership;
    const switchml_call_options options = complete<switchml_call_options>(given, SWITCHML_CALL_OPTIONS_INIT);
    if (options.wire != nullptr) request.wire = WireChoice::parse(options.wire);
    if (options.skip_zeros < SWITCHML_SEND_ALL || options.skip_zeros > SWITCHML_SKIP_AUTOMATIC) {
      throw std::invalid_argument("skip_zeros is not one of enum switchml_skip_zeros");
    }
    request.form = static_cast<Form>(options.skip_zeros);
    const uint64_t ranks = parts ? membership.world_size() : 1;
    if (arrays.count > std::numeric_limits<int64_t>::max() / ranks) {
      throw std::invalid_argument("no array has " + std::to_string(arrays.count) + " elements for each rank");
    }
    request.elements = arrays.count * ranks;
    if (request.element_bytes > 0) {
      require_memory(arrays.input, arrays, request.element_bytes);
      require_memory(arrays.output, arrays, request.element_bytes);
    }
    const CollectivePointer collective = membership.describe(std::move(request));
    auto submitted =
        membership.submit(collective, static_cast<const uint8_t*>(arrays.input), static_cast<uint8_t*>(arrays.output),
                          seconds(options.timeout, kCallSeconds), work == nullptr);
    if (work == nullptr) {
      submitted->wait();
    } else {
      *work = new switchml_work{std::move(submitted)};
    }
  });
}

const char* name_of(switchml_op op) {
  if (op != SWITCHML_SUM && op != SWITCHML_AVERAGE) {
    throw std::invalid_argument("op is neither SWITCHML_SUM nor SWITCHML_AVERAGE");
  }
  return op == SWITCHML_SUM ? "sum" : "avg";
}

switchml_status call_over(Operation operation, switchml_comm* comm, const Arrays& arrays, switchml_type type,
                          const switchml_op* op, uint32_t root, const switchml_call_options* options,
                          switchml_work** work) {
  CollectiveRequest request;
  const switchml_status status = guarded([&] {
    request.operation = operation;
    request.dtype = type_of(type).name;
    request.element_bytes = type_of(type).bytes;
    request.root = root;
    if (op != nullptr) request.op = name_of(*op);
  });
  if (status != SWITCHML_OK) return status;
  const bool parts = operation == Operation::reduce_scatter || operation == Operation::all_gather;
  return call(comm, std::move(request), arrays, parts, options, work);
}

}  // namespace

extern "C" {

EXPORTED const switchml_error* switchml_last_error() { return &last_error.seen; }

EXPORTED const char* switchml_version() { return switchml::client::kVersion; }

EXPORTED const char* switchml_status_name(switchml_status status) {
  switch (status) {
#define NAME(status) \
  case status:       \
    return #status
    NAME(SWITCHML_OK);
    NAME(SWITCHML_NON_FINITE);
    NAME(SWITCHML_COLLECTIVE_TIMEOUT);
    NAME(SWITCHML_COLLECTIVE_MISMATCH);
    NAME(SWITCHML_INTEGRITY_ERROR);
    NAME(SWITCHML_WORKER_LOST);
    NAME(SWITCHML_WORLD_CHANGED);
    NAME(SWITCHML_RANK_CLOSED);
    NAME(SWITCHML_JOB_ENDED);
    NAME(SWITCHML_JOB_FAILED);
    NAME(SWITCHML_SWITCH_LOST);
    NAME(SWITCHML_EPOCH_SPENT);
    NAME(SWITCHML_AGENT_LOST);
    NAME(SWITCHML_COMM_CLOSED);
    NAME(SWITCHML_INVALID_ARGUMENT);
    NAME(SWITCHML_UNSUPPORTED_TYPE);
    NAME(SWITCHML_CONNECT_ERROR);
    NAME(SWITCHML_NO_MEMORY);
    NAME(SWITCHML_INTERNAL_ERROR);
#undef NAME
  }
  return "an unknown status";
}

EXPORTED switchml_status switchml_connect(const switchml_connect_options* given, switchml_comm** comm) {
  return guarded([&] {
    required(comm, "comm");
    const auto options = complete<switchml_connect_options>(given, SWITCHML_CONNECT_OPTIONS_INIT);
    const switchml::client::PlaceInJob place = switchml::client::place_in_job(options);
    auto membership = Membership::attach(place.agent, place.request, place.seconds);
    std::string job = membership->attachment().name;
    *comm = new switchml_comm{std::move(membership), std::move(job)};
  });
}

EXPORTED switchml_status switchml_comm_close(switchml_comm* comm, const char* loss) {
  return guarded([&] { required(comm, "comm")->membership->end(loss == nullptr ? "" : loss); });
}

EXPORTED void switchml_comm_free(switchml_comm* comm) {
  // A child of fork() has no threads to end: its copy of the memory stays.
  if (comm == nullptr || !comm->membership->is_own_process()) return;
  guarded([&] {
    comm->membership->end();
    delete comm;
  });
}

EXPORTED switchml_status switchml_comm_info(switchml_comm* comm, switchml_info* info) {
  return guarded([&] {
    required(info, "info");
    Membership& membership = *required(comm, "comm")->membership;
    const Membership::State state = membership.state();
    const auto communicator = membership.communicator();
    const auto& geometry = communicator->geometry();
    const size_t size = info->size;
    const switchml_info found{size,
                              comm->job.c_str(),
                              state.attachment.rank,
                              state.attachment.world_size,
                              state.attachment.epoch,
                              state.attachment.generation,
                              state.calls,
                              geometry.values,
                              geometry.slots,
                              geometry.results_apart == switchml::channel::Geometry::kInPlace,
                              state.failure ? status_of(state.failure->kind) : SWITCHML_OK};
    if (size < sizeof size || size > 4 * sizeof found) {
      throw std::invalid_argument("the `size` of the info is " + std::to_string(size) + "; set it to its sizeof");
    }
    std::memcpy(info, &found, std::min(size, sizeof found));
  });
}

EXPORTED switchml_status switchml_all_reduce(switchml_comm* comm, const void* input, void* output, uint64_t count,
                                             switchml_type type, switchml_op op, const switchml_call_options* options,
                                             switchml_work** work) {
  return call_over(Operation::all_reduce, comm, {input, output, count}, type, &op, 0, options, work);
}

EXPORTED switchml_status switchml_reduce_scatter(switchml_comm* comm, const void* input, void* output,
                                                 uint64_t part_count, switchml_type type, switchml_op op,
                                                 const switchml_call_options* options, switchml_work** work) {
  return call_over(Operation::reduce_scatter, comm, {input, output, part_count}, type, &op, 0, options, work);
}

EXPORTED switchml_status switchml_all_gather(switchml_comm* comm, const void* input, void* output, uint64_t part_count,
                                             switchml_type type, const switchml_call_options* options,
                                             switchml_work** work) {
  return call_over(Operation::all_gather, comm, {input, output, part_count}, type, nullptr, 0, options, work);
}

EXPORTED switchml_status switchml_broadcast(switchml_comm* comm, void* data, uint64_t count, switchml_type type,
                                            uint32_t root, const switchml_call_options* options, switchml_work** work) {
  return call_over(Operation::broadcast, comm, {data, data, count}, type, nullptr, root, options, work);
}

EXPORTED switchml_status switchml_barrier(switchml_comm* comm, const switchml_call_options* options,
                                          switchml_work** work) {
  return call(comm, {}, {nullptr, nullptr, 0}, false, options, work);
}

EXPORTED switchml_status switchml_work_test(switchml_work* work, int* ended) {
  return guarded([&] { *required(ended, "ended") = required(work, "work")->work->has_ended() ? 1 : 0; });
}

EXPORTED switchml_status switchml_work_wait(switchml_work* work) {
  return guarded([&] { required(work, "work")->work->wait(); });
}

EXPORTED void switchml_work_free(switchml_work* work) {
  if (work != nullptr && work->work->is_own_process()) delete work;  // else as above
}

}  // extern "C"
