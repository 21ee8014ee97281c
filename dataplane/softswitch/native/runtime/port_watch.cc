#include "dataplane/softswitch/native/runtime/port_watch.h"

namespace switchml::soft {

void PortWatch::list(const PortTable& ports) {
  leave_devices();
  ports_.clear();
  for (const PipelinePort* each : ports.all()) {
    Port* port = ports.find_packet_port(each->number());
    if (port == nullptr) continue;
    if (auto* device = dynamic_cast<DevicePort*>(port)) {
      device->enter_thread();
      devices_.push_back(device);
    } else {
      ports_.push_back(port);
    }
  }
  ports_.insert(ports_.end(), devices_.begin(), devices_.end());
  polled_.assign(1, {wake_event_->fd(), POLLIN, 0});
  for (const Port* port : ports_) polled_.push_back({port->fd(), POLLIN, 0});
}

void PortWatch::leave_devices() {
  for (DevicePort* port : devices_) port->leave_thread();
  devices_.clear();
}

bool PortWatch::decide_to_poll_again(bool found) {
  const auto now = Port::Clock::now();
  bool again = false;
  for (DevicePort* port : devices_) again = port->look_again(found, now) || again;
  return again;
}

bool PortWatch::prepare_sleep() {
  wake_event_->prepare_sleep();
  bool sleeps = strays_->empty();
  for (DevicePort* port : devices_) sleeps = port->prepare_sleep() && sleeps;
  return sleeps;
}

void PortWatch::sleep(int timeout, bool poll_again) {
  const bool sleeps = !poll_again && prepare_sleep();
  const int ready = poll(polled_.data(), polled_.size(), sleeps ? timeout : 0);
  if (!poll_again) {
    wake_event_->end_sleep(ready > 0 && polled_[0].revents != 0);
    for (DevicePort* port : devices_) port->end_sleep();
  }
  if (ready >= 0) return;
  for (pollfd& each : polled_)
    each.revents = 0;  // interrupted by a signal: the fields still hold the results of the last call
}

}  // namespace switchml::soft
