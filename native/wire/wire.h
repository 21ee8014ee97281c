// The SwitchML header in a packet: 32 bytes, big-endian (docs/understand/protocol.md has the table of fields).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "native/wire/constants.h"

namespace switchml::wire {

// One header in host byte order. `slot` is the register index: pool index * 2 + half.
struct Header {
  uint8_t version = protocol::version;
  uint8_t kind = 0;
  uint16_t job = 0;
  uint8_t worker = 0;
  uint8_t format = 0;
  uint16_t exponent = 0;
  uint16_t slot = 0;
  uint16_t count = 0;
  uint16_t epoch = 0;
  uint8_t owner = owner::everyone;
  uint8_t flags = 0;
  uint32_t phase = 0;
  uint32_t chunk = 0;
  uint32_t check = 0;
  uint32_t secret = 0;
};

inline uint16_t load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap16(v);
}

inline uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap32(v);
}

inline void store16(uint8_t* p, uint16_t v) {
  v = __builtin_bswap16(v);
  std::memcpy(p, &v, sizeof v);
}

inline void store32(uint8_t* p, uint32_t v) {
  v = __builtin_bswap32(v);
  std::memcpy(p, &v, sizeof v);
}

// Reads protocol::header_bytes bytes at p, without any check.
inline Header load_header(const uint8_t* p) {
  Header h;
  h.version = p[0];
  h.kind = p[1];
  h.job = load16(p + 2);
  h.worker = p[4];
  h.format = p[5];
  h.exponent = load16(p + 6);
  h.slot = load16(p + 8);
  h.count = load16(p + 10);
  h.epoch = load16(p + 12);
  h.owner = p[14];
  h.flags = p[15];
  h.phase = load32(p + 16);
  h.chunk = load32(p + 20);
  h.check = load32(p + 24);
  h.secret = load32(p + 28);
  return h;
}

// Writes protocol::header_bytes bytes at p.
inline void store_header(uint8_t* p, const Header& h) {
  p[0] = h.version;
  p[1] = h.kind;
  store16(p + 2, h.job);
  p[4] = h.worker;
  p[5] = h.format;
  store16(p + 6, h.exponent);
  store16(p + 8, h.slot);
  store16(p + 10, h.count);
  store16(p + 12, h.epoch);
  p[14] = h.owner;
  p[15] = h.flags;
  store32(p + 16, h.phase);
  store32(p + 20, h.chunk);
  store32(p + 24, h.check);
  store32(p + 28, h.secret);
}

// Returns whether the values of a contribution in this format are codes of one byte (codes.h).
constexpr bool is_coded(uint32_t format) {
  return format == static_cast<uint32_t>(Format::natural8) || format == static_cast<uint32_t>(Format::dynamic8);
}

// Returns whether some pipeline takes contributions in this format.
constexpr bool is_known(uint32_t format) {
  return format == static_cast<uint32_t>(Format::int32) || format == static_cast<uint32_t>(Format::float32) ||
         is_coded(format);
}

// Returns the format of the sums of contributions in a format.
constexpr Format format_of_sums(uint32_t format) {
  return format == static_cast<uint32_t>(Format::float32) ? Format::float32 : Format::int32;
}

// Returns the bytes that a value of a contribution takes; 4 in a format that no switch knows.
constexpr size_t value_bytes(uint32_t format) { return is_coded(format) ? 1 : sizeof(uint32_t); }

// Returns the ranks, as a bitmap, that read the values of a RESULT with this owner.
inline uint64_t readers_of(uint8_t owner) {
  if (owner == owner::everyone) return ~uint64_t{0};
  const bool all_but_one = (owner & owner::except) != 0;
  const unsigned rank = (owner & ~unsigned{owner::except}) - owner::first;
  const uint64_t named = rank < protocol::max_workers ? uint64_t{1} << rank : 0;
  return all_but_one ? ~named : named;
}

// Returns whether a rank, of any number, reads the values of a RESULT with this owner.
inline bool reads(uint8_t owner, uint32_t rank) {
  const bool is_named = (owner & ~uint32_t{owner::except}) == owner::first + rank;
  const bool all_but_one = (owner & owner::except) != 0;
  return owner == owner::everyone || is_named != all_but_one;
}

// The number that a switch has for each rank that an `owner` can name, as the low seven bits of this owner and of the
// one for the switch; not changed for `everyone`. Only in a tree does a switch number ranks in another way than the
// job.
using OwnerNumbers = std::array<uint8_t, owner::except>;

// The numbers if each rank has the same number at its switch as in the job.
constexpr OwnerNumbers unchanged_owners() {
  OwnerNumbers numbers{};
  for (uint8_t number = 0; number < owner::except; ++number) numbers[number] = number;
  return numbers;
}

// Returns an `owner` that names a rank of the job as one that names it to the switch.
constexpr uint8_t owner_at_switch(const OwnerNumbers& numbers, uint8_t owner) {
  return static_cast<uint8_t>((owner & owner::except) | numbers[owner & (owner::except - 1U)]);
}

// Returns the header of the same packet without its values.
inline Header without_values(Header header) {
  header.count = 0;
  header.flags |= flag::without_values;
  return header;
}

}  // namespace switchml::wire
