// The additions of accumulate.h for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace switchml::soft {

void define_kernels(nanobind::module_ module);

}  // namespace switchml::soft
