// UDP ports that no other user of this machine can take, not even after the process that uses them has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "native/net/udp_batch.h"

namespace switchml::net {

// A port is held by a socket that is bound to it on every address and receives nothing: a filter drops each packet, so
// that none waits there, and none is taken from the sockets of this user that bind the port after it (SO_REUSEPORT).
//
// A service manager may hold the same socket beyond the process, and give it to the next one: systemd does
// (sd_notify(3), FDSTORE=1, and sd_listen_fds(3)), and for an embedded fabric switchml/launch/port_keeper.py. Then a
// port stays held after its last use, and is the one that the next request for a port gets.
class HeldPorts {
 public:
  // `manager` is the address of the service manager's socket, or empty without one. `left` are the sockets that an
  // earlier process has left there; only those of UDP ports are taken.
  HeldPorts(std::string manager, const std::vector<int>& left);

  // The ports of this process; what its environment says of the service manager is read at the first call.
  static HeldPorts& of_process();

  // Holds a port (0: any) as long as the result exists. `address` is where it will be used, for the texts of errors.
  // Throws std::system_error, with EADDRINUSE if another program has the port on any address.
  std::shared_ptr<const UdpSocket> hold(const std::string& address, uint16_t port);

 private:
  void leave_with_manager(const UdpSocket& socket) const;

  std::string manager_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const UdpSocket>> left_;  // with the service manager; guarded by mutex_
};

}  // namespace switchml::net
