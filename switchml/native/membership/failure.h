// The failures of calls and of attachments, in words that are the same for programs in every language.
//
// Every message says what happened, to what, what to do about it and what the array of the call holds afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "switchml/native/membership/attachment.h"

namespace switchml::client {

// The kinds of failures. docs/understand/failures.md says what causes each.
enum class FailureKind : uint8_t {
  connect,              // no communicator could be made
  unsupported_tensor,   // nothing was sent
  non_finite,           // a rank contributed NaN or infinity; all later calls work
  collective_timeout,   // not all ranks took part in time
  collective_mismatch,  // ranks made other calls
  integrity,            // values were corrupted on their way
  worker_lost,          // other ranks are lost
  world_changed,        // so they are, and the job continues in another epoch
  rank_closed,          // other ranks have made their last call
  job_ended,            // it was stopped or completed
  job_failed,
  switch_lost,
  epoch_spent,  // the slots were used as often as one epoch allows
  agent_lost,
  closed,  // the communicator was closed, or belongs to the process that this one was forked from
};

// The world after a change of epoch, as the rank sees it that learns of it.
struct World {
  uint32_t epoch = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  std::vector<uint32_t> joined;  // the ranks whose processes are new
  uint64_t completed = 0;        // calls of the old epoch that all ranks have completed
};

struct Failure {
  FailureKind kind = FailureKind::closed;
  std::string message;
  std::vector<uint32_t> ranks;    // that are lost, closed or late
  std::string reason;             // of a `connect`: the agent's or controller's name for the error; empty if none came
  World world;                    // of a `world_changed`
  std::vector<uint64_t> indices;  // of a `non_finite`: the lowest places of such elements
  uint64_t count = 0;             // of a `non_finite`: all such elements
};

// Failures are shared, because every call gets the one that ended the job.
using FailurePointer = std::shared_ptr<const Failure>;

FailurePointer make_failure(FailureKind kind, std::string message, std::vector<uint32_t> ranks = {});

// Carries a failure to the caller of the library.
class FailureError : public std::runtime_error {
 public:
  explicit FailureError(FailurePointer failure) : std::runtime_error(failure->message), failure_(std::move(failure)) {}

  const Failure& failure() const { return *failure_; }

 private:
  FailurePointer failure_;
};

// Throws a FailureError with a remark behind the message.
[[noreturn]] void throw_with_remark(const Failure& failure, const std::string& remark);
// Throws the failure of an attachment; `reason` is the agent's or controller's name for it.
[[noreturn]] void throw_connect_error(std::string message, std::string reason = "");

// The reason why a job cannot continue, as an agent reports it: the name of its error, and the ranks that it concerns.
struct JobFailure {
  std::string error;
  std::vector<uint32_t> ranks;
  std::string message;
};

// Returns the failure of the rank that `who` describes; `call` describes its call at the position that failed, and is
// empty if no call is concerned.
FailurePointer failure_of(const JobFailure& reported, std::string_view who, const std::string& call);
// Returns the failure that tells the rank that its job continues in another epoch.
FailurePointer world_changed(const JobFailure& loss, std::string_view who, const Attachment& now, uint64_t completed);

}  // namespace switchml::client
