// Nanobind's reports of objects that are left when an interpreter ends.
#pragma once

#include <nanobind/nanobind.h>
#include <pthread.h>

namespace switchml::bindings {

// Suppresses reports of objects that are left on purpose: a forked child never releases those that threads of the
// parent refer to, nor does an interpreter that ends while daemon threads run, such as gRPC's; their frames keep what
// they refer to. Called once by each module.
inline void report_no_leaks_of_running_threads() {
  namespace nb = nanobind;
  pthread_atfork(nullptr, nullptr, [] { nb::set_leak_warnings(false); });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    if (nb::cast<int>(nb::module_::import_("threading").attr("active_count")()) > 1) nb::set_leak_warnings(false);
  }));
}

}  // namespace switchml::bindings
