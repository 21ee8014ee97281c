// Two processes with a net_memif between them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "native/net/dpdk/dpdk_device.h"
#include "native/net/dpdk/dpdk_port.h"
#include "native/net/dpdk/eal.h"

namespace switchml::net {
namespace {

constexpr uint16_t kQueues = 2;
constexpr std::chrono::milliseconds kTraffic{20};

// Sends and receives as fast as it can.
void exchange(FrameDevice* queue, const std::atomic<bool>* ends) {
  const std::array<uint8_t, 64> header{};
  const std::array<uint8_t, 1024> payload{};
  std::array<Datagram, FrameDevice::kBurst> frames;
  queue->enter_thread();
  while (!*ends) {
    queue->receive(frames.data());
    for (int i = 0; i < 8; ++i) {
      queue->send({header.data(), header.size(), 1}, payload.data(), payload.size(), Checksums::finished);
    }
    queue->flush();
  }
  queue->leave_thread();
}

// One end of the connection, in a separate process.
class End {
 public:
  End(const std::string& role, const std::string& socket) {
    start_eal({"--no-huge", "-m", "128"}, {"--no-pci", "--log-level=1"});
    const std::string options = "net_memif0,role=" + role + ",id=1,socket=" + socket + ",socket-abstract=no,rsize=11";
    queues_ = queues_of(std::make_shared<DpdkPort>(DpdkPort::Options{options, 0, false, kQueues}));
    for (const auto& queue : queues_) threads_.emplace_back(exchange, queue.get(), &ends_);
  }
  ~End() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
    queues_.clear();
    stop_eal();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::vector<std::unique_ptr<FrameDevice>> queues_;
  std::vector<std::thread> threads_;
};

template <typename Body>
pid_t in_child(Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

class Memif : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = testing::TempDir() + "memifXXXXXX";
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    directory_ = made;
    std::array<int, 2> ready{};
    ASSERT_EQ(pipe(ready.data()), 0);
    server_ = in_child([&] {
      const End end("server", socket());
      ASSERT_EQ(write(ready[1], "r", 1), 1);
      pause();
    });
    close(ready[1]);
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1) << "the server does not start";
    close(ready[0]);
  }
  void TearDown() override {
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
    std::filesystem::remove_all(directory_);
  }
  std::string socket() const { return (directory_ / "memif.sock").string(); }
  bool server_lives() const { return waitpid(server_, nullptr, WNOHANG) == 0; }

 private:
  std::filesystem::path directory_;
  pid_t server_ = -1;
};

// Without InterruptThread, DPDK's driver unmaps the shared memory under the threads that use it: the server died after
// one to nine clients.
TEST_F(Memif, AnEndThatGoesDoesNotTakeTheOtherWithIt) {
  for (int i = 0; i < 10; ++i) {
    const bool killed = i % 2 == 1;
    const pid_t client = in_child([&] {
      const End end("client", socket());
      std::this_thread::sleep_for(kTraffic);
      if (killed) kill(getpid(), SIGKILL);
    });
    int status = 0;
    ASSERT_EQ(waitpid(client, &status, 0), client);
    if (killed) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    } else {
      EXPECT_EQ(status, 0) << "client " << i;
    }
    ASSERT_TRUE(server_lives()) << "after client " << i;
  }
}

}  // namespace
}  // namespace switchml::net
