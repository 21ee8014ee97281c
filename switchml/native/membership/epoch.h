// A rank's calls in one epoch of its job, and the native communicator that processes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switchml/native/communicator.h"
#include "switchml/native/membership/agent_connection.h"
#include "switchml/native/membership/collective.h"
#include "switchml/native/membership/failure.h"
#include "switchml/native/membership/memory_in_flight.h"

namespace switchml::client {

// A call that was submitted.
struct Submitted {
  CollectivePointer call;
  uint64_t sequence = 0;
  MemoryRange written;
  double timeout = 0;  // seconds
  std::chrono::steady_clock::time_point deadline;
  std::optional<Communicator::Outcome> outcome;  // once the call was released
  bool dropped = false;                          // nothing can wait for it any more
};

using SubmittedPointer = std::shared_ptr<Submitted>;

// Callers must hold the membership's lock, but for the functions of the communicator.
class Epoch {
 public:
  // With SWITCHML_DIRECT=0 in the environment all calls of the job go over the switch, also where its ranks could add
  // up the values themselves. Throws like Communicator.
  Epoch(Attachment attachment, const RankDescriptors& descriptors);

  const Attachment& attachment() const { return attachment_; }
  Communicator& communicator() { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const { return communicator_; }
  // The number of calls so far.
  uint64_t made() const { return made_; }
  // The reason why the epoch has ended; null while it goes on.
  const FailurePointer& error() const { return error_; }
  void end_with(FailurePointer error) { error_ = std::move(error); }

  // Returns the call, in words, whose check has failed, or else the earliest one that is unfinished or not yet waited
  // for; empty if all calls are released.
  std::string suspect_in_words() const;
  // Notes that the check of a call has failed; returns the call, or null if it was released.
  SubmittedPointer suspect(uint64_t sequence);
  bool all_ended();

  // Lets all calls beyond this number of `calls`, the last in which all ranks take part, fail with `error`.
  void ranks_closed(FailurePointer error, uint64_t calls);
  // Returns the error of a call, given by its number, if ranks have closed before it.
  FailurePointer lacks_ranks(uint64_t call) const { return call >= last_ ? closed_ : nullptr; }

  // Makes the next call. Its memory belongs to it until it has ended. Throws std::invalid_argument if some of that
  // memory belongs to a call that has not ended.
  SubmittedPointer submit(const CollectivePointer& call, const uint8_t* input, uint8_t* output, double timeout,
                          bool awaited);
  bool has_ended(const Submitted& submitted);
  // Releases an ended call; returns its outcome, also if that was done before.
  Communicator::Outcome finish(Submitted* submitted);
  // The same for all calls, which must have ended.
  void finish_all();
  // Takes the results that have arrived, makes all other calls fail, and returns the number of completed calls. All
  // ranks that leave an epoch together get the same number.
  uint64_t settle();

 private:
  void forget_dropped();

  const Attachment attachment_;
  const std::shared_ptr<Communicator> communicator_;
  FailurePointer error_;
  std::string suspect_;  // the call whose check failed
  FailurePointer closed_;
  uint64_t last_ = std::numeric_limits<uint64_t>::max();  // the number of calls in which all ranks take part
  std::map<uint64_t, SubmittedPointer> unreleased_;       // unfinished, or not yet waited for
  MemoryInFlight memory_;
  uint64_t made_ = 0;
};

}  // namespace switchml::client
