// A switch port for ranks on the same machine: their contributions are added up in the memory that they were written
// to, and each result is written once, for all of them to read.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/softswitch/native/port.h"
#include "dataplane/softswitch/native/shm_connection.h"

namespace switchml {

class Pipeline;

// Nothing is lost here but on purpose, or while worker_table has no entry for a rank; then the port itself repeats a
// contribution on the rank's behalf, as an agent would.
class ShmPort : public Port {
 public:
  // Throws std::system_error.
  explicit ShmPort(uint16_t number);
  ~ShmPort() override;
  ShmPort(const ShmPort&) = delete;
  ShmPort& operator=(const ShmPort&) = delete;

  // The number that stands for the connection from now on. Throws std::runtime_error when all are in use.
  uint16_t attach(std::unique_ptr<ShmConnection> connection);
  // Its job's slots no longer need the connection's memory (SlotSums::take_over).
  std::unique_ptr<ShmConnection> detach(uint16_t number);
  bool has_rank(const ShmRank& rank) const;
  // The connection of a number, or null.
  ShmConnection* find(uint16_t number) const;

  // Takes what the ranks have submitted through `pipeline`. Returns whether there was anything.
  bool serve(Pipeline* pipeline);
  // Lets the ranks see their results.
  void publish();
  // Before the data thread sleeps: lets the ranks know what they must ring for, and wakes those that have results.
  // False when something was submitted meanwhile: then it must not sleep.
  bool prepare_sleep();
  void end_sleep();
  // Also when serve() must be called even if nothing happens.
  std::optional<Clock::time_point> next_deadline() const override;

  // Readable when a doorbell rang.
  int fd() const override { return epoll_; }
  PortCounters counters() const override;
  // Takes the doorbells' rings, and has no packets.
  bool receive(ReceiveBuffers* buffers) const override;
  void send_results(const std::vector<OutgoingPacket>& packets, const std::vector<RankAddress>& ranks,
                    const SwitchAddress& own, Counter* injected_loss) override;
  bool send_frame(const uint8_t* /*frame*/, size_t /*bytes*/, Counter* /*injected_loss*/) override { return false; }
  void flush() override {}

 protected:
  void send_due() override;

 private:
  void wake_all();
  void contribute(Pipeline* pipeline, uint16_t number, ShmConnection* connection, const Header& header);
  // The same with a packet of its own, which can be held back or lost like any other.
  void contribute_as_packet(Pipeline* pipeline, uint16_t number, const ShmConnection& connection, const Header& header);
  void complete(uint16_t number, const uint8_t* header);

  int epoll_ = -1;
  std::map<uint16_t, std::unique_ptr<ShmConnection>> connections_;
  uint16_t last_number_ = 0;
  bool loses_ = false;  // packets are, or were, lost on purpose: whatever is in flight may be
  uint64_t sent_ = 0;
  unsigned passes_ = 0;
  Clock::time_point now_;
  std::vector<uint8_t> packet_;
};

}  // namespace switchml
