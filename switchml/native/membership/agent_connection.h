// The connection of one rank to the agent on its host: a SEQPACKET socket, and one JSON object in each message.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "native/runtime/file_descriptor.h"
#include "switchml/native/membership/attachment.h"
#include "switchml/native/membership/collective.h"
#include "switchml/native/membership/failure.h"

namespace switchml::client {

// The descriptors of a rank in an epoch: its memory, the doorbell and, if a switch or an agent on this host shares
// them, the results of the job or the memory of direct calls.
struct RankDescriptors {
  runtime::FileDescriptor memory;
  runtime::FileDescriptor doorbell;
  runtime::FileDescriptor shared;
};

// Learns what the agent reports, on the connection's control thread.
class AgentListener {
 public:
  virtual ~AgentListener() = default;

  virtual void on_failure(const JobFailure& failure) = 0;
  // A check has failed: the attention descriptor became readable.
  virtual void on_attention() = 0;
  // Ranks have closed, after this number of calls.
  virtual void on_ranks_closed(const std::vector<uint32_t>& ranks, uint64_t calls) = 0;
  // Changes to another epoch after a loss; returns the new attention descriptor. Throws std::exception if the memory
  // cannot be used.
  virtual int on_move(const Attachment& attachment, const RankDescriptors& descriptors, const JobFailure& loss) = 0;
};

// If it ends without close(), the agent reports the rank as lost.
class AgentConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // Connects to the agent at a path and attaches. `between` is called now and then while the agent does not answer, and
  // may throw. Throws FailureError if no agent answers within `seconds`, it belongs to another user, or it refuses.
  AgentConnection(const std::string& path, const AttachRequest& request, double seconds,
                  const std::function<void()>& between);
  ~AgentConnection();
  AgentConnection(const AgentConnection&) = delete;
  AgentConnection& operator=(const AgentConnection&) = delete;

  const Attachment& attachment() const { return attachment_; }
  // Returns the descriptors that came with the attachment; once.
  RankDescriptors take_descriptors() { return std::move(descriptors_); }

  // Starts the control thread. The listener must live until close() has returned.
  void start(AgentListener* listener, int attention_fd);
  // Tells the agent that the result at a position of the stream does not fit this rank's call.
  void check_failed(uint64_t position, const JsonObject& call);
  // Returns the ranks that the others wait for; none if the agent does not know them within `seconds`.
  std::vector<uint32_t> missing(double seconds);
  // Ends the connection after this number of calls in `epoch`; with a `loss`, reports this rank as lost. Not on the
  // control thread. Idempotent.
  void close(uint64_t epoch, uint64_t calls, const std::string& loss);
  // Closes a forked child's copy of the socket, which would hide the parent's death from the agent.
  void disown() { socket_.close(); }

 private:
  struct Message {
    Json json;  // without members if the bytes were not JSON
    std::vector<runtime::FileDescriptor> descriptors;

    std::string kind() const { return json.text("type").value_or(""); }
  };

  void connect(const std::string& path, Clock::time_point end);
  void require_own(const std::string& path) const;
  void attach(const std::string& path, const AttachRequest& request, double seconds, Clock::time_point end,
              const std::function<void()>& between);
  bool send(const JsonObject& message);
  Message receive(bool* whole);
  void listen(int attention_fd);
  // Acts on a message; returns false after the last one.
  bool take(Message message, int* attention_fd);
  std::optional<JobFailure> move(Message message, int* attention_fd);

  runtime::FileDescriptor socket_;
  runtime::FileDescriptor wake_;
  Attachment attachment_;
  RankDescriptors descriptors_;
  AgentListener* listener_ = nullptr;
  std::optional<Clock::time_point> verdict_due_;  // of a failed check; used by the control thread
  std::thread thread_;

  std::mutex asking_;  // one question about missing ranks at a time
  std::mutex mutex_;   // guards the members below
  std::condition_variable changed_;
  bool answered_ = false;
  bool closed_ = false;  // the agent has confirmed the close, or has ended
  std::vector<uint32_t> missing_;
};

}  // namespace switchml::client
