// The division of a call's elements into chunks, and the elements of them that a rank reads and writes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "switchml/native/codecs/geometry.h"

namespace switchml::client {

// How the elements of a call are divided among the ranks. Parts have the same length; part r belongs to rank r.
enum class Division : uint8_t {
  whole,    // one part: every rank reads and writes all elements
  scatter,  // a part for each rank: every rank reads all of them and writes its own
  gather,   // a part for each rank: every rank reads its own and writes all of them
};

// The memory of a call at one rank. An array that has only the rank's own part begins with it. Where both arrays have
// an element, they may have it at the same address; otherwise they must not overlap.
struct Arrays {
  const uint8_t* input = nullptr;
  uint8_t* output = nullptr;
  uint64_t elements = 0;  // of all parts
  Division division = Division::whole;
};

// The elements of one chunk.
struct Place {
  uint64_t first;    // among the elements of all parts
  uint64_t in_part;  // the same element, counted from the beginning of its part
  uint32_t count;
  bool own;  // they belong to this rank, or to all ranks
};

// A chunk has the elements of one packet, all from one part. Chunks of several parts take turns, so that the links of
// all owners have the same load at any time: with N parts, chunk j has elements of part j mod N.
class Layout {
 public:
  // Precondition: the number of elements is a multiple of the number of parts.
  Layout(uint64_t elements, Division division, uint32_t per_chunk, const Geometry& geometry)
      : parts_(division == Division::whole ? 1 : geometry.world_size),
        rank_(geometry.rank),
        per_chunk_(per_chunk),
        part_elements_(elements / parts_) {}

  uint32_t parts() const { return parts_; }
  uint64_t part_elements() const { return part_elements_; }
  // Returns 1 for a call without elements.
  uint64_t chunks() const { return std::max<uint64_t>(1, parts_ * ((part_elements_ + per_chunk_ - 1) / per_chunk_)); }

  // Returns the rank whose part the elements of a chunk are in. Precondition: the call has parts.
  uint32_t owner_of(uint64_t chunk) const { return static_cast<uint32_t>(chunk % parts_); }
  // Precondition: the call has elements.
  Place place_of(uint64_t chunk) const {
    const uint64_t part = parts_ == 1 ? 0 : chunk % parts_;
    const uint64_t in_part = (parts_ == 1 ? chunk : chunk / parts_) * per_chunk_;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(per_chunk_, part_elements_ - in_part));
    return {part * part_elements_ + in_part, in_part, count, parts_ == 1 || part == rank_};
  }
  bool is_full(const Place& place) const { return place.count == per_chunk_; }

 private:
  uint32_t parts_;
  uint32_t rank_;
  uint32_t per_chunk_;
  uint64_t part_elements_;
};

}  // namespace switchml::client
