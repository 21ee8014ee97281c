#include "native/net/dpdk/eal.h"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace switchml::net {
namespace {

enum class State { stopped, running, spent };

struct Eal {
  std::mutex mutex;
  State state = State::stopped;
  std::vector<std::string> arguments;                    // those that start_eal() was called with
  std::vector<std::string> complete;                     // those passed to DPDK, which keeps pointers to them
  std::map<const void*, std::function<void()>> devices;  // how to close them
};

Eal& the_eal() {
  static Eal eal;
  return eal;
}

bool given(const std::vector<std::string>& arguments, const std::string& option) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    const bool is_long = option.size() > 2;
    return argument.compare(0, option.size(), option) == 0 &&
           (!is_long || argument.size() == option.size() || argument[option.size()] == '=');
  });
}

int first_allowed_cpu() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) return cpu;
  }
  return 0;
}

std::vector<std::string> completed(const std::vector<std::string>& arguments) {
  for (const char* ends_the_process : {"-h", "--help"}) {
    if (given(arguments, ends_the_process)) {
      throw std::invalid_argument(std::string("DPDK's ") + ends_the_process +
                                  " would end this process; `dpdk-testpmd --help` prints the options of the EAL");
    }
  }
  std::vector<std::string> complete{"switchml"};
  // One lcore, so that DPDK starts no worker threads: SwitchML's threads register themselves.
  if (!given(arguments, "-l") && !given(arguments, "-c") && !given(arguments, "--lcores")) {
    complete.insert(complete.end(), {"-l", std::to_string(first_allowed_cpu())});
  }
  // Several agents and switches on one machine must not join into one multi-process application of DPDK.
  if (!given(arguments, "--file-prefix")) complete.push_back("--file-prefix=switchml-" + std::to_string(getpid()));
  if (!given(arguments, "--no-telemetry")) complete.emplace_back("--no-telemetry");
  complete.insert(complete.end(), arguments.begin(), arguments.end());
  return complete;
}

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

// Runs rte_eal_init() in a new thread; returns its result and the rte_errno of that thread.
std::pair<int, int> initialize(std::vector<std::string>* complete) {
  std::vector<char*> argv;
  for (std::string& argument : *complete) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::pair<int, int> outcome;
  // DPDK's threads inherit the mask: only the interpreter's main thread may get signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([&] {
    outcome.first = rte_eal_init(static_cast<int>(argv.size()) - 1, argv.data());
    outcome.second = rte_errno;
  }).join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return outcome;
}

// DPDK leaves its files for the next process with the same prefix. A prefix made by completed() is never used again.
void remove_files(const Eal& eal) {
  if (given(eal.arguments, "--file-prefix")) return;
  std::error_code ignored;
  std::filesystem::remove_all(rte_eal_get_runtime_dir(), ignored);
}

}  // namespace

void start_eal(const std::vector<std::string>& arguments, const std::vector<std::string>& defaults) {
  Eal& eal = the_eal();
  const std::lock_guard<std::mutex> lock(eal.mutex);
  if (eal.state == State::running) {
    if (arguments == eal.arguments) return;
    throw std::invalid_argument("DPDK already runs in this process, with `" + joined(eal.arguments) +
                                "`; its arguments cannot be changed");
  }
  if (eal.state == State::spent) {
    throw std::invalid_argument("DPDK was ended, or failed to start, in this process and cannot be started again");
  }
  eal.complete = completed(arguments);
  eal.arguments = arguments;
  eal.complete.insert(eal.complete.end(), defaults.begin(), defaults.end());
  const auto [result, error] = initialize(&eal.complete);
  if (result < 0) {
    eal.state = State::spent;
    remove_files(eal);
    throw std::system_error(
        error != 0 ? error : EINVAL, std::generic_category(),
        "DPDK does not start with `" + joined(eal.complete) +
            "`; its own messages above say why. Without huge pages it needs --no-huge (--dpdk-eal '--no-huge -m 256'); "
            "network cards need a driver such as vfio-pci, and root. Only a new process can try again");
  }
  eal.state = State::running;
}

void stop_eal() {
  Eal& eal = the_eal();
  const std::lock_guard<std::mutex> lock(eal.mutex);
  if (eal.state != State::running) return;
  eal.state = State::spent;
  for (const auto& [device, close] : eal.devices) close();
  eal.devices.clear();
  rte_eal_cleanup();
  remove_files(eal);
}

void close_before_stop(const void* device, std::function<void()> close) {
  Eal& eal = the_eal();
  const std::lock_guard<std::mutex> lock(eal.mutex);
  eal.devices[device] = std::move(close);
}

void take_back(const void* device) {
  Eal& eal = the_eal();
  const std::lock_guard<std::mutex> lock(eal.mutex);
  eal.devices.erase(device);
}

}  // namespace switchml::net
