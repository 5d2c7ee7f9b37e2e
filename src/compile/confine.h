// SPDX-License-Identifier: Apache-2.0
// What the helper process does to itself before hostile code reaches the compiler.
//
// Linux only. Thread rules: for a process's only thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace attnjit {

/// Asks the kernel to kill this process when its parent ends. False: the parent has ended already.
bool die_with_parent(pid_t parent);

/// Core dumps off, address space, CPU time and file size limited. NOTE: under a sanitizer the
/// address space stays unlimited, for its shadow memory alone is larger than any limit.
bool limit_resources(std::int64_t memory_bytes, int cpu_seconds);

/// Leaves to the process what a compiler needs of the kernel (memory, the files that are open):
/// no file is opened or looked up, no process or program started, no socket made, no other process
/// signalled. Files are refused twice, by a system call filter and by a descriptor limit of zero
/// (without the limit under a sanitizer).
/// False: the kernel took no filter; the descriptor limit stands all the same.
bool confine();

}  // namespace attnjit
