#include "switchml/native/nccl/collective_group.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "switchml/native/nccl/log.h"

namespace switchml::nccl {

namespace {

constexpr double kJoinSeconds = 30;
// A rank may be late by an evaluation or a checkpoint, and NCCL has no limit; the agents notice ranks that are lost.
constexpr double kCallSeconds = 24.0 * 3600;

struct GroupHandle {
  std::array<char, 8> version;
  std::array<unsigned char, 16> key;
};
static_assert(sizeof(GroupHandle) <= kHandleBytes);
constexpr std::array<char, 8> kVersion{'s', 'w', 'm', 'l', 'c', 'o', 'l', '1'};

struct SummedType {
  DataType type;
  switchml_type known_as;
  uint32_t bytes;
};
constexpr std::array<SummedType, 10> kTypes{{{kInt8, SWITCHML_INT8, 1},
                                             {kUint8, SWITCHML_UINT8, 1},
                                             {kInt32, SWITCHML_INT32, 4},
                                             {kUint32, SWITCHML_UINT32, 4},
                                             {kInt64, SWITCHML_INT64, 8},
                                             {kUint64, SWITCHML_UINT64, 8},
                                             {kFloat16, SWITCHML_FLOAT16, 2},
                                             {kFloat32, SWITCHML_FLOAT32, 4},
                                             {kFloat64, SWITCHML_FLOAT64, 8},
                                             {kBfloat16, SWITCHML_BFLOAT16, 2}}};

const SummedType* find(DataType type) {
  const auto* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const SummedType& each) { return each.type == type; });
  return found == kTypes.end() ? nullptr : found;
}

switchml_call_options call_options() {
  switchml_call_options options = SWITCHML_CALL_OPTIONS_INIT;
  options.timeout = kCallSeconds;
  return options;
}

std::unique_ptr<switchml_work, CloseCall> owned(switchml_work* work) {
  return std::unique_ptr<switchml_work, CloseCall>(work);
}

// The bytes of a rank's part that are in a window, from the beginning of the window.
struct Piece {
  size_t begin;
  size_t bytes;
};

Piece piece_of(const Window& window, uint32_t rank) {
  const size_t end = window.offset + window.bytes;
  const size_t first = std::clamp(rank * window.part_bytes, window.offset, end);
  const size_t last = std::clamp((rank + 1) * window.part_bytes, window.offset, end);
  return {first - window.offset, last - first};
}

}  // namespace

Result write_group_handle(void* bytes) {
  GroupHandle handle{kVersion, {}};
  if (getrandom(handle.key.data(), handle.key.size(), 0) != ssize_t{sizeof handle.key}) {
    return warn(kSystemError, std::string("cannot make the key of a job: ") + std::strerror(errno));
  }
  std::memset(bytes, 0, kHandleBytes);
  std::memcpy(bytes, &handle, sizeof handle);
  return kSuccess;
}

bool has_sum(DataType type) { return find(type) != nullptr; }

std::unique_ptr<CollectiveGroup> CollectiveGroup::join(void* const handles[], int ranks, int rank) {
  GroupHandle handle{};
  std::memcpy(&handle, handles[0], sizeof handle);
  if (handle.version != kVersion) {
    warn(kInvalidArgument,
         "collNet is not used: rank 0's handle is not of this version; install one version of SwitchML on all hosts");
    return nullptr;
  }
  std::string key = "nccl-";
  for (const unsigned char byte : handle.key) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    key += digits.data();
  }
  switchml_connect_options options = SWITCHML_CONNECT_OPTIONS_INIT;
  options.job = key.c_str();
  options.rank = rank;
  options.world_size = ranks;
  options.create = 1;
  options.timeout = kJoinSeconds;
  options.on_failure = "abort";  // the ranks of an NCCL communicator do not change
  switchml_comm* comm = nullptr;
  if (switchml_connect(&options, &comm) != SWITCHML_OK) {
    warn(kSystemError, std::string("collNet is not used; rank ") + std::to_string(rank) + " of " +
                           std::to_string(ranks) + " hosts: " + switchml_last_error()->message);
    return nullptr;
  }
  return std::unique_ptr<CollectiveGroup>(
      new CollectiveGroup(comm, static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank)));
}

Result CollectiveGroup::judged(switchml_status status) {
  // NaN is in the result, as NCCL leaves it.
  if (status == SWITCHML_OK || status == SWITCHML_NON_FINITE) return kSuccess;
  const Result result = status > 0 ? kRemoteError : kInternalError;
  if (!has_warned_) warn(result, switchml_last_error()->message);
  has_warned_ = true;
  return result;
}

Result CollectiveGroup::all_reduce(const void* input, void* output, size_t count, DataType type,
                                   std::unique_ptr<Request>* request) {
  const SummedType* const summed = find(type);
  if (summed == nullptr) return warn(kInvalidArgument, "type " + std::to_string(type) + " of NCCL has no sum");
  auto begun = std::make_unique<Request>(this, count * summed->bytes);
  const switchml_call_options options = call_options();
  switchml_work* work = nullptr;
  const Result result =
      judged(switchml_all_reduce(comm_, input, output, count, summed->known_as, SWITCHML_SUM, &options, &work));
  if (result != kSuccess) return result;
  begun->works_.push_back(owned(work));
  *request = std::move(begun);
  return kSuccess;
}

Result CollectiveGroup::all_gather(const void* input, void* output, const Window& window,
                                   std::unique_ptr<Request>* request) {
  auto begun = std::make_unique<Request>(this, window.bytes);
  const switchml_call_options options = call_options();
  auto* const bytes = static_cast<uint8_t*>(output);
  switchml_work* work = nullptr;
  if (window.offset == 0 && window.bytes == ranks_ * window.part_bytes) {
    const Result result =
        judged(switchml_all_gather(comm_, input, output, window.part_bytes, SWITCHML_UINT8, &options, &work));
    if (result != kSuccess) return result;
    begun->works_.push_back(owned(work));
  } else {
    const Piece own = piece_of(window, rank_);
    if (own.bytes > 0 && bytes + own.begin != input) std::memcpy(bytes + own.begin, input, own.bytes);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      const Piece piece = piece_of(window, rank);
      if (piece.bytes == 0) continue;
      const Result result =
          judged(switchml_broadcast(comm_, bytes + piece.begin, piece.bytes, SWITCHML_UINT8, rank, &options, &work));
      if (result != kSuccess) return result;
      begun->works_.push_back(owned(work));
    }
  }
  *request = std::move(begun);
  return kSuccess;
}

Result CollectiveGroup::reduce_scatter(const void* input, void* output, const Window& window, DataType type,
                                       std::unique_ptr<Request>* request) {
  const SummedType* const summed = find(type);
  if (summed == nullptr) return warn(kInvalidArgument, "type " + std::to_string(type) + " of NCCL has no sum");
  const Piece own = piece_of(window, rank_);
  auto begun = std::make_unique<Request>(this, own.bytes);
  const switchml_call_options options = call_options();
  switchml_work* work = nullptr;
  switchml_status status = SWITCHML_OK;
  if (window.offset == 0 && window.bytes == ranks_ * window.part_bytes) {
    status = switchml_reduce_scatter(comm_, input, output, window.part_bytes / summed->bytes, summed->known_as,
                                     SWITCHML_SUM, &options, &work);
  } else {
    // A window's sum goes to all ranks: on links with two directions it takes no longer, since each rank sends as much
    // as that in any case.
    begun->sum_.reset(new (std::nothrow) uint8_t[window.bytes]);
    if (!begun->sum_) {
      return warn(kSystemError, "no memory for the sum of " + std::to_string(window.bytes) + " bytes");
    }
    begun->part_ = begun->sum_.get() + own.begin;
    begun->output_ = output;
    status = switchml_all_reduce(comm_, input, begun->sum_.get(), window.bytes / summed->bytes, summed->known_as,
                                 SWITCHML_SUM, &options, &work);
  }
  const Result result = judged(status);
  if (result != kSuccess) return result;
  begun->works_.push_back(owned(work));
  *request = std::move(begun);
  return kSuccess;
}

Result CollectiveGroup::Request::test(bool* done) {
  *done = false;
  Result result = kSuccess;
  while (!works_.empty()) {
    int ended = 0;
    // After a failure the others have ended with it.
    if (result == kSuccess) result = group_->judged(switchml_work_test(works_.back().get(), &ended));
    if (result == kSuccess && ended == 0) return kSuccess;
    const Result waited = group_->judged(switchml_work_wait(works_.back().get()));
    if (result == kSuccess) result = waited;
    works_.pop_back();
  }
  if (result == kSuccess && part_ != nullptr && bytes_ > 0) std::memcpy(output_, part_, bytes_);
  *done = result == kSuccess;
  return result;
}

}  // namespace switchml::nccl
