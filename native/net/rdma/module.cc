// switchml.dataplane._rdma: RDMA cards for Python; built only if libibverbs is found.
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
#include "native/net/rdma/rdma_device.h"

namespace nb = nanobind;

namespace {

// Returns the device, the bytes of its largest message, its driver and the index of its network interface.
nb::tuple open_device(const std::string& device, uint8_t port, uint32_t address) {
  std::unique_ptr<switchml::net::RdmaDevice> opened;
  {
    const nb::gil_scoped_release release;
    opened = std::make_unique<switchml::net::RdmaDevice>(device, port, address);
  }
  const size_t largest = opened->largest_message();
  const std::string driver = opened->driver();
  const uint32_t interface_index = opened->interface_index();
  switchml::bindings::MessageDeviceHolder holder = std::move(opened);
  return nb::make_tuple(switchml::bindings::to_capsule(std::move(holder)), largest, driver, interface_index);
}

nb::list list_ports() {
  std::vector<switchml::net::RdmaPort> ports;
  {
    const nb::gil_scoped_release release;
    ports = switchml::net::list_ports();
  }
  nb::list found;
  for (const auto& port : ports) {
    found.append(nb::make_tuple(port.name, port.driver, port.state, port.largest_message, port.addresses));
  }
  return found;
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind's signature
NB_MODULE(_rdma, module) {
  module.doc() = "Message devices that are RDMA cards with RoCEv2.";
  nb::register_exception_translator(switchml::bindings::translate_errors);
  module.def("list_ports", &list_ports, nb::sig("def list_ports() -> list[tuple[str, str, str, int, list[str]]]"),
             "Return of each port of this machine's devices the name, the driver, the state, the bytes of its largest "
             "message, and\nthe addresses of its RoCEv2 GIDs. The state of a device that cannot be opened says why.\n\n"
             "Raises OSError if the kernel reports an error.");
  module.def(
      "open_device", &open_device, nb::arg("device"), nb::arg("port"), nb::arg("address"),
      nb::sig("def open_device(device: str, port: int, address: int) -> tuple[object, int, str, int]"),
      "Return the device for an Engine, the bytes of its largest message, the kernel's driver, which is empty for one "
      "without\nhardware, and the index of its network interface. `address` is the IPv4 address of its interface.\n\n"
      "Raises ValueError if no such device or port exists, or none of its RoCEv2 addresses (GIDs) is `address`, and "
      "OSError if\nthe kernel reports an error.");
}
