// The interface of a rank that is open on this agent: its values travel as packets, or over shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank_profile.h"

namespace switchml::agent {

// Calls come from any thread, also for a rank that another thread has closed: those that need it to be open throw
// std::out_of_range then. Only open_channel(), freeze(), fetch() and close() may take long.
class Rank {
 public:
  virtual ~Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // The number that stands for the rank's UDP source port in the switch's worker table.
  virtual uint16_t udp_port() const = 0;
  // A descriptor that becomes readable when the switch ends, which stays the rank's; -1 where none tells.
  virtual int switch_socket() const = 0;
  // Returns whether the switch is known to have ended.
  virtual bool switch_ended() const = 0;

  // Makes the memory that the rank shares with its process. Returns new descriptors, which the caller closes: of the
  // memory, of the doorbell, and of the memory of the job's results where there is one. Throws std::logic_error
  // the second time, and std::system_error.
  virtual std::vector<int> open_channel() = 0;
  // Ends the service of the rank.
  virtual void close() = 0;

  virtual RankStatus status() const = 0;
  // With up to `calls` of the rank's latest calls.
  virtual RankProfile profile(uint64_t calls) const = 0;

  // A change of epoch (docs/protocol.md, SenderSlots): both return how many phases of each slot are held. Throw
  // std::invalid_argument when the rank refuses, and std::system_error.
  virtual std::vector<uint32_t> freeze() = 0;
  virtual std::vector<uint32_t> fetch(const std::vector<uint32_t>& targets) = 0;

 protected:
  Rank() = default;
};

}  // namespace switchml::agent
