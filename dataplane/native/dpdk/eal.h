// DPDK's environment (EAL), of which a process has one.
#pragma once

#include <string>
#include <vector>

namespace switchml {

// Starts it, in a thread of its own, so that the caller's processor affinity stays; what DPDK calls its main lcore does
// nothing afterwards. Once it runs, the same arguments again change nothing.
//
// `arguments` are those of rte_eal_init(3) without a program name; -l and --file-prefix are added where they are
// missing. Throws std::invalid_argument for arguments that cannot be (and for others than those that it runs with), and
// std::system_error when DPDK refuses. DPDK cannot be started a second time after that: the process must be.
void start_eal(const std::vector<std::string>& arguments);

// Ends it and removes its files, once every device is closed. No effect when it does not run.
void stop_eal();

}  // namespace switchml
