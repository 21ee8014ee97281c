// The end of a job's epoch.
#pragma once

#include <cstdint>

namespace switchml::wire {

// Uses of a slot in one epoch: phases stay below, so that plain comparison tells which one is later.
constexpr uint32_t kSlotUses = 1U << 31U;

// Returns true once a slot has been used so often that the epoch must end. The rest is for the time until it does.
constexpr bool epoch_is_spent(uint64_t uses, uint32_t slot_uses) { return uses >= slot_uses - slot_uses / 32; }

}  // namespace switchml::wire
