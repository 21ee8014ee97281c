#include "switchml/native/c_api/place_in_job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "native/wire/constants.h"
#include "switchml/native/membership/failure.h"
#include "switchml/native/membership/json.h"
#include "switchml/native/membership/words.h"

namespace switchml::client {

namespace {

constexpr double kAnswerSeconds = 30;
constexpr double kRanksSeconds = 300;  // for the other ranks to come
// From the arrival of the last rank until the job is ready; the agent reports it if this fails.
constexpr double kStartSeconds = 20;
constexpr double kLongestWait = 86400;
constexpr int kHighestPriority = 7;
constexpr size_t kMostAggregators = 64;
constexpr const char* kLaunch = "run the program under `switchml-ctl job start --workers N -- COMMAND`, which sets it";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<uint32_t> number_in(const char* name) {
  const std::string text = variable(name);
  if (text.empty()) return std::nullopt;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw_connect_error(std::string(name) + " is " + quoted_name(text) + ", which is not a number; " + kLaunch +
                        ", or correct it");
  }
  return number;
}

[[noreturn]] void throw_missing(const char* name, const char* meaning, const char* member) {
  throw_connect_error(std::string(name) + " (" + meaning + ") is not set; " + kLaunch + ", or set `" + member +
                      "` of switchml_connect_options");
}

std::optional<uint32_t> number_of(int64_t given, const char* member, const char* first, const char* second) {
  if (given > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(std::string(member) + " is " + std::to_string(given) +
                                "; the largest job has 4096 ranks");
  }
  if (given >= 0) return static_cast<uint32_t>(given);
  const auto found = number_in(first);
  return found ? found : number_in(second);
}

// Throws unless the directory belongs to this user, and no other user can enter it: another one may have made it.
void require_private(const std::string& directory) {
  struct stat status{};
  const bool found = lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  constexpr mode_t kOthers = 077;
  if (!found || status.st_uid != geteuid() || (status.st_mode & kOthers) != 0) {
    throw_connect_error("run directory " + directory +
                        " is not a directory of this user that is closed to others; close it with `chmod 700 " +
                        directory + "`, or set SWITCHML_AGENT to the socket of an agent");
  }
}

// Returns the sockets of the agents of the fabric in a run directory; none if there is no fabric.
std::vector<std::string> agent_sockets(const std::string& directory) {
  const std::string path = directory + "/fabric.json";
  std::ifstream file(path);
  if (!file) return {};
  require_private(directory);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto state = Json::parse(text);
  std::vector<std::string> sockets;
  const Json* const agents = state ? state->member("agents") : nullptr;
  if (agents != nullptr) {
    for (const Json& agent : agents->elements()) {
      if (const auto socket = agent.text("socket")) sockets.push_back(*socket);
    }
  }
  if (sockets.empty()) throw_connect_error(path + " was not written by `switchml-ctl up`; start the fabric again");
  return sockets;
}

std::string run_directory() {
  std::string given = variable("SWITCHML_RUN_DIR");
  if (!given.empty()) return given;
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  return runtime.empty() ? "/tmp/switchml-" + std::to_string(getuid()) : runtime + "/switchml";
}

// Returns the agent's socket. The ranks are divided among the agents of a fabric on this machine.
std::string agent_socket(const char* given, uint32_t rank, uint32_t world_size) {
  if (given != nullptr) return given;
  std::string set = variable("SWITCHML_AGENT");
  if (!set.empty()) return set;
  const std::string directory = run_directory();
  const std::vector<std::string> sockets = agent_sockets(directory);
  if (sockets.empty()) {
    if (!variable("SWITCHML_RUN_DIR").empty()) return directory + "/agent.sock";  // where an agent listens by default
    throw_connect_error("there is no agent: " + directory +
                        " holds no fabric, and neither SWITCHML_AGENT (the socket of the agent on this host) nor "
                        "SWITCHML_RUN_DIR (the run directory of a fabric on this machine) is set; start a fabric here "
                        "with `switchml-ctl up`, or " +
                        kLaunch);
  }
  const auto local_rank = number_in("LOCAL_RANK");
  const uint32_t local_size = number_in("LOCAL_WORLD_SIZE").value_or(0);
  const bool local = local_rank && local_size > 0;
  const uint64_t place =
      uint64_t{local_rank && local ? *local_rank : rank} * sockets.size() / (local ? local_size : world_size);
  return sockets[std::min<uint64_t>(place, sockets.size() - 1)];
}

std::vector<std::string> aggregators_in(const char* given) {
  const std::string text = given == nullptr ? variable("SWITCHML_AGGREGATORS") : given;
  std::vector<std::string> names;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    if (!name.empty()) names.emplace_back(name);
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  if (names.size() > kMostAggregators) {
    throw_connect_error("aggregators (SWITCHML_AGGREGATORS) names more than " + std::to_string(kMostAggregators));
  }
  return names;
}

NewJob new_job(const switchml_connect_options& options) {
  NewJob job;
  job.timeout = options.timeout == 0 ? kRanksSeconds : options.timeout;
  job.slots = options.slots != 0 ? options.slots : number_in("SWITCHML_SLOTS").value_or(0);
  job.on_failure = options.on_failure != nullptr ? options.on_failure : variable("SWITCHML_ON_FAILURE");
  if (job.on_failure.empty()) job.on_failure = "abort";
  if (job.on_failure != "abort" && job.on_failure != "shrink" && job.on_failure != "restart") {
    throw_connect_error("on_failure (SWITCHML_ON_FAILURE) is " + quoted_name(job.on_failure) +
                        "; it is one of abort, shrink, restart");
  }
  if (options.priority < 0 || options.priority > kHighestPriority) {
    throw std::invalid_argument("priority is " + std::to_string(options.priority) + "; it must be from 0 to " +
                                std::to_string(kHighestPriority) + ", the most urgent");
  }
  job.priority = static_cast<uint32_t>(options.priority);
  job.aggregators = aggregators_in(options.aggregators);
  return job;
}

}  // namespace

PlaceInJob place_in_job(const switchml_connect_options& options) {
  if (!(std::isfinite(options.timeout) && options.timeout >= 0 && options.timeout <= kLongestWait)) {
    throw std::invalid_argument("timeout is " + std::to_string(options.timeout) + "; it must be from 0 to " +
                                std::to_string(static_cast<int>(kLongestWait)) + " seconds");
  }
  PlaceInJob place;
  place.request.job = options.job != nullptr ? options.job : variable("SWITCHML_JOB");
  if (place.request.job.empty()) throw_missing("SWITCHML_JOB", "the id or name of the job", "job");
  const auto rank = number_of(options.rank, "rank", "SWITCHML_RANK", "RANK");
  if (!rank) throw_missing("SWITCHML_RANK", "this process's rank in the job", "rank");
  place.request.rank = *rank;
  place.request.world_size = number_of(options.world_size, "world_size", "SWITCHML_WORLD_SIZE", "WORLD_SIZE");
  place.seconds = options.timeout == 0 ? kAnswerSeconds : options.timeout;
  if (options.create != 0) {
    if (!place.request.world_size) throw_missing("SWITCHML_WORLD_SIZE", "the number of ranks", "world_size");
    place.request.create = new_job(options);
    place.seconds = place.request.create->timeout + kStartSeconds;
  }
  const uint32_t world_size = std::max(1U, place.request.world_size.value_or(1));
  place.agent = agent_socket(options.agent, *rank, world_size);
  return place;
}

}  // namespace switchml::client
