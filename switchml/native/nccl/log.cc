#include "switchml/native/nccl/log.h"

#include <atomic>

namespace switchml::nccl {

namespace {

std::atomic<Logger> log{nullptr};

}  // namespace

void set_logger(Logger logger) { log = logger; }

Result warn(Result result, const std::string& text) {
  if (const Logger logger = log) {
    logger(kLogWarning, kLogNetwork, "switchml", 0, "%s", ("switchml: " + text).c_str());
  }
  return result;
}

}  // namespace switchml::nccl
