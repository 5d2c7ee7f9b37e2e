// SPDX-License-Identifier: Apache-2.0
// Draws a bar, the time, and an estimate of what is left.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/printable.h"
#include "cli/files.h"
#include "cli/terminal.h"

namespace attnjit::cli {
namespace {

constexpr int kBar = 20;  // signs

}  // namespace

std::string duration_text(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string progress_line(const ProgressState& state, int columns) {
  const std::size_t filled = state.all > 0 ? kBar * state.done / state.all : kBar;
  std::string line =
      fmt::format("[{}{}] {} of {}  {}", std::string(filled, '#'), std::string(kBar - filled, '.'),
                  state.done, state.all, duration_text(state.elapsed));
  if (state.done > 0 && state.done < state.all) {
    const auto left = state.elapsed * static_cast<std::int64_t>(state.all - state.done) /
                      static_cast<std::int64_t>(state.done);
    line += fmt::format(", about {} left", duration_text(left));
  }
  if (!state.at_hand.empty()) line += "  " + state.at_hand;
  // NOTE: one column less: a full line would make some terminals begin another.
  return line.substr(0, static_cast<std::size_t>(std::max(columns - 1, 1)));
}

Progress::Progress(std::vector<std::string> names)
    : names_(std::move(names)), ended_(names_.size()) {
  if (names_.empty() || ::isatty(STDERR_FILENO) == 0) return;
  draw();  // nobody else does yet
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no thread, no line
  }
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  (void)write_all(STDERR_FILENO, "\r\033[K");
}

void Progress::done(std::size_t item) {
  {
    const std::lock_guard lock(mutex_);
    if (item < ended_.size() && !ended_[item]) {
      ended_[item] = true;
      ++count_;
    }
  }
  wake_.notify_all();
}

std::chrono::milliseconds Progress::elapsed() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin_);
}

void Progress::draw() {
  const auto first =
      static_cast<std::size_t>(std::find(ended_.begin(), ended_.end(), false) - ended_.begin());
  const ProgressState state{count_, names_.size(), elapsed(),
                            first < names_.size() ? printable(names_[first]) : ""};
  (void)write_all(STDERR_FILENO, "\r" + progress_line(state, columns_of(STDERR_FILENO)) + "\033[K");
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    draw();
    wake_.wait_for(lock, std::chrono::seconds(1));
  }
}

}  // namespace attnjit::cli
