// dataplane._dpdk: DPDK for Python; only there where libdpdk was found at build time. Types are in ../../_dpdk.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "dataplane/native/device_capsule.h"
#include "dataplane/native/dpdk/dpdk_device.h"
#include "dataplane/native/dpdk/eal.h"

namespace nb = nanobind;

namespace {

void translate(const std::exception_ptr& failure, void* /*payload*/) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    const nb::object args = nb::make_tuple(error.code().value(), nb::str(error.what()));
    PyErr_SetObject(PyExc_OSError, args.ptr());
  }
}

nb::tuple open_device(const std::string& devargs, uint16_t mtu, bool promiscuous) {
  std::unique_ptr<switchml::DpdkDevice> device;
  {
    const nb::gil_scoped_release release;
    device = std::make_unique<switchml::DpdkDevice>(switchml::DpdkDevice::Options{devargs, mtu, promiscuous});
  }
  const uint64_t mac = device->mac();
  const size_t largest = device->largest_frame();
  const std::string description = device->description();
  return nb::make_tuple(switchml::to_capsule(std::move(device)), mac, largest, description);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind's signature
NB_MODULE(_dpdk, module) {
  module.doc() = "Frame devices that are queues of DPDK ports.";
  nb::register_exception_translator(translate);
  module.def("start_eal", &switchml::start_eal, nb::arg("arguments"), nb::arg("defaults"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("stop_eal", &switchml::stop_eal, nb::call_guard<nb::gil_scoped_release>());
  module.def("open_device", &open_device, nb::arg("devargs"), nb::arg("mtu"), nb::arg("promiscuous"));
}
