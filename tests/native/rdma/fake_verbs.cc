#include "tests/native/rdma/fake_verbs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "native/net/rdma/rdma_gids.h"
#include "native/wire/frame_headers.h"
#include "native/wire/rocev2.h"

namespace {

constexpr uint32_t kAddress = 0x0A000001;
constexpr uint32_t kPair = 0x11;
constexpr size_t kGrh = switchml::wire::rocev2::grh_bytes;

FakeCard* card = nullptr;

int errno_of(int error) {
  errno = error;
  return error;
}

template <class Byte>
Byte* memory_at(uint64_t address) {
  return reinterpret_cast<Byte*>(address);  // NOLINT(performance-no-int-to-ptr): so libibverbs passes it
}

template <class Object>
int destroyed(Object* object) {
  delete object;
  return 0;
}

// An object whose context is the card's; null, with errno, once that is removed.
template <class Object>
Object* made() {
  const std::lock_guard<std::mutex> lock(card->mutex);
  if (card->removed) return errno_of(EIO), nullptr;
  auto* object = new Object{};  // NOLINT(bugprone-invalid-enum-default-initialization): as libibverbs does
  object->context = &card->context;
  return object;
}

// A request has failed: the queue pair does nothing more, and gives its buffers back.
void fail_pair() {
  card->pair_state = IBV_QPS_ERR;
  for (const FakeCard::Buffer& buffer : card->buffers) {
    ibv_wc& flushed = card->received.emplace_back();
    flushed.wr_id = buffer.number;
    flushed.status = IBV_WC_WR_FLUSH_ERR;
  }
  card->buffers.clear();
}

int post_send(ibv_qp* /*pair*/, ibv_send_wr* request, ibv_send_wr** refused) {
  const std::lock_guard<std::mutex> lock(card->mutex);
  for (; request != nullptr; request = request->next) {
    if (card->pair_state != IBV_QPS_RTS) {
      *refused = request;
      return EINVAL;
    }
    FakeCard::Sent& sent = card->sent.emplace_back();
    sent.way = request->wr.ud.ah;
    sent.queue_key = request->wr.ud.remote_qkey;
    for (int i = 0; i < request->num_sge; ++i) {
      const auto* piece = memory_at<const uint8_t>(request->sg_list[i].addr);
      sent.bytes.insert(sent.bytes.end(), piece, piece + request->sg_list[i].length);
    }
    if ((request->send_flags & IBV_SEND_SIGNALED) == 0 && card->send_status == IBV_WC_SUCCESS) continue;
    card->completed.emplace_back();
    card->completed.back().wr_id = request->wr_id;
    card->completed.back().status = card->send_status;
    if (card->send_status != IBV_WC_SUCCESS) fail_pair();
  }
  return 0;
}

int post_receive(ibv_qp* /*pair*/, ibv_recv_wr* request, ibv_recv_wr** /*refused*/) {
  const std::lock_guard<std::mutex> lock(card->mutex);
  for (; request != nullptr; request = request->next) {
    card->buffers.push_back({request->wr_id, memory_at<uint8_t>(request->sg_list->addr), request->sg_list->length});
  }
  return 0;
}

// `cq_context` tells a queue of received messages, which has a channel, from one of sent ones.
int poll_queue(ibv_cq* queue, int most, ibv_wc* found) {
  const std::lock_guard<std::mutex> lock(card->mutex);
  if (queue->channel == nullptr && card->holds_completions) return 0;
  std::deque<ibv_wc>& waiting = queue->channel == nullptr ? card->completed : card->received;
  int count = 0;
  for (; count < most && !waiting.empty(); ++count) {
    found[count] = waiting.front();
    waiting.pop_front();
  }
  return count;
}

int arm_queue(ibv_cq* /*queue*/, int /*solicited*/) { return 0; }

}  // namespace

FakeCard::FakeCard() {
  card = this;
  std::strcpy(device.name, "card0");
  context.device = &device;
  context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  context.ops.post_send = post_send;
  context.ops.post_recv = post_receive;
  context.ops.poll_cq = poll_queue;
  context.ops.req_notify_cq = arm_queue;
  gids[1].gid = switchml::net::gid_of(kAddress);
  gids[1].gid_type = IBV_GID_TYPE_ROCE_V2;
  gids[1].ndev_ifindex = 3;
}

FakeCard::~FakeCard() {
  close(context.async_fd);
  card = nullptr;
}

ibv_wc FakeCard::filled(uint32_t source, const std::vector<uint8_t>& message) {
  namespace ipv4 = switchml::wire::ipv4;
  const Buffer buffer = buffers.front();
  buffers.pop_front();
  uint8_t* header = buffer.memory + kGrh - ipv4::bytes;
  header[ipv4::version_and_length] = ipv4::version_4_without_options;
  switchml::wire::store32(header + ipv4::src, source);
  switchml::wire::store32(header + ipv4::dst, kAddress);
  std::copy(message.begin(), message.end(), buffer.memory + kGrh);
  ibv_wc completion{};
  completion.wr_id = buffer.number;
  completion.byte_len = static_cast<uint32_t>(kGrh + message.size());
  completion.wc_flags = IBV_WC_GRH;
  completion.src_qp = switchml::wire::rocev2::queue_pair;
  return completion;
}

void FakeCard::fail_receive(ibv_wc_status status) {
  const std::lock_guard<std::mutex> lock(mutex);
  ibv_wc& failed = received.emplace_back();
  failed.wr_id = buffers.front().number;
  failed.status = status;
  buffers.pop_front();
  fail_pair();
}

void FakeCard::report(ibv_event_type event) {
  const std::lock_guard<std::mutex> lock(mutex);
  events.push_back(event);
  eventfd_write(context.async_fd, 1);
}

void FakeCard::remove() {
  const std::lock_guard<std::mutex> lock(mutex);
  removed = true;
  start_error = EIO;
  fail_pair();
}

// ---- libibverbs' functions
// -------------------------------------------------------------------------------------------

extern "C" {

#undef ibv_get_device_list
ibv_device** ibv_get_device_list(int* count) {
  *count = 1;
  return new ibv_device*[2]{&card->device, nullptr};
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
ibv_context* ibv_open_device(ibv_device* /*device*/) {
  if (card->open_error == 0) return &card->context;
  errno = card->open_error;
  return nullptr;
}
int ibv_close_device(ibv_context* /*context*/) { return 0; }
int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* found) {
  *found = {};
  found->phys_port_cnt = 1;
  return 0;
}
#undef ibv_query_port
int ibv_query_port(ibv_context* /*context*/, uint8_t /*port*/, _compat_ibv_port_attr* found) {
  auto* port = reinterpret_cast<ibv_port_attr*>(found);
  port->state = card->state;
  port->link_layer = static_cast<uint8_t>(card->link_layer);
  port->active_mtu = IBV_MTU_1024;
  return 0;
}
const char* ibv_port_state_str(ibv_port_state state) { return state == IBV_PORT_DOWN ? "down" : "active"; }
int _ibv_query_gid_ex(ibv_context* /*context*/, uint32_t /*port*/, uint32_t index, ibv_gid_entry* found,
                      uint32_t /*flags*/, size_t /*bytes*/) {
  const std::lock_guard<std::mutex> lock(card->mutex);
  const auto entry = card->gids.find(index);
  if (entry == card->gids.end()) return ENODATA;
  *found = entry->second;
  found->gid_index = index;
  return 0;
}
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
int ibv_fork_init() { return 0; }

ibv_pd* ibv_alloc_pd(ibv_context* /*context*/) { return made<ibv_pd>(); }
int ibv_dealloc_pd(ibv_pd* domain) { return destroyed(domain); }
#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* /*domain*/, void* memory, size_t bytes, int /*access*/) {
  if (bytes > card->may_lock) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* region = made<ibv_mr>();
  if (region != nullptr) {
    region->addr = memory;
    region->length = bytes;
    region->lkey = 7;
  }
  return region;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* memory, size_t bytes, uint64_t /*iova*/, unsigned int access) {
  return ibv_reg_mr(domain, memory, bytes, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* region) { return destroyed(region); }
ibv_comp_channel* ibv_create_comp_channel(ibv_context* /*context*/) {
  auto* channel = made<ibv_comp_channel>();
  if (channel != nullptr) channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  close(channel->fd);
  return destroyed(channel);
}
ibv_cq* ibv_create_cq(ibv_context* /*context*/, int /*entries*/, void* /*user*/, ibv_comp_channel* channel,
                      int /*vector*/) {
  auto* queue = made<ibv_cq>();
  if (queue != nullptr) queue->channel = channel;
  return queue;
}
int ibv_destroy_cq(ibv_cq* queue) { return destroyed(queue); }
int ibv_get_cq_event(ibv_comp_channel* /*channel*/, ibv_cq** /*queue*/, void** /*user*/) {
  errno = EAGAIN;
  return -1;
}
void ibv_ack_cq_events(ibv_cq* /*queue*/, unsigned int /*count*/) {}
ibv_qp* ibv_create_qp(ibv_pd* /*domain*/, ibv_qp_init_attr* /*properties*/) {
  auto* pair = made<ibv_qp>();
  if (pair != nullptr) pair->qp_num = kPair;
  return pair;
}
int ibv_destroy_qp(ibv_qp* pair) { return destroyed(pair); }
int ibv_modify_qp(ibv_qp* /*pair*/, ibv_qp_attr* change, int mask) {
  const std::lock_guard<std::mutex> lock(card->mutex);
  if (card->start_error != 0) return errno_of(card->start_error);
  card->pair_state = change->qp_state;
  if ((mask & IBV_QP_QKEY) != 0) card->queue_key = change->qkey;
  if (change->qp_state == IBV_QPS_RESET) {
    card->buffers.clear();
  }
  return 0;
}
ibv_ah* ibv_create_ah(ibv_pd* /*domain*/, ibv_ah_attr* way) {
  {
    const std::lock_guard<std::mutex> lock(card->mutex);
    if (card->way_error != 0) {
      ++card->ways_refused;
      return errno_of(card->way_error), nullptr;
    }
    card->ways.push_back(*way);
  }
  auto* handle = made<ibv_ah>();
  if (handle != nullptr) ++card->living_ways;
  return handle;
}
int ibv_destroy_ah(ibv_ah* handle) {
  --card->living_ways;
  return destroyed(handle);
}
int ibv_get_async_event(ibv_context* /*context*/, ibv_async_event* event) {
  const std::lock_guard<std::mutex> lock(card->mutex);
  eventfd_t count = 0;
  eventfd_read(card->context.async_fd, &count);
  if (card->events.empty()) {
    errno = card->removed ? EIO : EAGAIN;
    return -1;
  }
  *event = {};
  event->event_type = card->events.front();
  card->events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event* /*event*/) {}

}  // extern "C"
