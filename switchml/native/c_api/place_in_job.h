// The agent, the job and the rank of this process, from the caller's options or else from the environment.
#pragma once

#include <string>

#include "switchml/native/c_api/switchml.h"
#include "switchml/native/membership/attachment.h"

namespace switchml::client {

struct PlaceInJob {
  std::string agent;  // path of its socket
  AttachRequest request;
  double seconds = 0;  // for the agent to answer
};

// Throws FailureError for what is missing or cannot be, with the name of the variable.
PlaceInJob place_in_job(const switchml_connect_options& options);

}  // namespace switchml::client
