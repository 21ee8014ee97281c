#include "switchml/native/membership/epoch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "switchml/native/membership/deadline.h"

namespace switchml::client {

namespace {

bool makes_direct_calls() {
  const char* const given = std::getenv("SWITCHML_DIRECT");
  return given == nullptr || std::strcmp(given, "0") != 0;
}

}  // namespace

Epoch::Epoch(Attachment attachment, const RankDescriptors& descriptors)
    : attachment_(std::move(attachment)),
      communicator_(std::make_shared<Communicator>(descriptors.memory.get(), descriptors.doorbell.get(),
                                                   descriptors.shared.get(), attachment_.check_key,
                                                   makes_direct_calls())),
      memory_([this](uint64_t call) { return communicator_->status(call) != CallStatus::pending; }) {}

std::string Epoch::suspect_in_words() const {
  if (!suspect_.empty() || unreleased_.empty()) return suspect_;
  const auto& [sequence, first] = *unreleased_.begin();
  return first->call->in_words(sequence);
}

SubmittedPointer Epoch::suspect(uint64_t sequence) {
  const auto found = unreleased_.find(sequence);
  if (found == unreleased_.end()) return nullptr;
  suspect_ = found->second->call->in_words(sequence);
  return found->second;
}

bool Epoch::has_ended(const Submitted& submitted) {
  return submitted.outcome || communicator_->status(submitted.sequence) != CallStatus::pending;
}

bool Epoch::all_ended() {
  return std::all_of(unreleased_.begin(), unreleased_.end(),
                     [this](const auto& entry) { return has_ended(*entry.second); });
}

void Epoch::ranks_closed(FailurePointer error, uint64_t calls) {
  if (calls >= last_) return;
  closed_ = std::move(error);
  last_ = calls;
  communicator_->fail_from(calls);
}

SubmittedPointer Epoch::submit(const CollectivePointer& call, const uint8_t* input, uint8_t* output, double timeout,
                               bool awaited) {
  forget_dropped();
  auto submitted = std::make_shared<Submitted>();
  submitted->call = call;
  submitted->sequence = made_;
  submitted->written = call->written(output);
  submitted->timeout = timeout;
  submitted->deadline = after(timeout);
  memory_.claim(submitted->written, call->read(input, output), made_);
  unreleased_.emplace(made_, submitted);
  try {
    communicator_->submit(call->at(attachment_.rank, input, output), awaited);
  } catch (...) {
    unreleased_.erase(made_);
    memory_.release(submitted->written, made_);
    throw;
  }
  ++made_;
  return submitted;
}

Communicator::Outcome Epoch::finish(Submitted* submitted) {
  if (submitted->outcome) return *submitted->outcome;
  Communicator::Outcome outcome = communicator_->release(submitted->sequence);
  submitted->outcome = outcome;
  memory_.release(submitted->written, submitted->sequence);
  unreleased_.erase(submitted->sequence);
  return outcome;
}

void Epoch::finish_all() {
  while (!unreleased_.empty()) {
    const SubmittedPointer first = unreleased_.begin()->second;
    finish(first.get());
  }
}

uint64_t Epoch::settle() {
  communicator_->settle();
  for (const auto& [sequence, submitted] : unreleased_) {
    if (communicator_->status(sequence) == CallStatus::failed) return sequence;
  }
  return made_;
}

// Calls end in order.
void Epoch::forget_dropped() {
  for (auto next = unreleased_.begin(); next != unreleased_.end() && next->second->dropped && has_ended(*next->second);
       next = unreleased_.begin()) {
    const SubmittedPointer dropped = next->second;
    finish(dropped.get());
  }
}

}  // namespace switchml::client
