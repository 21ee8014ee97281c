// NCCL's log, in which a plugin says why it does not do something.
#pragma once

#include <string>

#include "switchml/native/nccl/nccl_interface.h"

namespace switchml::nccl {

void set_logger(Logger logger);
// Logs a warning, which NCCL shows with NCCL_DEBUG=WARN and above, and returns `result`.
Result warn(Result result, const std::string& text);

}  // namespace switchml::nccl
