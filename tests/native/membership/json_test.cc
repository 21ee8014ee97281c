#include "switchml/native/membership/json.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <string>

namespace switchml::client {
namespace {

TEST(Json, ReadsTheMembersOfAnObject) {
  const auto message = Json::parse(
      R"( {"type":"moved" , "rank": 3, "lost":[1, 2 ,4096], "deep": {"a": [true, false, null, -1, 1.5e3]}, "": ""} )");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->text("type"), "moved");
  EXPECT_EQ(message->number("rank", 10), 3U);
  EXPECT_EQ(message->numbers("lost", 4095), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(message->member("deep")->member("a")->elements().size(), 5U);
  EXPECT_EQ(message->text(""), "");
}

TEST(Json, FindsNothingOfAnotherType) {
  const auto message = Json::parse(R"({"text": "a", "number": 7, "negative": -7, "fraction": 7.0, "array": [7]})");
  ASSERT_TRUE(message);
  EXPECT_FALSE(message->text("number"));
  EXPECT_FALSE(message->text("missing"));
  EXPECT_FALSE(message->number("text", 10));
  EXPECT_FALSE(message->number("number", 6));
  EXPECT_FALSE(message->number("negative", 10));
  EXPECT_FALSE(message->number("fraction", 10));
  EXPECT_TRUE(message->numbers("number", 10).empty());
  EXPECT_TRUE(message->numbers("missing", 10).empty());
  EXPECT_EQ(message->member("text")->member("a"), nullptr);
}

TEST(Json, ReadsEscapes) {
  const auto message =
      Json::parse(R"({"a": "\"\\\/\b\f\n\r\t", "b": "\u00e9\u20AC\ud83d\ude00", "c": "\ud83dx\ude00"})");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->text("a"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(message->text("b"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(message->text("c"), "\xef\xbf\xbdx\xef\xbf\xbd") << "half of a pair of surrogates";
}

TEST(Json, ReadsTheLargestNumber) {
  const auto message = Json::parse(R"({"largest": 18446744073709551615, "larger": 18446744073709551616})");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->number("largest", std::numeric_limits<uint64_t>::max()), std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(message->number("larger", std::numeric_limits<uint64_t>::max()));
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"",   " ",  "{",    "}",       "{\"a\"}",   "{\"a\":}",    "{\"a\":1,}", "{a:1}", "[1,]",
                           "[1", "\"", "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"",     "01",    "-",
                           "1.", ".5", "1e",   "1e+",     "tru",       "nul",         "1 2",        "{} x",  "'a'"}) {
    EXPECT_FALSE(Json::parse(text)) << text;
  }
}

TEST(Json, RefusesValuesThatAreTooDeep) {
  EXPECT_TRUE(Json::parse(std::string(16, '[') + std::string(16, ']')));
  EXPECT_FALSE(Json::parse(std::string(17, '[') + std::string(17, ']')));
  EXPECT_FALSE(Json::parse(std::string(100'000, '[')));
}

TEST(Json, ReadsWhatItHasWritten) {
  const JsonObject call = JsonObject().add("op", "sum").add("elements", uint64_t{5});
  const std::string text = JsonObject()
                               .add("type", "attach \"\\\n\x01")
                               .add("create", true)
                               .add("names", std::vector<std::string>{"s1", "s2"})
                               .add("call", call)
                               .text();
  const auto message = Json::parse(text);
  ASSERT_TRUE(message) << text;
  EXPECT_EQ(message->text("type"), "attach \"\\\n\x01");
  EXPECT_EQ(message->member("names")->elements().size(), 2U);
  EXPECT_EQ(message->member("call")->number("elements", 5), 5U);
}

TEST(Json, WritesSecondsInAnyLocale) {
  // Programs may have set one with a decimal comma; where none is installed, this shows less.
  const char* const set = std::setlocale(LC_ALL, "de_DE.UTF-8");
  EXPECT_EQ(JsonObject().add_seconds("timeout", 1.5).text(), R"({"timeout": 1.500})");
  EXPECT_EQ(JsonObject().add_seconds("timeout", 0.00001).text(), R"({"timeout": 0.001})");
  if (set != nullptr) std::setlocale(LC_ALL, "C");
}

}  // namespace
}  // namespace switchml::client
