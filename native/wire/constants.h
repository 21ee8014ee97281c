// Generated from dataplane/constants.toml by tools/generate; do not edit.
#pragma once

#include <cstdint>

namespace switchml::wire {

namespace protocol {
constexpr uint32_t version = 1;
constexpr uint32_t udp_port = 0xBEE0;
constexpr uint32_t header_bytes = 32;
constexpr uint32_t ipv4_ttl = 64;
constexpr uint32_t max_workers = 64;
constexpr uint32_t max_world = 4096;
constexpr uint32_t max_jobs = 1024;
constexpr uint32_t max_values = 2048;
constexpr uint32_t max_slot_index = 32767;
}  // namespace protocol

namespace rocev2 {
constexpr uint32_t udp_port = 4791;
constexpr uint32_t opcode = 100;
constexpr uint32_t queue_pair = 0x80BEE0;
constexpr uint32_t partition_key = 0xFFFF;
constexpr uint32_t overhead_bytes = 24;
constexpr uint32_t queue_pairs = 0x1000000;
constexpr uint32_t grh_bytes = 40;
}  // namespace rocev2

enum class Kind : uint8_t {
  contribution = 1,
  result = 2,
};

enum class Format : uint8_t {
  int32 = 1,
  float32 = 2,
  natural8 = 4,
  dynamic8 = 5,
};

namespace dynamic8 {
constexpr uint32_t unit_bits = 25;
constexpr uint32_t start_0 = 18;
constexpr uint32_t start_1 = 109;
constexpr uint32_t start_2 = 713;
constexpr uint32_t start_3 = 5243;
constexpr uint32_t start_4 = 0xA7F0;
constexpr uint32_t start_5 = 0x5D70A;
constexpr uint32_t start_6 = 0x36CCCD;
constexpr uint32_t step_1 = 151;
constexpr uint32_t step_2 = 755;
constexpr uint32_t step_3 = 3775;
constexpr uint32_t step_4 = 18874;
constexpr uint32_t step_5 = 0x170A4;
constexpr uint32_t step_6 = 0x73333;
}  // namespace dynamic8

namespace flag {
constexpr uint32_t without_values = 1;
constexpr uint32_t last_chunk = 2;
constexpr uint32_t retransmission = 4;
}  // namespace flag

namespace owner {
constexpr uint32_t everyone = 0;
constexpr uint32_t first = 1;
constexpr uint32_t except = 128;
}  // namespace owner

namespace exponent {
constexpr uint32_t max_finite = 254;
constexpr uint32_t non_finite = 255;
constexpr uint32_t unknown = 256;
}  // namespace exponent

namespace next {
constexpr uint32_t exponent_bits = 9;
constexpr uint32_t none = 0xFFFFFFFF;
}  // namespace next

enum class Verdict : uint8_t {
  aggregated = 1,
  completed = 2,
  resent = 3,
  duplicate = 4,
  stale = 5,
  wrong_epoch = 6,
  forwarded = 7,
};

namespace tree {
constexpr uint32_t parent_group = 1024;
constexpr uint32_t first_parent_instance = 256;
constexpr uint32_t no_rank = 255;
constexpr uint32_t parent_number = 63;
}  // namespace tree

enum class DropReason : uint8_t {
  runt = 1,
  bad_version = 2,
  bad_kind = 3,
  forged_result = 4,
  bad_format = 5,
  bad_exponent = 6,
  bad_count = 7,
  bad_length = 8,
  bad_half = 9,
  unknown_job = 10,
  slot_out_of_range = 11,
  unknown_worker = 12,
  wrong_epoch = 13,
  stale = 14,
  duplicate = 15,
  no_rank_address = 16,
  no_route = 17,
  injected_loss = 18,
  bad_icrc = 19,
};

}  // namespace switchml::wire
