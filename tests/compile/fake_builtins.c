// SPDX-License-Identifier: Apache-2.0
// What fake_nvrtc.c opens by its name; there is nothing in it that it calls.
__attribute__((visibility("default"))) int attnjit_fake_builtins = 1;
