// SPDX-License-Identifier: Apache-2.0
// What the helper process does to itself before hostile code reaches the compiler.
//
// Linux only. Thread rules: for a process's only thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace attnjit {

/// Asks the kernel to kill this process when its parent ends. False: the parent has ended already.
bool die_with_parent(pid_t parent);

/// What a process may use of its machine.
struct ResourceLimits {
  std::int64_t memory_bytes = 0;  ///< of address space
  int cpu_seconds = 0;
};

/// Limits address space, CPU time and file size, and turns core dumps off. Returns what is in force
/// from now on: a lower limit that this process inherited stays. nullopt: the kernel takes no
/// limits. NOTE: under a sanitizer the address space stays unlimited, for its shadow memory alone
/// is larger than any limit.
std::optional<ResourceLimits> limit_resources(const ResourceLimits& wanted);

/// The system calls that confine() leaves whatever their arguments are. Some others it leaves with
/// the right arguments only.
std::vector<long> allowed_calls();

/// Gives up every system call but those on a short list: memory of its own, the files that are open
/// already, clocks, threads, signals to itself. Everything else answers EACCES, so this process can
/// open or look up no file, change none, make no socket, start no process or program, and reach no
/// other process. Files are refused once more by a descriptor limit of zero (not under a
/// sanitizer). False: the kernel took no filter; the descriptor limit stands all the same.
bool confine();

}  // namespace attnjit
