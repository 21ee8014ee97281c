// The wires: forms in which the values of a sum travel in packets, each with only the choices that it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "switchml/native/codecs/lanes.h"

namespace switchml::client {

// One form, with its choices. docs/guides/compression.md says how exact the sums of each are. The text of a wire, such
// as "blocks:bits=8,rounding=stochastic", names those of its choices that are not the usual ones; programs in every
// language write it so.
class WireChoice {
 public:
  enum class Kind : uint8_t {
    blocks,    // floating-point numbers with a common exponent in each packet
    integers,  // exact
    codes,     // floating-point numbers as codes of one byte, which the switches expand before they add them up
    floats,    // floating-point numbers, which the switches add up as such
  };

  // Throws std::invalid_argument; the message says what the text of a wire is.
  static WireChoice parse(std::string_view text);
  // The wire of a sum that asks for none.
  static WireChoice usual(std::string_view dtype);

  std::string text() const;
  Kind kind() const { return kind_; }
  const char* name() const;  // of the kind
  uint32_t bits() const { return bits_; }
  bool stochastic() const { return stochastic_; }
  uint64_t seed() const { return seed_; }
  // The largest magnitude of an integer on any rank.
  std::optional<int32_t> bound() const { return bound_; }
  wire::Format format() const { return format_; }

  // Whether ranks may leave out blocks of zeros.
  bool skips_zeros() const { return kind_ == Kind::blocks || kind_ == Kind::integers; }
  Lanes lanes() const { return {bits_, stochastic_, seed_, 0, format_}; }

  // Throws std::invalid_argument if arrays of a dtype cannot be summed so, or the sums of `world_size` ranks do not
  // fit.
  void require(std::string_view dtype, uint32_t world_size) const;
  // Returns why the switches of a job cannot sum what comes so, or nothing if they can; bit f of `formats` tells
  // whether they take values in format f.
  std::string problem(uint32_t formats) const;

 private:
  explicit WireChoice(Kind kind) : kind_(kind) {}

  void set(std::string_view name, std::string_view value, std::string_view argument);
  void require_consistent(bool named) const;
  void require_floats(std::string_view dtype) const;
  void require_integers(std::string_view dtype, uint32_t world_size) const;
  void require_room(std::string_view dtype, uint32_t world_size, uint64_t largest, const char* remedy) const;

  Kind kind_;
  uint32_t bits_ = 32;
  bool stochastic_ = false;
  uint64_t seed_ = 0;
  std::optional<int32_t> bound_;
  wire::Format format_ = wire::Format::int32;
};

}  // namespace switchml::client
