// The socket of a shm port, at which agents bind ranks to connections. It has its own thread, because making memory
// takes milliseconds.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/shared_memory/shm_connection.h"
#include "native/channel/shm_messages.h"

namespace switchml::soft {

// The answer to a rank that was bound: the number of its connection, and descriptors of its memory and doorbell.
struct ShmGrant {
  uint16_t connection = 0;
  std::array<int, channel::kShmDescriptors> descriptors{-1, -1};

  ShmGrant() = default;
  ~ShmGrant() {
    for (const int descriptor : descriptors) {
      if (descriptor >= 0) close(descriptor);
    }
  }
  ShmGrant(ShmGrant&& other) noexcept
      : connection(other.connection), descriptors(std::exchange(other.descriptors, {-1, -1})) {}
  ShmGrant& operator=(ShmGrant&&) = delete;
  ShmGrant(const ShmGrant&) = delete;
  ShmGrant& operator=(const ShmGrant&) = delete;
};

// The interface of the switch to the listener.
class ShmHost {
 public:
  virtual ~ShmHost() = default;
  // These throw std::invalid_argument for a request that this switch cannot serve, std::system_error and
  // std::runtime_error.
  virtual ShmGrant bind(uint16_t port, const RankBinding& rank) = 0;
  virtual void unbind(uint16_t port, uint16_t connection) = 0;
  // Freezes a rank or, if `targets` is not empty, lets it fetch; returns the number of phases that it holds of each
  // slot. Throws std::invalid_argument.
  virtual std::vector<uint32_t> quiesce(uint16_t port, uint16_t connection, const std::vector<uint32_t>& targets) = 0;
};

class ShmListener {
 public:
  // Binds `path`, and replaces a socket there that no process listens at any more. `host` must outlive this object.
  // Throws std::system_error.
  ShmListener(std::string path, uint16_t port, ShmHost* host);
  // Unbinds every rank.
  ~ShmListener();
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  void start();

 private:
  struct Client {
    int socket;
    uint16_t connection;  // 0 before it is bound
  };

  void run();
  // Accepts a client. Returns false if there are no descriptors or no memory for it.
  bool accept_client();
  // Serves one message. Returns false if the client must be disconnected.
  bool serve(Client* client);
  bool serve_bound(const Client& client, const channel::ShmRequest& request,
                   const std::vector<uint32_t>& targets) const;
  void answer(const Client& client, const channel::ShmAnswer& answer, const ShmGrant* grant) const;
  void drop(const Client& client);

  std::string path_;
  uint16_t port_;
  ShmHost* host_;
  int socket_ = -1;
  int stop_ = -1;  // an eventfd
  std::vector<Client> clients_;
  std::thread thread_;
};

}  // namespace switchml::soft
