#include "switchml/native/membership/failure.h"

#include "switchml/native/membership/words.h"

namespace switchml::client {

FailurePointer make_failure(FailureKind kind, std::string message, std::vector<uint32_t> ranks) {
  auto failure = std::make_shared<Failure>();
  failure->kind = kind;
  failure->message = std::move(message);
  failure->ranks = std::move(ranks);
  return failure;
}

void throw_with_remark(const Failure& failure, const std::string& remark) {
  auto remarked = std::make_shared<Failure>(failure);
  remarked->message += " " + remark;
  throw FailureError(remarked);
}

void throw_connect_error(std::string message, std::string reason) {
  auto failure = std::make_shared<Failure>();
  failure->kind = FailureKind::connect;
  failure->message = std::move(message);
  failure->reason = std::move(reason);
  throw FailureError(failure);
}

FailurePointer failure_of(const JobFailure& reported, std::string_view who, const std::string& call) {
  const std::string what = std::string(who) + ": " + without_full_stop(reported.message) + ".";
  const std::string& error = reported.error;
  const std::string again = " Start the job again.";
  if (error == "WorkerLost") return make_failure(FailureKind::worker_lost, what + again, reported.ranks);
  if (error == "CollectiveMismatch") {
    const std::string mine = call.empty() ? "" : " This rank's call there is " + call + ".";
    return make_failure(FailureKind::collective_mismatch,
                        what + mine + " Make the same calls in the same order on all ranks." + again);
  }
  if (error == "IntegrityError") {
    return make_failure(FailureKind::integrity,
                        what + " Values were corrupted between this rank and the others." + again);
  }
  if (error == "JobStopped") return make_failure(FailureKind::job_ended, what + again);
  if (error == "JobFailed") return make_failure(FailureKind::job_failed, what + again);
  if (error == "SwitchLost") return make_failure(FailureKind::switch_lost, what + again);
  if (error == "EpochSpent") {
    return make_failure(FailureKind::epoch_spent,
                        what + again + " Use a larger pool, or --on-failure shrink or restart, to avoid this.");
  }
  if (error == "AgentLost") {
    return make_failure(FailureKind::agent_lost, what + " See the agent's log; start it and the job again.");
  }
  return make_failure(FailureKind::job_failed, what + " (" + error + ")" + again);
}

FailurePointer world_changed(const JobFailure& loss, std::string_view who, const Attachment& now, uint64_t completed) {
  const std::string restarted = now.joined.empty() ? "" : "; rank " + rank_numbers(now.joined) + " is a new process";
  std::string message = std::string(who) + ": " + without_full_stop(loss.message) + ". The job continues in epoch " +
                        std::to_string(now.epoch) + " with " + std::to_string(now.world_size) +
                        " ranks; this one is rank " + std::to_string(now.rank) + restarted + ". " +
                        std::to_string(completed) + " calls of the previous epoch are complete on every rank.";
  auto failure = std::make_shared<Failure>();
  failure->kind = FailureKind::world_changed;
  failure->message = std::move(message);
  failure->ranks = loss.ranks;
  failure->world = {now.epoch, now.rank, now.world_size, now.joined, completed};
  return failure;
}

}  // namespace switchml::client
