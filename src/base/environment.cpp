// SPDX-License-Identifier: Apache-2.0
// Reads the environment variables of attnjit; no other file calls getenv.
#include "base/environment.h"

#include <cstdlib>

namespace attnjit {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

Environment read_environment() {
  Environment env;
  env.cache_dir = variable("ATTNJIT_CACHE_DIR");
  env.log_level = variable("ATTNJIT_LOG_LEVEL");
  env.nvrtc = variable("ATTNJIT_NVRTC");
  env.templates = variable("ATTNJIT_TEMPLATES");
  env.xdg_cache_home = variable("XDG_CACHE_HOME");
  env.home = variable("HOME");
  env.cuda_home = variable("CUDA_HOME");
  if (!env.cuda_home) env.cuda_home = variable("CUDA_PATH");
  return env;
}

}  // namespace attnjit
