#include "switchml/native/membership/words.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace switchml::client {

namespace {

constexpr size_t kMostRanges = 16;  // numbers or ranges in a text

}  // namespace

std::string rank_numbers(std::vector<uint32_t> ranks) {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  const bool each = ranks.size() <= kMostRanges;
  if (!each) std::sort(ranks.begin(), ranks.end());
  for (const uint32_t rank : ranks) {
    if (!each && !ranges.empty() && rank == ranges.back().second + 1) {
      ranges.back().second = rank;
    } else {
      ranges.emplace_back(rank, rank);
    }
  }
  std::string text;
  uint64_t more = 0;
  for (size_t number = 0; number < ranges.size(); ++number) {
    const auto& [low, high] = ranges[number];
    if (number >= kMostRanges) {
      more += high - low + 1;
      continue;
    }
    text += (number == 0 ? "" : ", ") + std::to_string(low);
    if (high != low) text += " to " + std::to_string(high);
  }
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

std::string quoted_name(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char c : text) {
    if (c == '\\' || c == quote) result.push_back('\\');
    result.push_back(c);
  }
  result.push_back(quote);
  return result;
}

std::string seconds_in_words(double seconds) {
  constexpr double kHundredths = 100;
  constexpr uint64_t kHundred = 100;
  constexpr uint64_t kTen = 10;
  const auto hundredths = static_cast<uint64_t>(std::llround(seconds * kHundredths));
  std::string text = std::to_string(hundredths / kHundred);
  if (hundredths % kHundred != 0) {
    text += "." + std::to_string(hundredths % kHundred / kTen);
    if (hundredths % kTen != 0) text += std::to_string(hundredths % kTen);
  }
  return text;
}

std::string without_full_stop(std::string_view text) {
  while (!text.empty() && text.back() == '.') text.remove_suffix(1);
  return std::string(text);
}

}  // namespace switchml::client
