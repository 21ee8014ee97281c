// A device that carries messages of one packet each, between endpoints that are known by a number, such as the queue
// pairs of an RDMA card. It is implemented in a separate extension module (dataplane._rdma), built only if its library
// is found; Python passes the device that it opens to the agent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "native/counters/counters.h"

namespace switchml::net {

// A message that has arrived, without what the device has put in front of it.
struct Message {
  const uint8_t* data;
  size_t length;
  uint32_t source;  // IPv4 address, in host byte order
};

// The properties of a new endpoint's job.
struct EndpointOptions {
  uint32_t queue_key = 0;          // messages with another one are dropped by the device
  uint8_t traffic_class = 0;       // of the IPv4 header of what it sends
  std::vector<uint32_t> switches;  // the only ones that it sends to and takes messages from: IPv4 addresses
};

// One end of the messages of a job. One thread uses it.
class MessageEndpoint {
 public:
  static constexpr size_t kBurst = 64;

  virtual ~MessageEndpoint() = default;
  MessageEndpoint(const MessageEndpoint&) = delete;
  MessageEndpoint& operator=(const MessageEndpoint&) = delete;

  // The number by which others know it, below 2^24.
  virtual uint32_t number() const = 0;

  // Queues a message to the switch with this number in EndpointOptions. The header may change afterwards. So may the
  // payload, unless it is in memory that is shared with the device.
  virtual void send(size_t to, const uint8_t* header, size_t header_bytes, const uint8_t* payload,
                    size_t payload_bytes) = 0;
  // Sends the queued messages without blocking. Those that the device has no room for count as lost.
  virtual void flush() = 0;
  // Returns when the device reads no memory of messages that were sent before, or after a limited time.
  virtual void finish_sending() = 0;
  // Receives up to kBurst messages without blocking, and returns their number. They are valid until the next call.
  virtual size_t receive(std::array<Message, kBurst>* messages) = 0;

  // Returns a descriptor that is readable when messages wait, once prepare_sleep() has returned true; it returns false
  // if messages wait already.
  virtual int fd() const = 0;
  virtual bool prepare_sleep() = 0;

  // Lets the device find out, without blocking, whether the switches are reached in another way than before: they have
  // not answered for some time.
  virtual void find_switches_again() = 0;

 protected:
  MessageEndpoint() = default;
};

// It outlives its endpoints. Any thread may call lost() and lost_fd(); the other functions are called by one thread at
// a time, while no thread uses one of its endpoints.
class MessageDevice {
 public:
  virtual ~MessageDevice() = default;
  MessageDevice(const MessageDevice&) = delete;
  MessageDevice& operator=(const MessageDevice&) = delete;

  virtual const std::string& name() const = 0;
  virtual size_t largest_message() const = 0;  // bytes
  virtual counters::Device counters() const = 0;
  virtual counters::Link link_counters() const = 0;

  // Makes an endpoint. May block for a second. Throws std::system_error, also if a switch does not answer.
  virtual std::unique_ptr<MessageEndpoint> open(const EndpointOptions& options) = 0;
  // Until unshare(), the device reads payloads from this memory without a copy. Throws std::system_error.
  virtual void share(const std::shared_ptr<void>& memory, size_t bytes) = 0;
  virtual void unshare(const void* memory) = 0;

  // Returns why the device cannot be used any more, as when it was removed; empty while it can.
  virtual std::string lost() const = 0;
  // Returns a descriptor that becomes readable when the device is lost.
  virtual int lost_fd() const = 0;

 protected:
  MessageDevice() = default;
};

// The name of the capsule in which Python passes a device. It holds a std::unique_ptr<MessageDevice>, which the
// receiver takes.
constexpr const char* kMessageDeviceCapsule = "switchml.MessageDevice";

}  // namespace switchml::net
