// SPDX-License-Identifier: Apache-2.0
/* The few CUDA driver calls that the examples need: a context, device memory and copies.
 *
 * A real server has these already. They are opened at run time here, so that the examples build
 * without CUDA's headers and start on a machine without a GPU.
 */
#ifndef ATTNJIT_EXAMPLES_GPU_H_
#define ATTNJIT_EXAMPLES_GPU_H_

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct gpu {
  int (*allocate)(uint64_t* pointer, size_t bytes);
  int (*copy_in)(uint64_t to, const void* from, size_t bytes);
  int (*copy_out)(void* to, uint64_t from, size_t bytes);
} gpu;

/* The function of libcuda named `name`, whatever its type is. */
static void gpu_symbol(void* library, const char* name, void* function) {
  *(void**)function = dlsym(library, name);
}

/* Opens the first GPU and makes its primary context current. Returns NULL, or what is missing. */
static const char* gpu_open(gpu* out) {
  int (*init)(unsigned) = NULL;
  int (*get)(int*, int) = NULL;
  int (*retain)(void**, int) = NULL;
  int (*set_current)(void*) = NULL;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return "there is no CUDA driver (libcuda.so.1): install NVIDIA's driver";
  gpu_symbol(library, "cuInit", &init);
  gpu_symbol(library, "cuDeviceGet", &get);
  gpu_symbol(library, "cuDevicePrimaryCtxRetain", &retain);
  gpu_symbol(library, "cuCtxSetCurrent", &set_current);
  gpu_symbol(library, "cuMemAlloc_v2", &out->allocate);
  gpu_symbol(library, "cuMemcpyHtoD_v2", &out->copy_in);
  gpu_symbol(library, "cuMemcpyDtoH_v2", &out->copy_out);
  if (init == NULL || get == NULL || retain == NULL || set_current == NULL ||
      out->allocate == NULL || out->copy_in == NULL || out->copy_out == NULL) {
    return "the CUDA driver is too old: it lacks a function that this example calls";
  }
  int device = 0;
  if (init(0) != 0 || get(&device, 0) != 0) return "the CUDA driver finds no GPU";
  void* context = NULL;
  if (retain(&context, device) != 0 || set_current(context) != 0) {
    return "the GPU gives no context: another process may hold it";
  }
  return NULL;
}

/* Device memory is exhausted, or a kernel failed: the example can only end. */
static void gpu_check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s failed with CUDA error %d\n", what, result);
  exit(1);
}

/* Device memory with a copy of `bytes` bytes, or uninitialised where `from` is NULL. */
static uint64_t gpu_upload(const gpu* on, const void* from, size_t bytes) {
  uint64_t pointer = 0;
  gpu_check(on->allocate(&pointer, bytes), "cuMemAlloc");
  if (from != NULL) gpu_check(on->copy_in(pointer, from, bytes), "cuMemcpyHtoD");
  return pointer;
}

/* Copies device memory to the host, after everything that was launched on the default stream. */
static void gpu_download(const gpu* on, void* to, uint64_t from, size_t bytes) {
  gpu_check(on->copy_out(to, from, bytes), "cuMemcpyDtoH");
}

#endif /* ATTNJIT_EXAMPLES_GPU_H_ */
