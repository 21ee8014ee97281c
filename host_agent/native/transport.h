// How the packets of one job travel between a data thread of the agent and the switch.
#pragma once

#include "native/net/udp_batch.h"

namespace switchml::agent {

// One thread uses it.
class JobTransport {
 public:
  virtual ~JobTransport() = default;
  JobTransport(const JobTransport&) = delete;
  JobTransport& operator=(const JobTransport&) = delete;

  // The number of sources of results, each of which is received from by itself.
  virtual unsigned sources() const = 0;
  // A descriptor that is readable when results wait; -1 where all jobs share a device, for which the thread waits.
  virtual int fd(unsigned source) const = 0;

  // Sends what is queued, without blocking, and empties the queue. Packets that cannot leave count as lost on the way.
  virtual void send(net::SendBatch* batch) = 0;
  // The most packets of a GSO batch, once that is decided; 0 before, and where there is nothing to decide.
  virtual uint64_t gso_batch_size() const { return 0; }
  // Takes a batch of the packets that wait, without blocking, in place of the batch before. Returns whether there were
  // any; next() steps through them in order of arrival. `batch` is room that a transport may use.
  virtual bool receive(unsigned source, net::ReceiveBatch* batch) = 0;
  virtual bool next(net::ReceiveBatch* batch, net::Datagram* datagram) = 0;

 protected:
  JobTransport() = default;
};

}  // namespace switchml::agent
