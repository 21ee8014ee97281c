// Passes devices through Python, from the module that opened them to the module that uses them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "native/net/frame_device.h"
#include "native/net/message_device.h"

namespace switchml::bindings {

using DeviceHolder = std::unique_ptr<net::FrameDevice>;
using MessageDeviceHolder = std::unique_ptr<net::MessageDevice>;

inline const char* capsule_name(const DeviceHolder* /*type*/) { return net::kFrameDeviceCapsule; }
inline const char* capsule_name(const MessageDeviceHolder* /*type*/) { return net::kMessageDeviceCapsule; }

template <class Holder>
nanobind::capsule to_capsule(Holder device) {
  auto holder = std::make_unique<Holder>(std::move(device));
  const char* name = capsule_name(holder.get());
  return nanobind::capsule(holder.release(), name, [](void* held) noexcept { delete static_cast<Holder*>(held); });
}

// Throws std::invalid_argument for an object that is not such a capsule, or whose device was taken before.
template <class Holder>
Holder* device_in(nanobind::handle capsule) {
  const char* name = capsule_name(static_cast<Holder*>(nullptr));
  if (PyCapsule_IsValid(capsule.ptr(), name) == 0)
    throw std::invalid_argument("this is not a device of the right kind");
  auto* holder = static_cast<Holder*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (*holder == nullptr) throw std::invalid_argument("the device is in use already");
  return holder;
}

inline nanobind::list to_capsules(std::vector<DeviceHolder> queues) {
  nanobind::list capsules;
  for (DeviceHolder& queue : queues) capsules.append(to_capsule(std::move(queue)));
  return capsules;
}

// Takes all of them, or throws as device_in() does.
inline std::vector<DeviceHolder> take_devices(const nanobind::sequence& capsules) {
  std::vector<DeviceHolder*> holders;
  for (const nanobind::handle capsule : capsules) holders.push_back(device_in<DeviceHolder>(capsule));
  std::vector<DeviceHolder> queues;
  queues.reserve(holders.size());
  for (DeviceHolder* holder : holders) queues.push_back(std::move(*holder));
  return queues;
}

}  // namespace switchml::bindings
