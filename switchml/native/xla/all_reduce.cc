#include "switchml/native/xla/all_reduce.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "switchml/native/membership/collective.h"
#include "switchml/native/membership/failure.h"

namespace switchml::xla {

namespace {

using client::CollectiveRequest;
using client::FailureError;
using client::FailureKind;
using client::Membership;

constexpr double kCallSeconds = 300;

// The memberships that compiled programs may name, by number. A program can outlive them.
struct Known {
  std::mutex mutex;
  std::vector<std::weak_ptr<Membership>> memberships;
};
Known& known() {
  static auto* const all = new Known;  // never destroyed: XLA's threads may still be running at exit
  return *all;
}

std::shared_ptr<Membership> membership_of(int64_t number) {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::shared_ptr<Membership> found;
  if (number >= 0 && static_cast<size_t>(number) < all.memberships.size()) {
    found = all.memberships[static_cast<size_t>(number)].lock();
  }
  if (!found) {
    throw FailureError(client::make_failure(
        FailureKind::closed,
        "the communicator that this program was compiled for does not exist any more. Nothing was sent; keep it, and "
        "compile the function again for another one."));
  }
  return found;
}

int64_t attribute(const Attributes& attributes, std::string_view name) {
  for (int64_t i = 0; i < attributes.count; ++i) {
    if (std::string_view(attributes.names[i]->begin, attributes.names[i]->size) != name) continue;
    const auto* scalar = static_cast<const Scalar*>(attributes.values[i]);
    if (attributes.types[i] != kScalar || scalar->type != DataType::int64) break;
    return *static_cast<const int64_t*>(scalar->value);
  }
  throw std::invalid_argument("the call has no attribute " + std::string(name) + " of 64 bits");
}

struct Type {
  const char* name;
  uint32_t bytes;
};

Type type_of(DataType type) {
  switch (type) {
    case DataType::boolean:
      return {"bool", 1};
    case DataType::int8:
      return {"int8", 1};
    case DataType::int16:
      return {"int16", 2};
    case DataType::int32:
      return {"int32", 4};
    case DataType::int64:
      return {"int64", 8};
    case DataType::uint8:
      return {"uint8", 1};
    case DataType::uint16:
      return {"uint16", 2};
    case DataType::uint32:
      return {"uint32", 4};
    case DataType::uint64:
      return {"uint64", 8};
    case DataType::float16:
      return {"float16", 2};
    case DataType::float32:
      return {"float32", 4};
    case DataType::float64:
      return {"float64", 8};
    case DataType::bfloat16:
      return {"bfloat16", 2};
    case DataType::token:
      break;
  }
  throw std::invalid_argument("arrays of XLA's type " + std::to_string(static_cast<int>(type)) + " have no sum");
}

uint64_t elements_of(const Buffer& buffer) {
  uint64_t elements = 1;
  for (int64_t i = 0; i < buffer.dimensions; ++i) elements *= static_cast<uint64_t>(buffer.lengths[i]);
  return elements;
}

// The calls of one all-reduce. Their memory is XLA's, so that none may be left when the handler returns.
class Calls {
 public:
  Calls(std::shared_ptr<Membership> membership, bool average, bool alone)
      : membership_(std::move(membership)), op_(average ? "avg" : "sum"), alone_(alone) {}

  void submit(const Buffer& input, const Buffer& output) {
    const Type type = type_of(input.type);
    CollectiveRequest request;
    request.operation = client::Operation::all_reduce;
    request.op = op_;
    request.dtype = type.name;
    request.element_bytes = type.bytes;
    request.elements = elements_of(input);
    works_.push_back(membership_->submit(membership_->describe(std::move(request)),
                                         static_cast<const uint8_t*>(input.data), static_cast<uint8_t*>(output.data),
                                         kCallSeconds, alone_));
  }

  // Waits for all calls; throws the first failure. NaN is a value like others, as in the rest of a compiled program.
  void wait() {
    std::exception_ptr first;
    for (const auto& work : works_) {
      try {
        work->wait();
      } catch (const FailureError& error) {
        if (error.failure().kind != FailureKind::non_finite && !first) first = std::current_exception();
      }
    }
    works_.clear();
    if (first) std::rethrow_exception(first);
  }

 private:
  const std::shared_ptr<Membership> membership_;
  const std::string op_;
  const bool alone_;
  std::vector<std::unique_ptr<Membership::Work>> works_;
};

void run(const CallFrame& frame) {
  const int64_t arrays = frame.arguments.count - 1;  // a token comes last
  if (arrays < 0 || frame.results.count != frame.arguments.count) {
    throw std::invalid_argument("the call does not have one result for each argument");
  }
  Calls calls(membership_of(attribute(frame.attributes, "membership")), attribute(frame.attributes, "average") != 0,
              arrays == 1);
  std::exception_ptr refused;
  try {
    for (int64_t i = 0; i < arrays; ++i) {
      calls.submit(*static_cast<const Buffer*>(frame.arguments.values[i]),
                   *static_cast<const Buffer*>(frame.results.values[i]));
    }
  } catch (...) {
    refused = std::current_exception();
  }
  calls.wait();
  if (refused) std::rethrow_exception(refused);
}

Error* error_of(const Api& api, ErrorCode code, const char* message) {
  ErrorArguments arguments{offsetof(ErrorArguments, code) + sizeof code, nullptr, message, code};
  return api.create_error(&arguments);
}

// Answers XLA's question about the handler, if that is what a frame is for.
bool describe_handler(const CallFrame& frame) {
  for (Extension* extension = frame.extensions; extension != nullptr; extension = extension->next) {
    if (extension->type != kMetadataExtension) continue;
    Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;
    // An older XLA refuses a newer version, although these structs are the same in it.
    metadata.version.major = kMajorVersion;
    metadata.version.minor =
        frame.api == nullptr ? kSilentMinorVersion : std::min(kMinorVersion, frame.api->version.minor);
    metadata.traits = 0;
    return true;
  }
  return false;
}

}  // namespace

int64_t number_of(const std::shared_ptr<Membership>& membership) {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = std::find_if(all.memberships.begin(), all.memberships.end(),
                                  [&](const std::weak_ptr<Membership>& each) { return each.lock() == membership; });
  const auto number = found - all.memberships.begin();
  if (found == all.memberships.end()) all.memberships.emplace_back(membership);
  return number;
}

Error* all_reduce(CallFrame* frame) noexcept {
  if (describe_handler(*frame) || frame->stage != kExecute) return nullptr;
  try {
    run(*frame);
    return nullptr;
  } catch (const FailureError& error) {
    return error_of(*frame->api, ErrorCode::aborted, error.what());
  } catch (const std::invalid_argument& error) {
    return error_of(*frame->api, ErrorCode::invalid_argument, error.what());
  } catch (const std::exception& error) {
    return error_of(*frame->api, ErrorCode::internal, error.what());
  }
}

}  // namespace switchml::xla
