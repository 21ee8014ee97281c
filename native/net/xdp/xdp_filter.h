// The XDP program that redirects SwitchML packets of an interface and leaves all others to the kernel.
#pragma once

#include <cstdint>
#include <string>

namespace switchml::net {

// The program is attached while this object exists; the kernel detaches it when the process ends, also by a crash.
class XdpFilter {
 public:
  // Attaches the program, which redirects nothing yet. Throws std::system_error.
  XdpFilter(const std::string& interface, unsigned interface_index);
  ~XdpFilter();
  XdpFilter(const XdpFilter&) = delete;
  XdpFilter& operator=(const XdpFilter&) = delete;

  // Sends redirected packets of the receive queue to the AF_XDP socket. Throws std::system_error.
  void connect(uint32_t queue, int socket) const;
  // Starts or stops redirecting UDP packets to this port. Throws std::system_error.
  void redirect(uint16_t udp_port, bool on) const;
  // Returns whether the driver runs the program; otherwise the kernel does, after it has allocated a buffer.
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
