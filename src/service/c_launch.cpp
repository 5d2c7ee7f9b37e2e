// SPDX-License-Identifier: Apache-2.0
// Implements the C ABI's launches.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/driver.h"
#include "service/c_abi.h"
#include "spec/kinds.h"
#include "spec/spec_fields.h"

struct attnjit_launch_state {
  attnjit::LaunchState state;
  attnjit::LaunchArgs args;  // kept, so that a launch with parameters does not allocate each time
};

namespace attnjit {
namespace {

constexpr std::size_t kMaxListed = 4096;  // far more than any spec declares

const Kernel& from_c(const attnjit_kernel* kernel) {
  return *reinterpret_cast<const Kernel*>(kernel);
}

TensorStrides from_c(const attnjit_strides& strides) {
  return {strides.batch, strides.row, strides.head};
}

Status param_from_c(const attnjit_param& in, UserParam& out) {
  if (in.name == nullptr) return null_argument("params.name");
  const auto field = [&] { return std::string("param_") + in.name; };
  const auto types = static_cast<std::int32_t>(spec::names_of(ParamSpec::Type{}).size());
  if (in.type < 0 || in.type >= types) {
    return make_error(ErrorCode::kInvalid,
                      "type is " + std::to_string(in.type) + "; 0 to " + std::to_string(types - 1) +
                          " is allowed",
                      field());
  }
  const spec::ParamShape shape = spec::shape_of(static_cast<ParamSpec::Type>(in.type));
  if (shape.rank < 3 && in.extent[2] != 0) {
    return make_error(ErrorCode::kInvalid, "extent[2] is not zero", field());
  }
  out.name = in.name;
  if (shape.rank > 0) {
    out.value = DeviceArray{in.pointer, shape.element, std::to_array(in.extent)};
  } else if (shape.element == Dtype::kF32) {
    out.value = in.f32;
  } else if (shape.element == Dtype::kU32) {
    out.value = static_cast<std::uint32_t>(in.i32);
  } else {
    out.value = in.i32;
  }
  return {};
}

static_assert(ATTNJIT_PARAM_F32_CUBE == static_cast<int>(ParamSpec::Type::kF32Cube) &&
                  ATTNJIT_PARAM_U32 == static_cast<int>(ParamSpec::Type::kU32),
              "the C ABI's types are numbered as ParamSpec's");

Status params_from_c(const attnjit_launch_args& in, std::vector<UserParam>& out) {
  if (in.num_params == 0) {
    out.clear();
    return {};
  }
  if (in.params == nullptr) return null_argument("params");
  if (in.num_params > kMaxListed) {
    return make_error(ErrorCode::kInvalid,
                      std::to_string(in.num_params) + " parameters; a spec declares fewer",
                      "params");
  }
  const std::size_t step = in.params[0].struct_size;
  if (step % alignof(attnjit_param) != 0) {
    return make_error(ErrorCode::kInvalid,
                      "params[0].struct_size is " + std::to_string(step) + ", not a multiple of " +
                          std::to_string(alignof(attnjit_param)),
                      "params", "set it to sizeof the struct");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(in.params);
  out.resize(in.num_params);
  for (std::size_t i = 0; i < in.num_params; ++i) {
    const auto* given = reinterpret_cast<const attnjit_param*>(bytes + i * step);
    if (given->struct_size != step) {
      return make_error(ErrorCode::kInvalid, "params differ in their struct_size", "params");
    }
    attnjit_param param{};
    if (Status read = read_struct(given, "params", param); !read) return read;
    if (Status converted = param_from_c(param, out[i]); !converted) return converted;
  }
  return {};
}

/// What the old fields give for numbers of the kinds that had fields: asked in the order of launch.
class OldFields {
 public:
  explicit OldFields(const attnjit_launch_args& in) : in_(in) {}

  double next(std::string_view name) {
    if (name == "window") return nth(in_.window, in_.more_windows, windows_++);
    if (name == "chunk") return nth(in_.chunk, in_.more_chunks, chunks_++);
    return name == "cap" ? double{in_.cap} : 0.0;
  }

 private:
  static double nth(std::int32_t first, const std::int32_t (&more)[7], std::size_t position) {
    if (position == 0) return first;
    return position <= std::size(more) ? more[position - 1] : 0;
  }

  const attnjit_launch_args& in_;
  std::size_t windows_ = 0, chunks_ = 0;
};

Status scalars_from_c(const attnjit_launch_args& in, const AttentionSpec& spec,
                      std::vector<double>& out) {
  if (in.num_scalars > kMaxListed) {
    return make_error(ErrorCode::kInvalid,
                      std::to_string(in.num_scalars) + " numbers; a spec has fewer", "scalars");
  }
  if (in.num_scalars > 0 && in.scalars == nullptr) return null_argument("scalars");
  out.assign(in.scalars, in.scalars + in.num_scalars);
  OldFields old(in);
  std::size_t index = 0;
  spec::visit_scalars(spec, [&](const spec::ScalarTraits& scalar, const auto&) {
    const double value = old.next(scalar.name);
    if (index == out.size()) out.push_back(0);
    if (out[index] == 0) out[index] = value;
    ++index;
  });
  return {};
}

static_assert(ATTNJIT_MASK_MAP_NONE == static_cast<int>(MaskMapUse::kNone) &&
                  ATTNJIT_MASK_MAP_WRITE == static_cast<int>(MaskMapUse::kWrite) &&
                  ATTNJIT_MASK_MAP_READ == static_cast<int>(MaskMapUse::kRead),
              "the C ABI's uses of a map are numbered as MaskMapUse's");
static_assert(ATTNJIT_TILE_COUNTERS_BYTES == WorkspaceNeed::kZeroBytes,
              "the C ABI says how much kernels leave zero");

Status map_from_c(const attnjit_launch_args& in, MaskMapShape& out) {
  if (in.mask_map < ATTNJIT_MASK_MAP_NONE || in.mask_map > ATTNJIT_MASK_MAP_READ) {
    return make_error(ErrorCode::kInvalid,
                      "is " + std::to_string(in.mask_map) + "; 0 to 2 is allowed", "mask_map");
  }
  out = {};
  out.use = static_cast<MaskMapUse>(in.mask_map);
  if (out.use == MaskMapUse::kNone) return {};
  out.batch = in.map_batch;
  out.heads = in.map_heads;
  out.q_blocks = in.map_q_blocks;
  out.kv_blocks = in.map_kv_blocks;
  out.no_full = out.use == MaskMapUse::kRead && in.full_kv_num_blocks == 0;
  out.bit_blocks = in.bit_blocks;
  return {};
}

/// The arguments of a launch of a kernel, neither of which may be null.
Status args_from_c(const attnjit_kernel* kernel, const attnjit_launch_args* given,
                   LaunchArgs& out) {
  if (kernel == nullptr) return null_argument("kernel");
  if (given == nullptr) return null_argument("args");
  attnjit_launch_args in{};
  if (Status read = read_struct(given, "args", in); !read) return read;
  if (in.reserved != 0 || in.reserved2 != 0 || in.reserved3 != 0 || in.reserved4 != 0) {
    return make_error(ErrorCode::kInvalid, "args.reserved is not zero", "args",
                      "clear the struct before it is filled");
  }
  out.buffers = {.q = in.q,
                 .k = in.k,
                 .v = in.v,
                 .o = in.o,
                 .lse = in.lse,
                 .sink = in.sink,
                 .page_table = in.page_table,
                 .kv_lens = in.kv_lens,
                 .q_offsets = in.q_offsets,
                 .kv_offsets = in.kv_offsets,
                 .pairs_o = in.pairs_o,
                 .pairs_lse = in.pairs_lse,
                 .q_scale = in.q_scale,
                 .k_scale = in.k_scale,
                 .v_scale = in.v_scale,
                 .output_scale = in.output_scale,
                 .mask = in.mask,
                 .slopes = in.slopes,
                 .topk_indices = in.topk_indices,
                 .q_rope = in.q_rope,
                 .k_rope = in.k_rope,
                 .kv_num_blocks = in.kv_num_blocks,
                 .kv_indices = in.kv_indices,
                 .full_kv_num_blocks = in.full_kv_num_blocks,
                 .full_kv_indices = in.full_kv_indices,
                 .kv_bits = in.kv_bits,
                 .block_bits = in.block_bits};
  if (Status read = map_from_c(in, out.shapes.mask_map); !read) return read;
  out.shapes.batch = in.batch;
  out.shapes.q_len = in.q_len;
  out.shapes.kv_len = in.kv_len;
  out.shapes.total_q = in.total_q;
  out.shapes.num_pages = in.num_pages;
  out.shapes.max_pages = in.max_pages;
  out.shapes.total_kv = in.total_kv;
  out.shapes.num_pairs = in.num_pairs;
  out.shapes.q = from_c(in.q_strides);
  out.shapes.k = from_c(in.k_strides);
  out.shapes.v = from_c(in.v_strides);
  out.shapes.o = from_c(in.o_strides);
  out.shapes.q_rope = from_c(in.q_rope_strides);
  out.shapes.k_rope = from_c(in.k_rope_strides);
  out.shapes.kv_scales = from_c(in.kv_scale_strides);
  out.shapes.mask_batch = in.mask_batch;
  out.shapes.mask_heads = in.mask_heads;
  out.shapes.mask_rows = in.mask_rows;
  out.shapes.mask = from_c(in.mask_strides);
  out.scalars.scale = in.scale;
  if (Status read = scalars_from_c(in, from_c(kernel).plan().spec, out.scalars.values); !read)
    return read;
  out.workspace = in.workspace;
  out.workspace_bytes = in.workspace_bytes;
  out.stream = in.stream;
  out.overlap = in.overlap != 0;
  return params_from_c(in, out.params);
}

}  // namespace
}  // namespace attnjit

using attnjit::guarded;
using attnjit::null_argument;
using attnjit::Status;

extern "C" {

attnjit_error* attnjit_kernel_prepare(const attnjit_kernel* kernel, void* stream) {
  return guarded([&]() -> Status {
    if (kernel == nullptr) return null_argument("kernel");
    return attnjit::from_c(kernel).prepare(stream);
  });
}

attnjit_error* attnjit_launch_state_create(attnjit_launch_state** state) {
  if (state != nullptr) *state = nullptr;
  return guarded([&]() -> Status {
    if (state == nullptr) return null_argument("state");
    *state = new attnjit_launch_state;
    return {};
  });
}

void attnjit_launch_state_reset(attnjit_launch_state* state) {
  if (state != nullptr) state->state.reset();
}

void attnjit_launch_state_free(attnjit_launch_state* state) { delete state; }

attnjit_error* attnjit_workspace(const attnjit_kernel* kernel, const attnjit_launch_args* args,
                                 int64_t* bytes, int32_t* zero_bytes) {
  if (bytes != nullptr) *bytes = 0;
  if (zero_bytes != nullptr) *zero_bytes = 0;
  return guarded([&]() -> Status {
    if (bytes == nullptr) return null_argument("bytes");
    attnjit::LaunchArgs converted;
    if (Status read = attnjit::args_from_c(kernel, args, converted); !read) return read;
    const auto need = attnjit::from_c(kernel).workspace(converted);
    if (!need) return need.error();
    *bytes = need->bytes;
    if (zero_bytes != nullptr) *zero_bytes = static_cast<int32_t>(need->zero_bytes);
    return {};
  });
}

attnjit_error* attnjit_mask_map_shape(const attnjit_kernel* kernel, const attnjit_launch_args* args,
                                      int32_t extents[4]) {
  if (extents != nullptr) std::fill_n(extents, 4, 0);
  return guarded([&]() -> Status {
    if (extents == nullptr) return null_argument("extents");
    attnjit::LaunchArgs converted;
    if (Status read = attnjit::args_from_c(kernel, args, converted); !read) return read;
    const auto map = attnjit::from_c(kernel).mask_map(converted);
    if (!map) return map.error();
    extents[0] = map->batch;
    extents[1] = map->heads;
    extents[2] = map->q_blocks;
    extents[3] = map->kv_blocks;
    return {};
  });
}

attnjit_error* attnjit_mask_map_bits(const attnjit_kernel* kernel, const attnjit_launch_args* args,
                                     int32_t* bit_blocks) {
  if (bit_blocks != nullptr) *bit_blocks = 0;
  return guarded([&]() -> Status {
    if (bit_blocks == nullptr) return null_argument("bit_blocks");
    attnjit::LaunchArgs converted;
    if (Status read = attnjit::args_from_c(kernel, args, converted); !read) return read;
    const auto map = attnjit::from_c(kernel).mask_map(converted);
    if (!map) return map.error();
    *bit_blocks = map->bit_blocks;
    return {};
  });
}

attnjit_error* attnjit_launch(const attnjit_kernel* kernel, const attnjit_launch_args* args,
                              attnjit_launch_state* state) {
  return guarded([&]() -> Status {
    if (state == nullptr) return null_argument("state");
    if (Status read = attnjit::args_from_c(kernel, args, state->args); !read) return read;
    return attnjit::from_c(kernel).launch(state->args, state->state);
  });
}

}  // extern "C"
