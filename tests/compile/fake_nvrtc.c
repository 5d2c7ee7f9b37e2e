// SPDX-License-Identifier: Apache-2.0
// An NVRTC whose every compile ends with FAKE_RESULT and FAKE_LOG; with FAKE_BUILTINS only if that
// library opens by its bare name, as with NVRTC.
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvrtcVersion(int* major, int* minor) {
#ifdef FAKE_MAJOR
  *major = FAKE_MAJOR;
  *minor = FAKE_MINOR;
#else
  *major = 99;
  *minor = 9;
#endif
  return 0;
}
EXPORT const char* nvrtcGetErrorString(int result) {
  return result == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR_OF_THE_TEST";
}
EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}
EXPORT int nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 90;
  archs[1] = 100;
  archs[2] = 103;
  return 0;
}
EXPORT int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers,
                              const char* const* texts, const char* const* names) {
  (void)source, (void)name, (void)headers, (void)texts, (void)names;
  *program = program;
  return 0;
}
EXPORT int nvrtcDestroyProgram(void** program) {
  *program = NULL;
  return 0;
}
EXPORT int nvrtcCompileProgram(void* program, int options, const char* const* values) {
  (void)program, (void)options, (void)values;
#ifdef FAKE_BUILTINS
  if (dlopen(FAKE_BUILTINS, RTLD_LAZY) == NULL) return 7;
#endif
  return FAKE_RESULT;
}
EXPORT int nvrtcGetProgramLogSize(void* program, size_t* size) {
  (void)program;
  *size = sizeof FAKE_LOG;
  return 0;
}
EXPORT int nvrtcGetProgramLog(void* program, char* log) {
  (void)program;
  memcpy(log, FAKE_LOG, sizeof FAKE_LOG);
  return 0;
}
EXPORT int nvrtcGetCUBINSize(void* program, size_t* size) {
  (void)program;
  *size = 0;
  return 0;
}
EXPORT int nvrtcGetCUBIN(void* program, char* cubin) {
  (void)program, (void)cubin;
  return 0;
}
EXPORT int nvrtcGetPTXSize(void* program, size_t* size) {
  (void)program;
  *size = 0;
  return 0;
}
EXPORT int nvrtcGetPTX(void* program, char* ptx) {
  (void)program, (void)ptx;
  return 0;
}
