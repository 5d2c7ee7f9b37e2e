// SPDX-License-Identifier: Apache-2.0
// Implements the command: it reads arguments, runs one command and prints its report; nothing else
// in the process can write to standard output.
#include "cli/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/no_throw.h"
#include "base/printable.h"
#include "cli/arguments.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "compile/worker.h"

namespace {

using attnjit::Error;
using attnjit::Result;
using attnjit::cli::Report;

// A closed standard descriptor would be given to the next file that is opened, and results or
// messages would be written into it.
void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // NOTE: read-only for all three, so that writing to one that was closed is an error.
    (void)::open("/dev/null", O_RDONLY);
  }
}

// Makes an interrupt end the process as an interrupt does, and at once.
// NOTE: libnvvm, inside NVRTC, installs handlers of its own while it compiles, and these exit with
// code 4, which is ours for a lacking environment; so no thread but this one takes the signals.
void take_interrupts() {
  sigset_t signals;
  (void)sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    const bool ignored = ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    if (!ignored) (void)sigaddset(&signals, signal);
  }
  (void)::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    std::thread([signals] {
      int signal = SIGINT;
      (void)sigwait(&signals, &signal);
      (void)std::signal(signal, SIG_DFL);
      (void)::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      (void)::raise(signal);
    }).detach();
  } catch (const std::system_error&) {
    (void)::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
}

class Console {
 public:
  // Keeps standard output for print(): whatever a library writes there goes to standard error.
  Console() : output_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
    (void)::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  bool print(std::string_view text) const {
    return text.empty() || (output_ >= 0 && attnjit::cli::write_all(output_, text));
  }
  /// For standard error; `text` is printable.
  static void message(const std::string& text) {
    const bool colours = attnjit::cli::takes_colours(STDERR_FILENO);
    (void)attnjit::cli::write_all(STDERR_FILENO,
                                  colours ? attnjit::cli::coloured_message(text) : text);
  }
  /// Text for people, with colours where they see them.
  std::string styled(std::string text) const {
    return attnjit::cli::takes_colours(output_) ? attnjit::cli::coloured(text) : text;
  }

 private:
  int output_;
};

struct Run {
  template <class Values>
  Result<Report> operator()(const Values& values) const {
    using namespace attnjit::cli;
    if constexpr (std::is_same_v<Values, PlanArguments>) return run_plan(values);
    if constexpr (std::is_same_v<Values, GenerateArguments>) return run_generate(values);
    if constexpr (std::is_same_v<Values, CompileArguments>) return run_compile(values);
    if constexpr (std::is_same_v<Values, PrewarmArguments>) return run_prewarm(values);
    if constexpr (std::is_same_v<Values, VerifyArguments>) return run_verify(values);
    if constexpr (std::is_same_v<Values, ReferenceArguments>) return run_reference(values);
    if constexpr (std::is_same_v<Values, EmulateArguments>) return run_emulate(values);
    if constexpr (std::is_same_v<Values, BenchArguments>) return run_bench(values);
    if constexpr (std::is_same_v<Values, TuneArguments>) return run_tune(values);
    if constexpr (std::is_same_v<Values, CacheArguments>) return run_cache(values);
    if constexpr (std::is_same_v<Values, ManifestArguments>) return run_manifest(values);
    if constexpr (std::is_same_v<Values, DoctorArguments>) return run_doctor(values);
  }
};

std::string error_object(const Error& error) {
  attnjit::cli::Json json;
  json["error"] = attnjit::cli::error_json(error);
  return attnjit::cli::to_text(json);
}

int finish(const Console& console, const std::string& output, int code) {
  if (console.print(output)) return code;
  Console::message(
      fmt::format("attnjit: standard output cannot be written: {}\n", std::strerror(errno)));
  return code == 0 ? 1 : code;
}

int fail(const Console& console, const std::string& command, bool json, const Error& error) {
  Console::message(attnjit::printable(fmt::format("attnjit{}: {}\n", command, error.to_string())));
  return finish(console, json ? error_object(error) : "", exit_code(error.code));
}

/// Also where it was eaten as the value of another flag, or where nothing could be parsed.
bool wants_json(int argc, char** argv) {
  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::strcmp(argv[i], "--json") == 0;
  return json;
}

int run(const Console& console, int argc, char** argv) {
  attnjit::cli::ParsedArguments parsed = attnjit::cli::parse_arguments(argc, argv);
  const bool json = wants_json(argc, argv);
  if (!parsed.arguments) {
    if (parsed.exit_code == 0) return finish(console, parsed.output, 0);
    return fail(console, "", json, *parsed.error);
  }
  const attnjit::cli::Arguments& arguments = *parsed.arguments;
  Result<Report> report = attnjit::no_throw([&] { return std::visit(Run{}, arguments.values); });
  if (!report) return fail(console, " " + arguments.command, json, report.error());
  if (!report->note.empty()) {
    Console::message(
        attnjit::printable(fmt::format("attnjit {}: {}\n", arguments.command, report->note)));
  }
  const std::string text =
      report->verbatim ? report->text : console.styled(attnjit::printable(report->text));
  return finish(console, arguments.json ? report->json : text, report->exit_code);
}

}  // namespace

int attnjit::cli::run_command(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], kCompileWorkerCommand) == 0) {
    return run_compile_worker(argc, argv);
  }
  open_standard_descriptors();
  (void)std::signal(SIGPIPE, SIG_IGN);
  take_interrupts();
  const Console console;
  const Result<int> code = no_throw([&] { return Result<int>(run(console, argc, argv)); });
  return code ? *code : fail(console, "", wants_json(argc, argv), code.error());
}
