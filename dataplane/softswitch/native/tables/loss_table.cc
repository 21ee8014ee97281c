#include "dataplane/softswitch/native/tables/loss_table.h"

#include <stdexcept>

namespace switchml::soft {

void LossTable::remove(uint16_t port) {
  if (thresholds_.erase(port) == 0) throw std::out_of_range(name_ + " has no port " + std::to_string(port));
}

bool LossTable::draw(uint16_t port) {
  const auto found = thresholds_.find(port);
  if (found == thresholds_.end()) return false;
  return found->second == UINT32_MAX || random_() < found->second;
}

}  // namespace switchml::soft
