// A port of the switch that receives packets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/softswitch/native/ports/frame_batch.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "native/net/udp_batch.h"

namespace switchml::soft {

// The receive buffers of one thread, which it uses for one port after the other.
struct ReceiveBuffers {
  net::ReceiveBatch datagrams;
  FrameReceiveBatch frames;
};

class Port : public PipelinePort {
 public:
  // Readable when packets wait.
  virtual int fd() const = 0;
  // Receives the waiting packets without blocking, into buffers->frames if the port carries frames, otherwise into
  // buffers->datagrams. Touches only the socket and `buffers`. Returns whether there were any packets.
  virtual bool receive(ReceiveBuffers* buffers) const = 0;

  // Sends an Ethernet frame through the faults of this port. Returns false if the port does not carry frames.
  virtual bool send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) = 0;
  // Sends the packets that send_results() and send_frame() have queued.
  virtual void flush() = 0;

 protected:
  using PipelinePort::PipelinePort;
};

}  // namespace switchml::soft
