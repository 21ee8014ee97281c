#include "dataplane/softswitch/native/pipeline/slot_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <system_error>

#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector load
constexpr size_t kMaxSlots = wire::protocol::max_slot_index + 1;

size_t checked(size_t number, size_t most, const char* name) {
  if (number < 1 || number > most) {
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(number) + "; it must be 1 to " +
                                std::to_string(most));
  }
  return number;
}

// Turns `lane_N` with N below `lanes` into N; `lanes` for every other name.
size_t lane_number(const std::string& name, size_t lanes) {
  constexpr char kPrefix[] = "lane_";
  constexpr size_t kPrefixLength = sizeof kPrefix - 1;
  if (name.compare(0, kPrefixLength, kPrefix) != 0) return lanes;
  const char* end = name.data() + name.size();
  size_t lane = 0;
  const auto parsed = std::from_chars(name.data() + kPrefixLength, end, lane);
  const bool plain = parsed.ec == std::errc() && parsed.ptr == end && name == kPrefix + std::to_string(lane);
  return plain && lane < lanes ? lane : lanes;
}

}  // namespace

// One place in the registers. Exactly one pointer is set.
struct SlotMemory::Register {
  bool* bit = nullptr;
  uint16_t* word16 = nullptr;
  uint32_t* word32 = nullptr;
  uint64_t* word64 = nullptr;
  uint8_t* lane = nullptr;

  uint64_t most() const {
    if (bit != nullptr) return 1;
    return word16 != nullptr ? UINT16_MAX : word64 != nullptr ? UINT64_MAX : UINT32_MAX;
  }
};

SlotMemory::SlotMemory(size_t slots, size_t values)
    : values_(checked(values, wire::protocol::max_values, "values per packet")),
      stride_((values * sizeof(uint32_t) + kAlignment - 1) / kAlignment * kAlignment),
      states_(checked(slots, kMaxSlots, "slots") * 2) {
  void* memory = mmap(nullptr, states_.size() * stride_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(
        errno, std::generic_category(),
        "no memory for " + std::to_string(slots) + " slots of " + std::to_string(values) + " values");
  }
  memory_ = static_cast<uint8_t*>(memory);
}

SlotMemory::~SlotMemory() { munmap(memory_, states_.size() * stride_); }

SlotMemory::Register SlotMemory::find_register(const std::string& name, size_t index) {
  if (index >= states_.size()) {
    throw std::invalid_argument("register " + name + " has no index " + std::to_string(index) + "; the last is " +
                                std::to_string(states_.size() - 1));
  }
  HalfState& half = states_[index];
  Register found;
  if (name == "slot_epoch") {
    found.word16 = &half.epoch;
  } else if (name == "slot_phase") {
    found.word32 = &half.phase;
  } else if (name == "slot_bitmap") {
    found.word64 = &half.bitmap;
  } else if (name == "slot_filled") {
    found.bit = &half.filled;
  } else if (name == "slot_exponent") {
    found.word16 = &half.exponent;
  } else if (name == "slot_check") {
    found.word32 = &half.check;
  } else if (const size_t lane = lane_number(name, values_); lane < values_) {
    found.lane = values(index) + lane * sizeof(uint32_t);
  } else {
    throw std::out_of_range("there is no register '" + name + "'; lanes are lane_0 to lane_" +
                            std::to_string(values_ - 1));
  }
  return found;
}

size_t SlotMemory::lane(const std::string& name) const { return lane_number(name, values_); }

uint64_t SlotMemory::read_register(const std::string& name, size_t index) {
  const Register found = find_register(name, index);
  if (found.bit != nullptr) return *found.bit ? 1 : 0;
  if (found.word16 != nullptr) return *found.word16;
  if (found.word32 != nullptr) return *found.word32;
  if (found.word64 != nullptr) return *found.word64;
  return wire::load32(found.lane);
}

void SlotMemory::write_register(const std::string& name, size_t index, uint64_t value) {
  const Register found = find_register(name, index);
  if (value > found.most()) {
    throw std::invalid_argument(std::to_string(value) + " does not fit register " + name + ", whose largest value is " +
                                std::to_string(found.most()));
  }
  if (found.bit != nullptr) {
    *found.bit = value != 0;
  } else if (found.word16 != nullptr) {
    *found.word16 = static_cast<uint16_t>(value);
  } else if (found.word32 != nullptr) {
    *found.word32 = static_cast<uint32_t>(value);
  } else if (found.word64 != nullptr) {
    *found.word64 = value;
  } else {
    wire::store32(found.lane, static_cast<uint32_t>(value));
  }
}

}  // namespace switchml::soft
