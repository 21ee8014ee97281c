#include "native/net/rdma/rdma_routes.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "native/net/rdma/rdma_gids.h"
#include "native/wire/frame_headers.h"

namespace switchml::net {
namespace {

// The kernel looks for a MAC address for about a second, and asks once: the question or its answer may be lost.
constexpr int kResolutions = 3;  // after the first one

}  // namespace

RdmaRoutes::RdmaRoutes(const Source& source, const EndpointOptions& options)
    : source_(source), switches_(options.switches), traffic_class_(options.traffic_class) {
  for (const uint32_t address : switches_) {
    AddressHandle handle = made(address, source_.gid_index);
    for (int again = 0; again < kResolutions && handle == nullptr && errno == ETIMEDOUT; ++again) {
      handle = made(address, source_.gid_index);
    }
    if (handle == nullptr) {
      throw std::system_error(errno, std::generic_category(),
                              "there is no way from " + source_.name + " to the switch at " + text_of(address) +
                                  "; it, or the router to it, must answer ARP");
    }
    handles_.push_back(std::move(handle));
  }
}

AddressHandle RdmaRoutes::made(uint32_t address, uint8_t gid_index) const {
  ibv_ah_attr route{};
  route.is_global = 1;
  route.port_num = source_.port;
  route.grh.hop_limit = wire::protocol::ipv4_ttl;
  route.grh.traffic_class = traffic_class_;
  route.grh.sgid_index = gid_index;
  route.grh.dgid = gid_of(address);
  return AddressHandle(ibv_create_ah(source_.domain, &route));
}

void RdmaRoutes::renew(uint8_t gid_index) {
  std::vector<AddressHandle> renewed;
  renewed.reserve(switches_.size());
  for (const uint32_t address : switches_) renewed.push_back(made(address, gid_index));
  const std::lock_guard<std::mutex> lock(mutex_);
  renewed_.resize(renewed.size());
  for (size_t number = 0; number < renewed.size(); ++number) {
    if (renewed[number] != nullptr) renewed_[number] = std::move(renewed[number]);
  }
  are_renewed_.store(true, std::memory_order_release);
}

std::vector<AddressHandle> RdmaRoutes::take_renewed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  are_renewed_.store(false, std::memory_order_release);
  std::vector<AddressHandle> before;
  for (size_t number = 0; number < renewed_.size(); ++number) {
    if (renewed_[number] != nullptr) before.push_back(std::exchange(handles_[number], std::move(renewed_[number])));
  }
  renewed_.clear();
  return before;
}

}  // namespace switchml::net
