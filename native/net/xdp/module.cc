// switchml.dataplane._xdp: AF_XDP for Python; built only if libxdp and libbpf are found.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "native/bindings/device_capsule.h"
#include "native/bindings/errors.h"
#include "native/net/xdp/xdp_device.h"

namespace nb = nanobind;

namespace {

// Returns the queues, the MAC address, the bytes of the largest frame and a description.
nb::tuple open_device(const std::string& interface) {
  std::unique_ptr<switchml::net::XdpDevice> device;
  {
    const nb::gil_scoped_release release;
    device = std::make_unique<switchml::net::XdpDevice>(interface);
  }
  const uint64_t mac = device->mac();
  const size_t largest = device->largest_frame();
  const std::string description = device->description();
  std::vector<switchml::bindings::DeviceHolder> queues;
  queues.push_back(std::move(device));
  return nb::make_tuple(switchml::bindings::to_capsules(std::move(queues)), mac, largest, description);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind's signature
NB_MODULE(_xdp, module) {
  module.doc() = "Frame devices that are AF_XDP sockets.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  module.def(
      "open_device", &open_device, nb::arg("interface"),
      nb::sig("def open_device(interface: str) -> tuple[list[object], int, int, str]"),
      "Return the device's only queue, for an Engine or a Switch, its MAC address, the bytes of its largest frame, "
      "and a\ndescription of its offloads.\n\nRaises ValueError if there is no such interface or it has several "
      "receive queues, and OSError if the kernel\nreports an error.");
}
