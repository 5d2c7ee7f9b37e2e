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
  env.nvrtc_policy = variable("ATTNJIT_NVRTC_POLICY");
  env.templates = variable("ATTNJIT_TEMPLATES");
  env.xdg_cache_home = variable("XDG_CACHE_HOME");
  env.home = variable("HOME");
  env.remote = variable("ATTNJIT_REMOTE");
  env.trust = variable("ATTNJIT_TRUST");
  env.sign_key = variable("ATTNJIT_SIGN_KEY");
  env.lease = variable("ATTNJIT_LEASE");
  env.ssl_cert_file = variable("SSL_CERT_FILE");
  env.aws_access_key_id = variable("AWS_ACCESS_KEY_ID");
  env.aws_secret_access_key = variable("AWS_SECRET_ACCESS_KEY");
  env.aws_session_token = variable("AWS_SESSION_TOKEN");
  env.aws_region = variable("AWS_REGION");
  if (!env.aws_region) env.aws_region = variable("AWS_DEFAULT_REGION");
  env.cuda_home = variable("CUDA_HOME");
  if (!env.cuda_home) env.cuda_home = variable("CUDA_PATH");
  env.nvtx_injection = variable("NVTX_INJECTION64_PATH");
  return env;
}

}  // namespace attnjit
