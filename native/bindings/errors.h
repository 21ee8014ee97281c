// The exceptions of C++ as Python's, the same for all extension modules.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <stdexcept>
#include <system_error>

namespace switchml::bindings {

// For nanobind::register_exception_translator. Python makes the subclass of OSError that belongs to the error's number.
inline void translate_errors(const std::exception_ptr& failure, void* /*payload*/) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    const nanobind::object args = nanobind::make_tuple(error.code().value(), nanobind::str(error.what()));
    PyErr_SetObject(PyExc_OSError, args.ptr());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_KeyError, error.what());
  } catch (const std::logic_error& error) {  // std::invalid_argument among them
    PyErr_SetString(PyExc_ValueError, error.what());
  }
}

}  // namespace switchml::bindings
