#include "dataplane/softswitch/native/pipeline/slot_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include "native/wire/constants.h"

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

}  // namespace

SlotMemory::SlotMemory(size_t slots, size_t values)
    : values_(checked(values, wire::protocol::max_values, "values per packet")),
      stride_((values * sizeof(uint32_t) + kAlignment - 1) / kAlignment * kAlignment),
      states_(checked(slots, kMaxSlots, "slots") * 2) {
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(
        errno, std::generic_category(),
        "no memory for " + std::to_string(slots) + " slots of " + std::to_string(values) + " values");
  }
  memory_ = static_cast<uint8_t*>(memory);
}

SlotMemory::~SlotMemory() { munmap(memory_, bytes()); }

}  // namespace switchml::soft
