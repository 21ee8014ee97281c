#include "dataplane/softswitch/native/runtime/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "native/wire/constants.h"
#include "native/wire/slot_blocks.h"
#include "native/wire/wire.h"

namespace switchml::soft {

Mailbox::Mailbox() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open an eventfd");
}

Mailbox::~Mailbox() { close(wake_); }

void Mailbox::put(StrayPacket packet) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (packets_.size() >= kMost) return;
    packets_.push_back(std::move(packet));
  }
  nudge();
}

std::vector<StrayPacket> Mailbox::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(packets_, {});
}

void Mailbox::wake() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then its reader is woken anyway.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

// Either this sees that the owner sleeps, or the owner, which looks after it has said so, sees what is there.
void Mailbox::nudge() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_relaxed)) wake();
}

bool Mailbox::prepare_sleep() {
  sleeping_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::lock_guard<std::mutex> lock(mutex_);
  return packets_.empty();
}

void Mailbox::end_sleep(bool woken) {
  sleeping_.store(false, std::memory_order_relaxed);
  if (!woken) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
}

bool hand_over(const std::vector<Mailbox*>& boxes, unsigned own, uint16_t port, const net::Datagram& packet) {
  if (packet.length < wire::protocol::header_bytes) return false;  // whoever has it drops it
  const uint32_t slot = wire::load_header(packet.data).slot >> 1U;
  const unsigned owner = wire::part_of_slot(slot, static_cast<unsigned>(boxes.size()));
  if (owner == own) return false;
  boxes[owner]->put({port, packet.source, {packet.data, packet.data + packet.length}});
  return true;
}

}  // namespace switchml::soft
