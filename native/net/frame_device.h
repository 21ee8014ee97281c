// A network interface whose Ethernet frames this process sends and receives itself: a queue of a DPDK port, or an
// AF_XDP socket. The implementations are separate extension modules (dataplane._dpdk, dataplane._xdp), built only if
// their libraries are found; Python passes the devices that they open to the agent or to the switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "native/counters/counters.h"
#include "native/net/udp_batch.h"

namespace switchml::net {

enum class Checksums : uint8_t {
  finished,      // the frame is sent as it is
  ipv4,          // the device fills in that of the IPv4 header; UDP has none (RFC 768: 0)
  ipv4_and_udp,  // also that of UDP if hardware computes it; otherwise none: SwitchML's own check covers the values
};

// Headers of frames that have the same payload: `count` headers of `bytes` each, one after another. If checksums must
// be filled in, they begin with Ethernet, IPv4 without options and UDP.
struct FrameHeaders {
  const uint8_t* first;
  size_t bytes;
  size_t count;
};

struct FrameDeviceCounters : counters::Device {
  int last_send_errno = 0;  // of the last frame that was not sent; 0 if all were
};

// One queue of an interface; each queue is served by one thread. A frame that arrives at a queue is passed to the queue
// that its slot belongs to (part_of_slot() in slot_blocks.h); a frame without a slot stays at the queue it came to.
class FrameDevice {
 public:
  static constexpr size_t kBurst = 64;

  virtual ~FrameDevice() = default;
  FrameDevice(const FrameDevice&) = delete;
  FrameDevice& operator=(const FrameDevice&) = delete;

  virtual const std::string& name() const = 0;
  virtual uint64_t mac() const = 0;
  virtual size_t largest_frame() const = 0;  // bytes, without the frame check sequence
  // The kernel's interface that gets all frames that accept_udp_port() does not name, such as ARP; empty if every frame
  // comes here.
  virtual const std::string& kernel_interface() const = 0;
  // Starts or stops receiving UDP packets to this destination port. Throws std::system_error. Called from any thread.
  virtual void accept_udp_port(uint16_t port, bool accept) = 0;
  virtual FrameDeviceCounters counters() const = 0;

  // The thread that moves frames calls these when it begins and when it stops. Another thread may send only while this
  // thread is kept from doing so.
  virtual void enter_thread() = 0;
  virtual void leave_thread() = 0;

  // Receives up to kBurst frames without blocking, and returns their number. They are valid until the next call and
  // have no source address.
  virtual size_t receive(Datagram* frames) = 0;
  // Returns the queues that receive() passed frames to since the last call, as bits; the caller wakes their threads.
  virtual uint64_t take_handed_to() = 0;
  // Queues a frame for each of the headers. The payload may change afterwards, unless it is in shared memory.
  virtual void send(const FrameHeaders& headers, const uint8_t* payload, size_t payload_bytes, Checksums checksums) = 0;
  // Sends the queued frames without blocking. Those that the device has no room for stay queued for the next flush(),
  // up to a limit; the others are counted as lost.
  virtual void flush() = 0;

  // Lets the device read payloads inside this memory directly; a frame keeps the memory alive until it was sent.
  virtual void share(const std::shared_ptr<void>& memory, size_t bytes) = 0;
  virtual void unshare(const void* memory) = 0;

  // Returns a descriptor that is readable when frames wait, between prepare_sleep() and end_sleep(); -1 if only
  // receive() can find out.
  virtual int fd() const = 0;
  // Returns false if there is work to do at once.
  virtual bool prepare_sleep() = 0;
  virtual void end_sleep() = 0;

 protected:
  FrameDevice() = default;
};

// The name of the capsule in which Python passes a queue. It holds a std::unique_ptr<FrameDevice>, which the receiver
// takes.
constexpr const char* kFrameDeviceCapsule = "switchml.FrameDevice";

}  // namespace switchml::net
