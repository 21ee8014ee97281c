// JSON (RFC 8259), as far as the messages between a process and its agent use it: objects, arrays, texts, truth values
// and whole numbers that are not negative. Numbers of any other form are read and cannot be used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace switchml::client {

// A value that was read. Values are looked up with a type: one that is missing, or of another type, is not found.
class Json {
 public:
  // Returns nothing if the text is not one JSON value, or has values inside each other to a depth of more than 16.
  static std::optional<Json> parse(std::string_view text);

  // The member of an object; null if this is not an object, or lacks it.
  const Json* member(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  // A number up to `largest`.
  std::optional<uint64_t> number(std::string_view key, uint64_t largest) const;
  // The numbers up to `largest` in an array; other elements of it are left out.
  std::vector<uint32_t> numbers(std::string_view key, uint32_t largest) const;
  // The elements of an array; none if it is not one.
  const std::vector<Json>& elements() const;

 private:
  friend class JsonReader;
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  struct Unusable {};  // null, or a number of another form

  std::variant<Unusable, bool, uint64_t, std::string, Array, Object> value_;
};

// An object that is written.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view text);
  JsonObject& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
  JsonObject& add(std::string_view key, bool value);
  JsonObject& add(std::string_view key, uint64_t number);
  // `seconds`, rounded up to milliseconds, must be finite and not negative.
  JsonObject& add_seconds(std::string_view key, double seconds);
  JsonObject& add(std::string_view key, const std::vector<std::string>& texts);
  JsonObject& add(std::string_view key, const JsonObject& object);

  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonObject& member(std::string_view key, const std::string& value);

  std::string members_;
};

}  // namespace switchml::client
