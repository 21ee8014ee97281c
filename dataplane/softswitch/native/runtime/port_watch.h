// The ports that one thread of the switch receives from, and when it may sleep.
#pragma once

#include <poll.h>

#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/ports/device_port.h"
#include "dataplane/softswitch/native/ports/port.h"
#include "dataplane/softswitch/native/runtime/mailbox.h"

namespace switchml::soft {

// One thread uses it. Ports are never removed, so that pointers to them stay good.
class PortWatch {
 public:
  // Both outlive it; `boxes` are those of all shards, that of the thread among them.
  PortWatch(Mailbox* own, const std::vector<Mailbox*>* boxes) : own_(own), boxes_(boxes) {}
  ~PortWatch() { leave_devices(); }
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

  // Looks at those of `ports` that are there now; none of them may change meanwhile.
  void list(const Ports& ports);
  const std::vector<Port*>& ports() const { return ports_; }

  // Takes what waits at device ports: receive(port) says whether there was anything, process(port) is for what there
  // was, unless it was other shards'. Returns whether to look at any of them again at once.
  template <class Receive, class Process>
  bool look_at_devices(Receive&& receive, Process&& process) {
    bool found = false;
    for (DevicePort* port : devices_) {
      const bool received = receive(port);
      found = nudge_others(port) || received || found;
      if (received) process(port);
    }
    return decide_to_look_again(found);
  }

  // Sleeps until something may be there, or for `timeout` milliseconds (-1: for ever); not at all where `look_again`.
  // Calls ready(port) for each port whose descriptor says that something waits, device ports aside. Returns whether it
  // did.
  template <class Ready>
  bool wait(int timeout, bool look_again, Ready&& ready) {
    sleep(timeout, look_again);
    bool any = false;
    for (size_t i = 0; i < ports_.size() - devices_.size(); ++i) {
      if (polled_[i + 1].revents == 0) continue;
      ready(ports_[i]);
      any = true;
    }
    return any;
  }

 private:
  // Wakes the threads of other shards that the port's device gave frames to. Returns whether there were any.
  bool nudge_others(DevicePort* port) const;
  bool decide_to_look_again(bool found);
  void sleep(int timeout, bool look_again);
  bool prepare_sleep();
  void leave_devices();

  Mailbox* own_;
  const std::vector<Mailbox*>* boxes_;
  std::vector<Port*> ports_;  // those of devices last
  std::vector<DevicePort*> devices_;
  std::vector<pollfd> polled_;  // own_, then one for each of ports_
};

}  // namespace switchml::soft
