#include "native/runtime/cpus.h"

#include <sched.h>

#include <algorithm>

namespace switchml::runtime {

std::vector<int> cpus() {
  cpu_set_t allowed;
  std::vector<int> found;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return found;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) found.push_back(cpu);
  }
  return found;
}

std::vector<int> cpus_of(size_t share, size_t shares) {
  std::vector<int> all = cpus();
  if (all.empty()) return all;
  const size_t first = std::min(share * all.size() / shares, all.size() - 1);
  const size_t last = std::max((share + 1) * all.size() / shares, first + 1);
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last)};
}

void stay_on(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) CPU_SET(cpu, &wanted);
  sched_setaffinity(0, sizeof wanted, &wanted);
}

}  // namespace switchml::runtime
