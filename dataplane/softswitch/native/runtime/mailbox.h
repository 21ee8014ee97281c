// What the threads of the other shards have for a shard's own: packets, and word that there is something to look at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "native/net/udp_batch.h"

namespace switchml::soft {

// A packet that came to the socket of another shard than its slot's.
struct StrayPacket {
  uint16_t port;
  sockaddr_in source;
  std::vector<uint8_t> bytes;
};

// Any thread may call all but the last three, which are the owner's.
class Mailbox {
 public:
  // So many packets wait; what comes beyond is lost, as it would be in a socket whose buffer is full.
  static constexpr size_t kMost = 4096;

  // Throws std::system_error.
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void put(StrayPacket packet);
  std::vector<StrayPacket> take();
  // Wakes the owner in any case.
  void wake() const;
  // Wakes it where it sleeps, and would not see what is there for it.
  void nudge() const;

  // Readable after somebody woke the owner.
  int fd() const { return wake_; }
  // From now on others wake the owner. False when packets wait already; the owner looks for anything else itself.
  bool prepare_sleep();
  // `woken` says that fd() is readable.
  void end_sleep(bool woken);

 private:
  int wake_;  // an eventfd
  std::atomic<bool> sleeping_{false};
  std::mutex mutex_;
  std::vector<StrayPacket> packets_;  // guarded by mutex_
};

// Hands a packet over that belongs to another shard than `own`. Returns whether it did.
bool hand_over(const std::vector<Mailbox*>& boxes, unsigned own, uint16_t port, const net::Datagram& packet);

}  // namespace switchml::soft
