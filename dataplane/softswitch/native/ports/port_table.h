// The ports of a switch, or one shard's parts of them, by number.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/ports/port.h"

namespace switchml::soft {

constexpr uint16_t kPortNumbers = 512;  // ports are 9 bits wide, as in v1model

// Ports are never removed, so pointers to them stay valid as long as the table.
class PortTable {
 public:
  PortTable() = default;
  PortTable(const PortTable&) = delete;
  PortTable& operator=(const PortTable&) = delete;

  // Adds a port. Precondition: its number is free.
  void add(std::unique_ptr<PipelinePort> port) {
    packet_ports_[port->number()] = dynamic_cast<Port*>(port.get());
    all_.push_back(port.get());
    ports_[port->number()] = std::move(port);
  }

  // Returns the port with this number, or null.
  PipelinePort* find(uint16_t number) const { return number < kPortNumbers ? ports_[number].get() : nullptr; }
  // Returns the port with this number if it receives packets, or null.
  Port* find_packet_port(uint16_t number) const { return number < kPortNumbers ? packet_ports_[number] : nullptr; }
  // Returns all ports in the order in which they were added.
  const std::vector<PipelinePort*>& all() const { return all_; }

 private:
  std::array<std::unique_ptr<PipelinePort>, kPortNumbers> ports_;
  std::array<Port*, kPortNumbers> packet_ports_{};
  std::vector<PipelinePort*> all_;
};

}  // namespace switchml::soft
