// Watches a device: its events, and what takes too long for the threads that move packets.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "native/net/rdma/rdma_routes.h"
#include "native/runtime/wake_event.h"
#include "native/runtime/worker.h"

namespace switchml::net {

// A thread that looks for the switches again when a port or its address has changed, or an endpoint asks for it, and
// that finds out when the device cannot be used any more. Any thread may call its functions.
class RdmaWatch {
 public:
  // An address that has gone may come back, as when the network is configured again; for this long it is waited for.
  static constexpr std::chrono::seconds kAddressReturns{5};

  // Watches a port that has an IPv4 address (host byte order) at `gid_index` of its table. Throws std::system_error.
  RdmaWatch(ibv_context* context, std::string name, uint8_t port, uint32_t address, uint8_t gid_index);
  ~RdmaWatch() { worker_.stop(); }
  RdmaWatch(const RdmaWatch&) = delete;
  RdmaWatch& operator=(const RdmaWatch&) = delete;

  uint8_t gid_index() const { return gid_index_.load(std::memory_order_relaxed); }
  // Renews these ways when it is necessary, as long as another owner has them.
  void add(const std::shared_ptr<RdmaRoutes>& routes);
  // Looks whether an endpoint wants its ways to be renewed.
  void wake() const { worker_.wake_event().wake(); }

  // Says that the device cannot be used any more; the first reason counts.
  void lose(const std::string& why);
  std::string lost() const;
  // A descriptor that becomes readable when the device is lost.
  int lost_fd() const { return lost_event_.fd(); }

 private:
  void run();
  void sleep() const;
  // Takes the events of the device. Returns whether the ways to the switches may have changed.
  bool take_events();
  void look_for_address();
  void renew_routes(bool all);

  ibv_context* context_;
  std::string name_;
  uint8_t port_;
  uint32_t address_;
  std::atomic<uint8_t> gid_index_;
  std::optional<std::chrono::steady_clock::time_point> without_address_since_;  // of the thread
  mutable std::mutex mutex_;                                                    // guards what follows
  std::vector<std::weak_ptr<RdmaRoutes>> routes_;
  std::string lost_;
  runtime::WakeEvent lost_event_;
  mutable runtime::Worker worker_;
};

}  // namespace switchml::net
