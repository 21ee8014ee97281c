// DPDK's environment (EAL), of which a process has one.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace switchml::net {

// Starts it, in a thread of its own, so that the caller's processor affinity stays; what DPDK calls its main lcore does
// nothing afterwards. Once it runs, the same arguments again change nothing.
//
// `arguments` are those of rte_eal_init(3) without a program name; -l and --file-prefix are added where they are
// missing; `defaults` are more of them, of which nobody is asked later. Throws std::invalid_argument for arguments that
// cannot be (and for others than those that it runs with), and std::system_error when DPDK refuses. DPDK cannot be
// started a second time after that: the process must be.
void start_eal(const std::vector<std::string>& arguments, const std::vector<std::string>& defaults);

// Closes every device, ends it and removes its files. No effect when it does not run.
void stop_eal();

// What stop_eal() calls first, until it is taken back: it may come before the interpreter destroys a device's owner.
void close_before_stop(const void* device, std::function<void()> close);
void take_back(const void* device);

}  // namespace switchml::net
