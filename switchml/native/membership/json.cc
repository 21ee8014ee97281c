#include "switchml/native/membership/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

namespace switchml::client {

namespace {

constexpr int kDeepest = 16;
constexpr uint32_t kHighSurrogates = 0xd800;
constexpr uint32_t kLowSurrogates = 0xdc00;
constexpr uint32_t kAfterSurrogates = 0xe000;
constexpr uint32_t kBeyondPlane0 = 0x10000;
constexpr uint32_t kReplacement = 0xfffd;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Appends a character in UTF-8 (RFC 3629).
void append(std::string* text, uint32_t character) {
  const auto put = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xc0 | character >> 6);
    put(0x80 | (character & 0x3f));
  } else if (character < kBeyondPlane0) {
    put(0xe0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  } else {
    put(0xf0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3f));
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  }
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < ' ') {
      std::array<char, 7> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      result += escape.data();
    } else {
      result.push_back(c);
    }
  }
  return result + "\"";
}

}  // namespace

// Reads one value after the other; every function returns false for what is not JSON.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : rest_(text) {}

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

  bool read(Json* json, int depth) {
    skip_spaces();
    if (rest_.empty() || depth > kDeepest) return false;
    const char first = rest_.front();
    if (first == '{') return read_object(json, depth);
    if (first == '[') return read_array(json, depth);
    if (first == '"') {
      std::string text;
      if (!read_text(&text)) return false;
      json->value_ = std::move(text);
      return true;
    }
    if (take("true")) {
      json->value_ = true;
      return true;
    }
    if (take("false")) {
      json->value_ = false;
      return true;
    }
    return take("null") || read_number(json);
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }

  bool take(std::string_view expected) {
    if (rest_.substr(0, expected.size()) != expected) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  bool take_after_spaces(std::string_view expected) {
    skip_spaces();
    return take(expected);
  }

  bool read_object(Json* json, int depth) {
    Json::Object members;
    take("{");
    if (!take_after_spaces("}")) {
      do {
        skip_spaces();
        std::string key;
        Json value;
        if (!read_text(&key) || !take_after_spaces(":") || !read(&value, depth + 1)) return false;
        members.emplace_back(std::move(key), std::move(value));
      } while (take_after_spaces(","));
      if (!take_after_spaces("}")) return false;
    }
    json->value_ = std::move(members);
    return true;
  }

  bool read_array(Json* json, int depth) {
    Json::Array elements;
    take("[");
    if (!take_after_spaces("]")) {
      do {
        elements.emplace_back();
        if (!read(&elements.back(), depth + 1)) return false;
      } while (take_after_spaces(","));
      if (!take_after_spaces("]")) return false;
    }
    json->value_ = std::move(elements);
    return true;
  }

  bool read_text(std::string* text) {
    if (!take("\"")) return false;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < ' ') return false;
      if (c != '\\') {
        text->push_back(c);
      } else if (!read_escape(text)) {
        return false;
      }
    }
    return false;
  }

  bool read_escape(std::string* text) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
    if (rest_.empty()) return false;
    const char name = rest_.front();
    rest_.remove_prefix(1);
    if (name != 'u') {
      const size_t at = kNames.find(name);
      if (at == std::string_view::npos) return false;
      text->push_back(kCharacters[at]);
      return true;
    }
    uint32_t character = 0;
    if (!read_hexadecimal(&character)) return false;
    if (character >= kHighSurrogates && character < kAfterSurrogates) {
      character = second_surrogate(character);
    }
    append(text, character);
    return true;
  }

  // Returns the character of two surrogates, or the replacement character if there is no second one.
  uint32_t second_surrogate(uint32_t first) {
    const std::string_view before = rest_;
    uint32_t second = 0;
    if (first < kLowSurrogates && take("\\u") && read_hexadecimal(&second) && second >= kLowSurrogates &&
        second < kAfterSurrogates) {
      return kBeyondPlane0 + ((first - kHighSurrogates) << 10) + (second - kLowSurrogates);
    }
    rest_ = before;
    return kReplacement;
  }

  bool read_hexadecimal(uint32_t* number) {
    constexpr size_t kDigits = 4;
    if (rest_.size() < kDigits) return false;
    const std::string_view digits = rest_.substr(0, kDigits);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *number, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) return false;
    rest_.remove_prefix(kDigits);
    return true;
  }

  void take_digits() {
    while (!rest_.empty() && is_digit(rest_.front())) rest_.remove_prefix(1);
  }

  bool read_number(Json* json) {
    const std::string_view begin = rest_;
    const bool negative = take("-");
    if (rest_.empty() || !is_digit(rest_.front())) return false;
    const bool zero = rest_.front() == '0';
    take_digits();
    const std::string_view whole = begin.substr(0, begin.size() - rest_.size());
    if (zero && whole.size() > (negative ? 2 : 1)) return false;
    bool fraction = false;
    if (take(".")) {
      fraction = true;
      if (rest_.empty() || !is_digit(rest_.front())) return false;
      take_digits();
    }
    if (take("e") || take("E")) {
      fraction = true;
      if (!take("+")) take("-");
      if (rest_.empty() || !is_digit(rest_.front())) return false;
      take_digits();
    }
    uint64_t number = 0;
    if (!negative && !fraction &&
        std::from_chars(whole.data(), whole.data() + whole.size(), number).ec == std::errc()) {
      json->value_ = number;
    }
    return true;
  }

  std::string_view rest_;
};

std::optional<Json> Json::parse(std::string_view text) {
  Json json;
  JsonReader reader(text);
  if (!reader.read(&json, 1) || !reader.at_end()) return std::nullopt;
  return json;
}

const Json* Json::member(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  for (const auto& [name, value] : *members) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::optional<std::string> Json::text(std::string_view key) const {
  const Json* found = member(key);
  const auto* text = found == nullptr ? nullptr : std::get_if<std::string>(&found->value_);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

std::optional<uint64_t> Json::number(std::string_view key, uint64_t largest) const {
  const Json* found = member(key);
  const auto* number = found == nullptr ? nullptr : std::get_if<uint64_t>(&found->value_);
  return number == nullptr || *number > largest ? std::nullopt : std::optional(*number);
}

std::vector<uint32_t> Json::numbers(std::string_view key, uint32_t largest) const {
  std::vector<uint32_t> found;
  const Json* array = member(key);
  if (array == nullptr) return found;
  for (const Json& element : array->elements()) {
    const auto* number = std::get_if<uint64_t>(&element.value_);
    if (number != nullptr && *number <= largest) found.push_back(static_cast<uint32_t>(*number));
  }
  return found;
}

const std::vector<Json>& Json::elements() const {
  static const Array none;
  const auto* array = std::get_if<Array>(&value_);
  return array == nullptr ? none : *array;
}

JsonObject& JsonObject::member(std::string_view key, const std::string& value) {
  members_ += (members_.empty() ? "" : ", ") + quoted(key) + ": " + value;
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view text) { return member(key, quoted(text)); }

JsonObject& JsonObject::add(std::string_view key, bool value) { return member(key, value ? "true" : "false"); }

JsonObject& JsonObject::add(std::string_view key, uint64_t number) { return member(key, std::to_string(number)); }

JsonObject& JsonObject::add_seconds(std::string_view key, double seconds) {
  // Not by a function that writes the decimal point of the program's locale.
  constexpr double kMillisecondsPerSecond = 1e3;
  constexpr uint64_t kThousand = 1000;
  const auto milliseconds = static_cast<uint64_t>(std::ceil(seconds * kMillisecondsPerSecond));
  const std::string fraction = std::to_string(kThousand + milliseconds % kThousand).substr(1);
  return member(key, std::to_string(milliseconds / kThousand) + "." + fraction);
}

JsonObject& JsonObject::add(std::string_view key, const std::vector<std::string>& texts) {
  std::string array;
  for (const std::string& text : texts) {
    array += (array.empty() ? "" : ", ") + quoted(text);
  }
  return member(key, "[" + array + "]");
}

JsonObject& JsonObject::add(std::string_view key, const JsonObject& object) { return member(key, object.text()); }

}  // namespace switchml::client
