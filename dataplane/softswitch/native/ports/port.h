// A port of the switch that packets come in through.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/softswitch/native/ports/frame_batch.h"
#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/tables/counter.h"
#include "native/net/udp_batch.h"

namespace switchml::soft {

// Where packets are received; one thread uses it, for one port after the other.
struct ReceiveBuffers {
  net::ReceiveBatch datagrams;
  FrameReceiveBatch frames;
};

class Port : public PipelinePort {
 public:
  // Readable when packets wait.
  virtual int fd() const = 0;
  // Takes what waits, without blocking and without touching anything but the socket and `buffers`: into
  // buffers->frames where the port carries frames, else into buffers->datagrams. Returns whether there was anything.
  virtual bool receive(ReceiveBuffers* buffers) const = 0;

  // Sends an Ethernet frame through the faults of this port. False where the port carries no frames.
  virtual bool send_frame(const uint8_t* frame, size_t bytes, Counter* injected_loss) = 0;
  // What send_results() and send_frame() were given may wait until now.
  virtual void flush() = 0;

 protected:
  using PipelinePort::PipelinePort;
};

}  // namespace switchml::soft
