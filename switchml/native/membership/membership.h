// A process's membership in a job: the current epoch, the failure that calls meet, and the threads that wait for calls.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "switchml/native/membership/agent_connection.h"
#include "switchml/native/membership/collective.h"
#include "switchml/native/membership/epoch.h"
#include "switchml/native/membership/failure.h"

namespace switchml::client {

// The failures of a membership, for those who learn of them without making calls. Outlives the membership.
class FailureEvents {
 public:
  // Waits for the next failure or change of epoch, at most `seconds`; null if none came. Each is returned once.
  FailurePointer next(double seconds);
  // Whether the membership has ended: no more events come.
  bool ended();

 private:
  friend class Membership;
  void add(FailurePointer failure);
  void end();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FailurePointer> waiting_;
  bool ended_ = false;
};

// A rank of a job, from its attachment to its end. Any thread may use it, but no child of a fork.
class Membership final : public std::enable_shared_from_this<Membership>, private AgentListener {
 public:
  // A call in flight. When the last copy is destroyed, nothing waits for the call any more.
  class Work;

  struct State {
    Attachment attachment;
    FailurePointer failure;  // that the next call will meet; null while the membership is usable
    uint64_t calls = 0;      // that this process has made in this epoch
    bool closed = false;
  };

  // Attaches through the agent at a path; `between` is called now and then while the agent does not answer, and may
  // throw. Throws FailureError.
  static std::shared_ptr<Membership> attach(
      const std::string& agent, const AttachRequest& request, double seconds,
      const std::function<void()>& between = [] {});
  ~Membership() override;

  // Whether this process made it, and not a parent from which this one was forked.
  bool is_own_process() const;
  State state();
  Attachment attachment();
  uint32_t world_size();
  // The native communicator of the current epoch.
  std::shared_ptr<Communicator> communicator();
  std::shared_ptr<FailureEvents> events() const { return events_; }
  // The number of threads that wait for a call.
  uint32_t waiters();

  // Returns a call that can be made in the current epoch, any number of times. Throws like Collective.
  CollectivePointer describe(CollectiveRequest request);
  // Makes a call, which may take `seconds` from now. If it is `awaited`, this thread must wait for it next: it may
  // begin only there. Throws FailureError if the job cannot continue, and std::invalid_argument if some of the memory
  // belongs to a call that has not ended, or holds values that the call cannot have.
  std::unique_ptr<Work> submit(const CollectivePointer& call, const uint8_t* input, uint8_t* output, double seconds,
                               bool awaited);

  // Takes the results that have arrived and makes all other calls of this epoch fail; returns the number of completed
  // calls.
  uint64_t settle();
  // Ends the membership; with a `loss`, reports this rank as lost for that reason. Idempotent.
  void end(std::string loss = "");

 private:
  struct Waiting;

  Membership(std::unique_ptr<AgentConnection> connection, std::shared_ptr<Epoch> epoch);
  static void disown_all();
  static void hold_all();
  static void free_all();

  void require_own_process() const;
  std::string description() const;  // the rank and the job, in words
  FailurePointer next_failure() const;

  Communicator::Outcome conclude(Epoch* epoch, Submitted* submitted);
  void time_out(Epoch* epoch, const Submitted& submitted);
  FailurePointer reason(const Epoch& epoch, uint64_t sequence);
  void fail(const FailurePointer& failure, bool here);

  void on_failure(const JobFailure& failure) override;
  void on_attention() override;
  void on_ranks_closed(const std::vector<uint32_t>& ranks, uint64_t calls) override;
  int on_move(const Attachment& attachment, const RankDescriptors& descriptors, const JobFailure& loss) override;

  const std::unique_ptr<AgentConnection> connection_;
  const int process_;
  const std::shared_ptr<FailureEvents> events_ = std::make_shared<FailureEvents>();

  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::shared_ptr<Epoch> epoch_;
  FailurePointer error_;
  FailurePointer unseen_;     // a change of epoch that no call has met yet
  FailurePointer deferred_;   // the failure that arrived while threads asked for the missing ranks
  uint32_t asking_ = 0;       // such threads
  uint32_t waiters_ = 0;      // threads that wait for a call
  bool failed_here_ = false;  // by a timeout, which the other ranks do not notice
  bool closed_ = false;
};

class Membership::Work {
 public:
  Work(std::shared_ptr<Membership> membership, std::shared_ptr<Epoch> epoch, SubmittedPointer submitted)
      : membership_(std::move(membership)), epoch_(std::move(epoch)), submitted_(std::move(submitted)) {}
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Returns, without waiting, whether the call has ended, with success or failure.
  bool has_ended();
  // Waits at most `seconds`, and returns whether the call has ended; it goes on if it has not.
  bool ends_within(double seconds);
  // The seconds until the call's timeout; not positive once that is over.
  double seconds_left() const;
  // Waits for the end of the call, until its timeout; afterwards its memory holds the result. Throws FailureError.
  Communicator::Outcome wait();
  // Whether a thread has waited for the end of the call. In a forked child, which has no calls, it is true.
  bool was_waited_for();
  // The outcome, once a thread has waited for it.
  std::optional<Communicator::Outcome> outcome();
  bool is_own_process() const { return membership_->is_own_process(); }
  std::string in_words() const { return submitted_->call->in_words(submitted_->sequence); }

 private:
  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<Epoch> epoch_;
  const SubmittedPointer submitted_;
  std::mutex waiting_;  // one thread at a time
};

}  // namespace switchml::client
