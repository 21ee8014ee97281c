// switchml.dataplane._dpdk: DPDK for Python; built only if libdpdk is found.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "native/bindings/device_capsule.h"
#include "native/bindings/errors.h"
#include "native/net/dpdk/dpdk_device.h"
#include "native/net/dpdk/dpdk_port.h"
#include "native/net/dpdk/eal.h"

namespace nb = nanobind;

namespace {

// Returns the queues, the MAC address, the bytes of the largest frame and a description.
nb::tuple open_device(const std::string& devargs, uint16_t mtu, bool promiscuous, uint16_t queues) {
  std::shared_ptr<switchml::net::DpdkPort> port;
  std::vector<switchml::bindings::DeviceHolder> devices;
  {
    const nb::gil_scoped_release release;
    port =
        std::make_shared<switchml::net::DpdkPort>(switchml::net::DpdkPort::Options{devargs, mtu, promiscuous, queues});
    devices = switchml::net::queues_of(port);
  }
  return nb::make_tuple(switchml::bindings::to_capsules(std::move(devices)), port->mac(), port->largest_frame(),
                        port->description());
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind's signature
NB_MODULE(_dpdk, module) {
  module.doc() = "Frame devices that are queues of DPDK ports.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  module.def(
      "start_eal", &switchml::net::start_eal, nb::arg("arguments"), nb::arg("defaults"),
      nb::call_guard<nb::gil_scoped_release>(),
      "Start DPDK's environment with `arguments` and then `defaults`; no effect if it runs with the same `arguments`."
      "\n\nRaises ValueError for arguments that are not allowed or differ from those that it runs with, and OSError "
      "if DPDK\nfails to start: then only a new process can start it.");
  module.def("stop_eal", &switchml::net::stop_eal, nb::call_guard<nb::gil_scoped_release>(),
             "Close all devices and end DPDK's environment.");
  module.def(
      "open_device", &open_device, nb::arg("devargs"), nb::arg("mtu"), nb::arg("promiscuous"), nb::arg("queues"),
      nb::sig("def open_device(devargs: str, mtu: int, promiscuous: bool, queues: int) -> "
              "tuple[list[object], int, int, str]"),
      "Return the device's queues for an Engine or a Switch, its MAC address, the bytes of its largest frame, and "
      "a\ndescription of its offloads. `mtu` 0 leaves the MTU as it is.\n\nRaises ValueError if there is no such "
      "device, it is open already or has fewer than `queues`, and OSError if DPDK\nreports an error.");
}
