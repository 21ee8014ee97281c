// Conversion of Python numbers to the integers of native code.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace switchml::bindings {

// Converts a Python int. Throws std::invalid_argument, naming what it is, if it is out of range.
template <class Number>
Number number(const nanobind::int_& given, const char* name, uint64_t most = std::numeric_limits<Number>::max()) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(given.ptr());
  const bool fits = !(value == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) && value <= most;
  if (!fits) {
    PyErr_Clear();
    throw std::invalid_argument(std::string(name) + " is " + nanobind::str(given).c_str() + "; it must be 0 to " +
                                std::to_string(most));
  }
  return static_cast<Number>(value);
}

}  // namespace switchml::bindings
