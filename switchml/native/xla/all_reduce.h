// All-reduces of a program that XLA has compiled for CPUs.
#pragma once

#include <cstdint>
#include <memory>

#include "switchml/native/membership/membership.h"
#include "switchml/native/xla/ffi_abi.h"

namespace switchml::xla {

// Returns the number by which compiled programs name a membership. It is never given to another one.
int64_t number_of(const std::shared_ptr<client::Membership>& membership);

// The handler. Its arguments are arrays and a token, its results their sums or averages over all ranks, and a token.
// The attribute `membership` has the number; `average` is 1 for averages. The sums of all arrays are in flight
// together.
Error* all_reduce(CallFrame* frame) noexcept;

}  // namespace switchml::xla
