// Which stores hand memory from one core to another faster on this machine.
#pragma once

namespace switchml::soft {

// Tries both kinds between two CPUs, for some milliseconds: true for stores that bypass the caches. Where the
// cores share no cache, each line of an ordinary store is fetched from the other core's cache; where they do, the
// detour through memory is the longer way.
bool streaming_is_faster();

}  // namespace switchml::soft
