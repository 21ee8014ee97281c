// Finds out which stores pass memory from one core to another faster on this machine.
#pragma once

namespace switchml::soft {

// Measures both kinds of store between two CPUs for some milliseconds, and returns true if stores that bypass the
// caches are faster. If the cores share no cache, each line of an ordinary store must be fetched from the other core's
// cache; if they do share one, going through memory is slower.
bool streaming_is_faster();

}  // namespace switchml::soft
