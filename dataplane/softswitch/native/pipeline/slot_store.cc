#include "dataplane/softswitch/native/pipeline/slot_store.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "native/kernels/accumulate.h"

namespace switchml::soft {
namespace {

// Returns N for the name `lane_N` with N below `lanes`, and `lanes` for every other name.
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

void check_fits(uint64_t value, uint64_t most, const std::string& name) {
  if (value > most) {
    throw std::invalid_argument(std::to_string(value) + " does not fit register " + name + ", whose largest value is " +
                                std::to_string(most));
  }
}

// Calls act(word) if a half has a word of this name. Returns whether it has one.
template <class Half, class Act>
bool visit_word(Half& half, const std::string& name, Act&& act) {
  if (name == "slot_epoch") {
    act(half.epoch);
  } else if (name == "slot_phase") {
    act(half.phase);
  } else if (name == "slot_bitmap") {
    act(half.bitmap);
  } else if (name == "slot_exponent") {
    act(half.exponent);
  } else if (name == "slot_check") {
    act(half.check);
  } else if (name == "slot_next") {
    act(half.next);
  } else if (name == "slot_owner") {
    act(half.owner);
  } else {
    return false;
  }
  return true;
}

constexpr const char* kFilled = "slot_filled";

}  // namespace

void SlotStore::check_index(const std::string& name, size_t index) const {
  if (index < halves()) return;
  throw std::invalid_argument("register " + name + " has no index " + std::to_string(index) + "; the last is " +
                              std::to_string(halves() - 1));
}

size_t SlotStore::lane_at(const std::string& name) const {
  const size_t lane = lane_number(name, values_per_packet());
  if (lane < values_per_packet()) return lane;
  throw std::out_of_range("there is no register '" + name + "'; lanes are lane_0 to lane_" +
                          std::to_string(values_per_packet() - 1));
}

uint64_t SlotStore::read_register(const std::string& name, size_t index) const {
  check_index(name, index);
  uint64_t value = 0;
  if (visit_word(state(index), name, [&](auto word) { value = word; })) return value;
  if (name == kFilled) return state(index).filled() ? 1 : 0;
  return word(index, lane_at(name));
}

void SlotStore::write_register(const std::string& name, size_t index, uint64_t value) {
  check_index(name, index);
  const auto write = [&](auto& word) {
    using Word = std::decay_t<decltype(word)>;
    check_fits(value, std::numeric_limits<Word>::max(), name);
    word = static_cast<Word>(value);
  };
  if (visit_word(state(index), name, write)) return;
  if (name == kFilled) {
    check_fits(value, 1, name);
    settle(index);
    if (value == 0) {
      begin(index, state(index).format);
    } else if (!state(index).filled()) {
      apply(index, SlotEvent::add_words);
    }
    return;
  }
  const size_t lane = lane_at(name);
  check_fits(value, UINT32_MAX, name);
  settle(index);
  state(index).rounded = true;
  wire::store32(memory_.values(index) + lane * sizeof(uint32_t), static_cast<uint32_t>(value));
}

void SlotStore::merge(size_t half, const uint8_t* words) {
  const bool first = !uses_memory(state(half).values);
  if (state(half).format == wire::Format::float32) {
    if (first) {
      kernels::begin_floats(words, values_per_packet(), memory_.floats(half));
    } else {
      resume(half);
      kernels::add_floats(words, values_per_packet(), memory_.floats(half));
    }
    state(half).rounded = false;
  } else if (first) {
    store_sum(half, words);
  } else {
    kernels::add_big_endian(memory_.values(half), words, values_per_packet());
  }
}

void SlotStore::store_sum(size_t half, const uint8_t* words) {
  std::memcpy(memory_.values(half), words, values_per_packet() * sizeof(uint32_t));
  state(half).rounded = true;
}

void SlotStore::round(size_t half) {
  HalfState& state = this->state(half);
  if (state.format != wire::Format::float32 || state.values != SlotValues::in_memory || state.rounded) return;
  kernels::round_floats(memory_.floats(half), values_per_packet(), memory_.values(half));
  state.rounded = true;
}

void SlotStore::resume(size_t half) {
  if (!state(half).rounded) return;
  kernels::begin_floats(memory_.values(half), values_per_packet(), memory_.floats(half));
  state(half).rounded = false;
}

kernels::FloatSum SlotStore::float_sum(size_t half, size_t lane) const {
  if (!state(half).rounded) return memory_.floats(half).at(lane);
  kernels::FloatSum sum;
  kernels::add_float(wire::load32(values(half) + lane * sizeof(uint32_t)), &sum);
  return sum;
}

uint32_t PacketSlotStore::word(size_t half, size_t lane) const {
  if (state(half).format == wire::Format::float32 && state(half).filled()) {
    return kernels::rounded_float(float_sum(half, lane));
  }
  return wire::load32(values(half) + lane * sizeof(uint32_t));
}

}  // namespace switchml::soft
