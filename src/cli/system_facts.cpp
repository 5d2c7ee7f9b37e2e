// SPDX-License-Identifier: Apache-2.0
// Reads the facts from /etc, /proc and the C library.
#include "cli/system_facts.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "base/environment.h"
#include "base/machine_limits.h"
#include "service/compile_budget.h"

namespace attnjit::cli {
namespace {

/// What follows `key` on the first line of a file that begins with it; empty: no such line.
std::string line_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t begin = line.find_first_not_of("\t :=\"", key.size());
    const std::size_t end = line.find_last_not_of("\" ");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return {};
}

}  // namespace

Facts system_facts() {
  Facts facts = {{"os", line_of("/etc/os-release", "PRETTY_NAME")}};
  utsname names{};
  if (::uname(&names) == 0) {
    facts.emplace_back("kernel", fmt::format("{} {}", names.release, names.machine));
  }
  facts.emplace_back("glibc", ::gnu_get_libc_version());
  facts.emplace_back("cpu", line_of("/proc/cpuinfo", "model name"));
  const MachineLimits limits = machine_limits();
  facts.emplace_back("cores", std::to_string(limits.cores));
  facts.emplace_back("compiles_at_once", std::to_string(compiles_at_once(limits)));
  facts.emplace_back("memory", line_of("/proc/meminfo", "MemTotal"));
  facts.emplace_back("nvidia_driver", line_of("/proc/driver/nvidia/version", "NVRM version"));
  return facts;
}

Facts environment_facts() {
  const Environment environment = read_environment();
  Facts facts;
  const auto add = [&](const char* name, const std::optional<std::string>& value) {
    if (value) facts.emplace_back(name, *value);
  };
  add("ATTNJIT_CACHE_DIR", environment.cache_dir);
  add("ATTNJIT_LOG_LEVEL", environment.log_level);
  add("ATTNJIT_NVRTC", environment.nvrtc);
  add("ATTNJIT_TEMPLATES", environment.templates);
  add("XDG_CACHE_HOME", environment.xdg_cache_home);
  add("CUDA_HOME", environment.cuda_home);
  return facts;
}

std::string without_home(std::string text) {
  const std::string home = read_environment().home.value_or("");
  for (std::size_t at = 0; home.size() > 1 && (at = text.find(home, at)) != std::string::npos;) {
    text.replace(at, home.size(), "~");
  }
  return text;
}

}  // namespace attnjit::cli
