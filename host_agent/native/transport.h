// The interface for sending the packets of one job between a data thread of the agent and the job's switches.
#pragma once

#include "native/net/udp_batch.h"

namespace switchml::agent {

// One thread uses a transport.
class JobTransport {
 public:
  virtual ~JobTransport() = default;
  JobTransport(const JobTransport&) = delete;
  JobTransport& operator=(const JobTransport&) = delete;

  // Returns the number of sources of results; receive() takes packets from one source at a time.
  virtual unsigned sources() const = 0;
  // Returns a descriptor that is readable when results wait; -1 if all jobs share a device, which the thread watches.
  virtual int fd(unsigned source) const = 0;
  // Arranges that fd() becomes readable when results wait; returns false if some wait already.
  virtual bool prepare_sleep() { return true; }

  // Sends the queued packets to a switch without blocking, and empties the queue. Packets that cannot be sent count as
  // lost.
  virtual void send(net::SendBatch* batch, const sockaddr_in& switch_endpoint) = 0;
  // Returns the GSO batch size once it is chosen; 0 before that, and if the transport does not choose one.
  virtual uint64_t gso_batch_size() const { return 0; }
  // Receives a batch of the waiting packets without blocking, in place of the previous batch. Returns whether there
  // were any; next() returns them in order of arrival. `batch` is a buffer that a transport may use.
  virtual bool receive(unsigned source, net::ReceiveBatch* batch) = 0;
  virtual bool next(net::ReceiveBatch* batch, net::Datagram* datagram) = 0;
  // Called when the switches have not answered for some time. A transport that remembers how to reach them looks again,
  // without blocking.
  virtual void find_switches_again() {}

 protected:
  JobTransport() = default;
};

}  // namespace switchml::agent
