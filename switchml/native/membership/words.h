// The words of messages for people: names, numbers of ranks, durations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchml::client {

// Returns "0, 3": each rank, in the given order. More than 16 ranks are sorted and become ranges: "0 to 62, 64". Of
// more than 16 ranges, the last ones are counted: "0, 2, ..., 30 and 1009 more".
std::string rank_numbers(std::vector<uint32_t> ranks);

// Returns a text in single quotes, or in double ones if it has single ones, as Python writes it.
std::string quoted_name(std::string_view text);

// Returns "0.25", "30": a duration with at most two digits behind the point.
std::string seconds_in_words(double seconds);

// Returns a text without the full stop at its end.
std::string without_full_stop(std::string_view text);

}  // namespace switchml::client
