// DPDK's environment (EAL); a process has at most one.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace switchml::net {

// Starts the environment in a separate thread, so that the caller's CPU affinity stays as it is; that thread, DPDK's
// main lcore, does nothing afterwards. No effect if the environment already runs with the same arguments.
//
// `arguments` are those of rte_eal_init(3) without a program name; -l and --file-prefix are added if they are missing.
// `defaults` are appended, and are not compared in later calls. Throws std::invalid_argument for arguments that are not
// allowed or differ from those that the environment runs with, and std::system_error if DPDK fails to start: then only
// a new process can start it.
void start_eal(const std::vector<std::string>& arguments, const std::vector<std::string>& defaults);

// Closes every device, ends the environment and removes its files. No effect if it does not run.
void stop_eal();

// Registers a function that stop_eal() calls first, because it may run before the interpreter destroys the owner of a
// device. take_back() removes the function.
void close_before_stop(const void* device, std::function<void()> close);
void take_back(const void* device);

}  // namespace switchml::net
