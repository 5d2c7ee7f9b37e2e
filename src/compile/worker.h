// SPDX-License-Identifier: Apache-2.0
// The helper process: `attnjit compile-worker`. Not for users; HelperCompiler starts it.
//
// Thread rules: for main, before anything else has run.
#pragma once

namespace attnjit {

/// The name of the command, argv[1].
inline constexpr const char* kCompileWorkerCommand = "compile-worker";
/// The socket that the parent left: a request comes in, a reply goes out.
inline constexpr int kWorkerSocket = 3;

/// Serves one request and ends the process. argv: command, kCompileWorkerCommand, the parent's
/// process id. Returns an exit code only where there was nobody to serve; prints nothing.
int run_compile_worker(int argc, const char* const* argv);

}  // namespace attnjit
