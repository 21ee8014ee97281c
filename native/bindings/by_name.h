// Structs that Python makes with one keyword for each member, so that no two of their values can change places.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "native/bindings/numbers.h"

namespace switchml::bindings {

// A keyword of a struct's constructor. `member` is a member of the struct, or a function that returns a reference to
// one.
template <class Member>
struct Keyword {
  const char* name;
  Member member;
  const char* fallback;          // the default as the signature shows it; null if the keyword must be given
  uint64_t most;                 // of an integer; 0: what its type allows
  PyObject* interned = nullptr;  // the name, for a fast search
};

template <class Member>
constexpr Keyword<Member> required(const char* name, Member member, uint64_t most = 0) {
  return {name, member, nullptr, most, nullptr};
}
template <class Member>
constexpr Keyword<Member> optional(const char* name, Member member, const char* fallback) {
  return {name, member, fallback, 0, nullptr};
}

// How a member is made of a Python value; other types of members specialise it.
template <class Value>
struct Converter {
  static const char* type() { return std::is_same_v<Value, bool> ? "bool" : "int"; }
  static Value convert(const char* name, nanobind::handle given, uint64_t most) {
    if constexpr (std::is_same_v<Value, bool>) {
      return nanobind::cast<bool>(given);
    } else {
      static_assert(std::is_integral_v<Value>, "a member of another type needs a Converter");
      if (PyLong_Check(given.ptr()) == 0) {
        throw nanobind::type_error((std::string(name) + " is not an int: " + nanobind::repr(given).c_str()).c_str());
      }
      const auto integer = nanobind::borrow<nanobind::int_>(given);
      return number<Value>(integer, name, most == 0 ? std::numeric_limits<Value>::max() : most);
    }
  }
};
template <>
struct Converter<std::string> {
  static const char* type() { return "str"; }
  static std::string convert(const char*, nanobind::handle given, uint64_t) {
    return nanobind::cast<std::string>(given);
  }
};

template <class Struct, class Member>
void set_member(Struct* made, const Keyword<Member>& keyword, const nanobind::kwargs& given, size_t* known) {
  PyObject* value = PyDict_GetItemWithError(given.ptr(), keyword.interned);  // borrowed
  if (value != nullptr) {
    auto& member = std::invoke(keyword.member, *made);
    using Value = std::decay_t<decltype(member)>;
    try {
      member = Converter<Value>::convert(keyword.name, value, keyword.most);
    } catch (const std::bad_cast&) {
      const std::string refused = nanobind::repr(nanobind::handle(value)).c_str();
      throw nanobind::type_error(
          (std::string(keyword.name) + " is not of type " + Converter<Value>::type() + ": " + refused).c_str());
    }
    ++*known;
  } else if (keyword.fallback == nullptr) {
    throw nanobind::type_error((std::string(keyword.name) + " is missing").c_str());
  }
}

template <class... Members>
void refuse_unknown(const nanobind::kwargs& given, const Keyword<Members>&... keywords) {
  for (const auto& item : given) {
    const std::string name = nanobind::str(item.first).c_str();
    if (((name != keywords.name) && ...)) {
      throw nanobind::type_error(("there is no keyword " + name).c_str());
    }
  }
}

template <class Struct, class Member>
std::string signature_of(const Keyword<Member>& keyword) {
  using Value = std::decay_t<std::invoke_result_t<Member, Struct&>>;
  const std::string start = std::string(", ") + keyword.name + ": " + Converter<Value>::type();
  return keyword.fallback == nullptr ? start : start + " = " + keyword.fallback;
}

// Defines `Struct` as a class of `module` whose constructor takes `keywords`, and returns the class.
template <class Struct, class... Members>
nanobind::class_<Struct> define_by_name(nanobind::module_& module, const char* name, const char* doc,
                                        Keyword<Members>... keywords) {
  ((keywords.interned = PyUnicode_InternFromString(keywords.name)), ...);  // lives as long as the module
  const std::string signature = "def __init__(self, *" + (signature_of<Struct>(keywords) + ...) + ") -> None";
  const auto make = [keywords...](Struct* place, const nanobind::kwargs& given) {
    Struct made{};
    size_t known = 0;
    (set_member(&made, keywords, given, &known), ...);
    if (known != given.size()) {
      refuse_unknown(given, keywords...);
    }
    new (place) Struct(std::move(made));
  };
  return nanobind::class_<Struct>(module, name, doc).def("__init__", make, nanobind::sig(signature.c_str()));
}

}  // namespace switchml::bindings
