// Two ends of NCCL's point-to-point messages in one thread, through the plugin's tables of functions.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "native/runtime/file_descriptor.h"
#include "switchml/native/nccl/host_interfaces.h"
#include "switchml/native/nccl/nccl_interface.h"
#include "switchml/native/nccl/tcp_net.h"

namespace switchml::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSeconds{30};

std::vector<std::string> warnings;

__attribute__((format(printf, 5, 6))) void keep(int, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  warnings.emplace_back(text.data());
}

template <typename Table>
const Table& table(const char* name) {
  static void* const kPlugin = dlopen(SWITCHML_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (kPlugin == nullptr) throw std::runtime_error(dlerror());
  return *static_cast<const Table*>(dlsym(kPlugin, name));
}

using HandleMemory = std::array<char, kHandleBytes>;

// The functions that differ between the versions.
struct Version8 {
  const NetV8& net = table<NetV8>("ncclNetPlugin_v8");
  Result init() const { return net.init(keep); }
  Result listen(HandleMemory* handle, void** listener) const { return net.listen(0, handle, listener); }
  Result connect(HandleMemory* handle, void** sender) const { return net.connect(0, handle, sender, nullptr); }
  Result isend(void* sender, void* data, size_t bytes, void** request) const {
    return net.isend(sender, data, static_cast<int>(bytes), 0, nullptr, request);
  }
  Result irecv(void* receiver, void* data, size_t bytes, void** request) const {
    int room = static_cast<int>(bytes);
    int tag = 0;
    void* registration = nullptr;
    return net.irecv(receiver, 1, &data, &room, &tag, &registration, request);
  }
};

struct Version11 {
  const NetV11& net = table<NetV11>("ncclNetPlugin_v11");
  Result init() const {
    void* context = nullptr;
    return net.init(&context, 1, nullptr, keep, nullptr);
  }
  Result listen(HandleMemory* handle, void** listener) const { return net.listen(nullptr, 0, handle, listener); }
  Result connect(HandleMemory* handle, void** sender) const { return net.connect(nullptr, 0, handle, sender, nullptr); }
  Result isend(void* sender, void* data, size_t bytes, void** request) const {
    return net.isend(sender, data, bytes, 0, nullptr, nullptr, request);
  }
  Result irecv(void* receiver, void* data, size_t bytes, void** request) const {
    int tag = 0;
    void* registration = nullptr;
    return net.irecv(receiver, 1, &data, &bytes, &tag, &registration, nullptr, request);
  }
};

template <typename Version>
class NcclNet : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("NCCL_SOCKET_IFNAME", "=lo", 1); }

  void SetUp() override {
    warnings.clear();
    ASSERT_EQ(version_.init(), kSuccess);
    int devices = 0;
    ASSERT_EQ(version_.net.devices(&devices), kSuccess);
    ASSERT_EQ(devices, 1);
    ASSERT_EQ(version_.listen(&handle_, &listener_), kSuccess);
  }
  void TearDown() override {
    if (sender_ != nullptr) version_.net.close_sender(sender_);
    if (receiver_ != nullptr) version_.net.close_receiver(receiver_);
    version_.net.close_listener(listener_);
  }

  template <typename Step>
  void until(Step step) {
    const auto deadline = Clock::now() + kSeconds;
    while (!step() && Clock::now() < deadline) sched_yield();
  }
  void connect() {
    until([&] {
      if (sender_ == nullptr) {
        EXPECT_EQ(version_.connect(&handle_, &sender_), kSuccess);
      }
      if (receiver_ == nullptr) {
        EXPECT_EQ(version_.net.accept(listener_, &receiver_, nullptr), kSuccess);
      }
      return sender_ != nullptr && receiver_ != nullptr;
    });
    ASSERT_NE(sender_, nullptr);
    ASSERT_NE(receiver_, nullptr);
  }
  // Polls a request until it is done; returns the error that ended it.
  Result test(void* request, int* bytes) {
    Result result = kSuccess;
    int done = 0;
    until([&] {
      result = version_.net.test(request, &done, bytes);
      return done != 0 || result != kSuccess;
    });
    return done != 0 || result != kSuccess ? result : kInternalError;
  }

  Version version_;
  HandleMemory handle_{};
  void* listener_ = nullptr;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
};

using Versions = testing::Types<Version8, Version11>;
TYPED_TEST_SUITE(NcclNet, Versions);

TYPED_TEST(NcclNet, MessagesArriveInOrderWithTheirSizes) {
  this->connect();
  const std::vector<size_t> sizes{0, 1, 4099, 8 << 20, 0, 3, 1 << 20};
  std::vector<std::vector<uint8_t>> sent;
  std::vector<std::vector<uint8_t>> received;
  std::vector<void*> sends(sizes.size());
  std::vector<void*> receives(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    sent.emplace_back(sizes[i]);
    std::iota(sent[i].begin(), sent[i].end(), static_cast<uint8_t>(i));
    received.emplace_back(sizes[i] + 10);  // more room than is needed
    ASSERT_EQ(this->version_.isend(this->sender_, sent[i].data(), sizes[i], &sends[i]), kSuccess);
    ASSERT_EQ(this->version_.irecv(this->receiver_, received[i].data(), received[i].size(), &receives[i]), kSuccess);
  }
  // Neither end can wait for the other: what does not fit into the socket's buffers moves in both tests.
  std::vector<bool> is_sent(sizes.size());
  std::vector<bool> is_received(sizes.size());
  for (size_t left = 2 * sizes.size(); left > 0;) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      int done = 0;
      int bytes = -1;
      if (!is_sent[i]) {
        ASSERT_EQ(this->version_.net.test(sends[i], &done, &bytes), kSuccess);
        ASSERT_TRUE(done == 0 || bytes == static_cast<int>(sizes[i]));
        is_sent[i] = done != 0;
        left -= is_sent[i] ? 1 : 0;
      }
      if (!is_received[i]) {
        ASSERT_EQ(this->version_.net.test(receives[i], &done, &bytes), kSuccess);
        ASSERT_TRUE(done == 0 || bytes == static_cast<int>(sizes[i]));
        is_received[i] = done != 0;
        left -= is_received[i] ? 1 : 0;
      }
    }
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    received[i].resize(sizes[i]);
    EXPECT_EQ(sent[i], received[i]) << "message " << i;
  }
}

TYPED_TEST(NcclNet, AConnectionHasSoManyRequests) {
  this->connect();
  uint8_t byte = 0;
  std::vector<void*> requests(kMostRequests + 1);
  for (void*& request : requests) {
    ASSERT_EQ(this->version_.irecv(this->receiver_, &byte, 1, &request), kSuccess);
  }
  EXPECT_NE(requests[kMostRequests - 1], nullptr);
  EXPECT_EQ(requests[kMostRequests], nullptr);  // NCCL asks again
  void* sent = nullptr;
  int bytes = 0;
  ASSERT_EQ(this->version_.isend(this->sender_, &byte, 1, &sent), kSuccess);
  ASSERT_EQ(this->test(sent, &bytes), kSuccess);
  ASSERT_EQ(this->test(requests[0], &bytes), kSuccess);
  ASSERT_EQ(this->version_.irecv(this->receiver_, &byte, 1, &requests[0]), kSuccess);
  EXPECT_NE(requests[0], nullptr);
}  // TearDown closes the connection with requests in flight

TYPED_TEST(NcclNet, AMessageWithoutRoomIsAnError) {
  this->connect();
  std::array<uint8_t, 8> data{};
  void* sent = nullptr;
  void* received = nullptr;
  ASSERT_EQ(this->version_.isend(this->sender_, data.data(), 8, &sent), kSuccess);
  this->until([&] { return this->version_.irecv(this->receiver_, data.data(), 7, &received) != kSuccess || received; });
  int bytes = 0;
  EXPECT_EQ(this->test(received, &bytes), kInternalError);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].rfind("switchml: a message of 8 bytes came from 127.0.0.1 port ", 0), 0U) << warnings[0];
}

TYPED_TEST(NcclNet, TheOtherEndIsClosed) {
  this->connect();
  uint8_t byte = 0;
  void* received = nullptr;
  int bytes = 0;
  ASSERT_EQ(this->version_.irecv(this->receiver_, &byte, 1, &received), kSuccess);
  this->version_.net.close_sender(this->sender_);
  this->sender_ = nullptr;
  EXPECT_EQ(this->test(received, &bytes), kRemoteError);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("has ended its connection"), std::string::npos);
}

TYPED_TEST(NcclNet, AReceiverThatIsClosedEndsWhatIsSent) {
  this->connect();
  std::vector<uint8_t> data(64 << 20);
  void* sent = nullptr;
  int bytes = 0;
  ASSERT_EQ(this->version_.isend(this->sender_, data.data(), data.size(), &sent), kSuccess);
  this->version_.net.close_receiver(this->receiver_);
  this->receiver_ = nullptr;
  EXPECT_EQ(this->test(sent, &bytes), kRemoteError);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].rfind("switchml: the connection with 127.0.0.1 port ", 0), 0U) << warnings[0];
}

// Throws away all that arrives at the TCP sockets of this process, as if the hosts behind them had lost power.
void lose_all_packets() {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{1, &nothing};
  for (int fd = 3; fd < 256; ++fd) {
    int protocol = 0;
    socklen_t size = sizeof protocol;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP) {
      ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
    }
  }
}

TYPED_TEST(NcclNet, AHostThatIsGoneIsNoticedWhileDataIsUnderWay) {
  if (std::is_same_v<TypeParam, Version8>) GTEST_SKIP() << "skipped: it takes 13 s, and the code is that of version 11";
  this->connect();
  lose_all_packets();
  std::vector<uint8_t> data(64 << 20);
  void* sent = nullptr;
  int bytes = 0;
  ASSERT_EQ(this->version_.isend(this->sender_, data.data(), data.size(), &sent), kSuccess);
  EXPECT_EQ(this->test(sent, &bytes), kRemoteError);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("acknowledges nothing; its host is gone"), std::string::npos) << warnings[0];
}

TYPED_TEST(NcclNet, StrangersDoNotTakeTheRanksPlace) {
  Handle handle{};
  std::memcpy(&handle, this->handle_.data(), sizeof handle);
  std::vector<runtime::FileDescriptor> strangers;
  for (const std::string says : {"", "shor", "a wrong secret"}) {
    strangers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(strangers.back().get(), &handle.address.any, handle.address.length()), 0);
    ASSERT_EQ(send(strangers.back().get(), says.data(), says.size(), 0), static_cast<ssize_t>(says.size()));
  }
  this->connect();
  uint8_t byte = 42;
  uint8_t got = 0;
  void* sent = nullptr;
  void* received = nullptr;
  int bytes = 0;
  ASSERT_EQ(this->version_.isend(this->sender_, &byte, 1, &sent), kSuccess);
  ASSERT_EQ(this->version_.irecv(this->receiver_, &got, 1, &received), kSuccess);
  ASSERT_EQ(this->test(sent, &bytes), kSuccess);
  ASSERT_EQ(this->test(received, &bytes), kSuccess);
  EXPECT_EQ(got, 42);
}

TYPED_TEST(NcclNet, NobodyListens) {
  this->version_.net.close_listener(this->listener_);
  Result result = kSuccess;
  this->until([&] {
    result = this->version_.connect(&this->handle_, &this->sender_);
    return result != kSuccess || this->sender_ != nullptr;
  });
  EXPECT_EQ(result, kRemoteError);
  EXPECT_EQ(this->sender_, nullptr);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("Connection refused"), std::string::npos) << warnings[0];
  ASSERT_EQ(this->version_.listen(&this->handle_, &this->listener_), kSuccess);
}

TYPED_TEST(NcclNet, HandlesOfAnotherVersionAreRefused) {
  HandleMemory other{};
  EXPECT_EQ(this->version_.connect(&other, &this->sender_), kInvalidArgument);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("install one version of SwitchML on all hosts"), std::string::npos);
}

TYPED_TEST(NcclNet, MemoryOfGpusIsRefused) {
  this->connect();
  uint8_t byte = 0;
  void* registration = nullptr;
  constexpr int kCudaMemory = 2;
  EXPECT_EQ(this->version_.net.register_memory(this->sender_, &byte, 1, kHostMemory, &registration), kSuccess);
  EXPECT_EQ(this->version_.net.register_memory(this->sender_, &byte, 1, kCudaMemory, &registration), kInvalidUsage);
}

TEST(NcclInterfaces, TheRuleOfNamesIsThatOfNccl) {
  EXPECT_TRUE(is_admitted("eth0", "eth"));
  EXPECT_TRUE(is_admitted("ib1", "eth,ib"));
  EXPECT_FALSE(is_admitted("enp3s0", "eth,ib"));
  EXPECT_TRUE(is_admitted("eth0", "=eth0,eth1"));
  EXPECT_FALSE(is_admitted("eth01", "=eth0,eth1"));
  EXPECT_FALSE(is_admitted("docker0", "^lo,docker"));
  EXPECT_TRUE(is_admitted("eth0", "^lo,docker"));
  EXPECT_FALSE(is_admitted("lo", "^=lo"));
  EXPECT_TRUE(is_admitted("lo1", "^=lo"));
}

TEST(NcclInterfaces, EachIsThereOnceWithAnAddress) {
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  const auto found = host_interfaces();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "lo");
  EXPECT_EQ(found[0].address.any.sa_family, AF_INET);
  EXPECT_GT(found[0].megabits_per_second, 0);
  EXPECT_TRUE(found[0].pci_path.empty());
}

}  // namespace
}  // namespace switchml::nccl
