#include "native/net/rdma/rdma_device.h"

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "native/net/rdma/rdma_endpoint.h"
#include "native/net/rdma/rdma_gids.h"

namespace switchml::net {
namespace {

std::system_error failure(int error, const std::string& what) { return {error, std::generic_category(), what}; }

// The devices of this machine; none if the kernel knows no RDMA. Throws std::system_error.
class DeviceList {
 public:
  DeviceList() : devices_(ibv_get_device_list(&count_), ibv_free_device_list) {
    if (devices_ == nullptr && errno != ENOSYS) throw failure(errno, "the list of RDMA devices cannot be read");
  }
  ibv_device** begin() const { return devices_.get(); }
  ibv_device** end() const { return devices_.get() + count_; }

 private:
  int count_ = 0;
  std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices_;
};

Context opened(ibv_device* device) {
  Context context(ibv_open_device(device));
  if (context == nullptr) {
    throw failure(errno, std::string("RDMA device ") + ibv_get_device_name(device) +
                             " cannot be opened; it takes access to /dev/infiniband/uverbs*");
  }
  return context;
}

// Returns the device with this name. Throws std::invalid_argument, which names those that there are.
Context open_named(const std::string& name) {
  std::string known;
  const DeviceList devices;
  for (ibv_device* device : devices) {
    const std::string one = ibv_get_device_name(device);
    if (one == name) return opened(device);
    known += known.empty() ? one : ", " + one;
  }
  throw std::invalid_argument("there is no RDMA device " + name + "; this machine has " +
                              (known.empty() ? "none" : known));
}

size_t bytes_of(ibv_mtu mtu) { return size_t{128} << static_cast<unsigned>(mtu); }

ibv_port_attr port_of(ibv_context* context, uint8_t port, const std::string& name) {
  ibv_port_attr state{};  // NOLINT(bugprone-invalid-enum-default-initialization): libibverbs wants zeros
  if (const int error = ibv_query_port(context, port, &state); error != 0) throw failure(error, name);
  return state;
}

std::string driver_of(const ibv_context& context) {
  std::error_code none;
  const std::filesystem::path link = std::string(context.device->ibdev_path) + "/device/driver";
  return std::filesystem::read_symlink(link, none).filename().string();
}

RdmaPort described(ibv_context* context, uint8_t port, const std::string& name) {
  const ibv_port_attr state = port_of(context, port, name);
  const bool ethernet = state.link_layer == IBV_LINK_LAYER_ETHERNET;
  RdmaPort found{name,
                 driver_of(*context),
                 ethernet ? ibv_port_state_str(state.state) : "InfiniBand",
                 bytes_of(state.active_mtu),
                 {}};
  for (const ibv_gid_entry& entry : rocev2_gids(context, port)) {
    found.addresses.push_back(text_of(entry.gid));
  }
  return found;
}

}  // namespace

std::vector<RdmaPort> list_ports() {
  std::vector<RdmaPort> found;
  const DeviceList devices;
  for (ibv_device* device : devices) {
    const std::string name = ibv_get_device_name(device);
    try {
      const Context context = opened(device);
      ibv_device_attr attributes{};
      if (const int error = ibv_query_device(context.get(), &attributes); error != 0) throw failure(error, name);
      for (unsigned port = 1; port <= attributes.phys_port_cnt; ++port) {
        found.push_back(described(context.get(), static_cast<uint8_t>(port), name + "/" + std::to_string(port)));
      }
    } catch (const std::system_error& error) {
      found.push_back({name, "", error.what(), 0, {}});
    }
  }
  return found;
}

RdmaDevice::RdmaDevice(const std::string& device, uint8_t port, uint32_t address)
    : name_(device + "/" + std::to_string(port)), port_(port), address_(address) {
  // A forked child of the agent must not share its registered memory.
  if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) ibv_fork_init();
  context_ = open_named(device);
  driver_ = driver_of(*context_);
  ibv_device_attr attributes{};
  if (const int error = ibv_query_device(context_.get(), &attributes); error != 0) throw failure(error, name_);
  if (port < 1 || port > attributes.phys_port_cnt) {
    throw std::invalid_argument("RDMA device " + device + " has the ports 1 to " +
                                std::to_string(attributes.phys_port_cnt) + ", not " + std::to_string(port));
  }
  const ibv_port_attr state = port_of(context_.get(), port, name_);
  if (state.link_layer != IBV_LINK_LAYER_ETHERNET) {
    throw std::invalid_argument("RDMA device " + name_ + " is on InfiniBand; only RoCEv2, over Ethernet, is supported");
  }
  if (state.state != IBV_PORT_ACTIVE) {
    throw std::invalid_argument("port " + name_ + " is " + ibv_port_state_str(state.state) +
                                "; set its network interface up, and check the cable");
  }
  largest_message_ = bytes_of(state.active_mtu);
  const auto gid = rocev2_gid_of(context_.get(), port, address);
  if (!gid) {
    std::string known;
    for (const ibv_gid_entry& one : rocev2_gids(context_.get(), port)) {
      known += (known.empty() ? "" : ", ") + text_of(one.gid);
    }
    throw std::invalid_argument("port " + name_ + " has no RoCEv2 address (GID) for " + text_of(address) +
                                ", the agent's --address; it has " + (known.empty() ? "none" : known));
  }
  interface_index_ = gid->ndev_ifindex;
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (domain_ == nullptr) throw failure(errno, "ibv_alloc_pd of " + name_);
  watch_ = std::make_unique<RdmaWatch>(context_.get(), name_, port, address, static_cast<uint8_t>(gid->gid_index));
}

RdmaDevice::~RdmaDevice() = default;

std::unique_ptr<MessageEndpoint> RdmaDevice::open(const EndpointOptions& options) {
  return std::make_unique<RdmaEndpoint>(this, options);
}

void RdmaDevice::share(const std::shared_ptr<void>& memory, size_t bytes) {
  // Local access only: the network never writes to named memory.
  Region region = registered(memory.get(), bytes, 0);
  shared_[static_cast<const uint8_t*>(memory.get())] = {memory, std::move(region)};
}

Region RdmaDevice::registered(void* memory, size_t bytes, int access) const {
  Region region(ibv_reg_mr(domain_.get(), memory, bytes, access));
  if (region == nullptr) {
    const int error = errno;
    throw failure(error, std::to_string(bytes) + " bytes cannot be registered with " + name_ +
                             (error == ENOMEM ? "; raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)" : ""));
  }
  return region;
}

void RdmaDevice::unshare(const void* memory) {
  for (RdmaEndpoint* endpoint : endpoints_) endpoint->finish_sending();
  shared_.erase(static_cast<const uint8_t*>(memory));
}

}  // namespace switchml::net
