// Helpers shared by the parts of the extension module: conversion of Python numbers, and control operations.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/runtime/switch.h"
#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

namespace nb = nanobind;

constexpr uint64_t kMostPort = kPortNumbers - 1;
constexpr uint64_t kMostEthernet = 0xFFFFFFFFFFFF;

using Int = const nb::int_&;

// The usual `kind` of an entry of worker_table.
constexpr auto kContribution = static_cast<uint8_t>(wire::Kind::contribution);
constexpr auto kResult = static_cast<uint8_t>(wire::Kind::result);

// Converts a Python number. Throws std::invalid_argument, naming the parameter, if it is out of range.
template <class Number>
Number number(Int given, const char* name, uint64_t most = std::numeric_limits<Number>::max()) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(given.ptr());
  const bool fits = !(value == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) && value <= most;
  if (!fits) {
    PyErr_Clear();
    throw std::invalid_argument(std::string(name) + " is " + nb::str(given).c_str() + "; it must be 0 to " +
                                std::to_string(most));
  }
  return static_cast<Number>(value);
}

inline uint16_t port_number(Int given) { return number<uint16_t>(given, "port", kMostPort); }

inline int32_t priority_of(Int given) {
  // P4Runtime: a ternary match has a positive priority.
  return static_cast<int32_t>(number<uint32_t>(given, "priority", std::numeric_limits<int32_t>::max()));
}

inline std::pair<WorkerKey, SlotMatch> worker_key(Int port, Int eth_src, Int ipv4_src, Int udp_src, Int job, Int worker,
                                                  Int slot_value, Int slot_mask, Int priority, Int secret, Int kind) {
  return {
      {port_number(port), number<uint64_t>(eth_src, "eth_src", kMostEthernet), number<uint32_t>(ipv4_src, "ipv4_src"),
       number<uint16_t>(udp_src, "udp_src"), number<uint16_t>(job, "job"), number<uint8_t>(worker, "worker"),
       number<uint32_t>(secret, "secret"), static_cast<wire::Kind>(number<uint8_t>(kind, "kind"))},
      {number<uint16_t>(slot_value, "slot_value"), number<uint16_t>(slot_mask, "slot_mask"), priority_of(priority)}};
}

// Runs `operation(pipeline)` between two bursts, on each shard, without holding the GIL.
template <class Operation>
void control(Switch* self, Operation&& operation) {
  const nb::gil_scoped_release unlocked;
  self->control(operation);
}

void bind_tables(nb::class_<Switch>* cls);

}  // namespace switchml::soft
