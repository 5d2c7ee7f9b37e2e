// SPDX-License-Identifier: Apache-2.0
// Implements the C ABI's launches.
#include <string>
#include <utility>
#include <vector>

#include "attnjit/driver.h"
#include "service/c_abi.h"

struct attnjit_launch_state {
  attnjit::LaunchState state;
  attnjit::LaunchArgs args;  // kept, so that a launch with parameters does not allocate each time
};

namespace attnjit {
namespace {

const Kernel& from_c(const attnjit_kernel* kernel) {
  return *reinterpret_cast<const Kernel*>(kernel);
}

TensorStrides from_c(const attnjit_strides& strides) {
  return {strides.batch, strides.row, strides.head};
}

Status param_from_c(const attnjit_param& in, LaunchParam& out) {
  if (in.name == nullptr) return null_argument("params.name");
  if (in.reserved != 0) {
    return make_error(ErrorCode::kInvalid, "reserved is not zero", std::string("param_") + in.name);
  }
  out.name = in.name;
  DeviceArray array;
  array.pointer = in.pointer;
  array.extent = {in.extent[0], in.extent[1]};
  switch (in.type) {
    case ATTNJIT_PARAM_I32:
      out.value = in.i32;
      return {};
    case ATTNJIT_PARAM_F32:
      out.value = in.f32;
      return {};
    case ATTNJIT_PARAM_F32_ARRAY:
      array.dtype = Dtype::kF32;
      out.value = array;
      return {};
    case ATTNJIT_PARAM_I32_ARRAY:
    case ATTNJIT_PARAM_I32_MATRIX:
      array.dtype = Dtype::kI32;
      out.value = array;
      return {};
    default:
      return make_error(ErrorCode::kInvalid,
                        "type is " + std::to_string(in.type) + "; 0 to 4 is allowed",
                        std::string("param_") + in.name);
  }
}

Status params_from_c(const attnjit_launch_args& in, std::vector<LaunchParam>& out) {
  constexpr std::size_t kMaxParams = 4096;
  if (in.num_params == 0) {
    out.clear();
    return {};
  }
  if (in.params == nullptr) return null_argument("params");
  if (in.num_params > kMaxParams) {
    return make_error(ErrorCode::kInvalid,
                      std::to_string(in.num_params) + " parameters; a spec declares fewer",
                      "params");
  }
  const std::size_t step = in.params[0].struct_size;
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

Status args_from_c(const attnjit_launch_args* given, LaunchArgs& out) {
  attnjit_launch_args in{};
  if (Status read = read_struct(given, "args", in); !read) return read;
  out.buffers = {in.q,       in.k,          in.v,       in.o,         in.lse,
                 in.sink,    in.page_table, in.kv_lens, in.q_offsets, in.q_scale,
                 in.k_scale, in.v_scale,    in.mask};
  out.shapes.batch = in.batch;
  out.shapes.q_len = in.q_len;
  out.shapes.kv_len = in.kv_len;
  out.shapes.total_q = in.total_q;
  out.shapes.num_pages = in.num_pages;
  out.shapes.max_pages = in.max_pages;
  out.shapes.q = from_c(in.q_strides);
  out.shapes.k = from_c(in.k_strides);
  out.shapes.v = from_c(in.v_strides);
  out.shapes.o = from_c(in.o_strides);
  out.scalars.scale = in.scale;
  out.scalars.window = in.window;
  out.scalars.chunk = in.chunk;
  out.scalars.cap = in.cap;
  static_assert(sizeof in.more_windows == sizeof out.scalars.more_windows);
  static_assert(sizeof in.more_chunks == sizeof out.scalars.more_chunks);
  std::memcpy(out.scalars.more_windows.data(), in.more_windows, sizeof in.more_windows);
  std::memcpy(out.scalars.more_chunks.data(), in.more_chunks, sizeof in.more_chunks);
  out.workspace = in.workspace;
  out.workspace_bytes = in.workspace_bytes;
  out.stream = in.stream;
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
                                 int64_t* bytes, int32_t* zeroed) {
  if (bytes != nullptr) *bytes = 0;
  if (zeroed != nullptr) *zeroed = 0;
  return guarded([&]() -> Status {
    if (kernel == nullptr) return null_argument("kernel");
    if (args == nullptr) return null_argument("args");
    if (bytes == nullptr) return null_argument("bytes");
    attnjit::LaunchArgs converted;
    if (Status read = attnjit::args_from_c(args, converted); !read) return read;
    const auto need = attnjit::from_c(kernel).workspace(converted);
    if (!need) return need.error();
    *bytes = need->bytes;
    if (zeroed != nullptr) *zeroed = need->zeroed ? 1 : 0;
    return {};
  });
}

attnjit_error* attnjit_launch(const attnjit_kernel* kernel, const attnjit_launch_args* args,
                              attnjit_launch_state* state) {
  return guarded([&]() -> Status {
    if (kernel == nullptr) return null_argument("kernel");
    if (args == nullptr) return null_argument("args");
    if (state == nullptr) return null_argument("state");
    if (Status read = attnjit::args_from_c(args, state->args); !read) return read;
    return attnjit::from_c(kernel).launch(state->args, state->state);
  });
}

}  // extern "C"
