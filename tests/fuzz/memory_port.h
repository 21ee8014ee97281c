// A port of the soft switch without a socket: it checks the packets that it is told to send, and discards them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "dataplane/softswitch/native/ports/port.h"
#include "native/wire/wire.h"

// An invariant. If it does not hold, the run aborts, and libFuzzer keeps the input.
#define REQUIRE(condition)                                                 \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

namespace fuzz {

class MemoryPort : public switchml::soft::Port {
 public:
  MemoryPort(uint16_t number, bool carries_frames) : Port(number, carries_frames) {
    if (!carries_frames) set_own_endpoint({0x0A0000FE, 48000});
  }

  int fd() const override { return -1; }
  switchml::soft::PortCounters counters() const override { return common_counters(); }
  bool receive(switchml::soft::ReceiveBuffers* /*buffers*/) const override { return false; }
  void flush() override {}

  // Reads every byte, so that the sanitizer detects freed memory. Only RESULTs may be sent.
  void send_results(const std::vector<switchml::soft::OutgoingPacket>& packets,
                    const std::vector<switchml::soft::RankAddress>& ranks, const switchml::soft::SwitchAddress& /*own*/,
                    switchml::soft::Counter* injected_loss) override {
    for (const switchml::soft::RankAddress& rank : ranks) {
      for (const switchml::soft::OutgoingPacket& packet : packets) {
        REQUIRE(packet.header_bytes == switchml::wire::protocol::header_bytes);
        const switchml::wire::Header header = switchml::wire::load_header(packet.header);
        REQUIRE(header.kind == static_cast<uint8_t>(switchml::wire::Kind::result));
        read(packet.payload, packet.payload_bytes);
        read(packet.trailer, packet.trailer_bytes);
        if (has_egress_faults()) {
          copies_to_send(packet.header, packet.header_bytes, packet.payload, packet.payload_bytes,
                         switchml::net::ipv4_endpoint(rank.ipv4_dst, rank.udp_dst), injected_loss);
        }
        sent_ += 1;
      }
    }
  }

  bool send_frame(const uint8_t* frame, size_t bytes, switchml::soft::Counter* /*injected_loss*/) override {
    if (!carries_frames()) return false;
    read(frame, bytes);
    return true;
  }

  uint64_t sent() const { return sent_; }

 protected:
  void send_due() override { egress_due().clear(); }

 private:
  static void read(const uint8_t* data, size_t bytes) {
    [[maybe_unused]] static volatile uint8_t sink;
    for (size_t i = 0; i < bytes; ++i) sink = data[i];
  }

  uint64_t sent_ = 0;
};

}  // namespace fuzz
