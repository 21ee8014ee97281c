// A card in memory behind libibverbs' functions, for the code that uses them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

// The functions of libibverbs, defined in fake_verbs.cc, act on the card that exists; there is one at a time. A test
// sets its members, while it holds `mutex` if a device is open.
struct FakeCard {
  FakeCard();
  ~FakeCard();
  FakeCard(const FakeCard&) = delete;
  FakeCard& operator=(const FakeCard&) = delete;

  struct Buffer {
    uint64_t number;
    uint8_t* memory;
    uint32_t bytes;
  };
  struct Sent {
    const ibv_ah* way;
    uint32_t queue_key;
    std::vector<uint8_t> bytes;
  };

  // A message arrives in the next buffer, behind an IPv4 header from `source`; `change` may falsify the completion.
  template <class Change>
  void arrive(uint32_t source, const std::vector<uint8_t>& message, Change change) {
    const std::lock_guard<std::mutex> lock(mutex);
    change(&received.emplace_back(filled(source, message)));
  }
  void arrive(uint32_t source, const std::vector<uint8_t>& message) {
    arrive(source, message, [](const ibv_wc*) {});
  }
  // The receive request of the next buffer fails, and with it the queue pair.
  void fail_receive(ibv_wc_status status);
  void report(ibv_event_type event);
  // From now on the kernel refuses everything, as after the removal of a device.
  void remove();

  std::mutex mutex;
  // The properties of the card.
  int open_error = 0;
  int link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::map<uint32_t, ibv_gid_entry> gids;
  uint64_t may_lock = UINT64_MAX;  // bytes
  int way_error = 0;               // of the next address handles
  int start_error = 0;             // of each change of a queue pair's state
  ibv_wc_status send_status = IBV_WC_SUCCESS;
  bool holds_completions = false;  // of sends
  // Its state, and the requests to it.
  ibv_qp_state pair_state = IBV_QPS_RESET;
  uint32_t queue_key = 0;
  std::vector<Sent> sent;
  std::deque<Buffer> buffers;
  std::deque<ibv_wc> received;
  std::deque<ibv_wc> completed;
  std::vector<ibv_ah_attr> ways;  // all that were made
  int ways_refused = 0;
  std::atomic<int> living_ways{0};
  std::deque<ibv_event_type> events;
  bool removed = false;

  ibv_device device{};  // NOLINT(bugprone-invalid-enum-default-initialization): no test looks at its type
  ibv_context context{};

 private:
  ibv_wc filled(uint32_t source, const std::vector<uint8_t>& message);
};
