// SPDX-License-Identifier: Apache-2.0
/* Embeds attnjit through its C ABI: it does what embed.cpp does, and exits with the same codes.
 *
 *     embed_c [ARCH]      ARCH: sm_90a (the default), sm_100a or sm_103a
 */
#include <stdint.h>
#include <stdio.h>

#include "attnjit/attnjit.h"
#include "gpu.h"
#include "reference.h"

enum { kMinute = 60000 };

static uint16_t q[kQuerySize], k[kKeySize], v[kKeySize], o[kQuerySize];

/* Prints and frees an error, and returns the exit code for it. */
static int fail(attnjit_error* error) {
  const int32_t code = attnjit_error_code(error);
  fprintf(stderr, "%s\n", attnjit_error_text(error));
  attnjit_error_free(error);
  switch (code) {
    case ATTNJIT_INVALID:
      return 2;
    case ATTNJIT_UNSUPPORTED:
      return 3;
    case ATTNJIT_ENVIRONMENT:
      return 4;
    default:
      return 1;
  }
}

/* Launches the kernel on random tensors, and compares its output with the reference. */
static int launch_and_check(const attnjit_kernel* kernel, attnjit_launch_state* state) {
  gpu device = {0};
  const char* problem = gpu_open(&device);
  if (problem != NULL) {
    fprintf(stderr, "%s\n", problem);
    return 4;
  }
  fill(q, kQuerySize, 1);
  fill(k, kKeySize, 2);
  fill(v, kKeySize, 3);
  attnjit_launch_args args = {0}; /* zero is every field's default */
  args.struct_size = sizeof args;
  args.batch = 1;
  args.q_len = kRows;
  args.kv_len = kKeys;
  args.q = gpu_upload(&device, q, sizeof q);
  args.k = gpu_upload(&device, k, sizeof k);
  args.v = gpu_upload(&device, v, sizeof v);
  args.o = gpu_upload(&device, o, sizeof o);
  attnjit_error* error = attnjit_launch(kernel, &args, state);
  if (error != NULL) return fail(error);
  gpu_download(&device, o, args.o, sizeof o);
  const double off = relative_error(q, k, v, o);
  printf("relative error %.1e: %s\n", off, off <= 1e-2 ? "right" : "wrong");
  return off <= 1e-2 ? 0 : 1;
}

int main(int argc, char** argv) {
  char json[200];
  snprintf(json, sizeof json,
           "{\"arch\": \"%.20s\", \"num_q_heads\": 8, \"group\": 4, \"qk_depth\": 128,"
           " \"mask\": \"causal\"}",
           argc > 1 ? argv[1] : "sm_90a");
  attnjit_service* service = NULL;
  attnjit_spec* spec = NULL;
  attnjit_launch_state* state = NULL;
  const attnjit_kernel* kernel = NULL; /* belongs to the service */
  attnjit_error* error = attnjit_service_create(NULL, &service);
  if (error == NULL) error = attnjit_spec_prepare(service, json, SIZE_MAX, &spec);
  if (error == NULL) error = attnjit_get(service, spec, kMinute, NULL, &kernel);
  if (error == NULL) error = attnjit_launch_state_create(&state);
  const int result = error != NULL ? fail(error) : launch_and_check(kernel, state);
  attnjit_launch_state_free(state);
  attnjit_spec_free(spec);
  attnjit_service_destroy(service);
  return result;
}
