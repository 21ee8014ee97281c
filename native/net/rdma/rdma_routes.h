// The ways from one endpoint to its switches.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "native/net/message_device.h"
#include "native/net/rdma/verbs.h"

namespace switchml::net {

// An address handle for each switch, which holds the MAC address that the kernel has found. Making one may block for a
// second, so the thread of an endpoint, which uses them, leaves that to the thread that watches the device.
class RdmaRoutes {
 public:
  // Where the ways begin: a port of the device `name`, with the address at `gid_index` of its table.
  struct Source {
    ibv_pd* domain;
    std::string name;
    uint8_t port;
    uint8_t gid_index;
  };

  // May block for some seconds. Throws std::system_error if a switch does not answer.
  RdmaRoutes(const Source& source, const EndpointOptions& options);

  // For the endpoint's thread. take_renewed() puts the handles that renew() has made in the place of those before, and
  // returns these, since requests may still use them.
  ibv_ah* to(size_t number) const { return handles_[number].get(); }
  bool are_renewed() const { return are_renewed_.load(std::memory_order_acquire); }
  std::vector<AddressHandle> take_renewed();
  void want_renewal() { wanted_.store(true, std::memory_order_release); }

  // For the watching thread. renew() looks for each switch again; one that does not answer keeps its handle.
  bool take_wanted() { return wanted_.exchange(false, std::memory_order_acq_rel); }
  void renew(uint8_t gid_index);

 private:
  AddressHandle made(uint32_t address, uint8_t gid_index) const;

  Source source_;
  std::vector<uint32_t> switches_;
  uint8_t traffic_class_;
  std::vector<AddressHandle> handles_;
  std::atomic<bool> wanted_{false};
  std::atomic<bool> are_renewed_{false};
  std::mutex mutex_;                    // guards what follows
  std::vector<AddressHandle> renewed_;  // not taken yet; null for a switch that keeps its handle
};

}  // namespace switchml::net
