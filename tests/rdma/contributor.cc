// The ranks of a job on an RDMA card: one UD queue pair each, and one packet per slot in flight. A rank checks every
// value of every RESULT.
//
//   contributor ADDRESS SWITCH FIRST RANKS WORLD VALUES SLOTS PHASES JOB EPOCH SECRET
//
// It prints the numbers of its queue pairs as a line of JSON, waits for the line "go", and at the end prints what it
// has counted. It plays RANKS ranks from FIRST on; all WORLD ranks contribute the values of ptf_tests/job.py. The
// process ends when a request fails or results are missing, and leaves it to the kernel to release what it has opened.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "native/wire/frame_headers.h"
#include "native/wire/rocev2.h"
#include "native/wire/wire.h"

namespace {

using namespace switchml::wire;
using Clock = std::chrono::steady_clock;

constexpr auto kTimeout = std::chrono::milliseconds(200);
constexpr auto kDeadline = std::chrono::seconds(100);
constexpr uint8_t kPort = 1;
constexpr uint32_t kReceives = 256;
constexpr uint16_t kExponent = 100;

struct Job {
  uint32_t address, switch_address;  // IPv4, in network byte order
  uint32_t first, ranks, world, values, slots, phases, id, epoch, secret;

  uint32_t queue_key() const { return secret & deth::users_queue_keys; }
  uint32_t message_bytes() const { return protocol::header_bytes + 4 * values; }
  uint32_t chunk(uint32_t slot, uint32_t phase) const { return phase * slots + slot; }
};

struct Counts {
  uint64_t results = 0, wrong = 0, repeated = 0, retransmissions = 0, foreign = 0;
};

void require(bool fulfilled, const std::string& what) {
  if (!fulfilled) throw std::runtime_error(what + ": " + std::strerror(errno));
}

// Throws unless a call has returned 0; it returns the number of its error.
void expect_zero(int error, const std::string& what) {
  errno = error;
  require(error == 0, what);
}

ibv_gid gid_of(uint32_t address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xFF;  // an IPv4 address mapped into IPv6
  std::memcpy(gid.raw + 12, &address, sizeof address);
  return gid;
}

// The card, with what all queue pairs share.
struct Card {
  explicit Card(const Job& job) {
    ibv_device** devices = ibv_get_device_list(nullptr);
    require(devices != nullptr && devices[0] != nullptr, "no RDMA device");
    context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    require(context != nullptr, "ibv_open_device");
    domain = ibv_alloc_pd(context);
    require(domain != nullptr, "ibv_alloc_pd");
    channel = ibv_create_comp_channel(context);
    require(channel != nullptr, "ibv_create_comp_channel");
    sent = ibv_create_cq(context, 1, nullptr, nullptr, 0);
    received = ibv_create_cq(context, static_cast<int>(kReceives * job.ranks), nullptr, channel, 0);
    require(sent != nullptr && received != nullptr, "ibv_create_cq");

    ibv_port_attr port{};
    expect_zero(ibv_query_port(context, kPort, &port), "ibv_query_port");
    mtu = 128U << static_cast<uint32_t>(port.active_mtu);
    if (job.message_bytes() > mtu) throw std::runtime_error("the RDMA MTU is " + std::to_string(mtu));
    ibv_ah_attr route{};
    route.is_global = 1;
    route.port_num = kPort;
    route.grh.hop_limit = protocol::ipv4_ttl;
    route.grh.dgid = gid_of(job.switch_address);
    route.grh.sgid_index = gid_index(gid_of(job.address), port.gid_tbl_len);
    // The kernel gives up a second after its ARP request, which may be lost.
    const auto end = Clock::now() + kDeadline;
    do {
      to_switch = ibv_create_ah(domain, &route);
    } while (to_switch == nullptr && errno == ETIMEDOUT && Clock::now() < end);
    require(to_switch != nullptr, "ibv_create_ah");
  }

  uint8_t gid_index(const ibv_gid& wanted, int entries) const {
    for (int index = 0; index < entries; ++index) {
      ibv_gid_entry entry{};
      if (ibv_query_gid_ex(context, kPort, static_cast<uint32_t>(index), &entry, 0) != 0) continue;
      const bool is_wanted = std::memcmp(entry.gid.raw, wanted.raw, sizeof wanted.raw) == 0;
      if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && is_wanted) return static_cast<uint8_t>(index);
    }
    throw std::runtime_error("no RoCEv2 GID has the address");
  }

  // Returns when a message may have arrived, or after the timeout.
  void sleep() const {
    pollfd event{channel->fd, POLLIN, 0};
    if (poll(&event, 1, static_cast<int>(kTimeout.count())) <= 0) return;
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    require(ibv_get_cq_event(channel, &queue, &unused) == 0, "ibv_get_cq_event");
    ibv_ack_cq_events(queue, 1);
  }

  ibv_context* context;
  ibv_pd* domain;
  ibv_comp_channel* channel;
  ibv_cq *sent, *received;
  ibv_ah* to_switch;
  uint32_t mtu;
};

class Rank {
 public:
  Rank(const Job& job, const Card& card, uint32_t number)
      : job_(job), card_(card), number_(number), receive_bytes_(rocev2::grh_bytes + card.mtu), slots_(job.slots) {
    memory_.resize(job.message_bytes() + kReceives * size_t{receive_bytes_});
    region_ = ibv_reg_mr(card.domain, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
    require(region_ != nullptr, "ibv_reg_mr");
    ibv_qp_init_attr properties{};
    properties.send_cq = card.sent;
    properties.recv_cq = card.received;
    properties.cap = {1, kReceives, 1, 1, 0};
    properties.qp_type = IBV_QPT_UD;
    properties.sq_sig_all = 1;
    pair_ = ibv_create_qp(card.domain, &properties);
    require(pair_ != nullptr, "ibv_create_qp");
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = kPort;
    state.qkey = job.queue_key();
    change(state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    state.qp_state = IBV_QPS_RTR;
    change(state, IBV_QP_STATE);
    state.qp_state = IBV_QPS_RTS;
    change(state, IBV_QP_STATE | IBV_QP_SQ_PSN);
    for (uint32_t buffer = 0; buffer < kReceives; ++buffer) post_receive(buffer);
  }

  uint32_t queue_pair() const { return pair_->qp_num; }
  bool is_done() const { return done_ == job_.slots; }

  void start() {
    for (uint32_t slot = 0; slot < job_.slots; ++slot) contribute(slot, 0);
  }

  void resend_overdue(Counts& counts) {
    for (uint32_t slot = 0; slot < job_.slots; ++slot) {
      if (slots_[slot].phase == job_.phases || Clock::now() < slots_[slot].sent + kTimeout) continue;
      contribute(slot, flag::retransmission);
      ++counts.retransmissions;
    }
  }

  // A message to this rank has arrived: checks it, and sends the slot's next contribution.
  void take(const ibv_wc& done, Counts& counts) {
    if (done.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(done.status));
    const uint8_t* buffer = receive_buffer(static_cast<uint32_t>(done.wr_id));
    if (!is_from_switch(buffer, done)) {
      ++counts.foreign;
    } else {
      take_result(buffer + rocev2::grh_bytes, done.byte_len - rocev2::grh_bytes, counts);
    }
    post_receive(static_cast<uint32_t>(done.wr_id));
  }

 private:
  struct Slot {
    uint32_t phase = 0;
    Clock::time_point sent;
  };

  void change(ibv_qp_attr state, int fields) { expect_zero(ibv_modify_qp(pair_, &state, fields), "ibv_modify_qp"); }

  uint8_t* receive_buffer(uint32_t number) {
    return memory_.data() + job_.message_bytes() + number * size_t{receive_bytes_};
  }

  void post_receive(uint32_t buffer) {
    ibv_sge piece{reinterpret_cast<uint64_t>(receive_buffer(buffer)), receive_bytes_, region_->lkey};
    ibv_recv_wr request{buffer, nullptr, &piece, 1};
    ibv_recv_wr* refused = nullptr;
    expect_zero(ibv_post_recv(pair_, &request, &refused), "ibv_post_recv");
  }

  // Over IPv4 the IPv4 header is in the second half of the GRH.
  bool is_from_switch(const uint8_t* grh, const ibv_wc& done) const {
    const uint8_t* header = grh + rocev2::grh_bytes - ipv4::bytes;
    return done.byte_len >= rocev2::grh_bytes + protocol::header_bytes && (done.wc_flags & IBV_WC_GRH) != 0 &&
           done.opcode == IBV_WC_RECV && done.src_qp == rocev2::queue_pair &&
           header[ipv4::version_and_length] == ipv4::version_4_without_options &&
           std::memcmp(header + ipv4::src, &job_.switch_address, sizeof job_.switch_address) == 0 &&
           std::memcmp(header + ipv4::dst, &job_.address, sizeof job_.address) == 0;
  }

  void take_result(const uint8_t* message, uint32_t bytes, Counts& counts) {
    const Header header = load_header(message);
    const uint32_t slot = header.slot >> 1U;
    if (slot < job_.slots && header.phase < slots_[slot].phase) {
      ++counts.repeated;
      return;
    }
    if (bytes != job_.message_bytes() || slot >= job_.slots || !is_right(header, slot) ||
        !are_right(message + protocol::header_bytes, slot, header.phase)) {
      ++counts.wrong;
      return;
    }
    ++counts.results;
    if (++slots_[slot].phase == job_.phases) {
      ++done_;
    } else {
      contribute(slot, 0);
    }
  }

  bool is_right(const Header& header, uint32_t slot) const {
    const uint32_t phase = slots_[slot].phase;
    return header.version == protocol::version && header.kind == static_cast<uint8_t>(Kind::result) &&
           header.job == job_.id && header.epoch == job_.epoch && header.phase == phase &&
           (header.slot & 1U) == (phase & 1U) && header.chunk == job_.chunk(slot, phase) &&
           header.count == job_.values && header.exponent == kExponent + job_.world - 1 &&
           header.check == job_.world * (job_.world + 1) / 2 && header.secret == job_.secret;
  }

  bool are_right(const uint8_t* values, uint32_t slot, uint32_t phase) const {
    const uint32_t factor = 1'000'003 * (job_.world * (job_.world + 1) / 2);
    for (uint32_t lane = 0; lane < job_.values; ++lane) {
      if (load32(values + 4 * lane) != factor * (lane + 1) - 7 * job_.world * (phase + slot)) return false;
    }
    return true;
  }

  void contribute(uint32_t slot, uint32_t flags) {
    const uint32_t phase = slots_[slot].phase;
    Header header;
    header.kind = static_cast<uint8_t>(Kind::contribution);
    header.job = static_cast<uint16_t>(job_.id);
    header.worker = static_cast<uint8_t>(number_);
    header.format = static_cast<uint8_t>(Format::int32);
    header.exponent = static_cast<uint16_t>(kExponent + number_);
    header.slot = static_cast<uint16_t>(slot << 1U | (phase & 1U));
    header.count = static_cast<uint16_t>(job_.values);
    header.epoch = static_cast<uint16_t>(job_.epoch);
    header.flags = static_cast<uint8_t>(flags);
    header.phase = phase;
    header.chunk = job_.chunk(slot, phase);
    header.check = number_ + 1;
    header.secret = job_.secret;
    store_header(memory_.data(), header);
    for (uint32_t lane = 0; lane < job_.values; ++lane) {
      store32(memory_.data() + protocol::header_bytes + 4 * lane,
              (number_ + 1) * 1'000'003 * (lane + 1) - 7 * (phase + slot));
    }
    send();
    slots_[slot].sent = Clock::now();
  }

  // Sends the message at the start of the memory, which may be changed afterwards.
  void send() {
    ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data()), job_.message_bytes(), region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {card_.to_switch, rocev2::queue_pair, job_.queue_key()};
    ibv_send_wr* refused = nullptr;
    expect_zero(ibv_post_send(pair_, &request, &refused), "ibv_post_send");
    ibv_wc done{};
    const auto end = Clock::now() + kDeadline;
    while (ibv_poll_cq(card_.sent, 1, &done) == 0) {
      if (Clock::now() > end) throw std::runtime_error("a message was not sent");
      std::this_thread::yield();
    }
    if (done.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(done.status));
  }

  const Job& job_;
  const Card& card_;
  uint32_t number_;
  uint32_t receive_bytes_;
  std::vector<Slot> slots_;
  uint32_t done_ = 0;            // slots
  std::vector<uint8_t> memory_;  // a contribution, and behind it the buffers to receive into
  ibv_mr* region_;
  ibv_qp* pair_;
};

bool are_done(const std::vector<std::unique_ptr<Rank>>& ranks) {
  for (const auto& rank : ranks) {
    if (!rank->is_done()) return false;
  }
  return true;
}

// Takes what has arrived, and returns whether anything had.
bool take_all(const Card& card, const std::vector<std::unique_ptr<Rank>>& ranks, Counts& counts) {
  ibv_wc done{};
  bool any = false;
  for (; ibv_poll_cq(card.received, 1, &done) == 1; any = true) {
    for (const auto& rank : ranks) {
      if (rank->queue_pair() == done.qp_num) rank->take(done, counts);
    }
  }
  return any;
}

void run(const Job& job) {
  const Card card(job);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::string numbers;
  for (uint32_t number = 0; number < job.ranks; ++number) {
    ranks.push_back(std::make_unique<Rank>(job, card, job.first + number));
    numbers += (number == 0 ? "" : ", ") + std::to_string(ranks.back()->queue_pair());
  }
  std::cout << "{\"queue_pairs\": [" << numbers << "], \"mtu\": " << card.mtu << "}\n" << std::flush;
  for (std::string line; line != "go";) require(static_cast<bool>(std::getline(std::cin, line)), "no \"go\"");

  const auto start = Clock::now();
  Counts counts;
  for (const auto& rank : ranks) rank->start();
  while (!are_done(ranks)) {
    if (Clock::now() > start + kDeadline) throw std::runtime_error("results are missing");
    if (!take_all(card, ranks, counts)) {
      expect_zero(ibv_req_notify_cq(card.received, 0), "ibv_req_notify_cq");
      // A message that has come before the request causes no event.
      if (!take_all(card, ranks, counts)) card.sleep();
    }
    for (const auto& rank : ranks) rank->resend_overdue(counts);
  }
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
  std::cout << "{\"results\": " << counts.results << ", \"wrong\": " << counts.wrong
            << ", \"repeated\": " << counts.repeated << ", \"retransmissions\": " << counts.retransmissions
            << ", \"foreign\": " << counts.foreign << ", \"milliseconds\": " << passed << "}\n"
            << std::flush;
}

uint32_t number(const char* text) { return static_cast<uint32_t>(std::stoul(text)); }

}  // namespace

int main(int count, char** words) {
  try {
    if (count != 12) throw std::runtime_error("eleven arguments are needed");
    run({inet_addr(words[1]), inet_addr(words[2]), number(words[3]), number(words[4]), number(words[5]),
         number(words[6]), number(words[7]), number(words[8]), number(words[9]), number(words[10]), number(words[11])});
  } catch (const std::exception& error) {
    std::cout << "{\"error\": \"" << error.what() << "\"}\n" << std::flush;
    return 1;
  }
  return 0;
}
