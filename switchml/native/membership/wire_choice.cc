#include "switchml/native/membership/wire_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "switchml/native/membership/words.h"

namespace switchml::client {

namespace {

using Kind = WireChoice::Kind;
using wire::Format;

constexpr uint32_t kWordBits = 32;
constexpr uint32_t kMostRanksOfDynamic8 = 64;  // whose sums fit a word
constexpr const char* kUnchanged = "The array is unchanged.";

struct KindNames {
  const char* name;
  const char* choices;  // in words
};
constexpr std::array<KindNames, 4> kKinds{{
    {"blocks", "takes bits=, rounding=, seed="},
    {"integers", "takes bits=, bound="},
    {"codes", "takes name=, seed="},
    {"floats", "takes no arguments"},
}};

const char* name_of(Kind kind) { return kKinds[static_cast<size_t>(kind)].name; }

const char* name_of(Format codes) { return codes == Format::natural8 ? "natural8" : "dynamic8"; }

bool is_floating_point(std::string_view dtype) {
  return dtype == "float32" || dtype == "float16" || dtype == "bfloat16" || dtype == "float64";
}

// Returns the largest magnitude of an integer dtype; 0 for any other dtype.
uint64_t largest_magnitude(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, uint64_t>, 5> kLargest{{
      {"bool", 1},
      {"int8", uint64_t{1} << 7},
      {"uint8", (1 << 8) - 1},
      {"int16", uint64_t{1} << 15},
      {"int32", uint64_t{1} << 31},
  }};
  const auto* const found =
      std::find_if(kLargest.begin(), kLargest.end(), [dtype](const auto& entry) { return entry.first == dtype; });
  return found == kLargest.end() ? 0 : found->second;
}

// Returns the largest sum that a lane holds.
uint64_t levels(uint32_t bits) { return (uint64_t{1} << (bits - 1)) - 1; }

template <typename Number>
Number number_in(std::string_view name, std::string_view value, Number least, Number largest, const char* range) {
  Number number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least || number > largest) {
    throw std::invalid_argument(std::string(name) + " is " + std::string(value) + "; it must be " + range);
  }
  return number;
}

}  // namespace

WireChoice WireChoice::usual(std::string_view dtype) {
  return WireChoice(is_floating_point(dtype) ? Kind::blocks : Kind::integers);
}

WireChoice WireChoice::parse(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto* const kind =
      std::find_if(kKinds.begin(), kKinds.end(), [name](const KindNames& each) { return name == each.name; });
  if (kind == kKinds.end()) {
    throw std::invalid_argument(quoted_name(text) +
                                " is not a wire: it must begin with blocks, integers, codes, floats");
  }
  WireChoice choice(static_cast<Kind>(kind - kKinds.begin()));
  if (choice.kind_ == Kind::floats) choice.format_ = Format::float32;
  try {
    bool named = false;
    std::string_view rest = text.substr(std::min(text.size(), name.size() + 1));
    while (!rest.empty()) {
      const std::string_view argument = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), argument.size() + 1));
      if (argument.empty()) continue;
      const size_t equals = argument.find('=');
      const std::string_view what = argument.substr(0, equals);
      choice.set(what, equals == std::string_view::npos ? "" : argument.substr(equals + 1), argument);
      named = named || what == "name";
    }
    choice.require_consistent(named);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(quoted_name(text) + " is not a wire: " + error.what());
  }
  return choice;
}

void WireChoice::set(std::string_view name, std::string_view value, std::string_view argument) {
  const bool given = argument.size() > name.size();
  const bool has_bits = kind_ == Kind::blocks || kind_ == Kind::integers;
  if (given && name == "bits" && has_bits) {
    bits_ = number_in<uint32_t>(name, value, 8, kWordBits, "8, 16 or 32");
    if (bits_ != 8 && bits_ != 16 && bits_ != kWordBits) {
      throw std::invalid_argument("bits is " + std::string(value) + "; it must be 8, 16 or 32");
    }
  } else if (given && name == "rounding" && kind_ == Kind::blocks) {
    if (value != "nearest" && value != "stochastic") {
      throw std::invalid_argument("rounding is " + quoted_name(value) + "; it must be \"nearest\" or \"stochastic\"");
    }
    stochastic_ = value == "stochastic";
  } else if (given && name == "seed" && (kind_ == Kind::blocks || kind_ == Kind::codes)) {
    seed_ = number_in<uint64_t>(name, value, 0, std::numeric_limits<uint64_t>::max(), "from 0 to 2^64 - 1");
  } else if (given && name == "bound" && kind_ == Kind::integers) {
    bound_ = number_in<int32_t>(name, value, 1, std::numeric_limits<int32_t>::max(), "from 1 to 2^31 - 1");
  } else if (given && name == "name" && kind_ == Kind::codes) {
    if (value != "natural8" && value != "dynamic8") {
      throw std::invalid_argument("codes are " + quoted_name(value) + "; they must be 'natural8' or 'dynamic8'");
    }
    format_ = value == "natural8" ? Format::natural8 : Format::dynamic8;
  } else {
    throw std::invalid_argument(std::string(name_of(kind_)) + " " + kKinds[static_cast<size_t>(kind_)].choices +
                                ", not " + quoted_name(argument));
  }
}

void WireChoice::require_consistent(bool named) const {
  if (kind_ == Kind::codes && !named) {
    throw std::invalid_argument("codes need a name: name=natural8 or name=dynamic8");
  }
  if (stochastic_ && bits_ == kWordBits) {
    throw std::invalid_argument("rounding=\"stochastic\" is for bits of 16 or 8");
  }
  if (kind_ == Kind::blocks && !stochastic_ && seed_ != 0) {
    throw std::invalid_argument("seed=" + std::to_string(seed_) + " is for rounding=\"stochastic\"");
  }
}

const char* WireChoice::name() const { return name_of(kind_); }

std::string WireChoice::text() const {
  std::string text = name_of(kind_);
  char separator = ':';
  const auto add = [&](const char* name, const std::string& value) {
    text += separator + std::string(name) + "=" + value;
    separator = ',';
  };
  if (kind_ == Kind::codes) add("name", name_of(format_));
  if (bits_ != kWordBits) add("bits", std::to_string(bits_));
  if (stochastic_) add("rounding", "stochastic");
  if (seed_ != 0) add("seed", std::to_string(seed_));
  if (bound_) add("bound", std::to_string(*bound_));
  return text;
}

void WireChoice::require(std::string_view dtype, uint32_t world_size) const {
  if (kind_ == Kind::integers) return require_integers(dtype, world_size);
  require_floats(dtype);
  if (kind_ == Kind::blocks && bits_ != kWordBits) {
    require_room(dtype, world_size, 1, "Use more bits.");
  }
  if (format_ == Format::dynamic8 && world_size > kMostRanksOfDynamic8) {
    throw std::invalid_argument("the sums of dynamic8 codes fit words for at most " +
                                std::to_string(kMostRanksOfDynamic8) + " ranks, and this job has " +
                                std::to_string(world_size) + ". " + kUnchanged +
                                " Use natural8, or blocks of fewer bits.");
  }
}

void WireChoice::require_floats(std::string_view dtype) const {
  const bool usual_one = kind_ == Kind::blocks && bits_ == kWordBits;
  if (dtype == "float64" && !usual_one) {
    throw std::invalid_argument("float64 takes three words; wire " + text() + " is for float32, float16, bfloat16. " +
                                kUnchanged);
  }
  if (!is_floating_point(dtype)) {
    throw std::invalid_argument("wire " + text() + " is for float32, float16, bfloat16, not for " + std::string(dtype) +
                                ". " + kUnchanged + " Leave it out: integers are exact as they are.");
  }
}

void WireChoice::require_integers(std::string_view dtype, uint32_t world_size) const {
  if (bits_ == kWordBits && !bound_ && !is_floating_point(dtype)) return;
  if (dtype == "int64" || dtype == "uint64") {
    throw std::invalid_argument(std::string(dtype) +
                                " takes as many words as the values of its packet need; bits and bound are for other "
                                "dtypes. " +
                                kUnchanged);
  }
  const uint64_t largest = largest_magnitude(dtype);
  if (largest == 0) {
    throw std::invalid_argument("wire " + text() + " is for integers, not for " + std::string(dtype) + ". " +
                                kUnchanged);
  }
  require_room(dtype, world_size, bound_ ? std::min<uint64_t>(largest, static_cast<uint64_t>(*bound_)) : largest,
               "Use more bits, or values with a smaller bound.");
}

void WireChoice::require_room(std::string_view dtype, uint32_t world_size, uint64_t largest, const char* remedy) const {
  const uint64_t most = levels(bits_) / largest;  // ranks
  if (world_size <= most) return;
  const std::string values = std::string(dtype) + (largest == 1 ? "" : " up to " + std::to_string(largest));
  throw std::invalid_argument("lanes of " + std::to_string(bits_) + " bits hold the sums of at most " +
                              std::to_string(most) + " ranks with values of " + values + ", and this job has " +
                              std::to_string(world_size) + ". " + kUnchanged + " " + remedy);
}

std::string WireChoice::problem(uint32_t formats) const {
  if (format_ == Format::int32 || (formats >> static_cast<uint32_t>(format_) & 1) != 0) return "";
  if (kind_ == Kind::floats) {
    return "the switches of this job do not add floats: a soft switch does, and BMv2 with the pipeline "
           "switchml_floats, "
           "but not Tofino";
  }
  return std::string("the switches of this job cannot sum ") + name_of(format_) +
         " codes: a switch must expand them in front of every lane, which Tofino has no stages for, and BMv2 only room "
         "for in packets of 64 values";
}

}  // namespace switchml::client
