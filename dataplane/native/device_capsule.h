// Passes a FrameDevice from the module that opened it to the one that uses it, by way of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "dataplane/native/frame_device.h"

namespace switchml {

using DeviceHolder = std::unique_ptr<FrameDevice>;

inline nanobind::capsule to_capsule(DeviceHolder device) {
  auto holder = std::make_unique<DeviceHolder>(std::move(device));
  return {holder.release(), kFrameDeviceCapsule, [](void* held) noexcept { delete static_cast<DeviceHolder*>(held); }};
}

// Throws std::invalid_argument when it is no such capsule or was taken before.
inline DeviceHolder take_device(const nanobind::handle& capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kFrameDeviceCapsule) == 0)
    throw std::invalid_argument("this is no frame device");
  auto* holder = static_cast<DeviceHolder*>(PyCapsule_GetPointer(capsule.ptr(), kFrameDeviceCapsule));
  if (*holder == nullptr) throw std::invalid_argument("the frame device is in use already");
  return std::move(*holder);
}

}  // namespace switchml
