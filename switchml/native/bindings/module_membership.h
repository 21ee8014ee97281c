// The classes of a process's membership in a job, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace switchml::client {

void define_membership(nanobind::module_& module);

}  // namespace switchml::client
