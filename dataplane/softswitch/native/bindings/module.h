// Helpers shared by the parts of the extension module: conversion of Python numbers, and control operations.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/runtime/switch.h"
#include "dataplane/softswitch/native/tables/tables.h"
#include "native/bindings/numbers.h"

namespace switchml::soft {

namespace nb = nanobind;

constexpr uint64_t kMostPort = kPortNumbers - 1;
constexpr uint64_t kMostEthernet = 0xFFFFFFFFFFFF;

using Int = const nb::int_&;

using bindings::number;

inline uint16_t port_number(Int given) { return number<uint16_t>(given, "port", kMostPort); }

// The key of an entry of worker_table.
struct WorkerMatch {
  WorkerKey key;
  SlotMatch slots;
};

// Runs `operation(pipeline)` between two bursts, on each shard, without holding the GIL.
template <class Operation>
void control(Switch* self, Operation&& operation) {
  const nb::gil_scoped_release unlocked;
  self->control(operation);
}

void define_worker_match(nb::module_& module);
void bind_tables(nb::class_<Switch>* cls);

}  // namespace switchml::soft
