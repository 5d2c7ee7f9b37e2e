// SPDX-License-Identifier: Apache-2.0
/* The C ABI used from C99: each check that fails returns its line. */
#include "c_abi_test.h"

#include <stdlib.h>
#include <string.h>

#include "attnjit/attnjit.h"

#define CHECK(CONDITION)               \
  do {                                 \
    if (!(CONDITION)) return __LINE__; \
  } while (0)

static const char* const kSpec =
    "{\"arch\": \"sm_90a\", \"num_q_heads\": 8, \"group\": 2, \"qk_depth\": 128,"
    " \"mask\": {\"kind\": \"and\", \"of\": [\"causal\", {\"kind\": \"custom\", \"name\": "
    "\"document\","
    " \"code\": \"p.doc[b] == p.doc[kv_h] || kv_idx < p.first\","
    " \"params\": [{\"name\": \"doc\", \"type\": \"i32[]\"}, {\"name\": \"first\", \"type\":"
    " \"i32\"}]}]}}";

const char* c_abi_spec(void) { return kSpec; }

static void count_log(void* context, int32_t level, const char* text, size_t length) {
  (void)level;
  (void)text;
  (void)length;
  ++*(int*)context;
}

int c_abi_errors(void) {
  attnjit_service* service = NULL;
  attnjit_spec* spec = (attnjit_spec*)&service;
  attnjit_error* error = NULL;
  attnjit_service_options options;
  int32_t flushed = 0;

  CHECK(strlen(attnjit_version()) > 0);
  CHECK(attnjit_abi_version() == ATTNJIT_ABI_VERSION);
  CHECK(ATTNJIT_CLAIMS_BYTES == ATTNJIT_TILE_COUNTERS_BYTES);
  CHECK(attnjit_error_code(NULL) == ATTNJIT_OK);
  attnjit_error_free(NULL);
  attnjit_spec_free(NULL);
  attnjit_image_free(NULL);
  attnjit_service_destroy(NULL);
  attnjit_launch_state_free(NULL);
  CHECK(attnjit_find(NULL, NULL) == NULL);

  error = attnjit_service_create(NULL, NULL);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strcmp(attnjit_error_field(error), "service") == 0);
  attnjit_error_free(error);

  memset(&options, 0, sizeof options);
  error = attnjit_service_create(&options, &service); /* a size of 0 */
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(service == NULL);
  attnjit_error_free(error);

  options.struct_size = sizeof options;
  options.reserved2 = 1;
  error = attnjit_service_create(&options, &service);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  attnjit_error_free(error);
  options.reserved2 = 0;
  options.remote = "gopher://x";
  error = attnjit_service_create(&options, &service);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strcmp(attnjit_error_field(error), "remote") == 0);
  attnjit_error_free(error);
  options.remote = "http://127.0.0.1:9";
  options.remote_budget_ms = -1;
  error = attnjit_service_create(&options, &service);
  CHECK(strcmp(attnjit_error_field(error), "remote_budget_ms") == 0);
  attnjit_error_free(error);
  options.remote = ""; /* none, whatever the environment says */
  options.remote_budget_ms = 0;
  options.accept_unconfined_helper = 1;
  options.no_disk_cache = 1;
  CHECK(attnjit_service_create(&options, &service) == NULL);
  CHECK(attnjit_service_flush(service, 1000, &flushed) == NULL);
  CHECK(flushed == 1);
  {
    char text[40];
    size_t length = 0;
    CHECK(attnjit_service_prometheus(service, NULL, 0, &length) == NULL);
    CHECK(length > 1000);
    memset(text, 0x7f, sizeof text);
    CHECK(attnjit_service_prometheus(service, text, sizeof text - 1, &length) == NULL);
    CHECK(strlen(text) == sizeof text - 2 && text[sizeof text - 1] == 0x7f);
    CHECK(strncmp(text, "# HELP attnjit_memory_hits_total ", 33) == 0);
    error = attnjit_service_prometheus(service, NULL, 1, &length);
    CHECK(strcmp(attnjit_error_field(error), "text") == 0);
    attnjit_error_free(error);
  }

  error =
      attnjit_spec_prepare(service, "{\"num_q_heads\": 8,\n \"qk_depht\": 128}", SIZE_MAX, &spec);
  CHECK(error != NULL);
  CHECK(spec == NULL);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strcmp(attnjit_error_code_name(error), "invalid") == 0);
  CHECK(strstr(attnjit_error_text(error), "qk_depht") != NULL);
  CHECK(strlen(attnjit_error_message(error)) > 0);
  CHECK(attnjit_error_hint(error) != NULL);
  CHECK(attnjit_error_count_others(error) > 0); /* qk_depth is missing, too */
  CHECK(attnjit_error_other(error, 0) != NULL);
  CHECK(attnjit_error_other(error, 1000) == NULL);
  attnjit_error_free(error);

  /* The length counts, not a terminator. */
  error = attnjit_spec_prepare(service, "{}garbage", 2, &spec);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strstr(attnjit_error_text(error), "garbage") == NULL);
  attnjit_error_free(error);

  error = attnjit_spec_prepare(
      service,
      "{\"arch\": \"sm_90a\", \"num_q_heads\": 8, \"qk_depth\": 128, \"mask\": {\"kind\": "
      "\"custom\", \"name\": \"m\", \"code\": \"kv_idx <=\\n  nothing\"}}",
      SIZE_MAX, &spec);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(attnjit_error_line(error) == 2);
  CHECK(attnjit_error_column(error) == 3);
  attnjit_error_free(error);
  attnjit_service_destroy(service);
  return 0;
}

int c_abi_versions(void) {
  /* What a caller of another version of this header would pass. */
  struct newer {
    attnjit_service_options known;
    uint64_t field_of_the_future;
  } newer;
  struct newer_statistics {
    attnjit_statistics known;
    uint64_t field_of_the_future;
  } more;
  attnjit_service_options older;
  attnjit_statistics less;
  attnjit_service* service = NULL;
  attnjit_error* error = NULL;

  memset(&newer, 0, sizeof newer);
  newer.known.struct_size = sizeof newer;
  newer.known.no_disk_cache = 1;
  CHECK(attnjit_service_create(&newer.known, &service) == NULL);
  attnjit_service_destroy(service);
  newer.field_of_the_future = 1;
  error = attnjit_service_create(&newer.known, &service);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(service == NULL);
  attnjit_error_free(error);

  /* Beyond the older caller's size there is rubbish, which must not be read. */
  memset(&older, 0x7f, sizeof older);
  older.struct_size = offsetof(attnjit_service_options, forbid_compile);
  older.cache_layers = NULL;
  older.no_disk_cache = 1;
  CHECK(attnjit_service_create(&older, &service) == NULL);

  memset(&less, 0x7f, sizeof less);
  less.struct_size = offsetof(attnjit_statistics, compiles);
  CHECK(attnjit_service_statistics(service, &less) == NULL);
  CHECK(less.memory_hits == 0);
  CHECK(less.compiles == 0x7f7f7f7f7f7f7f7fU); /* untouched */
  CHECK(less.struct_size == offsetof(attnjit_statistics, compiles));
  memset(&more, 0x7f, sizeof more);
  more.known.struct_size = sizeof more;
  CHECK(attnjit_service_statistics(service, &more.known) == NULL);
  CHECK(more.known.compile_ms_total == 0);
  CHECK(more.field_of_the_future == 0);
  attnjit_service_destroy(service);
  return 0;
}

int c_abi_tuning(void) {
  static const char* const kTables[] = {NULL, "{\"rows\": []}",
                                        "{\"rows\": [{\"choose\": {\"BN\": 80}}]}"};
  static const char* const kChosen =
      "{\"arch\": \"sm_90a\", \"num_q_heads\": 8, \"group\": 2, \"qk_depth\": 128, \"mask\": "
      "\"causal\","
      " \"num_partitions\": 0}";
  char keys[3][65];
  attnjit_service_options options;
  attnjit_service* service = NULL;
  attnjit_spec* spec = NULL;
  attnjit_error* error = NULL;
  int32_t parts = 0;
  int i = 0;

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.no_disk_cache = 1;
  for (i = 0; i < 3; ++i) {
    options.tuning = kTables[i];
    CHECK(attnjit_service_create(&options, &service) == NULL);
    CHECK(attnjit_spec_prepare(service, kSpec, strlen(kSpec), &spec) == NULL);
    strcpy(keys[i], attnjit_spec_key(spec));
    CHECK(attnjit_spec_partitions(spec, 1, 128, 8192, 0, 132, &parts) == NULL);
    CHECK(parts == 1); /* it says so */
    attnjit_spec_free(spec);
    attnjit_service_destroy(service);
  }
  options.tuning = NULL;
  CHECK(attnjit_service_create(&options, &service) == NULL);
  CHECK(attnjit_spec_prepare(service, kChosen, strlen(kChosen), &spec) == NULL);
  CHECK(attnjit_spec_partitions(spec, 1, 128, 8192, 0, 132, &parts) == NULL);
  CHECK(parts > 1);
  CHECK(attnjit_spec_partitions(spec, 64, 4096, 4096, 0, 132, &parts) == NULL);
  CHECK(parts == 1);
  CHECK(attnjit_spec_partitions(spec, 0, 128, 8192, 0, 0, &parts) == NULL);
  CHECK(parts == 1);
  error = attnjit_spec_partitions(spec, 1, 128, -1, 0, 132, &parts);
  CHECK(strcmp(attnjit_error_field(error), "kv_len") == 0 && parts == 0);
  attnjit_error_free(error);
  error = attnjit_spec_partitions(NULL, 1, 128, 8192, 0, 132, &parts);
  CHECK(strcmp(attnjit_error_field(error), "spec") == 0);
  attnjit_error_free(error);
  error = attnjit_spec_partitions(spec, 1, 128, 8192, 0, 132, NULL);
  CHECK(strcmp(attnjit_error_field(error), "partitions") == 0);
  attnjit_error_free(error);
  attnjit_spec_free(spec);
  attnjit_service_destroy(service);
  CHECK(strcmp(keys[0], keys[1]) == 0);
  CHECK(strcmp(keys[0], keys[2]) != 0);
  options.tuning = "{\"rows\": 3}";
  error = attnjit_service_create(&options, &service);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strstr(attnjit_error_field(error), "tuning") != NULL);
  CHECK(service == NULL);
  attnjit_error_free(error);
  return 0;
}

int c_abi_launch(const char* cache, const char* driver, uint64_t memory) {
  attnjit_service_options options;
  attnjit_service* service = NULL;
  attnjit_spec* spec = NULL;
  attnjit_image* image = NULL;
  attnjit_image_info info;
  attnjit_statistics statistics;
  attnjit_launch_args args;
  attnjit_launch_state* state = NULL;
  attnjit_error* error = NULL;
  const attnjit_kernel* kernel = NULL;
  struct wider_param {
    attnjit_param known;
    uint64_t field_of_the_future;
  } params[2];
  int64_t bytes = -1;
  int32_t zero_bytes = -1;
  int i = 0;
  int logged = 0;

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.cache_layers = cache;
  options.driver_path = driver;
  options.forbid_compile = 1;
  options.any_build = 1;
  options.log = count_log;
  options.log_context = &logged;
  CHECK(attnjit_service_create(&options, &service) == NULL);
  CHECK(attnjit_spec_prepare(service, kSpec, strlen(kSpec), &spec) == NULL);
  CHECK(strlen(attnjit_spec_key(spec)) == 64);
  CHECK(attnjit_find(service, spec) == NULL);

  error = attnjit_compile(service, spec, 10000, 0, &image);
  CHECK(error == NULL);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK(attnjit_image_get_info(image, &info) == NULL);
  CHECK(info.cubin_bytes > 64);
  CHECK(memcmp(info.cubin,
               "\x7f"
               "ELF",
               4) == 0);
  CHECK(info.outcome == ATTNJIT_OUTCOME_DISK);
  CHECK(info.compile_ms == 0);
  attnjit_image_free(image);

  CHECK(attnjit_get(service, spec, 10000, NULL, &kernel) == NULL);
  CHECK(kernel != NULL);
  CHECK(attnjit_find(service, spec) == kernel);
  CHECK(attnjit_try_get(service, spec, &kernel) == NULL);
  CHECK(attnjit_find(service, spec) == kernel);
  CHECK(attnjit_kernel_prepare(kernel, NULL) == NULL);

  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.q = memory;
  args.k = memory + 0x100000;
  args.v = memory + 0x200000;
  args.o = memory + 0x300000;
  args.batch = 2;
  args.q_len = 300;
  args.kv_len = 500;
  memset(params, 0, sizeof params);
  params[0].known.struct_size = sizeof params[0];
  params[0].known.name = "first";
  params[0].known.type = ATTNJIT_PARAM_I32;
  params[0].known.i32 = 4;
  params[1].known.struct_size = sizeof params[1];
  params[1].known.name = "doc";
  params[1].known.type = ATTNJIT_PARAM_I32_ARRAY;
  params[1].known.pointer = memory + 0x400000;
  params[1].known.extent[0] = 500;
  CHECK(attnjit_launch_state_create(&state) == NULL);

  error = attnjit_launch(kernel, &args, state); /* without its parameters */
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(attnjit_error_count_others(error) == 1);
  CHECK(strcmp(attnjit_error_field(error), "param_doc") == 0);
  attnjit_error_free(error);

  args.params = &params[0].known;
  args.num_params = 2;
  CHECK(attnjit_workspace(kernel, &args, &bytes, &zero_bytes) == NULL);
  CHECK(bytes >= 0);
  for (i = 0; i < 3; ++i) CHECK(attnjit_launch(kernel, &args, state) == NULL);
  attnjit_launch_state_reset(state);
  CHECK(attnjit_launch(kernel, &args, state) == NULL);

  args.q += 8;
  error = attnjit_launch(kernel, &args, state);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strcmp(attnjit_error_field(error), "q") == 0);
  attnjit_error_free(error);
  args.q -= 8;
  params[1].known.type = 9;
  error = attnjit_launch(kernel, &args, state);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  attnjit_error_free(error);
  params[1].known.type = ATTNJIT_PARAM_I32_ARRAY;
  params[0].known.struct_size = sizeof params[0] - 1;
  error = attnjit_launch(kernel, &args, state);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  CHECK(strcmp(attnjit_error_field(error), "params") == 0);
  CHECK(strstr(attnjit_error_message(error), "multiple") != NULL);
  attnjit_error_free(error);
  params[0].known.struct_size = sizeof params[0];
  params[1].field_of_the_future = 1;
  error = attnjit_launch(kernel, &args, state);
  CHECK(attnjit_error_code(error) == ATTNJIT_INVALID);
  attnjit_error_free(error);

  memset(&statistics, 0, sizeof statistics);
  statistics.struct_size = sizeof statistics;
  CHECK(attnjit_service_statistics(service, &statistics) == NULL);
  CHECK(statistics.disk_hits == 1);
  CHECK(statistics.compiles == 0);

  attnjit_launch_state_free(state);
  attnjit_spec_free(spec);
  attnjit_service_destroy(service);
  CHECK(logged >= 0);
  return 0;
}

int c_abi_fallback(const char* cache, const char* driver, uint64_t memory) {
  attnjit_service* service = NULL;
  attnjit_spec* spec = NULL;
  attnjit_launch_state* state = NULL;
  const attnjit_kernel* kernel = NULL;
  attnjit_service_options options;
  attnjit_launch_args args;
  attnjit_param params[2];
  attnjit_statistics statistics;
  attnjit_error* error = NULL;
  int32_t is_fallback = -1;

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.cache_layers = cache;
  options.driver_path = driver;
  options.forbid_compile = 1; /* so that the spec's own kernel never comes */
  options.any_build = 1;
  CHECK(attnjit_service_create(&options, &service) == NULL);
  error = attnjit_get_or_fallback(service, NULL, NULL, &kernel, &is_fallback);
  CHECK(strcmp(attnjit_error_field(error), "spec") == 0);
  attnjit_error_free(error);
  CHECK(is_fallback == 0);
  CHECK(attnjit_spec_prepare(service, kSpec, strlen(kSpec), &spec) == NULL);
  CHECK(attnjit_get_or_fallback(service, spec, NULL, &kernel, &is_fallback) == NULL);
  CHECK(kernel != NULL);
  CHECK(is_fallback == 1);
  CHECK(attnjit_get_or_fallback(service, spec, NULL, &kernel, NULL) == NULL);

  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.q = memory;
  args.k = memory + 0x100000;
  args.v = memory + 0x200000;
  args.o = memory + 0x300000;
  args.batch = 2;
  args.q_len = 300;
  args.kv_len = 500;
  args.workspace = memory + 0x500000;
  args.workspace_bytes = 0x1000000;
  memset(params, 0, sizeof params);
  params[0].struct_size = sizeof params[0];
  params[0].name = "first";
  params[0].type = ATTNJIT_PARAM_I32;
  params[0].i32 = 4;
  params[1].struct_size = sizeof params[1];
  params[1].name = "doc";
  params[1].type = ATTNJIT_PARAM_I32_ARRAY;
  params[1].pointer = memory + 0x400000;
  params[1].extent[0] = 500;
  args.params = params;
  args.num_params = 2;
  CHECK(attnjit_launch_state_create(&state) == NULL);
  CHECK(attnjit_launch(kernel, &args, state) == NULL);
  params[1].pointer += 0x1000; /* the addresses alone */
  CHECK(attnjit_launch(kernel, &args, state) == NULL);

  memset(&statistics, 0, sizeof statistics);
  statistics.struct_size = sizeof statistics;
  CHECK(attnjit_service_statistics(service, &statistics) == NULL);
  CHECK(statistics.fallbacks == 2);
  attnjit_launch_state_free(state);
  attnjit_spec_free(spec);
  attnjit_service_destroy(service);
  return 0;
}
