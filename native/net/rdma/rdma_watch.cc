#include "native/net/rdma/rdma_watch.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "native/net/rdma/rdma_gids.h"

namespace switchml::net {

using Clock = std::chrono::steady_clock;

RdmaWatch::RdmaWatch(ibv_context* context, std::string name, uint8_t port, uint32_t address, uint8_t gid_index)
    : context_(context),
      name_(std::move(name)),
      port_(port),
      address_(address),
      gid_index_(gid_index),
      worker_("switchml-rdma") {
  if (fcntl(context_->async_fd, F_SETFL, O_NONBLOCK) < 0) {
    throw std::system_error(errno, std::generic_category(), "fcntl");
  }
  worker_.start([this] { run(); });
}

void RdmaWatch::add(const std::shared_ptr<RdmaRoutes>& routes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  routes_.erase(std::remove_if(routes_.begin(), routes_.end(), [](const auto& one) { return one.expired(); }),
                routes_.end());
  routes_.push_back(routes);
}

void RdmaWatch::lose(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!lost_.empty()) return;
  lost_ = why;
  lost_event_.wake();
}

std::string RdmaWatch::lost() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lost_;
}

void RdmaWatch::run() {
  while (!worker_.stopping() && lost().empty()) {
    sleep();
    const bool changed = take_events();
    if (changed || without_address_since_) look_for_address();
    renew_routes(changed);
  }
}

void RdmaWatch::sleep() const {
  std::array<pollfd, 2> watched{{{context_->async_fd, POLLIN, 0}, {worker_.wake_event().fd(), POLLIN, 0}}};
  // An address that is away is looked for again only when it counts as gone: its return is an event.
  int timeout = -1;
  if (without_address_since_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*without_address_since_ + kAddressReturns - Clock::now());
    timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  poll(watched.data(), watched.size(), timeout);
  worker_.wake_event().end_sleep((watched[1].revents & POLLIN) != 0);
}

bool RdmaWatch::take_events() {
  bool changed = false;
  ibv_async_event event{};  // NOLINT(bugprone-invalid-enum-default-initialization): it is filled in
  while (ibv_get_async_event(context_, &event) == 0) {
    switch (event.event_type) {
      case IBV_EVENT_DEVICE_FATAL:
        lose("RDMA device " + name_ + " was removed, or has failed");
        break;
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_GID_CHANGE:
        changed = true;
        break;
      default:
        break;  // completions say what happens to queue pairs
    }
    ibv_ack_async_event(&event);
  }
  if (errno != EAGAIN && errno != EINTR) lose("RDMA device " + name_ + " was removed: it gives no more events");
  return changed;
}

void RdmaWatch::look_for_address() {
  if (const auto gid = rocev2_gid_of(context_, port_, address_)) {
    gid_index_.store(static_cast<uint8_t>(gid->gid_index), std::memory_order_relaxed);
    without_address_since_.reset();
    return;
  }
  const auto now = Clock::now();
  if (!without_address_since_) without_address_since_ = now;
  if (now - *without_address_since_ >= kAddressReturns) {
    lose("RDMA port " + name_ + " has lost its RoCEv2 address (GID) for " + text_of(address_));
  }
}

void RdmaWatch::renew_routes(bool all) {
  if (without_address_since_) return;
  std::vector<std::shared_ptr<RdmaRoutes>> chosen;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : routes_) {
      auto routes = one.lock();
      if (routes != nullptr && (routes->take_wanted() || all)) chosen.push_back(std::move(routes));
    }
  }
  for (const auto& routes : chosen) routes->renew(gid_index());
}

}  // namespace switchml::net
