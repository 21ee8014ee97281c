// An RDMA card with RoCEv2, or Linux's software one (rxe): one UD queue pair for each job.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "native/net/message_device.h"
#include "native/net/rdma/rdma_watch.h"
#include "native/net/rdma/verbs.h"

namespace switchml::net {

class RdmaEndpoint;

// A port as a user sees it before an agent uses it.
struct RdmaPort {
  std::string name;    // "mlx5_0/1"
  std::string driver;  // as RdmaDevice::driver()
  std::string state;   // as libibverbs calls it, or why the device cannot be opened
  size_t largest_message = 0;
  std::vector<std::string> addresses;  // those that its RoCEv2 GIDs stand for
};

// Returns all ports of all devices of this machine. Throws std::system_error.
std::vector<RdmaPort> list_ports();

class RdmaDevice : public MessageDevice {
 public:
  // Opens a port of a device, such as "mlx5_0", whose RoCEv2 GID with this IPv4 address (host byte order) it then uses.
  // Throws std::invalid_argument if there is no such device, port or GID, and std::system_error.
  RdmaDevice(const std::string& device, uint8_t port, uint32_t address);
  ~RdmaDevice() override;

  const std::string& name() const override { return name_; }
  size_t largest_message() const override { return largest_message_; }
  counters::Device counters() const override { return counters_; }
  counters::Link link_counters() const override { return link_counters_; }
  std::unique_ptr<MessageEndpoint> open(const EndpointOptions& options) override;
  void share(const std::shared_ptr<void>& memory, size_t bytes) override;
  void unshare(const void* memory) override;
  std::string lost() const override { return watch_->lost(); }
  int lost_fd() const override { return watch_->lost_fd(); }

  // The name of the kernel's driver, such as "mlx5_core"; empty for one without hardware.
  const std::string& driver() const { return driver_; }
  // The index of its network interface.
  uint32_t interface_index() const { return interface_index_; }

 private:
  friend class RdmaEndpoint;

  struct Shared {
    std::shared_ptr<void> memory;
    Region region;
  };

  // Throws std::system_error, which names the limit of locked memory if that is too low.
  Region registered(void* memory, size_t bytes, int access) const;

  std::string name_;
  std::string driver_;
  uint8_t port_;
  uint32_t address_;
  Context context_;
  Domain domain_;
  std::unique_ptr<RdmaWatch> watch_;  // uses what is before it
  uint32_t interface_index_ = 0;
  size_t largest_message_ = 0;
  std::map<const uint8_t*, Shared> shared_;  // by the start of the memory
  std::set<RdmaEndpoint*> endpoints_;
  counters::Device counters_;
  counters::Link link_counters_;
};

}  // namespace switchml::net
