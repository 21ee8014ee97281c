// Dicts that functions return to Python, each with its keys described once. The description makes the dict, and through
// the module's `_records` the TypedDict of the generated stub (tools/generate).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace switchml::bindings {

// The type of a value as Python's annotations have it.
template <class Value>
struct PythonType {
  static_assert(std::is_arithmetic_v<Value>, "a field of another type names its own");
  static std::string name() {
    return std::is_same_v<Value, bool> ? "bool" : std::is_floating_point_v<Value> ? "float" : "int";
  }
};
template <class Value>
struct PythonType<std::vector<Value>> {
  static std::string name() { return "list[" + PythonType<Value>::name() + "]"; }
};
template <class Value, size_t Size>
struct PythonType<std::array<Value, Size>> {
  static std::string name() { return PythonType<std::vector<Value>>::name(); }
};

// A key of a dict. `get` is a member of the struct that the dict is made of, or a function of it.
template <class Get>
struct Field {
  const char* name;
  Get get;
  const char* doc;   // what the name does not say; may be empty
  const char* type;  // null: that of what `get` returns
};

template <class Get>
constexpr Field<Get> field(const char* name, Get get, const char* doc = "", const char* type = nullptr) {
  return {name, get, doc, type};
}

// The keys of a group of counters (native/counters/counters.h) that the struct derives from.
template <class Group>
constexpr auto counters() {
  return Group::fields([](const char* name, auto member, const char* help) { return field(name, member, help); });
}

// A dict that is made of a `Struct`.
template <class Struct, class Fields>
class Record {
 public:
  constexpr Record(const char* name, const char* doc, Fields fields) : name_(name), doc_(doc), fields_(fields) {}

  nanobind::dict dict_of(const Struct& made) const {
    nanobind::dict result;
    std::apply([&](const auto&... field) { (set(&result, field, made), ...); }, fields_);
    return result;
  }

  // Adds the record to those that the module's stub describes.
  void describe(nanobind::module_& module) const {
    nanobind::list keys;
    std::apply([&](const auto&... field) { (keys.append(description_of(field)), ...); }, fields_);
    if (!nanobind::hasattr(module, "_records")) {
      module.attr("_records") = nanobind::list();
    }
    nanobind::cast<nanobind::list>(module.attr("_records")).append(nanobind::make_tuple(name_, doc_, keys));
  }

 private:
  template <class Get>
  static void set(nanobind::dict* result, const Field<Get>& field, const Struct& made) {
    (*result)[field.name] = nanobind::cast(std::invoke(field.get, made));
  }
  template <class Get>
  static nanobind::object description_of(const Field<Get>& field) {
    std::string type;
    if (field.type != nullptr) {
      type = field.type;
    } else if constexpr (!std::is_base_of_v<nanobind::handle, Value<Get>>) {
      type = PythonType<Value<Get>>::name();
    }
    return nanobind::make_tuple(field.name, nanobind::str(type.c_str()), field.doc);
  }
  template <class Get>
  using Value = std::decay_t<std::invoke_result_t<Get, const Struct&>>;

  const char* name_;
  const char* doc_;
  Fields fields_;  // a tuple
};

template <class Get>
constexpr std::tuple<Field<Get>> keys_of(Field<Get> field) {
  return {field};
}
template <class... Gets>
constexpr std::tuple<Field<Gets>...> keys_of(std::tuple<Field<Gets>...> group) {
  return group;
}

// Each of `parts` is a field() or counters().
template <class Struct, class... Parts>
constexpr auto record(const char* name, const char* doc, Parts... parts) {
  auto fields = std::tuple_cat(keys_of(parts)...);
  return Record<Struct, decltype(fields)>(name, doc, fields);
}

}  // namespace switchml::bindings
