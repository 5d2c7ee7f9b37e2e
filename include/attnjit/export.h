// SPDX-License-Identifier: Apache-2.0
// Marks what the shared library exports; everything else is hidden.
#pragma once

#if defined(_WIN32)
#error "attnjit supports Linux only"
#endif
#define ATTNJIT_EXPORT __attribute__((visibility("default")))
