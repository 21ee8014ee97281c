// NCCL's collective network over libswitchml: a group of ranks, one for each host, is a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "switchml/native/c_api/switchml.h"
#include "switchml/native/nccl/nccl_interface.h"

namespace switchml::nccl {

// Writes the handle of a group that this rank may be the first of.
Result write_group_handle(void* handle);
// Whether the network sums this type.
bool has_sum(DataType type);

struct CloseCall {
  void operator()(switchml_work* work) const { switchml_work_free(work); }
};

// A window of the parts of all ranks, each of `part_bytes`, one after the other.
struct Window {
  size_t part_bytes;
  size_t offset;
  size_t bytes;
};

class CollectiveGroup {
 public:
  class Request;

  // Joins the job of the first rank's handle, with all ranks, within 30 s. Returns null after a warning that says why
  // not.
  static std::unique_ptr<CollectiveGroup> join(void* const handles[], int ranks, int rank);
  ~CollectiveGroup() { switchml_comm_free(comm_); }
  CollectiveGroup(const CollectiveGroup&) = delete;
  CollectiveGroup& operator=(const CollectiveGroup&) = delete;

  // Each begins a call and sets *request, or returns why none could begin.
  Result all_reduce(const void* input, void* output, size_t count, DataType type, std::unique_ptr<Request>* request);
  // `input` begins with this rank's part in the window, and `output` with the window.
  Result all_gather(const void* input, void* output, const Window& window, std::unique_ptr<Request>* request);
  // `input` begins with the window, and `output` with this rank's part in it.
  Result reduce_scatter(const void* input, void* output, const Window& window, DataType type,
                        std::unique_ptr<Request>* request);

 private:
  CollectiveGroup(switchml_comm* comm, uint32_t ranks, uint32_t rank) : comm_(comm), ranks_(ranks), rank_(rank) {}
  Result judged(switchml_status status);

  switchml_comm* const comm_;
  const uint32_t ranks_;
  const uint32_t rank_;
  bool has_warned_ = false;  // of a failure, which all later calls meet
};

// A call of NCCL, which is one or several calls of libswitchml. To be destroyed only once test() has set *done or
// returned an error.
class CollectiveGroup::Request {
 public:
  Request(CollectiveGroup* group, size_t bytes) : group_(group), bytes_(bytes) {}

  // Sets *done to whether the result is there.
  Result test(bool* done);
  size_t bytes() const { return bytes_; }

 private:
  friend class CollectiveGroup;

  CollectiveGroup* const group_;
  const size_t bytes_;  // that arrive at this rank
  std::vector<std::unique_ptr<switchml_work, CloseCall>> works_;
  // The sum of a whole window, of which a part is the result.
  std::unique_ptr<uint8_t[]> sum_;
  const uint8_t* part_ = nullptr;
  void* output_ = nullptr;
};

}  // namespace switchml::nccl
