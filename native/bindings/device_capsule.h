// Passes the queues of a device through Python, from the module that opened them to the module that uses them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "native/net/frame_device.h"

namespace switchml::bindings {

using DeviceHolder = std::unique_ptr<net::FrameDevice>;

inline nanobind::list to_capsules(std::vector<DeviceHolder> queues) {
  nanobind::list capsules;
  for (DeviceHolder& queue : queues) {
    auto holder = std::make_unique<DeviceHolder>(std::move(queue));
    capsules.append(nanobind::capsule(holder.release(), net::kFrameDeviceCapsule,
                                      [](void* held) noexcept { delete static_cast<DeviceHolder*>(held); }));
  }
  return capsules;
}

// Throws std::invalid_argument for an object that is not such a capsule or was taken before.
inline std::vector<DeviceHolder> take_devices(const nanobind::sequence& capsules) {
  std::vector<DeviceHolder*> holders;
  for (const nanobind::handle capsule : capsules) {
    if (PyCapsule_IsValid(capsule.ptr(), net::kFrameDeviceCapsule) == 0) {
      throw std::invalid_argument("this is not a frame device");
    }
    holders.push_back(static_cast<DeviceHolder*>(PyCapsule_GetPointer(capsule.ptr(), net::kFrameDeviceCapsule)));
    if (*holders.back() == nullptr) throw std::invalid_argument("the frame device is in use already");
  }
  std::vector<DeviceHolder> queues;
  queues.reserve(holders.size());
  for (DeviceHolder* holder : holders) queues.push_back(std::move(*holder));
  return queues;
}

}  // namespace switchml::bindings
