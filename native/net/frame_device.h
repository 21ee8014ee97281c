// A network interface whose Ethernet frames this process makes and takes itself: a queue of a DPDK port, or an AF_XDP
// socket. Implementations are extension modules of their own (dataplane._dpdk, dataplane._xdp), which are there only
// where their libraries were found at build time; Python passes what they open to the agent or to the switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "native/net/udp_batch.h"

namespace switchml::net {

enum class Checksums : uint8_t {
  finished,      // the frame leaves as it is
  ipv4,          // the IPv4 header's is to be filled in; UDP has none (RFC 768: 0)
  ipv4_and_udp,  // UDP's as well, where hardware computes it; else it has none: values are covered by our own check
};

// Headers of frames that have the same payload: `count` times `bytes`, one behind the other. They begin with Ethernet,
// IPv4 without options and UDP where checksums are to be filled in.
struct FrameHeaders {
  const uint8_t* first;
  size_t bytes;
  size_t count;
};

struct FrameDeviceCounters {
  uint64_t received = 0;          // frames
  uint64_t receive_overflow = 0;  // dropped by the device, because nobody took them in time
  uint64_t receive_errors = 0;    // dropped because the device found a wrong checksum or length
  uint64_t uncopied = 0;          // frames sent whose payload the device read from where it was
  uint64_t handed_over = 0;       // frames received that another queue of the port was given
  SendCounters sending;

  // Adds those of another queue of the same port.
  void add(const FrameDeviceCounters& other) {
    received += other.received;
    receive_overflow += other.receive_overflow;
    receive_errors += other.receive_errors;
    uncopied += other.uncopied;
    handed_over += other.handed_over;
    sending.sent += other.sending.sent;
    sending.lost += other.sending.lost;
    if (sending.last_error == 0) sending.last_error = other.sending.last_error;
  }
};

// One queue of an interface. Several of one interface belong to a thread each: whatever queue a frame comes to, the one
// that its slot belongs to gets it (part_of_slot() in slot_blocks.h); frames without a slot stay where they come.
class FrameDevice {
 public:
  static constexpr size_t kBurst = 64;

  virtual ~FrameDevice() = default;
  FrameDevice(const FrameDevice&) = delete;
  FrameDevice& operator=(const FrameDevice&) = delete;

  virtual const std::string& name() const = 0;
  virtual uint64_t mac() const = 0;
  virtual size_t largest_frame() const = 0;  // bytes, without the frame check sequence
  // The kernel's interface that keeps what accept_udp_port() does not name, ARP among it; empty where every frame comes
  // here.
  virtual const std::string& kernel_interface() const = 0;
  // UDP packets to this destination port come here, or no longer. Throws std::system_error. Any thread.
  virtual void accept_udp_port(uint16_t port, bool accept) = 0;
  virtual FrameDeviceCounters counters() const = 0;

  // The thread that moves frames says when it begins and ends to do so. Any other thread may send while it is kept from
  // doing so.
  virtual void enter_thread() = 0;
  virtual void leave_thread() = 0;

  // Takes up to kBurst frames without blocking, and returns how many: they are valid until the next call and have no
  // source address.
  virtual size_t receive(Datagram* frames) = 0;
  // The queues that receive() gave frames to since the last call, as bits: their threads are to be woken.
  virtual uint64_t take_handed_to() = 0;
  // Queues a frame for each of the headers. The payload may change afterwards, unless it is in shared memory.
  virtual void send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) = 0;
  // Sends what is queued, without blocking. What the device has no room for stays queued for the next flush(), up to a
  // bound; the rest is counted as lost.
  virtual void flush() = 0;

  // Payloads inside this memory may be read by the device until they have left, and keep it alive so long.
  virtual void share(const std::shared_ptr<void>& memory, size_t bytes) = 0;
  virtual void unshare(const void* memory) = 0;

  // Readable when frames wait, between prepare_sleep() and end_sleep(); -1 where only receive() can tell.
  virtual int fd() const = 0;
  // Returns false when there is something to do at once.
  virtual bool prepare_sleep() = 0;
  virtual void end_sleep() = 0;

 protected:
  FrameDevice() = default;
};

// How Python passes a queue: a capsule of this name around a std::unique_ptr<FrameDevice>, which the receiver empties.
constexpr const char* kFrameDeviceCapsule = "switchml.FrameDevice";

}  // namespace switchml::net
