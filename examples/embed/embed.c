// SPDX-License-Identifier: Apache-2.0
/* Embeds attnjit through its C ABI: the same as embed.cpp.
 *
 * Works on a machine with neither NVRTC nor a GPU: it then says what is missing and exits with 4.
 */
#include <stdio.h>

#include "attnjit/attnjit.h"

static int fail(attnjit_error* error) {
  int missing = attnjit_error_code(error) == ATTNJIT_ENVIRONMENT;
  fprintf(stderr, "%s\n", attnjit_error_text(error));
  attnjit_error_free(error);
  return missing ? 4 : 1;
}

int main(void) {
  const char* json =
      "{\"arch\": \"sm_90a\", \"num_q_heads\": 32, \"group\": 4, \"qk_depth\": 128,"
      " \"return_lse\": true, \"mask\": \"causal\"}";
  attnjit_service* service = NULL;
  attnjit_spec* spec = NULL;
  attnjit_image* image = NULL;
  attnjit_image_info info = {0};
  attnjit_error* error = attnjit_service_create(NULL, &service);
  if (error != NULL) return fail(error);
  /* Prepared once per model: planned, rendered, hashed. The hot path never sees the text again. */
  error = attnjit_spec_prepare(service, json, SIZE_MAX, &spec);
  if (error == NULL) {
    printf("key %s\n", attnjit_spec_key(spec));
    error = attnjit_compile(service, spec, 60000, 0, &image);
  }
  if (error == NULL) {
    info.struct_size = sizeof info;
    error = attnjit_image_get_info(image, &info);
  }
  if (error == NULL) {
    printf("%zu bytes of cubin, %d registers\n", info.cubin_bytes, (int)info.registers);
  }
  attnjit_image_free(image);
  attnjit_spec_free(spec);
  attnjit_service_destroy(service);
  return error != NULL ? fail(error) : 0;
}
