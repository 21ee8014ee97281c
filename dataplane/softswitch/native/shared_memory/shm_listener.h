// The socket of a shm port, at which agents bind ranks to connections. It has its own thread, because making memory
// takes milliseconds.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/softswitch/native/shared_memory/shm_port.h"
#include "native/channel/shm_messages.h"

namespace switchml::soft {

class SharedMemoryService;

class ShmListener {
 public:
  // Binds `path`, and replaces a socket there that no process listens at any more. `port` and `service` must outlive
  // this object. Throws std::system_error.
  ShmListener(std::string path, ShmPort* port, SharedMemoryService* service);
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
  // Freezes a rank or, if there are `targets`, lets it fetch.
  bool serve_bound(const Client& client, const channel::ShmRequest& request,
                   const std::vector<uint32_t>& targets) const;
  void drop(const Client& client);

  std::string path_;
  ShmPort* port_;
  SharedMemoryService* service_;
  int socket_ = -1;
  int stop_ = -1;  // an eventfd
  std::vector<Client> clients_;
  std::thread thread_;
};

}  // namespace switchml::soft
