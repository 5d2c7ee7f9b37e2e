// SPDX-License-Identifier: Apache-2.0
/* attnjit.h: the C ABI, for callers that are not C++ (and for those that want a stable one).
 *
 * Conventions:
 * 1. A function that can fail returns an attnjit_error*: NULL is success; otherwise the caller owns
 *    it and frees it with attnjit_error_free. Results come through the last pointer arguments,
 *    which are set to NULL or 0 on failure. There is no thread-local state and no last error.
 * 2. Structs begin with `size_t struct_size`, set to sizeof by the caller. Fields beyond the
 *    caller's size count as zero, and zero is every field's default: a struct that was cleared and
 *    given its size is valid. A struct larger than this library knows is accepted if its unknown
 *    tail is zero, and refused otherwise. Fields are only ever added at the end.
 * 3. Handles are opaque. A kernel belongs to its service and lives as long; specs, images, states
 *    and errors belong to the caller. NULL is accepted by every free function.
 * 4. Text is UTF-8. Text that is returned belongs to the handle that it was asked of.
 * 5. Device pointers are uint64_t (CUdeviceptr), streams void* (CUstream or cudaStream_t).
 * 6. Thread rules: as the C++ API: a service, a spec and a kernel from any thread; a launch state
 *    from one thread at a time. No function throws.
 */
#ifndef ATTNJIT_ATTNJIT_H_
#define ATTNJIT_ATTNJIT_H_

#include <stddef.h>
#include <stdint.h>

#include "attnjit/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function or a field is added; never for a bug fix. */
#define ATTNJIT_ABI_VERSION 12

/* The version of the library that is loaded, as MAJOR.MINOR.PATCH, and of its ABI. */
ATTNJIT_EXPORT const char* attnjit_version(void);
ATTNJIT_EXPORT uint32_t attnjit_abi_version(void);

typedef struct attnjit_service attnjit_service;
typedef struct attnjit_spec attnjit_spec; /* validated, planned and hashed once */
typedef struct attnjit_kernel attnjit_kernel;
typedef struct attnjit_image attnjit_image;
typedef struct attnjit_launch_state attnjit_launch_state;
typedef struct attnjit_error attnjit_error;

/* --- Errors ---------------------------------------------------------------------------------- */

enum {
  ATTNJIT_OK = 0,
  ATTNJIT_INVALID = 1,             /* the input is wrong */
  ATTNJIT_UNSUPPORTED = 2,         /* valid, but no template serves it */
  ATTNJIT_ENVIRONMENT = 3,         /* NVRTC, the driver or a GPU is missing or too old */
  ATTNJIT_COMPILE_FAILED = 4,      /* the compiler rejected it */
  ATTNJIT_TIMEOUT = 5,             /* the deadline passed */
  ATTNJIT_CANCELLED = 6,           /* the service is shutting down */
  ATTNJIT_COMPILE_FORBIDDEN = 7,   /* a compile was needed and is forbidden */
  ATTNJIT_CAPTURE_IN_PROGRESS = 8, /* a stream captures and the call would have to load */
  ATTNJIT_FORKED = 9,              /* this process is a fork of the service's */
  ATTNJIT_CORRUPT = 10,            /* stored bytes failed verification */
  ATTNJIT_IO = 11,                 /* the file system refused */
  ATTNJIT_DRIVER = 12,             /* the CUDA driver reported an error */
  ATTNJIT_INTERNAL = 13            /* a defect in attnjit */
};

ATTNJIT_EXPORT int32_t attnjit_error_code(const attnjit_error* error); /* ATTNJIT_OK for NULL */
ATTNJIT_EXPORT const char* attnjit_error_code_name(const attnjit_error* error);
ATTNJIT_EXPORT const char* attnjit_error_message(const attnjit_error* error);
/* The spec field, argument or file concerned; "" if there is none. */
ATTNJIT_EXPORT const char* attnjit_error_field(const attnjit_error* error);
ATTNJIT_EXPORT const char* attnjit_error_hint(const attnjit_error* error);
/* 1-based position in the snippet or the JSON text; 0: none. */
ATTNJIT_EXPORT int32_t attnjit_error_line(const attnjit_error* error);
ATTNJIT_EXPORT int32_t attnjit_error_column(const attnjit_error* error);
/* Everything, one line per problem. */
ATTNJIT_EXPORT const char* attnjit_error_text(const attnjit_error* error);
/* Further problems of the same request; they belong to `error` and are not freed. NULL: no such. */
ATTNJIT_EXPORT size_t attnjit_error_count_others(const attnjit_error* error);
ATTNJIT_EXPORT const attnjit_error* attnjit_error_other(const attnjit_error* error, size_t index);
ATTNJIT_EXPORT void attnjit_error_free(attnjit_error* error);

/* --- Service --------------------------------------------------------------------------------- */

/* level: 0 debug, 1 info, 2 warning, 3 error. Called from any thread; text is not terminated. */
typedef void (*attnjit_log_function)(void* context, int32_t level, const char* text, size_t length);

/* A compile that ended; what it refers to lives as long as the call. */
typedef struct attnjit_compile_event {
  size_t struct_size; /* the library's: what a newer one adds is past it */
  const char* key;    /* 64 hex digits */
  const char* arch;   /* e.g. "sm_90a" */
  double compile_ms;
  int32_t failed; /* nonzero: message says why, and the rest is zero */
  int32_t registers, spill_bytes, reserved;
  int64_t cubin_bytes;
  const char* message; /* "" unless it failed */
} attnjit_compile_event;

/* Called after each compile, by the thread that compiled, several at once; not for what a cache
 * had, and not after the service's end. It must not wait for the service. */
typedef void (*attnjit_compile_function)(void* context, const attnjit_compile_event* event);

typedef struct attnjit_service_options {
  size_t struct_size;
  const char* cache_layers;  /* folders A:B:C, the first is written; NULL: the default */
  int32_t no_disk_cache;     /* nonzero: no folder is read or written */
  int32_t forbid_compile;    /* nonzero: a compile is ATTNJIT_COMPILE_FORBIDDEN */
  int32_t compile_in_helper; /* nonzero: untrusted code too */
  int32_t compile_threads;   /* 0: what this process's cores and memory allow */
  int32_t any_build;         /* nonzero: images of another NVRTC serve; 0: by the environment */
  int32_t reserved;          /* zero */
  int64_t cache_max_bytes;   /* 0: 1 GiB */
  int64_t failure_ttl_s;     /* 0: 300; negative: failures are not remembered */
  const char* nvrtc_path;    /* NULL: found */
  const char* driver_path;
  const char* helper_path;
  const char* templates_folder;
  attnjit_log_function log; /* NULL: standard error */
  void* log_context;
  /* the JSON text of a tuning table that plans are made with; or "modelled": the library's */
  const char* tuning; /* NULL: none */
  /* nonzero: trusted code is compiled also where the helper's system calls cannot be filtered */
  int32_t accept_unconfined_helper;
  int32_t reserved2;        /* zero */
  const char* remote;       /* base URL of the remote tier; NULL: ATTNJIT_REMOTE; "": none */
  int64_t remote_budget_ms; /* what a look-up there may cost a request; 0: 50 */
  attnjit_compile_function on_compile; /* NULL: none */
  void* on_compile_context;
  int32_t compile_fallbacks; /* nonzero: attnjit_get_or_fallback compiles what would have served */
  int32_t nvtx_ranges;       /* nonzero: compiles, loads and launches are ranges for profilers */
} attnjit_service_options;

typedef struct attnjit_statistics {
  size_t struct_size;
  uint64_t memory_hits, disk_hits, remote_hits, compiles, failures, waits, quarantined, queued;
  double compile_ms_total;
  uint64_t fallbacks; /* requests that another kernel than the spec's own served */
} attnjit_statistics;

/* options may be NULL. */
ATTNJIT_EXPORT attnjit_error* attnjit_service_create(const attnjit_service_options* options,
                                                     attnjit_service** service);
/* Ends within 2 s, whatever compiles. Every kernel of the service is gone afterwards. */
ATTNJIT_EXPORT void attnjit_service_destroy(attnjit_service* service);
/* Fills what fits into statistics->struct_size. */
ATTNJIT_EXPORT attnjit_error* attnjit_service_statistics(const attnjit_service* service,
                                                         attnjit_statistics* statistics);

/* The statistics, the remote tier's too, in Prometheus's text format. Writes what fits into
 * `capacity`, with a terminator; *length is the whole text's without it. `text` may be NULL if
 * capacity is 0. */
ATTNJIT_EXPORT attnjit_error* attnjit_service_prometheus(const attnjit_service* service, char* text,
                                                         size_t capacity, size_t* length);

/* Waits until what was compiled is on the remote tier, or given up; *flushed (may be NULL) is 0
 * where the time ran out. timeout_ms negative: without limit. */
ATTNJIT_EXPORT attnjit_error* attnjit_service_flush(attnjit_service* service, int64_t timeout_ms,
                                                    int32_t* flushed);

/* --- Specs and kernels ----------------------------------------------------------------------- */

/* From the JSON of a spec (`length` bytes, or SIZE_MAX: terminated). */
ATTNJIT_EXPORT attnjit_error* attnjit_spec_prepare(attnjit_service* service, const char* json,
                                                   size_t length, attnjit_spec** spec);
ATTNJIT_EXPORT const char* attnjit_spec_key(const attnjit_spec* spec); /* 64 hex digits */
ATTNJIT_EXPORT void attnjit_spec_free(attnjit_spec* spec);
/* The parts that a launch of such bounds splits the keys into on a GPU of sm_count SMs, where the
 * spec says num_partitions 0 (of a ragged batch of total_q rows), or the CTAs among which the
 * device deals them out; 1: it does not. A caller that has no num_partitions of its own asks the
 * spec with 0, and takes that kernel where it says more. */
ATTNJIT_EXPORT attnjit_error* attnjit_spec_partitions(const attnjit_spec* spec, int32_t batch,
                                                      int32_t q_len, int32_t kv_len,
                                                      int32_t total_q, int32_t sm_count,
                                                      int32_t* partitions);

/* The loaded kernel, compiled if need be. timeout_ms negative: without limit. stream tells whether
 * a capture is going on; NULL: the default stream. */
ATTNJIT_EXPORT attnjit_error* attnjit_get(attnjit_service* service, const attnjit_spec* spec,
                                          int64_t timeout_ms, void* stream,
                                          const attnjit_kernel** kernel);
/* The kernel if it is loaded, else NULL. Lock-free: the hot path. */
ATTNJIT_EXPORT const attnjit_kernel* attnjit_find(const attnjit_service* service,
                                                  const attnjit_spec* spec);
/* Never blocks: the kernel, or NULL and a compile in the background. */
ATTNJIT_EXPORT attnjit_error* attnjit_try_get(attnjit_service* service, const attnjit_spec* spec,
                                              const attnjit_kernel** kernel);

/* As attnjit_try_get; but while the spec's own kernel is compiled in the background, one that
 * computes the same serves if it is at hand: one that interprets custom code, and takes constants
 * at launch (docs/fleet.md). *is_fallback (may be NULL) is 1 for such a kernel, which takes the
 * launch arguments of the spec's own; ask it for its workspace and attnjit_mask_map_shape. */
ATTNJIT_EXPORT attnjit_error* attnjit_get_or_fallback(attnjit_service* service,
                                                      const attnjit_spec* spec, void* stream,
                                                      const attnjit_kernel** kernel,
                                                      int32_t* is_fallback);

/* Loads the kernel into the stream's context, so that launches there can be captured. */
ATTNJIT_EXPORT attnjit_error* attnjit_kernel_prepare(const attnjit_kernel* kernel, void* stream);

/* --- Images ---------------------------------------------------------------------------------- */

enum {
  ATTNJIT_OUTCOME_MEMORY = 0,
  ATTNJIT_OUTCOME_DISK = 1,
  ATTNJIT_OUTCOME_REMOTE = 2,
  ATTNJIT_OUTCOME_COMPILED = 3
};

typedef struct attnjit_image_info {
  size_t struct_size;
  const void* cubin; /* belongs to the image */
  size_t cubin_bytes;
  const char* ptx; /* terminated; "" unless it was asked for */
  size_t ptx_bytes;
  int32_t outcome;
  int32_t registers; /* per thread */
  int32_t spill_bytes;
  int32_t stack_bytes;
  int32_t static_smem_bytes;
  int32_t reserved;
  double compile_ms; /* this call's; 0 on a hit */
  double total_ms;
  const char* nvrtc_version;
} attnjit_image_info;

/* The image, from memory, disk, the remote tier or a compile; needs no GPU. */
ATTNJIT_EXPORT attnjit_error* attnjit_compile(attnjit_service* service, const attnjit_spec* spec,
                                              int64_t timeout_ms, int32_t want_ptx,
                                              attnjit_image** image);
/* Fills what fits into info->struct_size. */
ATTNJIT_EXPORT attnjit_error* attnjit_image_get_info(const attnjit_image* image,
                                                     attnjit_image_info* info);
ATTNJIT_EXPORT void attnjit_image_free(attnjit_image* image);

/* --- Launch ---------------------------------------------------------------------------------- */

/* Elements from one to the next; that of a dimension of one element is not looked at. Zeros for all
 * that count: packed. A stride of 0, as what a framework expanded has, is ATTNJIT_STRIDE_ZERO; a 0
 * beside others is refused. */
#define ATTNJIT_STRIDE_ZERO INT64_MIN
typedef struct attnjit_strides {
  int64_t batch, row, head;
} attnjit_strides;

enum {
  ATTNJIT_PARAM_I32 = 0,
  ATTNJIT_PARAM_F32 = 1,
  ATTNJIT_PARAM_I32_ARRAY = 2,
  ATTNJIT_PARAM_F32_ARRAY = 3,
  ATTNJIT_PARAM_I32_MATRIX = 4,
  ATTNJIT_PARAM_U32 = 5,
  ATTNJIT_PARAM_U32_ARRAY = 6,
  ATTNJIT_PARAM_U32_MATRIX = 7,
  ATTNJIT_PARAM_F32_MATRIX = 8,
  ATTNJIT_PARAM_BF16_ARRAY = 9,
  ATTNJIT_PARAM_BF16_MATRIX = 10,
  ATTNJIT_PARAM_I32_CUBE = 11, /* three indices */
  ATTNJIT_PARAM_U32_CUBE = 12,
  ATTNJIT_PARAM_F32_CUBE = 13
};

/* A parameter of custom code: p.<name>. */
typedef struct attnjit_param {
  size_t struct_size;
  const char* name;
  int32_t type;
  int32_t i32; /* ATTNJIT_PARAM_I32, and the bits of ATTNJIT_PARAM_U32 */
  float f32;   /* ATTNJIT_PARAM_F32 */
  /* arrays: elements, 0, 0; matrices: rows, columns, 0; cubes: planes, rows, columns */
  int32_t extent[3];
  uint64_t pointer; /* arrays, matrices and cubes: device memory, row-major */
} attnjit_param;

typedef struct attnjit_launch_args {
  size_t struct_size;
  uint64_t q, k, v, o, lse, sink, page_table, kv_lens, q_offsets, q_scale, k_scale, v_scale, mask;
  int32_t batch, q_len, kv_len; /* ragged: q_len is the longest; paged: kv_len is */
  int32_t total_q, num_pages, max_pages;
  attnjit_strides q_strides, k_strides, v_strides, o_strides;
  float scale; /* 0: 1 / sqrt(qk_depth) */
  /* The numbers of these three kinds, for callers that give no `scalars`; 0: the spec's. */
  float cap;               /* softcap */
  int32_t window, chunk;   /* of the first sliding_window and chunked mask */
  int32_t more_windows[7]; /* of the second one, the third, .. */
  int32_t more_chunks[7];
  const attnjit_param* params; /* num_params of them, params[0].struct_size bytes apart */
  size_t num_params;
  uint64_t workspace; /* aligned to 256 bytes */
  int64_t workspace_bytes;
  void* stream;
  /* num_scalars numbers: those of the spec's mask tree in preorder (an operator before what it
   * combines), then those of its score modification; constant ones count and are not looked at. 0,
   * or past the end: what the fields above give, or the spec. */
  const double* scalars;
  size_t num_scalars;
  uint64_t kv_offsets;         /* ragged_kv: i32 [batch + 1] */
  uint64_t pairs_o, pairs_lse; /* merge: [num_pairs, as o, packed], f32 [num_pairs, as lse] */
  int32_t total_kv;            /* ragged_kv: rows of k */
  int32_t num_pairs;           /* merge */
  /* Nonzero: it may begin before the launch before it on the stream has ended, and waits for its
   * end before it reads or writes. Of no effect on kernels that cannot. */
  int32_t overlap;
  int32_t reserved; /* zero */
  /* A map of the mask in memory of the caller's: i32 arrays as FlexAttention's BlockMask has them,
   * with blocks of 128. READ without the last two: no block is seen whole. */
  uint64_t kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices;
  int32_t mask_map;             /* ATTNJIT_MASK_MAP_NONE, .. */
  int32_t map_batch, map_heads; /* extents; zeros: attnjit_mask_map_shape's */
  int32_t map_q_blocks, map_kv_blocks;
  int32_t reserved2; /* zero */
  uint64_t slopes;   /* alibi with slopes: f32 [num_q_heads] */
  /* Of a materialized mask its batches, heads and rows: 1, for all, or one each; 0: one each. */
  int32_t mask_batch, mask_heads, mask_rows;
  int32_t reserved3;            /* zero */
  attnjit_strides mask_strides; /* elements, of bits bytes; zeros: packed */
  uint64_t output_scale;        /* where o is e4m3: f32 [1]; o is the result over it */
  uint64_t topk_indices;        /* topk: i32 [rows of q, topk], packed */
  /* Of the map, where it has them, the bits of blocks that are seen in part: i32 as kv_indices, and
   * u32 [bit_blocks, 128, 4]. Those of a map that attnjit wrote; a BlockMask has none. */
  uint64_t kv_bits, block_bits;
  int32_t bit_blocks; /* 0: no bits */
  int32_t reserved4;  /* zero */
  /* Where rope_dtype is not qkv_dtype: the last 64 elements of each row of Q, laid out as q, and of
   * K, as k with one head, which is every head's; q and k have those before them. */
  uint64_t q_rope, k_rope;
  attnjit_strides q_rope_strides, k_rope_strides;
  /* Of k_scale and v_scale alike, where tokens of a paged cache have scales: from page to page, row
   * to row and head to head. */
  attnjit_strides kv_scale_strides;
} attnjit_launch_args;

/* attnjit_launch_args.mask_map: what a launch does with the caller's map. */
enum {
  ATTNJIT_MASK_MAP_NONE = 0,  /* there is none: one is made in the workspace where it is needed */
  ATTNJIT_MASK_MAP_WRITE = 1, /* the launch makes it, and walks it */
  ATTNJIT_MASK_MAP_READ = 2   /* it is there: as another launch wrote it, or as a BlockMask is */
};

/* What a launch keeps of the last eight calls that differ in more than pointers: encoded tensor
 * maps, packed arguments, and the libraries of their kernels. */
ATTNJIT_EXPORT attnjit_error* attnjit_launch_state_create(attnjit_launch_state** state);
ATTNJIT_EXPORT void attnjit_launch_state_reset(attnjit_launch_state* state);
ATTNJIT_EXPORT void attnjit_launch_state_free(attnjit_launch_state* state);

/* The first bytes of a workspace, the counters from which CTAs take their tiles. */
enum { ATTNJIT_TILE_COUNTERS_BYTES = 256 };
#define ATTNJIT_CLAIMS_BYTES ATTNJIT_TILE_COUNTERS_BYTES /* its name in 0.2.0 */

/* The device memory that such launches need beside their tensors, and how many of its first bytes
 * must be zero before its first launch. Kernels leave the first ATTNJIT_TILE_COUNTERS_BYTES zero:
 * so a buffer in which these were zero once serves the launches of any kernels but those of
 * debug_waits, one after another. Where no more than these are needed, a launch may be given none:
 * it takes longer where sequences differ much in length. */
ATTNJIT_EXPORT attnjit_error* attnjit_workspace(const attnjit_kernel* kernel,
                                                const attnjit_launch_args* args, int64_t* bytes,
                                                int32_t* zero_bytes);

/* The extents of the map that such a launch makes: batch, heads, q_blocks, kv_blocks. The first
 * three are those of the two arrays of numbers, all four of the arrays of indices.
 * ATTNJIT_UNSUPPORTED where the kernel walks no map. */
ATTNJIT_EXPORT attnjit_error* attnjit_mask_map_shape(const attnjit_kernel* kernel,
                                                     const attnjit_launch_args* args,
                                                     int32_t extents[4]);

/* How many blocks the map that such a launch makes has bits of at most: the first extent of
 * block_bits; 0: it has none. The launch makes it with fewer, or without. ATTNJIT_UNSUPPORTED where
 * the kernel walks no map. */
ATTNJIT_EXPORT attnjit_error* attnjit_mask_map_bits(const attnjit_kernel* kernel,
                                                    const attnjit_launch_args* args,
                                                    int32_t* bit_blocks);

/* Enqueues the kernel on args->stream, in the stream's context. An empty problem launches
 * nothing. */
ATTNJIT_EXPORT attnjit_error* attnjit_launch(const attnjit_kernel* kernel,
                                             const attnjit_launch_args* args,
                                             attnjit_launch_state* state);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTNJIT_ATTNJIT_H_ */
