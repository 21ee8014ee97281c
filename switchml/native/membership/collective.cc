#include "switchml/native/membership/collective.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "native/kernels/crc32.h"
#include "switchml/native/membership/failure.h"
#include "switchml/native/membership/words.h"

namespace switchml::client {

namespace {

constexpr size_t kLongestName = 64;  // characters of a dtype's name that an agent accepts
constexpr size_t kLongestOp = 80;    // likewise, of an operation with all of its options

struct Reduction {
  std::string_view dtype;
  std::string_view op;
  CallKind kind;
};
constexpr std::array<Reduction, 17> kReductions{{
    {"float32", "sum", CallKind::float32_sum},
    {"float32", "avg", CallKind::float32_average},
    {"float16", "sum", CallKind::float16_sum},
    {"float16", "avg", CallKind::float16_average},
    {"bfloat16", "sum", CallKind::bfloat16_sum},
    {"bfloat16", "avg", CallKind::bfloat16_average},
    {"float64", "sum", CallKind::float64_sum},
    {"float64", "avg", CallKind::float64_average},
    {"int64", "sum", CallKind::int64_sum},
    {"int32", "sum", CallKind::int32_sum},
    {"int16", "sum", CallKind::int16_sum},
    {"int8", "sum", CallKind::int8_sum},
    {"uint8", "sum", CallKind::uint8_sum},
    {"uint16", "sum", CallKind::int16_sum},  // modulo 2^16, as the next two modulo their ranges
    {"uint32", "sum", CallKind::int32_sum},
    {"uint64", "sum", CallKind::int64_sum},
    {"bool", "sum", CallKind::bool_sum},
}};

uint32_t crc_of(std::string_view text) {
  return kernels::crc32(0, reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// Returns a text that the agent accepts: a long one is cut, and a digest at its end keeps it unique.
std::string shortened(const std::string& text, size_t longest) {
  if (text.size() <= longest) return text;
  std::array<char, 12> digest{};
  std::snprintf(digest.data(), digest.size(), "...%08x", static_cast<unsigned>(crc_of(text)));
  return text.substr(0, longest - digest.size() + 1) + digest.data();
}

const char* name_of(Operation operation) {
  constexpr std::array<const char*, 5> kNames{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
  return kNames[static_cast<size_t>(operation)];
}

CallKind kind_of(const CollectiveRequest& request) {
  if (request.op != "sum" && request.op != "avg") {
    throw std::invalid_argument("op is " + quoted_name(request.op) +
                                "; it must be \"sum\" or \"avg\". The array is unchanged");
  }
  const auto* const found = std::find_if(kReductions.begin(), kReductions.end(), [&](const Reduction& each) {
    return each.dtype == request.dtype && each.op == request.op;
  });
  if (found != kReductions.end()) return found->kind;
  const char* const allowed = request.op == "avg" ? "float64, float32, float16 or bfloat16"
                                                  : "float64, float32, float16, bfloat16, integers or bool";
  throw FailureError(make_failure(FailureKind::unsupported_tensor, std::string(name_of(request.operation)) +
                                                                       " with op=\"" + request.op + "\" takes " +
                                                                       allowed + ", not " + request.dtype +
                                                                       ". The array is unchanged; convert it first."));
}

const char* in_words(Form form) {
  constexpr std::array<const char*, 3> kWords{"", " skip_zeros", " skip_zeros=auto"};
  return kWords[static_cast<size_t>(form)];
}

Division division_of(Operation operation) {
  if (operation == Operation::reduce_scatter) return Division::scatter;
  return operation == Operation::all_gather ? Division::gather : Division::whole;
}

MemoryRange range(const uint8_t* memory, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {begin, begin + bytes};
}

}  // namespace

Collective::Collective(CollectiveRequest request, uint32_t world_size, uint32_t formats)
    : request_(std::move(request)), world_size_(world_size), formats_(formats) {
  if (request_.element_bytes > 0 &&
      request_.elements > std::numeric_limits<int64_t>::max() / uint64_t{request_.element_bytes}) {
    throw std::invalid_argument("no array has " + std::to_string(request_.elements) + " elements");
  }
  if (is_sum()) {
    kind_ = kind_of(request_);
    if (!request_.wire) {
      request_.wire = WireChoice::usual(request_.dtype);
    }
    request_.wire->require(request_.dtype, world_size);
    const std::string problem = request_.wire->problem(formats);
    if (!problem.empty()) {
      throw std::invalid_argument(problem + ". The array is unchanged; use another wire, or none");
    }
    wire_text_ = request_.wire->text();
    if (request_.form != Form::dense && !request_.wire->skips_zeros()) {
      throw std::invalid_argument("a call over " + wire_text_ +
                                  " has no skip_zeros. The array is unchanged; leave one of both out");
    }
  } else if (request_.operation != Operation::barrier) {
    kind_ = CallKind::bytes;
  }
  if (request_.operation == Operation::broadcast && request_.root >= world_size) {
    throw std::invalid_argument("root is " + std::to_string(request_.root) + "; the ranks are 0 to " +
                                std::to_string(world_size - 1) + ". The array is unchanged");
  }
  const std::string text = std::string(operation()) + "|" + request_.op + " " + wire_text_ +
                           client::in_words(request_.form) + "|" + request_.dtype + "|" +
                           std::to_string(request_.elements) + "|" + std::to_string(request_.root);
  fingerprint_ = crc_of(text);
}

CollectivePointer Collective::in(uint32_t world_size, uint32_t formats) const {
  if (world_size == world_size_ && formats == formats_) return nullptr;
  return std::make_shared<const Collective>(request_, world_size, formats);
}

bool Collective::is_sum() const {
  return request_.operation == Operation::all_reduce || request_.operation == Operation::reduce_scatter;
}

CallDescription Collective::at(uint32_t rank, const uint8_t* input, uint8_t* output) const {
  CallDescription description;
  description.kind = kind_;
  description.arrays = {input, output, kind_ == CallKind::bytes ? bytes() : request_.elements,
                        division_of(request_.operation)};
  if (request_.wire) description.lanes = request_.wire->lanes();
  description.form = request_.form;
  description.contributes = request_.operation != Operation::broadcast || request_.root == rank;
  description.call_hash = fingerprint_;
  return description;
}

void Collective::require_values(const uint8_t* input) const {
  const auto bound = request_.wire ? request_.wire->bound() : std::nullopt;
  if (!bound) return;
  require_memory(input, request_.elements, kind_);
  if (!all_within(kind_, input, request_.elements, *bound)) {
    throw std::invalid_argument("the array holds a value beyond the bound " + std::to_string(*bound) +
                                ". It is unchanged");
  }
}

MemoryRange Collective::written(const uint8_t* output) const {
  return range(output, request_.operation == Operation::reduce_scatter ? bytes() / world_size_ : bytes());
}

MemoryRange Collective::read(const uint8_t* input, const uint8_t* output) const {
  if (input == output && request_.operation != Operation::reduce_scatter) return {};
  return range(input, request_.operation == Operation::all_gather ? bytes() / world_size_ : bytes());
}

const char* Collective::operation() const { return name_of(request_.operation); }

std::string Collective::how() const {
  return (wire_text_.empty() ? "" : " as " + wire_text_) + client::in_words(request_.form);
}

std::string Collective::in_words(uint64_t sequence) const {
  std::string text = std::string(operation()) + " number " + std::to_string(sequence);
  if (request_.operation == Operation::barrier) return text;
  const std::string array = std::to_string(request_.elements) + " " + request_.dtype;
  if (is_sum()) return text + " (" + request_.op + " of " + array + how() + ")";
  const bool from_root = request_.operation == Operation::broadcast;
  return text + " (" + array + (from_root ? " from rank " + std::to_string(request_.root) : "") + ")";
}

JsonObject Collective::to_message(uint64_t sequence) const {
  return JsonObject()
      .add("sequence", sequence)
      .add("operation", operation())
      .add("op", shortened(request_.op + how(), kLongestOp))
      .add("dtype", shortened(request_.dtype, kLongestName))
      .add("elements", request_.elements)
      .add("root", uint64_t{request_.root});
}

}  // namespace switchml::client
