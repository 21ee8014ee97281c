#include "native/net/rdma/rdma_endpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "native/wire/frame_headers.h"
#include "native/wire/rocev2.h"

namespace switchml::net {
namespace {

constexpr int kMayWrite = IBV_ACCESS_LOCAL_WRITE;
constexpr size_t kGrh = wire::rocev2::grh_bytes;
// Over IPv4 the packet's IPv4 header is at the end of the space for InfiniBand's own, whose beginning is undefined.
constexpr size_t kIpv4InGrh = kGrh - wire::ipv4::bytes;
// The limit of finish_sending(): a card sends what it has in microseconds.
constexpr std::chrono::seconds kFinish{1};

std::system_error failure(int error, const std::string& what) { return {error, std::generic_category(), what}; }

template <class Object>
Object* required(Object* object, const char* what, const std::string& device) {
  if (object == nullptr) throw failure(errno, std::string(what) + " of " + device);
  return object;
}

void required(int error, const char* what, const std::string& device) {
  if (error != 0) throw failure(error, std::string(what) + " of " + device);
}

}  // namespace

RdmaEndpoint::RdmaEndpoint(RdmaDevice* device, const EndpointOptions& options)
    : device_(device),
      switches_(options.switches),
      queue_key_(options.queue_key & wire::deth::users_queue_keys),
      // No packet of the link can be longer: one that is would put the queue pair into the error state.
      buffer_bytes_(kGrh + device->largest_message()),
      receive_memory_(kReceives * buffer_bytes_),
      send_bytes_(device->largest_message()) {
  const std::string& name = device->name();
  ibv_context* context = device->context_.get();
  ibv_pd* domain = device->domain_.get();
  send_memory_.resize(kSends * send_bytes_);
  receive_region_ = device->registered(receive_memory_.data(), receive_memory_.size(), kMayWrite);
  send_region_ = device->registered(send_memory_.data(), send_memory_.size(), 0);
  events_.reset(required(ibv_create_comp_channel(context), "ibv_create_comp_channel", name));
  if (fcntl(events_->fd, F_SETFL, O_NONBLOCK) < 0) throw failure(errno, "fcntl");
  received_.reset(required(ibv_create_cq(context, kReceives, nullptr, events_.get(), 0), "ibv_create_cq", name));
  sent_.reset(required(ibv_create_cq(context, kSends, nullptr, nullptr, 0), "ibv_create_cq", name));
  ibv_qp_init_attr properties{};  // NOLINT(bugprone-invalid-enum-default-initialization): libibverbs wants zeros
  properties.send_cq = sent_.get();
  properties.recv_cq = received_.get();
  properties.cap = {kSends, kReceives, 2, 1, 0};
  properties.qp_type = IBV_QPT_UD;
  pair_.reset(required(ibv_create_qp(domain, &properties), "ibv_create_qp", name));
  RdmaWatch& watch = *device->watch_;
  routes_ = std::make_shared<RdmaRoutes>(RdmaRoutes::Source{domain, name, device->port_, watch.gid_index()}, options);
  watch.add(routes_);
  required(start(), "ibv_modify_qp", name);
  device->endpoints_.insert(this);
}

RdmaEndpoint::~RdmaEndpoint() { device_->endpoints_.erase(this); }

// Takes the queue pair from any state to the one in which it sends and receives; what it held is gone. Returns an
// errno, or 0.
int RdmaEndpoint::start() {
  ibv_qp_attr state{};  // NOLINT(bugprone-invalid-enum-default-initialization): libibverbs wants zeros
  state.port_num = device_->port_;
  state.qkey = queue_key_;
  struct Step {
    ibv_qp_state to;
    int mask;
  };
  constexpr std::array kSteps = {
      Step{IBV_QPS_RESET, IBV_QP_STATE},
      Step{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
      Step{IBV_QPS_RTR, IBV_QP_STATE},
      Step{IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN},
  };
  for (const Step& step : kSteps) {
    state.qp_state = step.to;
    if (const int error = ibv_modify_qp(pair_.get(), &state, step.mask); error != 0) return error;
  }
  post_all_receives();
  return 0;
}

// A request that fails, such as one without a route while the link is down, ends the queue pair's work. Its number
// stays the same when it starts again; the protocol repeats what was lost.
void RdmaEndpoint::start_again() {
  ibv_qp_attr reset{};  // NOLINT(bugprone-invalid-enum-default-initialization): libibverbs wants zeros
  reset.qp_state = IBV_QPS_RESET;
  ibv_modify_qp(pair_.get(), &reset, IBV_QP_STATE);  // afterwards no request completes; start() says if it failed
  std::array<ibv_wc, kBurst> flushed{};
  while (ibv_poll_cq(sent_.get(), static_cast<int>(kBurst), flushed.data()) > 0) {
  }
  while (ibv_poll_cq(received_.get(), static_cast<int>(kBurst), flushed.data()) > 0) {
  }
  lent_count_ = found_count_ = 0;
  chained_ = 0;
  completed_ = posted_;
  const int error = start();
  failed_ = error != 0;
  if (!failed_) return cannot_start_since_.reset();
  const auto now = std::chrono::steady_clock::now();
  if (!cannot_start_since_) cannot_start_since_ = now;
  if (now - *cannot_start_since_ >= kStarts) {
    device_->watch_->lose("a queue pair of RDMA device " + device_->name() +
                          " has failed and cannot start again: " + std::generic_category().message(error));
  }
}

void RdmaEndpoint::find_switches_again() {
  routes_->want_renewal();
  device_->watch_->wake();
}

void RdmaEndpoint::take_renewed_routes() {
  flush();  // requests that are not posted yet have the handles from before
  replaced_.emplace_back(posted_, routes_->take_renewed());
}

void RdmaEndpoint::post_all_receives() {
  for (uint32_t first = 0; first < kReceives; first += kBurst) {
    std::array<ibv_wc, kBurst> buffers{};
    for (uint32_t i = 0; i < kBurst; ++i) buffers[i].wr_id = first + i;
    post_receives(buffers.data(), kBurst);
  }
}

// Gives the buffers of these completions to the card, in one request. `wr_id` is the number of a buffer.
void RdmaEndpoint::post_receives(const ibv_wc* completions, int count) {
  std::array<ibv_sge, kBurst> pieces{};
  std::array<ibv_recv_wr, kBurst> requests{};
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    pieces[at] = {reinterpret_cast<uintptr_t>(buffer(completions[i].wr_id)), static_cast<uint32_t>(buffer_bytes_),
                  receive_region_->lkey};
    requests[at].wr_id = completions[i].wr_id;
    requests[at].sg_list = &pieces[at];
    requests[at].num_sge = 1;
    requests[at].next = i + 1 < count ? &requests[at + 1] : nullptr;
  }
  ibv_recv_wr* refused = nullptr;
  if (count > 0 && ibv_post_recv(pair_.get(), requests.data(), &refused) != 0) ++device_->counters_.receive_errors;
}

uint32_t RdmaEndpoint::key_of(const uint8_t* payload, size_t bytes) const {
  const auto after = device_->shared_.upper_bound(payload);
  if (after == device_->shared_.begin()) return 0;
  const auto& [start, shared] = *std::prev(after);
  return payload + bytes <= start + shared.region->length ? shared.region->lkey : 0;
}

void RdmaEndpoint::send(size_t to, const uint8_t* header, size_t header_bytes, const uint8_t* payload,
                        size_t payload_bytes) {
  if (posted_ + chained_ - completed_ >= kSends) reap();
  if (posted_ + chained_ - completed_ >= kSends) {
    ++device_->counters_.send_errors;
    return;
  }
  const uint32_t number = posted_ + static_cast<uint32_t>(chained_);
  uint8_t* own = send_memory_.data() + number % kSends * send_bytes_;
  std::memcpy(own, header, header_bytes);
  Send& send = chain_[chained_];
  send.pieces[0] = {reinterpret_cast<uintptr_t>(own), static_cast<uint32_t>(header_bytes), send_region_->lkey};
  send.request = {};
  send.request.num_sge = 1;
  const uint32_t key = payload_bytes > 0 ? key_of(payload, payload_bytes) : 0;
  if (key != 0) {
    send.pieces[1] = {reinterpret_cast<uintptr_t>(payload), static_cast<uint32_t>(payload_bytes), key};
    send.request.num_sge = 2;
  } else if (payload_bytes > 0) {
    std::memcpy(own + header_bytes, payload, payload_bytes);
    send.pieces[0].length += static_cast<uint32_t>(payload_bytes);
  }
  send.request.sg_list = send.pieces.data();
  send.request.opcode = IBV_WR_SEND;
  send.request.send_flags = (number + 1) % kSignalEvery == 0 ? IBV_SEND_SIGNALED : 0;
  send.request.wr_id = number + 1;  // what is complete when this request is
  send.request.wr.ud.ah = routes_->to(to);
  send.request.wr.ud.remote_qpn = wire::rocev2::queue_pair;
  send.request.wr.ud.remote_qkey = queue_key_;
  if (++chained_ == kChain) flush();
}

void RdmaEndpoint::flush() {
  if (chained_ == 0) return;
  for (size_t i = 0; i + 1 < chained_; ++i) chain_[i].request.next = &chain_[i + 1].request;
  chain_[chained_ - 1].request.send_flags |= IBV_SEND_SIGNALED;  // so that finish_sending() ends
  ibv_send_wr* refused = nullptr;
  size_t taken = chained_;
  if (ibv_post_send(pair_.get(), &chain_[0].request, &refused) != 0) {
    taken = static_cast<size_t>(reinterpret_cast<Send*>(refused) - chain_.data());
  }
  device_->counters_.sent += taken;
  device_->counters_.send_errors += chained_ - taken;
  posted_ += static_cast<uint32_t>(taken);
  chained_ = 0;
  reap();
}

// Requests complete in order, so the latest completion is that of all before it.
void RdmaEndpoint::reap() {
  std::array<ibv_wc, kBurst> completions{};
  int count = 0;
  while ((count = ibv_poll_cq(sent_.get(), static_cast<int>(completions.size()), completions.data())) > 0) {
    for (int i = 0; i < count; ++i) {
      completed_ = static_cast<uint32_t>(completions[static_cast<size_t>(i)].wr_id);
      if (completions[static_cast<size_t>(i)].status == IBV_WC_SUCCESS) continue;
      ++device_->counters_.send_errors;
      failed_ = true;
    }
  }
  while (!replaced_.empty() && static_cast<int32_t>(completed_ - replaced_.front().first) >= 0) replaced_.pop_front();
}

void RdmaEndpoint::finish_sending() {
  flush();
  const auto end = std::chrono::steady_clock::now() + kFinish;
  while (completed_ != posted_ && std::chrono::steady_clock::now() < end) {
    reap();
    std::this_thread::yield();
  }
}

size_t RdmaEndpoint::receive(std::array<Message, kBurst>* messages) {
  if (armed_) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(events_.get(), &queue, &context) == 0) {
      ibv_ack_cq_events(queue, 1);
      armed_ = false;
    }
  }
  if (routes_->are_renewed()) take_renewed_routes();
  reap();
  if (failed_) start_again();
  post_receives(lent_.data(), lent_count_);
  lent_count_ = found_count_;
  std::copy_n(found_.begin(), found_count_, lent_.begin());
  found_count_ = 0;
  const int more = ibv_poll_cq(received_.get(), static_cast<int>(kBurst) - lent_count_, lent_.data() + lent_count_);
  if (more > 0) lent_count_ += more;
  size_t taken = 0;
  for (int i = 0; i < lent_count_; ++i) {
    if (take(lent_[static_cast<size_t>(i)], &(*messages)[taken])) ++taken;
  }
  return taken;
}

bool RdmaEndpoint::take(const ibv_wc& completion, Message* message) {
  if (completion.status != IBV_WC_SUCCESS) {
    ++device_->counters_.receive_errors;
    failed_ = true;
    return false;
  }
  const uint8_t* start = buffer(completion.wr_id);
  if ((completion.wc_flags & IBV_WC_GRH) == 0 || completion.byte_len < kGrh) {
    ++device_->link_counters_.malformed;
    return false;
  }
  const uint8_t* ip = start + kIpv4InGrh;
  const uint32_t source = wire::load32(ip + wire::ipv4::src);
  if (ip[wire::ipv4::version_and_length] != wire::ipv4::version_4_without_options ||
      wire::load32(ip + wire::ipv4::dst) != device_->address_ || completion.src_qp != wire::rocev2::queue_pair ||
      std::find(switches_.begin(), switches_.end(), source) == switches_.end()) {
    ++device_->link_counters_.not_for_us;
    return false;
  }
  ++device_->counters_.received;
  *message = {start + kGrh, completion.byte_len - kGrh, source};
  return true;
}

bool RdmaEndpoint::prepare_sleep() {
  if (!armed_) {
    if (ibv_req_notify_cq(received_.get(), 0) != 0) return false;
    armed_ = true;
  }
  // A message that came before that made no event.
  if (found_count_ == 0) {
    found_count_ = std::max(0, ibv_poll_cq(received_.get(), static_cast<int>(kBurst), found_.data()));
  }
  return found_count_ == 0;
}

}  // namespace switchml::net
