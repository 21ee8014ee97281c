// The kernels for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace switchml::client {

void define_kernels(nanobind::module_ module);

}  // namespace switchml::client
