#include "native/net/held_ports.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace switchml::net {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

// A service manager's socket, at an address without a file.
class Manager {
 public:
  Manager() : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    socklen_t length = sizeof own;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof(sa_family_t)), 0);  // the kernel picks an address
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &length), 0);
    address_ = "@" + std::string(&own.sun_path[1], length - offsetof(sockaddr_un, sun_path) - 1);
  }
  ~Manager() {
    close(fd_);
    for (const int fd : left_) close(fd);
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  const std::string& address() const { return address_; }
  // Takes what was left, and returns the texts.
  std::vector<std::string> take() {
    std::vector<std::string> texts;
    std::vector<char> text(256);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec piece{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    for (ssize_t bytes = 0; (bytes = recvmsg(fd_, &message, MSG_DONTWAIT)) > 0;) {
      texts.emplace_back(text.data(), static_cast<size_t>(bytes));
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
      left_.push_back(fd);
    }
    return texts;
  }
  // Returns the descriptors as the next process gets them.
  std::vector<int> give() const {
    std::vector<int> given;
    for (const int fd : left_) given.push_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return given;
  }

 private:
  int fd_;
  std::string address_;
  std::vector<int> left_;
};

bool is_free(uint16_t port) {
  try {
    const UdpSocket probe("127.0.0.1", port, 0);
    return true;
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EADDRINUSE);
    return false;
  }
}

TEST(HeldPorts, APortIsFreeAfterItsLastUseWithoutAManager) {
  HeldPorts ports("", {});
  auto held = ports.hold("127.0.0.1", 0);
  const uint16_t port = held->port();
  EXPECT_FALSE(is_free(port));
  held.reset();
  EXPECT_TRUE(is_free(port));
}

TEST(HeldPorts, TheNextProcessGetsThePortsThatAManagerHolds) {
  Manager manager;
  uint16_t port = 0;
  {
    HeldPorts ports(manager.address(), {});
    port = ports.hold("127.0.0.1", 0)->port();
    EXPECT_EQ(manager.take(), std::vector<std::string>{"FDSTORE=1\nFDNAME=udp-" + std::to_string(port)});
  }
  EXPECT_FALSE(is_free(port));
  HeldPorts next(manager.address(), manager.give());
  EXPECT_EQ(next.hold("127.0.0.1", port)->port(), port);
  EXPECT_EQ(next.hold("127.0.0.1", 0)->port(), port);
  EXPECT_TRUE(manager.take().empty());  // it has the port already
}

TEST(HeldPorts, APortIsUsedAgainOnceItIsNotUsed) {
  Manager manager;
  HeldPorts ports(manager.address(), {});
  auto first = ports.hold("127.0.0.1", 0);
  const uint16_t port = first->port();
  EXPECT_NE(ports.hold("127.0.0.1", 0)->port(), port);
  EXPECT_THROW(ports.hold("127.0.0.1", port), std::system_error);
  first.reset();
  EXPECT_EQ(ports.hold("127.0.0.1", port)->port(), port);
  EXPECT_EQ(manager.take().size(), 2U);
}

TEST(HeldPorts, OnlyUdpSocketsAreTaken) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  HeldPorts ports("", {pipes[0], pipes[1]});
  EXPECT_NE(ports.hold("127.0.0.1", 0)->port(), 0);
  for (const int fd : pipes) close(fd);
}

TEST(HeldPorts, AManagerThatDoesNotListenIsAnError) {
  for (const std::string& address : {std::string("/missing/socket"), std::string(200, 'a')}) {
    HeldPorts ports(address, {});
    EXPECT_THROW(ports.hold("127.0.0.1", 0), std::system_error);
  }
}

// The socket that holds the port is bound to every address too, but takes no packet from the others.
TEST(HeldPorts, SocketsOnEveryAddressGetEveryPacket) {
  constexpr int kPackets = 64;
  for (const unsigned count : {1U, 2U}) {
    const std::vector<UdpSocket> sockets = open_udp_sockets("0.0.0.0", 0, kBufferBytes, count);
    const std::vector<uint8_t> bytes(64);
    for (int i = 0; i < kPackets; ++i) {
      const UdpSocket sender("127.0.0.1", 0, kBufferBytes);
      SendBatch batch;
      batch.add(bytes.data(), bytes.size(), nullptr, 0);
      batch.flush(sender, ipv4_endpoint(0x7F000001, sockets.front().port()));
    }
    size_t received = 0;
    for (const UdpSocket& socket : sockets) {
      ReceiveBatch batch;
      while (batch.receive(socket)) {
        for (Datagram datagram; batch.next(&datagram);) ++received;
      }
    }
    EXPECT_EQ(received, kPackets);
  }
}

}  // namespace
}  // namespace switchml::net
