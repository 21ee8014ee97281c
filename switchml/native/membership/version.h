// The version of this software, which the agent compares with its own.
#pragma once

namespace switchml::client {

constexpr const char* kVersion = "0.1.0";

}  // namespace switchml::client
