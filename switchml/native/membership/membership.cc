#include "switchml/native/membership/membership.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "switchml/native/membership/deadline.h"
#include "switchml/native/membership/words.h"

namespace switchml::client {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kAskSeconds = 4;                 // for the agent to name the missing ranks after a timeout
constexpr std::chrono::seconds kVerdictTime{12};  // more than the control thread waits for the reason of a failure
constexpr std::chrono::seconds kLeaveTime{5};     // for other threads to stop waiting when the membership ends

FailurePointer non_finite(const NonFinite& found, const std::string& call) {
  std::string places;
  for (const uint64_t index : found.indices) places += (places.empty() ? "" : ", ") + std::to_string(index);
  if (found.count > found.indices.size()) {
    places += " and " + std::to_string(found.count - found.indices.size()) + " more";
  }
  auto failure = std::make_shared<Failure>();
  failure->kind = FailureKind::non_finite;
  failure->message = "a rank contributed NaN or infinity to " + call + ", at index " + places +
                     " of the flattened array. The result is NaN in these places and right in all others; the "
                     "communicator remains usable.";
  failure->indices = found.indices;
  failure->count = found.count;
  return failure;
}

// The memberships of this process, of which a forked child has copies.
std::mutex all_mutex;
std::set<Membership*>& all_memberships() {
  static auto* const all = new std::set<Membership*>;  // never destroyed: threads may still be running at exit
  return *all;
}

}  // namespace

FailurePointer FailureEvents::next(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, after(seconds), [this] { return !waiting_.empty() || ended_; });
  if (waiting_.empty()) return nullptr;
  FailurePointer first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

bool FailureEvents::ended() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_ && waiting_.empty();
}

void FailureEvents::add(FailurePointer failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.push_back(std::move(failure));
  changed_.notify_all();
}

void FailureEvents::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

// Counts a thread as one that waits, so that the native code is not closed under it.
struct Membership::Waiting {
  explicit Waiting(Membership* waited_for) : membership(waited_for) {
    const std::lock_guard<std::mutex> lock(membership->mutex_);
    ++membership->waiters_;
  }
  ~Waiting() {
    const std::lock_guard<std::mutex> lock(membership->mutex_);
    --membership->waiters_;
    if (membership->closed_) membership->changed_.notify_all();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  Membership* membership;
};

std::shared_ptr<Membership> Membership::attach(const std::string& agent, const AttachRequest& request, double seconds,
                                               const std::function<void()>& between) {
  auto connection = std::make_unique<AgentConnection>(agent, request, seconds, between);
  std::shared_ptr<Epoch> epoch;
  try {
    epoch = std::make_shared<Epoch>(connection->attachment(), connection->take_descriptors());
  } catch (const std::exception& error) {
    connection->close(connection->attachment().epoch, 0, "its shared memory cannot be used");
    throw_connect_error(std::string("the memory that the agent at ") + agent +
                        " shares cannot be used: " + error.what());
  }
  std::shared_ptr<Membership> membership(new Membership(std::move(connection), std::move(epoch)));
  membership->connection_->start(membership.get(), membership->epoch_->communicator().attention_fd());
  return membership;
}

Membership::Membership(std::unique_ptr<AgentConnection> connection, std::shared_ptr<Epoch> epoch)
    : connection_(std::move(connection)), process_(getpid()), epoch_(std::move(epoch)) {
  static const int registered = pthread_atfork(&hold_all, &free_all, &disown_all);
  static_cast<void>(registered);
  const std::lock_guard<std::mutex> lock(all_mutex);
  all_memberships().insert(this);
}

Membership::~Membership() {  // NOLINT(bugprone-exception-escape): only where there is no memory for a message
  if (is_own_process()) end();
  const std::lock_guard<std::mutex> lock(all_mutex);
  all_memberships().erase(this);
}

void Membership::hold_all() { all_mutex.lock(); }

void Membership::free_all() { all_mutex.unlock(); }

// In a forked child, which has the sockets of its parent but not its threads.
void Membership::disown_all() {
  for (Membership* membership : all_memberships()) membership->connection_->disown();
  all_memberships().clear();
  all_mutex.unlock();
}

bool Membership::is_own_process() const { return getpid() == process_; }

void Membership::require_own_process() const {
  if (is_own_process()) return;
  throw FailureError(
      make_failure(FailureKind::closed, "this communicator belongs to process " + std::to_string(process_) +
                                            ", from which this one was forked; a rank is one process: connect "
                                            "in the child instead (start it with the spawn method). No array "
                                            "was changed."));
}

std::string Membership::description() const {
  const Attachment& now = epoch_->attachment();
  return "rank " + std::to_string(now.rank) + " of job " + quoted_name(now.name);
}

FailurePointer Membership::next_failure() const {
  if (error_) return error_;
  return unseen_ ? unseen_ : epoch_->lacks_ranks(epoch_->made());
}

Membership::State Membership::state() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  return {epoch_->attachment(), next_failure(), epoch_->made(), closed_};
}

Attachment Membership::attachment() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  return epoch_->attachment();
}

uint32_t Membership::world_size() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  return epoch_->attachment().world_size;
}

std::shared_ptr<Communicator> Membership::communicator() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  return epoch_->shared_communicator();
}

uint32_t Membership::waiters() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiters_;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

CollectivePointer Membership::describe(CollectiveRequest request) {
  require_own_process();
  std::unique_lock<std::mutex> lock(mutex_);
  const uint32_t world_size = epoch_->attachment().world_size;
  const uint32_t formats = epoch_->communicator().geometry().formats;
  lock.unlock();
  return std::make_shared<const Collective>(std::move(request), world_size, formats);
}

std::unique_ptr<Membership::Work> Membership::submit(const CollectivePointer& call, const uint8_t* input,
                                                     uint8_t* output, double seconds, bool awaited) {
  require_own_process();
  call->require_values(input);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const FailurePointer failure = next_failure()) {
    unseen_ = nullptr;
    throw_with_remark(*failure,
                      std::string("This ") + call->operation() + " was not started, and its array is unchanged.");
  }
  const CollectivePointer now = call->in(epoch_->attachment().world_size, epoch_->communicator().geometry().formats);
  return std::make_unique<Work>(shared_from_this(), epoch_,
                                epoch_->submit(now ? now : call, input, output, seconds, awaited));
}

// Returns the outcome of a call that has ended, or whose time is over.
Communicator::Outcome Membership::conclude(Epoch* epoch, Submitted* submitted) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!submitted->outcome && !epoch->has_ended(*submitted)) {
    lock.unlock();
    time_out(epoch, *submitted);
    lock.lock();
  }
  const Communicator::Outcome outcome = epoch->finish(submitted);
  lock.unlock();
  const std::string call = submitted->call->in_words(submitted->sequence);
  if (outcome.status == CallStatus::failed) {
    throw_with_remark(*reason(*epoch, submitted->sequence),
                      "The array of " + call + ", which did not complete, is undefined.");
  }
  if (outcome.status == CallStatus::non_finite) throw FailureError(non_finite(outcome.non_finite, call));
  return outcome;
}

// ---- failing --------------------------------------------------------------------------------------------------------

// Fails, unless the call ends while the agent is asked who is missing. Afterwards the call has ended.
void Membership::time_out(Epoch* epoch, const Submitted& submitted) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++asking_;
  }
  const std::vector<uint32_t> ranks = connection_->missing(kAskSeconds);
  bool ended;
  FailurePointer deferred;
  std::string who;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended = epoch->has_ended(submitted);
    --asking_;
    deferred = std::exchange(deferred_, nullptr);
    who = description();
  }
  if (deferred && (ended || ranks.empty())) fail(deferred, false);
  if (ended) return;
  const std::string missing =
      ranks.empty() ? "which ranks were missing is not known" : "rank " + rank_numbers(ranks) + " had not taken part";
  fail(make_failure(
           FailureKind::collective_timeout,
           submitted.call->in_words(submitted.sequence) + " of " + who + " was not complete after " +
               seconds_in_words(submitted.timeout) + " s; " + missing +
               ". Check the state of the ranks (`switchml-ctl job show`), allow more time, or start the job again.",
           ranks),
       true);
}

// Ends all calls; all later calls meet the first failure.
void Membership::fail(const FailurePointer& failure, bool here) {
  std::shared_ptr<Communicator> communicator;
  bool first;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    first = !error_;
    if (first) {
      error_ = failure;
      failed_here_ = here;
    }
    communicator = epoch_->shared_communicator();
    changed_.notify_all();
  }
  communicator->abandon();
  if (first) events_->add(failure);
}

// Returns the failure of a call; waits for it, because it may arrive after the failure itself.
FailurePointer Membership::reason(const Epoch& epoch, uint64_t sequence) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (FailurePointer closed = epoch.lacks_ranks(sequence)) return closed;
  if (!changed_.wait_for(lock, kVerdictTime, [&] { return epoch.error() || error_; })) {
    const std::string who = description();
    lock.unlock();
    fail(make_failure(FailureKind::integrity, "a result of " + who + " is wrong; start the job again."), true);
    lock.lock();
  }
  if (!epoch.error()) return error_;
  if (unseen_ == epoch.error()) unseen_ = nullptr;
  return epoch.error();
}

void Membership::on_attention() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto failure = epoch_->communicator().check_failure();
  if (!failure) return;
  const SubmittedPointer call = epoch_->suspect(failure->second);
  lock.unlock();
  if (call) connection_->check_failed(failure->first, call->call->to_message(call->sequence));
}

void Membership::on_ranks_closed(const std::vector<uint32_t>& ranks, uint64_t calls) {
  const std::lock_guard<std::mutex> lock(mutex_);
  epoch_->ranks_closed(
      make_failure(
          FailureKind::rank_closed,
          description() + ": rank " + rank_numbers(ranks) + " has closed its communicator after " +
              std::to_string(calls) +
              " calls, so no later call can end. Make the same number of calls on all ranks: one may have had fewer "
              "batches than the others, or have left its loop early.",
          ranks),
      calls);
}

void Membership::on_failure(const JobFailure& failure) {
  FailurePointer found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    found = failure_of(failure, description(), epoch_->suspect_in_words());
    if (asking_ > 0) {
      // A call has timed out already: the loss of a rank that gave up is a consequence, not the cause.
      deferred_ = found;
      return;
    }
  }
  fail(found, false);
}

// ---- another epoch, and the end -------------------------------------------------------------------------------------

// Unfinished calls of the old epoch fail with the change: the same ones on all ranks.
int Membership::on_move(const Attachment& attachment, const RankDescriptors& descriptors, const JobFailure& loss) {
  auto next = std::make_shared<Epoch>(attachment, descriptors);
  const int attention = next->communicator().attention_fd();
  FailurePointer change;
  bool failed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string who =
        "rank " + std::to_string(epoch_->attachment().rank) + " of job " + quoted_name(attachment.name);
    change = world_changed(loss, who, attachment, epoch_->settle());
    epoch_->end_with(change);
    epoch_ = next;
    failed = error_ != nullptr;
    if (!failed) unseen_ = change;
    changed_.notify_all();
  }
  if (failed) next->communicator().abandon();
  events_->add(change);
  return attention;
}

uint64_t Membership::settle() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  return epoch_->settle();
}

void Membership::end(std::string loss) {
  if (!is_own_process()) return;
  std::shared_ptr<Epoch> epoch;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (failed_here_) {
      loss = error_->message;
    } else if (!error_) {
      if (loss.empty() && !epoch_->all_ended()) loss = "it closed its communicator with calls unfinished";
      error_ = make_failure(FailureKind::closed,
                            "the communicator of " + description() + " was closed; connect to a new job.");
    }
    epoch = epoch_;
  }
  epoch->communicator().abandon();
  uint64_t calls;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kLeaveTime, [this] { return waiters_ == 0; });
    epoch->finish_all();
    calls = epoch->made();
  }
  connection_->close(epoch->attachment().epoch, calls, loss);
  communicator()->abandon();  // of an epoch to which the job has changed since then
  events_->end();
}

// ---- a call in flight -----------------------------------------------------------------------------------------------

Membership::Work::~Work() {
  if (!membership_->is_own_process()) return;
  const std::lock_guard<std::mutex> lock(membership_->mutex_);
  submitted_->dropped = true;
}

bool Membership::Work::has_ended() {
  membership_->require_own_process();
  const std::lock_guard<std::mutex> lock(membership_->mutex_);
  return epoch_->has_ended(*submitted_);
}

bool Membership::Work::ends_within(double seconds) {
  membership_->require_own_process();
  const std::lock_guard<std::mutex> one(waiting_);
  const Waiting waiting(membership_.get());
  return outcome() || epoch_->communicator().wait(submitted_->sequence, std::max(0.0, seconds));
}

double Membership::Work::seconds_left() const {
  return std::chrono::duration<double>(submitted_->deadline - Clock::now()).count();
}

Communicator::Outcome Membership::Work::wait() {
  membership_->require_own_process();
  const std::lock_guard<std::mutex> one(waiting_);
  const Waiting waiting(membership_.get());
  if (!outcome()) epoch_->communicator().wait(submitted_->sequence, std::max(0.0, seconds_left()));
  return membership_->conclude(epoch_.get(), submitted_.get());
}

bool Membership::Work::was_waited_for() {
  if (!is_own_process()) return true;
  const std::lock_guard<std::mutex> lock(membership_->mutex_);
  return submitted_->outcome.has_value();
}

std::optional<Communicator::Outcome> Membership::Work::outcome() {
  membership_->require_own_process();
  const std::lock_guard<std::mutex> lock(membership_->mutex_);
  return submitted_->outcome;
}

}  // namespace switchml::client
