// The XDP program that takes our UDP packets off an interface and leaves everything else to the kernel.
#pragma once

#include <cstdint>
#include <string>

namespace switchml::net {

// Attached as long as it lives, and no longer: the kernel takes it off when the process ends in whatever way.
class XdpFilter {
 public:
  // Nothing is redirected yet. Throws std::system_error.
  XdpFilter(const std::string& interface, unsigned interface_index);
  ~XdpFilter();
  XdpFilter(const XdpFilter&) = delete;
  XdpFilter& operator=(const XdpFilter&) = delete;

  // Packets of the receive queue go to the socket (AF_XDP). Throws std::system_error.
  void connect(uint32_t queue, int socket) const;
  // UDP packets to this port are redirected, or no longer. Throws std::system_error.
  void redirect(uint16_t udp_port, bool on) const;
  // Whether the driver runs the program; else the kernel does, on packets that it has buffers for already.
  bool native() const { return native_; }

 private:
  int load() const;
  void attach(const std::string& interface, unsigned interface_index, int program);
  void close() const;

  int ports_ = -1;    // hash of UDP ports in network byte order
  int sockets_ = -1;  // AF_XDP socket of each receive queue
  int link_ = -1;
  bool native_ = false;
};

}  // namespace switchml::net
