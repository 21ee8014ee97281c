#include "dataplane/softswitch/native/runtime/switch.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "native/net/frame_device.h"

namespace switchml::soft {
namespace {

constexpr uint16_t kPort = 3;
constexpr std::chrono::seconds kDeadline{30};

// A queue that receives nothing, and that may be refused the switch's UDP port.
class Queue : public net::FrameDevice {
 public:
  explicit Queue(bool refused) : refused_(refused) {}

  const std::string& name() const override { return name_; }
  uint64_t mac() const override { return 2; }
  size_t largest_frame() const override { return 1514; }
  const std::string& kernel_interface() const override { return name_; }
  void accept_udp_port(uint16_t /*port*/, bool /*accept*/) override {
    if (refused_) throw std::system_error(EBUSY, std::generic_category(), "queue");
  }
  net::FrameDeviceCounters counters() const override {
    net::FrameDeviceCounters counters;
    counters.receive_errors = 1;
    return counters;
  }
  void enter_thread() override {}
  void leave_thread() override {}
  size_t receive(net::Datagram* /*frames*/) override { return 0; }
  uint64_t take_handed_to() override { return 0; }
  void send(const net::FrameHeaders& /*headers*/, const uint8_t* /*payload*/, size_t /*payload_bytes*/,
            net::Checksums /*checksums*/) override {}
  void flush() override {}
  void share(const std::shared_ptr<void>& /*memory*/, size_t /*bytes*/) override {}
  void unshare(const void* /*memory*/) override {}
  int fd() const override { return -1; }
  bool prepare_sleep() override { return true; }
  void end_sleep() override {}

 private:
  bool refused_;
  std::string name_;
};

std::vector<std::unique_ptr<net::FrameDevice>> queues(size_t count, size_t refused) {
  std::vector<std::unique_ptr<net::FrameDevice>> made;
  made.reserve(count);
  for (size_t index = 0; index < count; ++index) made.push_back(std::make_unique<Queue>(index == refused));
  return made;
}

TEST(Switch, PortOfWhichOnePartFailsIsInNoShard) {
  Switch the_switch(4, 1, 3);
  EXPECT_THROW(the_switch.add_port(kPort, DevicePortSpec{queues(3, 1)}), std::system_error);
  EXPECT_THROW(the_switch.port_counters(kPort), std::out_of_range);
  EXPECT_THROW(the_switch.set_faults(kPort, {}, 0), std::out_of_range);
  the_switch.add_port(kPort, DevicePortSpec{queues(3, 3)});
  EXPECT_EQ(the_switch.port_counters(kPort).receive_errors, 3U);
}

TEST(Switch, CountersOfAPortThatIsBeingAddedAreThoseOfAllShards) {
  constexpr size_t kShards = 32;
  Switch the_switch(4, 1, kShards);
  the_switch.start();
  for (uint16_t port = 1; port <= 20; ++port) {
    uint64_t errors = 0;
    std::thread asks([&] {
      const auto end = std::chrono::steady_clock::now() + kDeadline;
      while (errors == 0 && std::chrono::steady_clock::now() < end) {
        try {
          errors = the_switch.port_counters(port).receive_errors;
        } catch (const std::out_of_range&) {
          continue;  // it does not exist yet
        }
      }
    });
    the_switch.add_port(port, DevicePortSpec{queues(kShards, kShards)});
    asks.join();
    EXPECT_EQ(errors, kShards);
  }
  the_switch.stop();
}

TEST(Switch, NumberOfAPortIsTakenOnce) {
  Switch the_switch(4, 1, 2);
  the_switch.add_port(kPort, UdpPortSpec{"127.0.0.1"});
  EXPECT_THROW(the_switch.add_port(kPort, UdpPortSpec{"127.0.0.1"}), std::invalid_argument);
  EXPECT_THROW(the_switch.port_counters(kPort + 1), std::out_of_range);
}

}  // namespace
}  // namespace switchml::soft
