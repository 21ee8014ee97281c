#include "switchml/native/membership/collective.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "switchml/native/membership/failure.h"

namespace switchml::client {
namespace {

constexpr uint32_t kEveryFormat = 0xffffffff;

CollectiveRequest sum_of(const char* dtype, const char* wire = nullptr, const char* op = "sum") {
  CollectiveRequest request{Operation::all_reduce, op, dtype, 4, 100, 0, std::nullopt, Form::dense};
  if (wire != nullptr) request.wire = WireChoice::parse(wire);
  return request;
}

uint32_t hash_of(const CollectiveRequest& request) {
  return Collective(request, 4, kEveryFormat).at(0, nullptr, nullptr).call_hash;
}

TEST(Collective, FingerprintsTellCallsApart) {
  std::vector<CollectiveRequest> requests{sum_of("float32"),
                                          sum_of("float32", nullptr, "avg"),
                                          sum_of("bfloat16"),
                                          sum_of("float32", "blocks:bits=16"),
                                          sum_of("float32", "blocks:bits=8"),
                                          sum_of("float32", "blocks:bits=8,rounding=stochastic"),
                                          sum_of("float32", "blocks:bits=8,rounding=stochastic,seed=1"),
                                          sum_of("float32", "codes:name=natural8"),
                                          sum_of("float32", "floats"),
                                          sum_of("int32"),
                                          sum_of("int32", "integers:bound=3")};
  for (const Form form : {Form::sparse, Form::automatic}) {
    requests.push_back(sum_of("float32"));
    requests.back().form = form;
  }
  requests.push_back(sum_of("float32"));
  requests.back().elements = 101;
  requests.push_back(sum_of("float32"));
  requests.back().operation = Operation::reduce_scatter;
  for (const Operation operation : {Operation::all_gather, Operation::broadcast}) {
    requests.push_back({operation, "", "float32", 4, 100, 0, std::nullopt, Form::dense});
  }
  requests.push_back({Operation::broadcast, "", "float32", 4, 100, 1, std::nullopt, Form::dense});
  requests.push_back({});
  std::set<uint32_t> hashes;
  for (const auto& request : requests) hashes.insert(hash_of(request));
  EXPECT_EQ(hashes.size(), requests.size());
}

// Ranks of other versions and in other languages compute the same (zlib.crc32 of the text).
TEST(Collective, FingerprintIsThatOfTheProtocol) {
  EXPECT_EQ(hash_of(sum_of("float32")), 0x38378126U) << "crc32 of all_reduce|sum blocks|float32|100|0";
}

TEST(Collective, OnlyTheRootContributesToABroadcast) {
  const Collective call({Operation::broadcast, "", "float32", 4, 100, 2, std::nullopt, Form::dense}, 4, kEveryFormat);
  EXPECT_TRUE(call.at(2, nullptr, nullptr).contributes);
  EXPECT_FALSE(call.at(1, nullptr, nullptr).contributes);
  EXPECT_EQ(call.at(1, nullptr, nullptr).arrays.elements, 400U) << "bytes";
}

TEST(Collective, KnowsItsMemory) {
  const auto* const input = reinterpret_cast<const uint8_t*>(0x1000);   // NOLINT(performance-no-int-to-ptr)
  const auto* const output = reinterpret_cast<const uint8_t*>(0x2000);  // NOLINT(performance-no-int-to-ptr)
  const Collective sum(sum_of("float32"), 4, kEveryFormat);
  EXPECT_EQ(sum.written(output).end, 0x2000U + 400);
  EXPECT_EQ(sum.read(input, output).end, 0x1000U + 400);
  EXPECT_TRUE(sum.read(output, output).empty());
  CollectiveRequest parts = sum_of("float32");
  parts.operation = Operation::reduce_scatter;
  const Collective scatter(parts, 4, kEveryFormat);
  EXPECT_EQ(scatter.written(output).end, 0x2000U + 100);
  EXPECT_EQ(scatter.read(input, output).end, 0x1000U + 400);
  parts = {Operation::all_gather, "", "float32", 4, 100, 0, std::nullopt, Form::dense};
  const Collective gather(parts, 4, kEveryFormat);
  EXPECT_EQ(gather.written(output).end, 0x2000U + 400);
  EXPECT_EQ(gather.read(input, output).end, 0x1000U + 100);
}

TEST(Collective, IsRefusedWhereItCannotBe) {
  EXPECT_THROW(Collective(sum_of("float32", nullptr, "max"), 4, kEveryFormat), std::invalid_argument);
  EXPECT_THROW(Collective(sum_of("complex64"), 4, kEveryFormat), FailureError);
  EXPECT_THROW(Collective(sum_of("int32", nullptr, "avg"), 4, kEveryFormat), FailureError);
  EXPECT_THROW(Collective(sum_of("int32", "floats"), 4, kEveryFormat), std::invalid_argument);
  EXPECT_THROW(Collective(sum_of("float32", "floats"), 4, 1), std::invalid_argument);
  EXPECT_THROW(Collective(sum_of("float32", "blocks:bits=8"), 128, kEveryFormat), std::invalid_argument);
  CollectiveRequest request = sum_of("float32", "floats");
  request.form = Form::sparse;
  EXPECT_THROW(Collective(request, 4, kEveryFormat), std::invalid_argument);
  request = sum_of("float32");
  request.elements = UINT64_MAX;
  EXPECT_THROW(Collective(request, 4, kEveryFormat), std::invalid_argument);
  request = {Operation::broadcast, "", "float32", 4, 100, 4, std::nullopt, Form::dense};
  EXPECT_THROW(Collective(request, 4, kEveryFormat), std::invalid_argument);
}

TEST(Collective, IsMadeAnewForAnotherWorld) {
  const Collective call(sum_of("float32", "blocks:bits=8"), 4, kEveryFormat);
  EXPECT_EQ(call.in(4, kEveryFormat), nullptr);
  EXPECT_NE(call.in(3, kEveryFormat), nullptr);
  EXPECT_THROW(call.in(128, kEveryFormat), std::invalid_argument);
}

TEST(Collective, HasMessagesThatAnAgentAccepts) {
  CollectiveRequest request = sum_of("float32");
  request.operation = Operation::all_gather;
  request.op = std::string(300, 'k');
  request.dtype = std::string(200, 'd');
  const std::string message = Collective(request, 4, kEveryFormat).to_message(9).text();
  EXPECT_NE(message.find("\"dtype\": \"ddd"), std::string::npos);
  const auto read = Json::parse(message);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->text("op")->size(), 80U);
  EXPECT_EQ(read->text("dtype")->size(), 64U);
  EXPECT_EQ(read->number("sequence", 9), 9U);
}

}  // namespace
}  // namespace switchml::client
