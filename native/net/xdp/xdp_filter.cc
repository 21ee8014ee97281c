#include "native/net/xdp/xdp_filter.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <vector>

#include "native/wire/frame_headers.h"
#include "native/wire/rocev2.h"

namespace switchml::net {
namespace {

constexpr uint32_t kMostPorts = 4096;
constexpr uint32_t kMostQueues = 64;

std::system_error failure(int error, const std::string& what) { return {error, std::generic_category(), what}; }

// ---- a few instructions of BPF; RFC 9669 defines them ----

enum Register : uint8_t { r0, r1, r2, r3, r4, r5, r6, stack = BPF_REG_10 };

bpf_insn instruction(int code, uint8_t to, uint8_t from, int offset, int32_t value) {
  bpf_insn made{};
  made.code = static_cast<uint8_t>(code);
  made.dst_reg = to & 0xFU;
  made.src_reg = from & 0xFU;
  made.off = static_cast<int16_t>(offset);
  made.imm = value;
  return made;
}

// NOLINTBEGIN(misc-redundant-expression): that two parts of an opcode are 0 is BPF's encoding
bpf_insn copy(Register to, Register from) { return instruction(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
bpf_insn set(Register to, int32_t value) { return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
bpf_insn add(Register to, int32_t value) { return instruction(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value); }
bpf_insn keep_bits(Register of, int32_t mask) { return instruction(BPF_ALU64 | BPF_AND | BPF_K, of, 0, 0, mask); }
bpf_insn load(int size, Register to, Register from, size_t offset) {
  return instruction(BPF_LDX | BPF_MEM | size, to, from, static_cast<int>(offset), 0);
}
bpf_insn call(int32_t function) { return instruction(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
bpf_insn leave() { return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }
// NOLINTEND(misc-redundant-expression)

class Program {
 public:
  void append(const bpf_insn& one) { instructions_.push_back(one); }
  void append_map(Register to, int descriptor) {
    // NOLINTNEXTLINE(misc-redundant-expression): as above
    append(instruction(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, descriptor));
    append({});
  }
  // The jumps of the next three lead to the instructions that finish() appends, which pass the packet to the kernel.
  void pass_unless_equal(Register what, int32_t value) {
    jumps_.push_back(instructions_.size());
    append(instruction(BPF_JMP | BPF_JNE | BPF_K, what, 0, 0, value));
  }
  void pass_if_zero(Register what) {
    jumps_.push_back(instructions_.size());
    append(instruction(BPF_JMP | BPF_JEQ | BPF_K, what, 0, 0, 0));
  }
  void pass_if_greater(Register what, Register than) {
    jumps_.push_back(instructions_.size());
    append(instruction(BPF_JMP | BPF_JGT | BPF_X, what, than, 0, 0));
  }
  // Passes over what `body` appends.
  template <class Body>
  void only_if_equal(Register what, int32_t value, Body body) {
    const size_t jump = instructions_.size();
    append(instruction(BPF_JMP | BPF_JNE | BPF_K, what, 0, 0, value));
    body();
    instructions_[jump].off = static_cast<int16_t>(instructions_.size() - jump - 1);
  }
  std::vector<bpf_insn> finish() {
    for (const size_t jump : jumps_) instructions_[jump].off = static_cast<int16_t>(instructions_.size() - jump - 1);
    append(set(r0, XDP_PASS));
    append(leave());
    return instructions_;
  }

 private:
  std::vector<bpf_insn> instructions_;
  std::vector<size_t> jumps_;
};

// Redirects the packets that the pipeline's parser also accepts: UDP right after 20 bytes of IPv4, not a fragment; of
// those of RDMA, UD SENDs to the switch.
std::vector<bpf_insn> make_program(int ports, int sockets) {
  constexpr size_t kIp = wire::ethernet::bytes;
  constexpr size_t kUdp = kIp + wire::ipv4::bytes;
  constexpr size_t kBth = kUdp + wire::udp::bytes;
  constexpr int kKey = -static_cast<int>(sizeof(uint32_t));  // on the stack
  Program program;
  program.append(copy(r6, r1));
  program.append(load(BPF_W, r2, r1, offsetof(xdp_md, data)));
  program.append(load(BPF_W, r3, r1, offsetof(xdp_md, data_end)));
  program.append(copy(r4, r2));
  program.append(add(r4, wire::kHeadersBeforeUdpPayload));
  program.pass_if_greater(r4, r3);
  program.append(load(BPF_H, r5, r2, wire::ethernet::type));
  program.pass_unless_equal(r5, htons(wire::ethernet::type_ipv4));
  program.append(load(BPF_B, r5, r2, kIp + wire::ipv4::version_and_length));
  program.pass_unless_equal(r5, wire::ipv4::version_4_without_options);
  program.append(load(BPF_B, r5, r2, kIp + wire::ipv4::protocol));
  program.pass_unless_equal(r5, wire::ipv4::protocol_udp);
  program.append(load(BPF_H, r5, r2, kIp + wire::ipv4::fragment));
  program.append(keep_bits(r5, htons(wire::ipv4::more_fragments_or_offset)));
  program.pass_unless_equal(r5, 0);
  program.append(load(BPF_H, r5, r2, kUdp + wire::udp::dst));
  program.only_if_equal(r5, htons(wire::rocev2::udp_port), [&] {
    // RDMA that is not for the switch is the kernel's; is_for_switch() says the same.
    program.append(copy(r4, r2));
    program.append(add(r4, kBth + wire::bth::bytes));
    program.pass_if_greater(r4, r3);
    program.append(load(BPF_B, r4, r2, kBth + wire::bth::opcode));
    program.pass_unless_equal(r4, wire::rocev2::opcode);
    for (size_t i = 0; i < 3; ++i) {
      program.append(load(BPF_B, r4, r2, kBth + wire::bth::destination_queue_pair + i));
      program.pass_unless_equal(r4, wire::rocev2::queue_pair >> (16 - 8 * i) & 0xFFU);
    }
  });
  program.append(instruction(BPF_STX | BPF_MEM | BPF_W, stack, r5, kKey, 0));
  program.append(copy(r2, stack));
  program.append(add(r2, kKey));
  program.append_map(r1, ports);
  program.append(call(BPF_FUNC_map_lookup_elem));
  program.pass_if_zero(r0);
  program.append_map(r1, sockets);
  program.append(load(BPF_W, r2, r6, offsetof(xdp_md, rx_queue_index)));
  program.append(set(r3, XDP_PASS));  // for a queue without a socket
  program.append(call(BPF_FUNC_redirect_map));
  program.append(leave());
  return program.finish();
}

}  // namespace

XdpFilter::XdpFilter(const std::string& interface, unsigned interface_index) {
  int program = -1;
  try {
    ports_ =
        bpf_map_create(BPF_MAP_TYPE_HASH, "switchml_ports", sizeof(uint32_t), sizeof(uint32_t), kMostPorts, nullptr);
    sockets_ =
        bpf_map_create(BPF_MAP_TYPE_XSKMAP, "switchml_xsks", sizeof(uint32_t), sizeof(int), kMostQueues, nullptr);
    if (ports_ < 0 || sockets_ < 0) throw failure(errno, "cannot create a BPF map; AF_XDP needs root");
    program = load();
    attach(interface, interface_index, program);
  } catch (...) {
    if (program >= 0) ::close(program);
    close();
    throw;
  }
  ::close(program);  // the link keeps it loaded
}

XdpFilter::~XdpFilter() { close(); }

void XdpFilter::close() const {
  for (const int descriptor : {link_, sockets_, ports_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

int XdpFilter::load() const {
  const std::vector<bpf_insn> instructions = make_program(ports_, sockets_);
  const int program =
      bpf_prog_load(BPF_PROG_TYPE_XDP, "switchml", "Apache-2.0", instructions.data(), instructions.size(), nullptr);
  if (program < 0) throw failure(errno, "cannot load the XDP program; this needs CAP_BPF and CAP_NET_ADMIN, or root");
  return program;
}

void XdpFilter::attach(const std::string& interface, unsigned interface_index, int program) {
  bpf_link_create_opts options{};
  options.sz = sizeof options;
  int refused = 0;
  for (const bool native : {true, false}) {
    options.flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
    link_ = bpf_link_create(program, static_cast<int>(interface_index), BPF_XDP, &options);
    native_ = native;
    if (link_ >= 0) return;
    refused = errno;
    if (refused == EBUSY || refused == EEXIST) break;
  }
  throw failure(refused, "the XDP program cannot be attached to " + interface +
                             (refused == EBUSY || refused == EEXIST
                                  ? ", which has another one; `ip link show " + interface + "` names it"
                                  : ""));
}

void XdpFilter::connect(uint32_t queue, int socket) const {
  if (bpf_map_update_elem(sockets_, &queue, &socket, BPF_ANY) != 0) {
    throw failure(errno, "receive queue " + std::to_string(queue) + " cannot be redirected to AF_XDP");
  }
}

void XdpFilter::redirect(uint16_t udp_port, bool on) const {
  const uint32_t key = htons(udp_port);
  const uint32_t value = 1;
  const int result = on ? bpf_map_update_elem(ports_, &key, &value, BPF_ANY) : bpf_map_delete_elem(ports_, &key);
  if (result != 0 && (on || errno != ENOENT)) {
    throw failure(errno, "UDP port " + std::to_string(udp_port) + " cannot be redirected to AF_XDP");
  }
}

}  // namespace switchml::net
