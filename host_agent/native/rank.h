// The interface of a rank that is open on this agent; its values are sent as packets, or over shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank_profile.h"

namespace switchml::agent {

// Any thread may call it, also after another thread has closed the rank: functions that need an open rank then throw
// std::out_of_range. Only open_channel(), freeze(), fetch() and close() may take long.
class Rank {
 public:
  virtual ~Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Returns the number that tells the rank's host's senders apart in the switch's worker table: its UDP source port,
  // that of its queue pair with wire::kIsQueuePair, or the number of its connection to the switch.
  virtual uint32_t sender() const = 0;
  // Returns a descriptor, owned by the rank, that becomes readable when the switch ends; -1 if it has none.
  virtual int switch_socket() const = 0;
  // Returns whether the switch is known to have ended.
  virtual bool switch_ended() const = 0;

  // Makes the memory that the rank shares with its process. Returns new descriptors, which the caller must close: of
  // the memory, of the doorbell and, if there is one, of the memory for the job's results. Throws std::logic_error on
  // the second call, and std::system_error.
  virtual std::vector<int> open_channel() = 0;
  // Ends the service of the rank.
  virtual void close() = 0;

  virtual RankStatus status() const = 0;
  // Returns the profile, with up to `calls` of the rank's latest calls.
  virtual RankProfile profile(uint64_t calls) const = 0;

  // The change of epoch (docs/understand/correctness.md, SenderSlots): both return the number of phases held of each
  // slot. They throw std::invalid_argument if the rank refuses, and std::system_error.
  virtual std::vector<uint32_t> freeze() = 0;
  virtual std::vector<uint32_t> fetch(const std::vector<uint32_t>& targets) = 0;

  // While the job is paused, its ranks on this host send nothing to switches, and take nothing from them. It has no
  // effect on ranks that share memory with a switch, which know of its end themselves. Throws std::out_of_range.
  virtual void pause(bool paused) = 0;

 protected:
  Rank() = default;
};

}  // namespace switchml::agent
