// CRC-32 as Ethernet and zlib compute it (IEEE 802.3), in which RoCEv2 has its ICRC.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml::kernels {

// Returns the CRC of a text that goes on with these bytes. `before` is the CRC of what precedes them: 0 if nothing
// does.
uint32_t crc32(uint32_t before, const uint8_t* data, size_t bytes);

// Joins CRCs of texts, of which the second one has a given length, in a time that does not depend on it.
class Crc32Join {
 public:
  // Takes about a microsecond.
  explicit Crc32Join(size_t second_bytes);

  size_t second_bytes() const { return second_bytes_; }
  // Returns the CRC of one text followed by another.
  uint32_t join(uint32_t first, uint32_t second) const;

 private:
  size_t second_bytes_;
  uint32_t factor_;  // x^(8 * second_bytes) modulo the polynomial
};

// Chooses the fastest code that the CPU has, or the portable one. For tests and benchmarks: no other thread may be
// computing.
void use_crc_instructions(bool fastest);

}  // namespace switchml::kernels
