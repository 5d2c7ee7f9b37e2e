// SPDX-License-Identifier: Apache-2.0
/* What c_abi_test.cpp calls of c_abi_test.c: 0, or the line of the check that failed. */
#ifndef ATTNJIT_TESTS_SERVICE_C_ABI_TEST_H_
#define ATTNJIT_TESTS_SERVICE_C_ABI_TEST_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
const char* c_abi_spec(void);
int c_abi_errors(void);
int c_abi_versions(void);
int c_abi_tuning(void);
int c_abi_launch(const char* cache, const char* driver, uint64_t memory);
int c_abi_fallback(const char* cache, const char* driver, uint64_t memory);
#ifdef __cplusplus
}
#endif

#endif
