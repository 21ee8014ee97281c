// One UD queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "native/net/message_device.h"
#include "native/net/rdma/rdma_device.h"
#include "native/net/rdma/rdma_routes.h"
#include "native/wire/constants.h"

namespace switchml::net {

class RdmaEndpoint : public MessageEndpoint {
 public:
  // Throws std::system_error.
  RdmaEndpoint(RdmaDevice* device, const EndpointOptions& options);
  ~RdmaEndpoint() override;

  uint32_t number() const override { return pair_->qp_num; }
  void send(size_t to, const uint8_t* header, size_t header_bytes, const uint8_t* payload,
            size_t payload_bytes) override;
  void flush() override;
  void finish_sending() override;
  size_t receive(std::array<Message, kBurst>* messages) override;
  int fd() const override { return events_->fd; }
  bool prepare_sleep() override;
  void find_switches_again() override;

 private:
  // The limit of attempts to start the queue pair again; then the device counts as lost.
  static constexpr std::chrono::seconds kStarts{5};
  static constexpr uint32_t kReceives = 1024;
  static constexpr uint32_t kSends = 1024;
  static constexpr size_t kChain = 64;          // requests that are posted together
  static constexpr uint32_t kSignalEvery = 32;  // requests

  // A request to send, and the pieces of its message.
  struct Send {
    ibv_send_wr request;
    std::array<ibv_sge, 2> pieces;
  };

  int start();
  void start_again();
  void take_renewed_routes();
  void post_all_receives();
  void post_receives(const ibv_wc* completions, int count);
  // Returns whether a message is from one of the switches; it counts one that is not, or that failed.
  bool take(const ibv_wc& completion, Message* message);
  uint32_t key_of(const uint8_t* payload, size_t bytes) const;
  void reap();
  uint8_t* buffer(uint64_t number) { return receive_memory_.data() + number * buffer_bytes_; }

  RdmaDevice* device_;
  std::vector<uint32_t> switches_;
  uint32_t queue_key_;
  size_t buffer_bytes_;
  std::vector<uint8_t> receive_memory_;
  std::vector<uint8_t> send_memory_;  // for each request a header, and a payload if that is not in shared memory
  size_t send_bytes_;                 // of a request in it
  // Destroyed in the reverse order: the queue pair before what it uses.
  Region receive_region_;
  Region send_region_;
  Owned<ibv_comp_channel, ibv_destroy_comp_channel> events_;
  Owned<ibv_cq, ibv_destroy_cq> received_;
  Owned<ibv_cq, ibv_destroy_cq> sent_;
  std::shared_ptr<RdmaRoutes> routes_;  // to each of the switches
  // Handles that were replaced, with the number of requests that may use them.
  std::deque<std::pair<uint32_t, std::vector<AddressHandle>>> replaced_;
  Owned<ibv_qp, ibv_destroy_qp> pair_;
  std::array<ibv_wc, kBurst> lent_{};  // the completions of the messages of the last receive()
  int lent_count_ = 0;
  std::array<ibv_wc, kBurst> found_{};  // by prepare_sleep()
  int found_count_ = 0;
  bool armed_ = false;   // an event may come
  bool failed_ = false;  // a request has failed, and with it the queue pair
  std::optional<std::chrono::steady_clock::time_point> cannot_start_since_;
  std::array<Send, kChain> chain_{};
  size_t chained_ = 0;
  uint32_t posted_ = 0;     // requests, modulo 2^32
  uint32_t completed_ = 0;  // of them
};

}  // namespace switchml::net
