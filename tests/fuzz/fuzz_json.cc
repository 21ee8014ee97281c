// Fuzzes the reading of an agent's messages: any bytes are read or refused, and what is found in them is what a second
// reading of the same bytes finds.
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "switchml/native/membership/json.h"

using switchml::client::Json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto message = Json::parse(text);
  const auto again = Json::parse(text);
  if (message.has_value() != again.has_value()) std::abort();
  if (!message) return 0;
  for (const char* key : {"type", "ranks", "calls", "message", "check_key"}) {
    if (message->text(key) != again->text(key)) std::abort();
    const auto number = message->number(key, std::numeric_limits<uint32_t>::max());
    if (number && *number > std::numeric_limits<uint32_t>::max()) std::abort();
    if (message->numbers(key, 4095) != again->numbers(key, 4095)) std::abort();
    for (const uint32_t rank : message->numbers(key, 4095)) {
      if (rank > 4095) std::abort();
    }
  }
  return 0;
}
