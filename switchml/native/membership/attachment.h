// The job and the rank that a process is attached to, as its agent describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "switchml/native/siphash.h"

namespace switchml::client {

struct Attachment {
  uint64_t job_id = 0;
  std::string name;
  uint32_t epoch = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  SipKey check_key{};  // of the epoch, which only its ranks and their agents know
  uint32_t generation = 0;
  std::vector<uint32_t> joined;  // ranks whose processes are new in this epoch
  std::string on_failure;
  uint32_t priority = 0;
};

// The options of a job that its ranks begin.
struct NewJob {
  double timeout = 0;  // seconds to wait for the other ranks
  uint32_t slots = 0;  // 0: the switch's default
  std::string on_failure = "abort";
  uint32_t priority = 0;
  std::vector<std::string> aggregators;
};

// The rank that a process asks for. With `create`, `job` is a key: the job begins when all ranks have come with it.
struct AttachRequest {
  std::string job;
  uint32_t rank = 0;
  std::optional<uint32_t> world_size;  // to be compared with the job's
  std::optional<NewJob> create;
};

}  // namespace switchml::client
