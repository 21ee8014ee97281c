// The ports that one thread of the switch receives from, and the decision when it may sleep.
#pragma once

#include <poll.h>

#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/ports/device_port.h"
#include "dataplane/softswitch/native/ports/port_table.h"
#include "dataplane/softswitch/native/runtime/stray_packet.h"
#include "native/runtime/mailbox.h"
#include "native/runtime/wake_event.h"

namespace switchml::soft {

// One thread uses a watch. Ports are never removed, so pointers to them stay valid.
class PortWatch {
 public:
  using Strays = runtime::Mailbox<StrayPacket>;

  // `wake_event` wakes the thread; `strays` must be empty before it sleeps. Both must outlive the watch.
  PortWatch(runtime::WakeEvent* wake_event, const Strays* strays) : wake_event_(wake_event), strays_(strays) {}
  ~PortWatch() { leave_devices(); }
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

  // Watches the current ports of `ports`, which no other thread may change during the call.
  void list(const PortTable& ports);

  // Calls poll(port), which returns whether there were packets, for each device port. Returns whether to poll any of
  // them again at once.
  template <class Poll>
  bool poll_devices(Poll&& poll) {
    bool found = false;
    for (DevicePort* port : devices_) found = poll(port) || found;
    return decide_to_poll_again(found);
  }

  // Sleeps until packets may be waiting, or for `timeout` milliseconds (-1: without limit); not at all if `poll_again`.
  // Calls ready(port) for each port whose descriptor is readable, except device ports. Returns whether it called it.
  template <class Ready>
  bool wait(int timeout, bool poll_again, Ready&& ready) {
    sleep(timeout, poll_again);
    bool any = false;
    for (size_t i = 0; i < ports_.size() - devices_.size(); ++i) {
      if (polled_[i + 1].revents == 0) continue;
      ready(ports_[i]);
      any = true;
    }
    return any;
  }

 private:
  bool decide_to_poll_again(bool found);
  void sleep(int timeout, bool poll_again);
  bool prepare_sleep();
  void leave_devices();

  runtime::WakeEvent* wake_event_;
  const Strays* strays_;
  std::vector<Port*> ports_;  // device ports last
  std::vector<DevicePort*> devices_;
  std::vector<pollfd> polled_;  // wake_event_, then one for each of ports_
};

}  // namespace switchml::soft
