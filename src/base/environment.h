// SPDX-License-Identifier: Apache-2.0
// The one place that reads environment variables, and the table of those that attnjit honours.
#pragma once

#include <optional>
#include <string>

namespace attnjit {

/// What the environment says, read once by whoever ties the rooms together (Service, CLI).
struct Environment {
  std::optional<std::string> cache_dir;       ///< ATTNJIT_CACHE_DIR: layers A:B:C
  std::optional<std::string> log_level;       ///< ATTNJIT_LOG_LEVEL
  std::optional<std::string> nvrtc;           ///< ATTNJIT_NVRTC: path of the library
  std::optional<std::string> nvrtc_policy;    ///< ATTNJIT_NVRTC_POLICY: exact or any
  std::optional<std::string> templates;       ///< ATTNJIT_TEMPLATES: folder
  std::optional<std::string> xdg_cache_home;  ///< XDG_CACHE_HOME
  std::optional<std::string> home;            ///< HOME
  std::optional<std::string> remote;          ///< ATTNJIT_REMOTE: base URL of the remote tier
  std::optional<std::string> trust;           ///< ATTNJIT_TRUST: file of a keyring
  std::optional<std::string> sign_key;        ///< ATTNJIT_SIGN_KEY: file of a secret key
  std::optional<std::string> lease;           ///< ATTNJIT_LEASE: Redis URL, or "remote"
  std::optional<std::string> ssl_cert_file;   ///< SSL_CERT_FILE: certificates that are believed
  std::optional<std::string> aws_access_key_id, aws_secret_access_key, aws_session_token;
  std::optional<std::string> aws_region;  ///< AWS_REGION, then AWS_DEFAULT_REGION
  std::optional<std::string> cuda_home;   ///< CUDA_HOME, then CUDA_PATH: where NVRTC is looked for
  std::optional<std::string> nvtx_injection;  ///< NVTX_INJECTION64_PATH: a profiler's library
};

/// Uses secure_getenv: a setuid program sees nothing. Empty values count as unset.
Environment read_environment();

}  // namespace attnjit
