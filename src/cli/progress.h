// SPDX-License-Identifier: Apache-2.0
// Progress: the line by which a terminal sees how far a prewarm is.
//
// Thread rules: a Progress draws from a thread of its own; its methods may be called from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace attnjit::cli {

/// How far something is.
struct ProgressState {
  std::size_t done = 0, all = 0;
  std::chrono::milliseconds elapsed{0};
  std::string at_hand;  ///< what is being done
};

/// "42 s", "3 min 07 s", "2 h 05 min"
std::string duration_text(std::chrono::milliseconds time);

/// "[#####.....]  12 of 40  1 min 03 s, about 2 min 27 s left  NAME", within the columns.
std::string progress_line(const ProgressState& state, int columns);

/// Draws the line on standard error, each second and after each item, where that is a terminal.
class Progress {
 public:
  /// @param names of the items, which are begun in this order
  explicit Progress(std::vector<std::string> names);
  ~Progress();  ///< removes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void done(std::size_t item);
  std::chrono::milliseconds elapsed() const;

 private:
  void draw();  ///< under the lock
  void run();

  const std::vector<std::string> names_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<bool> ended_;
  std::size_t count_ = 0;
  bool closing_ = false;
  std::thread thread_;  // none where there is no terminal
};

}  // namespace attnjit::cli
