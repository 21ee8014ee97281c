// NCCL's point-to-point messages over TCP: a connection for each direction of two ranks, on which messages arrive in
// the order in which they were sent. Nothing blocks, and nothing moves but in the functions that NCCL's thread calls.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "native/runtime/file_descriptor.h"
#include "switchml/native/nccl/host_interfaces.h"
#include "switchml/native/nccl/nccl_interface.h"

namespace switchml::nccl {

// The handle that a listener gives to the rank that connects to it.
struct Handle {
  std::array<char, 8> version;
  uint64_t secret;   // by which the listener knows the rank that it waits for
  uint64_t attempt;  // of the connecting rank, which calls again with the same memory; 0 before the first call
  SocketAddress address;
};
static_assert(sizeof(Handle) <= kHandleBytes);

class Connection;

// A message in flight. Belongs to its connection until it is taken.
struct Message {
  Connection* connection;
  uint8_t* data;
  uint64_t bytes;      // of a message to receive: the room for it, until its header has come
  uint64_t moved = 0;  // of header and data
  uint64_t header = 0;
  bool done = false;
};

class Connection {
 public:
  Connection(runtime::FileDescriptor socket, SocketAddress peer) : socket_(std::move(socket)), peer_(peer) {}
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Begins to move a message, which belongs to this connection until release(); null if kMostRequests are in flight.
  Message* post(void* data, uint64_t bytes);
  // Moves what can be moved at once. Returns kSuccess, or why no message moves any more.
  Result progress();
  void release(Message* message);

 protected:
  // Moves some bytes of the first message. Returns how many; 0 if none can be moved now; below 0 after fail().
  virtual ssize_t move(Message& message) = 0;
  // Ends the connection with a warning; returns -1.
  ssize_t fail(Result result, const std::string& what);
  Result result() const { return result_; }
  // Returns what a call on the socket has moved, or 0 if it would have to wait.
  ssize_t checked(ssize_t moved);
  int socket() const { return socket_.get(); }
  std::string peer() const;

 private:
  const runtime::FileDescriptor socket_;
  const SocketAddress peer_;
  std::vector<std::unique_ptr<Message>> messages_;
  std::deque<Message*> moving_;
  Result result_ = kSuccess;
};

class Sender final : public Connection {
 public:
  // Begins to connect. Returns null after a warning if there is no socket.
  static std::unique_ptr<Sender> connect(const Handle& handle);
  // Shows the listener the secret. Sets *shown to whether that is done.
  Result greet(bool* shown);

 private:
  Sender(runtime::FileDescriptor socket, const Handle& handle);
  ssize_t move(Message& message) override;

  const uint64_t secret_;
  uint64_t secret_bytes_ = 0;  // that are sent
};

// The connections that are being made: for each, NCCL calls again with the same handle until it gets a sender.
class Connector {
 public:
  // Sets *sender, or leaves it null if the connection is not made yet.
  Result connect(void* handle, std::unique_ptr<Sender>* sender);

 private:
  struct Attempt {
    std::unique_ptr<Sender> sender;
    std::chrono::steady_clock::time_point until;
  };

  std::mutex mutex_;
  std::map<uint64_t, Attempt> attempts_;
  uint64_t last_ = 0;
};

class Receiver final : public Connection {
 public:
  using Connection::Connection;

 private:
  ssize_t move(Message& message) override;
};

class Listener {
 public:
  // Listens at an interface and writes the handle. Returns null after a warning if it cannot.
  static std::unique_ptr<Listener> listen(const HostInterface& interface, void* handle);

  // Returns the connection of the rank that has the handle, or null if it has not come yet.
  std::unique_ptr<Receiver> accept();

 private:
  // A connection that has not shown the secret yet.
  struct Stranger {
    runtime::FileDescriptor socket;
    SocketAddress address;
    std::chrono::steady_clock::time_point until;
  };

  Listener(runtime::FileDescriptor socket, uint64_t secret) : socket_(std::move(socket)), secret_(secret) {}

  const runtime::FileDescriptor socket_;
  const uint64_t secret_;
  std::deque<Stranger> strangers_;
};

}  // namespace switchml::nccl
