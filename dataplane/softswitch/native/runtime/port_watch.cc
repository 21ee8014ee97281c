#include "dataplane/softswitch/native/runtime/port_watch.h"

namespace switchml::soft {

void PortWatch::list(const Ports& ports) {
  leave_devices();
  ports_.clear();
  for (const auto& port : ports) {
    if (port == nullptr) continue;
    if (auto* device = dynamic_cast<DevicePort*>(port.get())) {
      device->enter_thread();
      devices_.push_back(device);
    } else {
      ports_.push_back(port.get());
    }
  }
  ports_.insert(ports_.end(), devices_.begin(), devices_.end());
  polled_.assign(1, {own_->fd(), POLLIN, 0});
  for (const Port* port : ports_) polled_.push_back({port->fd(), POLLIN, 0});
}

void PortWatch::leave_devices() {
  for (DevicePort* port : devices_) port->leave_thread();
  devices_.clear();
}

bool PortWatch::decide_to_look_again(bool found) {
  const auto now = Port::Clock::now();
  bool again = false;
  for (DevicePort* port : devices_) again = port->look_again(found, now) || again;
  return again;
}

bool PortWatch::prepare_sleep() {
  bool sleeps = own_->prepare_sleep();
  for (DevicePort* port : devices_) sleeps = port->prepare_sleep() && sleeps;
  return sleeps;
}

void PortWatch::sleep(int timeout, bool look_again) {
  const bool sleeps = !look_again && prepare_sleep();
  const int ready = poll(polled_.data(), polled_.size(), sleeps ? timeout : 0);
  if (!look_again) {
    own_->end_sleep(ready > 0 && polled_[0].revents != 0);
    for (DevicePort* port : devices_) port->end_sleep();
  }
  if (ready >= 0) return;
  for (pollfd& each : polled_) each.revents = 0;  // a signal: they hold what was there before
}

bool PortWatch::nudge_others(DevicePort* port) const {
  const uint64_t handed_to = port->take_handed_to();
  for (uint64_t others = handed_to; others != 0; others &= others - 1) {
    (*boxes_)[static_cast<unsigned>(__builtin_ctzll(others))]->nudge();
  }
  return handed_to != 0;
}

}  // namespace switchml::soft
