#include "switchml/native/membership/agent_connection.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace switchml::client {
namespace {

constexpr double kSeconds = 30;

std::string description(const char* type) {
  return std::string(R"({"type": ")") + type +
         R"(", "job_id": 5, "name": "j", "epoch": 3, "rank": 1, "world_size": 4, "generation": 0, "priority": 2,)" +
         R"( "joined": [2], "on_failure": "shrink", "check_key": "000102030405060708090a0b0c0d0e0f", "lost": [0],)" +
         R"( "message": "rank 0 was lost"})";
}

// The agent's end, which says what a test wants.
class FakeAgent {
 public:
  FakeAgent() {
    std::array<char, 32> name{"/tmp/switchml-test-XXXXXX"};
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/agent.sock";
    listener_ = runtime::FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_.get(), 4) != 0) {
      throw std::runtime_error("the fake agent cannot listen");
    }
  }
  ~FakeAgent() {
    unlink(path_.c_str());
    rmdir(directory_.c_str());
  }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  const std::string& path() const { return path_; }

  void accept() { connection_ = runtime::FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  void hang_up() { connection_.close(); }
  std::string receive() {
    std::array<char, 4096> buffer{};
    const ssize_t bytes = recv(connection_.get(), buffer.data(), buffer.size(), 0);
    return {buffer.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0};
  }
  void send(const std::string& text, size_t descriptors = 0) {
    std::vector<runtime::FileDescriptor> sent;
    std::array<int, 4> numbers{};
    for (size_t i = 0; i < descriptors; ++i) {
      sent.emplace_back(eventfd(0, EFD_CLOEXEC));
      numbers[i] = sent.back().get();
    }
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof numbers)> control{};
    iovec piece{const_cast<char*>(text.data()), text.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (descriptors > 0) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
      cmsghdr* const part = CMSG_FIRSTHDR(&header);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
      std::memcpy(CMSG_DATA(part), numbers.data(), descriptors * sizeof(int));
    }
    ASSERT_EQ(sendmsg(connection_.get(), &header, MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Accepts a process, gives it a rank, and returns what it has asked for.
  std::string attach() {
    accept();
    std::string request = receive();
    send(description("attached"), 2);
    return request;
  }

 private:
  std::string directory_;
  std::string path_;
  runtime::FileDescriptor listener_;
  runtime::FileDescriptor connection_;
};

class Listener final : public AgentListener {
 public:
  void on_failure(const JobFailure& failure) override { note("failed " + failure.error + ": " + failure.message); }
  void on_attention() override { note("attention"); }
  void on_ranks_closed(const std::vector<uint32_t>& ranks, uint64_t calls) override {
    note("closed " + std::to_string(ranks.at(0)) + " after " + std::to_string(calls));
  }
  int on_move(const Attachment& attachment, const RankDescriptors& descriptors, const JobFailure& loss) override {
    if (refuses_) throw std::runtime_error("too small");
    note("moved to " + std::to_string(attachment.epoch) + ": " + loss.message +
         (descriptors.shared.get() >= 0 ? " with results" : ""));
    return attention_.get();
  }

  // Waits for the next event.
  std::string next() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::duration<double>(kSeconds), [this] { return taken_ < events_.size(); })) {
      return "nothing came";
    }
    return events_[taken_++];
  }

  runtime::FileDescriptor attention_{eventfd(0, EFD_CLOEXEC)};
  bool refuses_ = false;

 private:
  void note(std::string event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  size_t taken_ = 0;
};

const AttachRequest kRequest{"j", 1, 4, std::nullopt};

std::string refusal(const std::string& path, double seconds = kSeconds) {
  try {
    const AgentConnection connection(path, kRequest, seconds, [] {});
    return "it was accepted";
  } catch (const FailureError& error) {
    EXPECT_EQ(error.failure().kind, FailureKind::connect);
    return error.failure().message;
  }
}

// An attached rank and its agent.
class AgentConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    auto asked = std::async(std::launch::async, [this] { return agent_.attach(); });
    connection_ = std::make_unique<AgentConnection>(agent_.path(), kRequest, kSeconds, [] {});
    request_ = asked.get();
    connection_->start(&listener_, attention_.get());
  }
  // Lets the agent confirm the end of the connection, and returns what it was told.
  std::string close(const std::string& loss) {
    auto told = std::async(std::launch::async, [this] {
      std::string message = agent_.receive();
      agent_.send(R"({"type": "closed"})");
      return message;
    });
    connection_->close(3, 17, loss);
    return told.get();
  }

  FakeAgent agent_;
  Listener listener_;
  runtime::FileDescriptor attention_{eventfd(0, EFD_CLOEXEC)};
  std::unique_ptr<AgentConnection> connection_;
  std::string request_;
};

TEST_F(AgentConnectionTest, AsksForARankAndGetsIt) {
  const auto request = Json::parse(request_);
  ASSERT_TRUE(request) << request_;
  EXPECT_EQ(request->text("type"), "attach");
  EXPECT_EQ(request->text("job"), "j");
  EXPECT_EQ(request->number("rank", 10), 1U);
  EXPECT_EQ(request->number("world_size", 10), 4U);
  EXPECT_EQ(request->number("pid", UINT32_MAX), static_cast<uint64_t>(getpid()));
  const Attachment& attachment = connection_->attachment();
  EXPECT_EQ(attachment.name, "j");
  EXPECT_EQ(attachment.epoch, 3U);
  EXPECT_EQ(attachment.joined, (std::vector<uint32_t>{2}));
  EXPECT_EQ(attachment.on_failure, "shrink");
  EXPECT_EQ(attachment.priority, 2U);
  const RankDescriptors descriptors = connection_->take_descriptors();
  EXPECT_GE(descriptors.memory.get(), 0);
  EXPECT_GE(descriptors.doorbell.get(), 0);
  EXPECT_EQ(descriptors.shared.get(), -1);
  close("");
}

TEST_F(AgentConnectionTest, ToldOfItsEnd) {
  EXPECT_EQ(close("it is\ntired \xc3\xa9"), R"({"type": "close", "epoch": 3, "calls": 17, "loss": "it is tired   "})");
}

TEST_F(AgentConnectionTest, AFailureIsReportedAndTheEndAfterIt) {
  agent_.send(R"({"type": "failed", "error": "WorkerLost", "ranks": [2], "message": "rank 2 was lost"})");
  EXPECT_EQ(listener_.next(), "failed WorkerLost: rank 2 was lost");
  agent_.hang_up();
  EXPECT_EQ(listener_.next(),
            "failed AgentLost: the agent on this host ended without a message, or is of another version");
  connection_->close(3, 0, "");  // does not wait for an answer
}

TEST_F(AgentConnectionTest, MessagesThatAreNoneEndIt) {
  agent_.send("{]");
  EXPECT_EQ(listener_.next().substr(0, 16), "failed AgentLost");
}

TEST_F(AgentConnectionTest, RanksThatCloseAreReported) {
  agent_.send(R"({"type": "ranks_closed", "ranks": [3], "calls": 9})");
  EXPECT_EQ(listener_.next(), "closed 3 after 9");
  close("");
}

TEST_F(AgentConnectionTest, MissingRanksAreAskedFor) {
  auto answered = std::async(std::launch::async, [this] {
    std::string question = agent_.receive();
    agent_.send(R"({"type": "missing", "ranks": [2, 3]})");
    return question;
  });
  EXPECT_EQ(connection_->missing(kSeconds), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(answered.get(), R"({"type": "missing"})");
  EXPECT_TRUE(connection_->missing(0.01).empty()) << "the agent does not answer";
  agent_.receive();
  close("");
}

TEST_F(AgentConnectionTest, ACheckThatFailsAndTheVerdict) {
  eventfd_write(attention_.get(), 1);
  EXPECT_EQ(listener_.next(), "attention");
  connection_->check_failed(5, JsonObject().add("sequence", uint64_t{1}));
  EXPECT_EQ(agent_.receive(), R"({"type": "check_failed", "position": 5, "call": {"sequence": 1}})");
  agent_.send(R"({"type": "failed", "error": "CollectiveMismatch", "message": "the ranks call differently"})");
  EXPECT_EQ(listener_.next(), "failed CollectiveMismatch: the ranks call differently");
  close("");
}

TEST_F(AgentConnectionTest, AnotherEpochBringsItsDescriptors) {
  agent_.send(description("moved"), 3);
  EXPECT_EQ(listener_.next(), "moved to 3: rank 0 was lost with results");
  eventfd_write(listener_.attention_.get(), 1);
  EXPECT_EQ(listener_.next(), "attention") << "of the new epoch";
  listener_.refuses_ = true;
  agent_.send(description("moved"), 2);
  EXPECT_EQ(listener_.next(), "failed AgentLost: the memory of the new epoch cannot be used: too small");
  agent_.send(description("moved"), 1);
  EXPECT_EQ(listener_.next(), "failed AgentLost: the agent's message about the new epoch is malformed");
  close("");
}

TEST(AgentConnection, IsRefusedInTheAgentsWords) {
  FakeAgent agent;
  auto refusing = std::async(std::launch::async, [&] {
    agent.accept();
    agent.receive();
    agent.send(R"({"type": "refused", "error": "RankTaken", "message": "rank 1 is taken"})");
  });
  try {
    const AgentConnection connection(agent.path(), kRequest, kSeconds, [] {});
    FAIL();
  } catch (const FailureError& error) {
    EXPECT_EQ(error.failure().message, "rank 1 is taken");
    EXPECT_EQ(error.failure().reason, "RankTaken");
  }
  refusing.get();
}

TEST(AgentConnection, OtherPrograms) {
  FakeAgent agent;
  const auto answering = [&](const std::string& answer, size_t descriptors) {
    auto answered = std::async(std::launch::async, [&agent, answer, descriptors] {
      agent.accept();
      agent.receive();
      if (answer.empty()) {
        agent.hang_up();
      } else {
        agent.send(answer, descriptors);
      }
    });
    std::string text = refusal(agent.path());
    answered.get();
    return text;
  };
  EXPECT_NE(answering("", 0).find("closed the connection without an answer"), std::string::npos);
  for (const std::string& answer : {std::string("hello"), std::string("[]"), description("moved")}) {
    EXPECT_NE(answering(answer, 2).find("does not answer like an agent"), std::string::npos) << answer;
  }
  EXPECT_NE(answering(description("attached"), 0).find("does not answer like an agent"), std::string::npos);
  EXPECT_NE(answering(description("attached"), 1).find("does not answer like an agent"), std::string::npos);
  EXPECT_NE(answering(description("attached"), 4).find("does not answer like an agent"), std::string::npos);
  EXPECT_NE(answering(description("attached") + std::string(70'000, ' '), 2).find("does not answer like an agent"),
            std::string::npos);
}

TEST(AgentConnection, AgentsThatAreNotThere) {
  EXPECT_NE(refusal("/nonexistent/agent.sock").find("there is no agent socket at"), std::string::npos);
  EXPECT_NE(refusal("/" + std::string(200, 'x')).find("more than 107 bytes"), std::string::npos);
  std::string path;
  {
    const FakeAgent ended;
    path = ended.path();
  }
  EXPECT_NE(refusal(path).find("there is no agent socket at"), std::string::npos);
  const FakeAgent silent;
  EXPECT_NE(refusal(silent.path(), 0.25).find("did not answer within 0.25 s"), std::string::npos);
}

TEST(AgentConnection, CanBeGivenUpWhileItWaits) {
  const FakeAgent silent;
  EXPECT_THROW(AgentConnection(silent.path(), kRequest, kSeconds, [] { throw std::runtime_error("interrupted"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace switchml::client
