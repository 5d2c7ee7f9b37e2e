// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of a launch against its plan: parameters, shapes and strides.
#include "driver/launch_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "spec/spec_fields.h"

namespace attnjit {
namespace {

struct Field {
  std::string_view name;
  DevicePointer LaunchBuffers::*member;
};
constexpr std::array kFields{
    Field{"q", &LaunchBuffers::q},
    Field{"k", &LaunchBuffers::k},
    Field{"v", &LaunchBuffers::v},
    Field{"o", &LaunchBuffers::o},
    Field{"lse", &LaunchBuffers::lse},
    Field{"sink", &LaunchBuffers::sink},
    Field{"page_table", &LaunchBuffers::page_table},
    Field{"kv_lens", &LaunchBuffers::kv_lens},
    Field{"q_offsets", &LaunchBuffers::q_offsets},
    Field{"q_scale", &LaunchBuffers::q_scale},
    Field{"k_scale", &LaunchBuffers::k_scale},
    Field{"v_scale", &LaunchBuffers::v_scale},
    Field{"mask", &LaunchBuffers::mask},
};
static_assert(sizeof(LaunchBuffers) == kFields.size() * sizeof(DevicePointer),
              "every buffer has its name in kFields");

constexpr std::string_view kParamPrefix = "param_";
const std::string kParamField(kParamPrefix);
constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;  // cuTensorMapEncodeTiled
constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 48;  // the GPU's virtual addresses

/// Collects problems into one Error: the first, with the rest in `others`.
class Problems {
 public:
  void add(std::string field, std::string message, std::string hint = {}) {
    Error error =
        make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint));
    if (!first_) {
      first_ = std::move(error);
    } else {
      first_->others.push_back(std::move(error));
    }
  }
  bool any() const { return first_.has_value(); }
  Error take() { return *std::move(first_); }

 private:
  std::optional<Error> first_;
};

std::string describe(const LaunchParam& param) {
  if (std::holds_alternative<std::int32_t>(param.value)) return "an i32";
  if (std::holds_alternative<float>(param.value)) return "an f32";
  return fmt::format("an array of {}", to_string(std::get<DeviceArray>(param.value).dtype));
}

/// Fills `value` from `param`; a problem is added where the type or an extent is wrong.
void convert(const ParamSpec& declared, const LaunchParam& param, ParamValue& value,
             Problems& problems) {
  const std::string field = kParamField + declared.name;
  const auto wrong_type = [&] {
    problems.add(field, fmt::format("is {}; the spec declares {}", describe(param),
                                    spec::to_string(declared.type)));
  };
  value.name = declared.name;
  if (declared.type == ParamSpec::Type::kI32) {
    const auto* scalar = std::get_if<std::int32_t>(&param.value);
    if (scalar == nullptr) return wrong_type();
    value.scalar = *scalar;
    return;
  }
  if (declared.type == ParamSpec::Type::kF32) {
    const auto* scalar = std::get_if<float>(&param.value);
    if (scalar == nullptr) return wrong_type();
    value.scalar = *scalar;
    return;
  }
  const auto* array = std::get_if<DeviceArray>(&param.value);
  const Dtype element = declared.type == ParamSpec::Type::kF32Array ? Dtype::kF32 : Dtype::kI32;
  if (array == nullptr || array->dtype != element) return wrong_type();
  const bool matrix = declared.type == ParamSpec::Type::kI32Matrix;
  const std::int64_t elements = std::int64_t{array->extent[0]} * (matrix ? array->extent[1] : 1);
  if (array->extent[0] < 0 || (matrix && array->extent[1] < 0)) {
    return problems.add(field, fmt::format("has the negative extent {}",
                                           std::min(array->extent[0], array->extent[1])));
  }
  if (elements > INT32_MAX) {
    return problems.add(
        field, fmt::format("has {} elements; at most {} can be indexed", elements, INT32_MAX));
  }
  if (array->pointer == 0 && elements > 0) {
    return problems.add(field, fmt::format("is a null pointer with {} elements", elements));
  }
  if (array->pointer % 4 != 0) {
    return problems.add(field, fmt::format("is at {:#x}, not a multiple of 4", array->pointer));
  }
  value.extent = {array->extent[0], matrix ? array->extent[1] : 0};
}

/// A tensor of a launch for the checks of its strides and size.
struct TensorShape {
  std::string_view name;
  const TensorStrides* strides;
  std::int64_t batch, rows, heads, depth;
  int element_bytes;
};

void check_strides(const TensorShape& tensor, Problems& problems) {
  const std::int64_t bytes = tensor.element_bytes;
  std::int64_t last = (tensor.depth - 1) * bytes;
  std::int64_t packed = tensor.depth * bytes;
  bool overflow = false;
  struct Dimension {
    const char* name;
    std::int64_t stride, count;
  };
  for (const Dimension& dimension : {Dimension{"head", tensor.strides->head, tensor.heads},
                                     Dimension{"row", tensor.strides->row, tensor.rows},
                                     Dimension{"batch", tensor.strides->batch, tensor.batch}}) {
    const std::string field = fmt::format("{}.{}", tensor.name, dimension.name);
    std::int64_t step = packed;
    // The stride of a dimension of one element is never stepped by; frameworks leave anything
    // there.
    if (dimension.stride != 0 && dimension.count > 1) {
      if (dimension.stride < 0 || dimension.stride >= kMaxStrideBytes / bytes) {
        problems.add(field, fmt::format("the stride {} must lie in 0..{} elements",
                                        dimension.stride, kMaxStrideBytes / bytes - 1));
        return;
      }
      if (dimension.stride * bytes % 16 != 0) {
        problems.add(field,
                     fmt::format("the stride {} is {} bytes, not a multiple of 16",
                                 dimension.stride, dimension.stride * bytes),
                     "pad the rows: TMA steps in units of 16 bytes");
        return;
      }
      step = dimension.stride * bytes;
    }
    std::int64_t extent = 0;
    overflow = overflow || __builtin_mul_overflow(packed, dimension.count, &packed);
    overflow =
        overflow ||
        __builtin_mul_overflow(step, std::max<std::int64_t>(dimension.count - 1, 0), &extent) ||
        __builtin_add_overflow(last, extent, &last);
  }
  if (overflow || last >= kMaxTensorBytes) {
    problems.add(std::string(tensor.name),
                 fmt::format("[{}, {}, {}, {}] spans more than 2^48 bytes", tensor.batch,
                             tensor.rows, tensor.heads, tensor.depth));
  }
}

/// Of the materialized mask in a tree (there is one at most); 4 where there is none.
int materialized_element_bytes(const MaskSpec& mask) {
  if (mask.kind == MaskSpec::Kind::kMaterialized) return size_of(mask.dtype);
  int bytes = 4;
  for (const MaskSpec& part : mask.of) bytes = std::min(bytes, materialized_element_bytes(part));
  return bytes;
}

}  // namespace

Result<std::vector<ParamValue>> check_params(const std::vector<ParamSpec>& declared,
                                             const std::vector<LaunchParam>& params) {
  Problems problems;
  std::vector<ParamValue> values;
  values.reserve(declared.size());
  for (const ParamSpec& wanted : declared) {
    const LaunchParam* found = nullptr;
    for (const LaunchParam& param : params) {
      if (param.name != wanted.name) continue;
      if (found != nullptr) problems.add(kParamField + wanted.name, "is given twice");
      found = &param;
    }
    if (found == nullptr) {
      problems.add(kParamField + wanted.name, fmt::format("is missing; the spec declares it as {}",
                                                          spec::to_string(wanted.type)));
      continue;
    }
    convert(wanted, *found, values.emplace_back(), problems);
  }
  for (const LaunchParam& param : params) {
    const bool known = std::any_of(declared.begin(), declared.end(),
                                   [&](const ParamSpec& p) { return p.name == param.name; });
    if (!known) problems.add(kParamField + param.name, "is not a parameter of the spec");
  }
  if (problems.any()) return problems.take();
  return values;
}

Status check_shapes(const KernelPlan& plan, const LaunchArgs& args) {
  Problems problems;
  const AttentionSpec& spec = plan.spec;
  const LaunchShapes& shapes = args.shapes;
  struct Count {
    const char* name;
    std::int32_t value;
  };
  for (const Count& count :
       {Count{"batch", shapes.batch}, Count{"q_len", shapes.q_len}, Count{"kv_len", shapes.kv_len},
        Count{"total_q", shapes.total_q}, Count{"num_pages", shapes.num_pages},
        Count{"max_pages", shapes.max_pages}}) {
    if (count.value < 0) {
      problems.add(count.name, fmt::format("is {}; it must not be negative", count.value));
    }
  }
  if (!std::isfinite(args.scalars.scale)) {
    problems.add("scale", fmt::format("is {}; it must be finite", args.scalars.scale));
  }
  if (problems.any()) return problems.take();

  const std::int64_t q_batch = spec.ragged ? 1 : shapes.batch;
  const std::int64_t q_rows = spec.ragged ? shapes.total_q : shapes.q_len;
  const std::int64_t kv_batch = spec.page_size > 0 ? shapes.num_pages : shapes.batch;
  const std::int64_t kv_rows = spec.page_size > 0 ? spec.page_size : shapes.kv_len;
  const int kv_heads = spec.num_kv_heads();
  const int in = size_of(spec.qkv_dtype);
  const int out = size_of(spec.output_dtype.value_or(spec.qkv_dtype));
  const int ov_depth = spec.ov_depth > 0 ? spec.ov_depth : spec.qk_depth;
  for (const TensorShape& tensor :
       {TensorShape{"q", &shapes.q, q_batch, q_rows, spec.num_q_heads, spec.qk_depth, in},
        TensorShape{"k", &shapes.k, kv_batch, kv_rows, kv_heads, spec.qk_depth, in},
        TensorShape{"v", &shapes.v, kv_batch, kv_rows, kv_heads, ov_depth, in},
        TensorShape{"o", &shapes.o, q_batch, q_rows, spec.num_q_heads, ov_depth, out}}) {
    check_strides(tensor, problems);
  }
  if (problems.any()) return problems.take();
  return {};
}

std::optional<BufferRef> find_buffer(std::string_view name, const LaunchArgs& args,
                                     const std::vector<Workspace>& workspaces) {
  BufferRef ref;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (kFields[i].name != name) continue;
    ref.kind = BufferRef::Kind::kField;
    ref.index = static_cast<std::uint32_t>(i);
    return ref;
  }
  if (name.substr(0, kParamPrefix.size()) == kParamPrefix) {
    const std::string_view param = name.substr(kParamPrefix.size());
    for (std::size_t i = 0; i < args.params.size(); ++i) {
      if (args.params[i].name != param) continue;
      if (!std::holds_alternative<DeviceArray>(args.params[i].value)) return std::nullopt;
      ref.kind = BufferRef::Kind::kParam;
      ref.index = static_cast<std::uint32_t>(i);
      return ref;
    }
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < workspaces.size(); ++i) {
    if (workspaces[i].name == name) {
      ref.kind = BufferRef::Kind::kWorkspace;
      ref.index = static_cast<std::uint32_t>(i);
      ref.workspace_offset = offset;
      return ref;
    }
    offset +=
        (workspaces[i].bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  }
  return std::nullopt;
}

DevicePointer address_of(const BufferRef& ref, const LaunchArgs& args) {
  switch (ref.kind) {
    case BufferRef::Kind::kNone:
      return 0;
    case BufferRef::Kind::kField:
      return args.buffers.*(kFields[ref.index].member);
    case BufferRef::Kind::kParam:
      return std::get<DeviceArray>(args.params[ref.index].value).pointer;
    case BufferRef::Kind::kWorkspace:
      return args.workspace == 0
                 ? 0
                 : args.workspace + static_cast<DevicePointer>(ref.workspace_offset);
  }
  return 0;
}

std::int64_t alignment_of(std::string_view name, const KernelPlan& plan) {
  if (name == "q" || name == "k" || name == "v" || name == "o") return 16;
  if (name == "mask") return materialized_element_bytes(plan.spec->mask);
  return 4;  // f32 and i32: everything else in LaunchBuffers
}

Result<WorkspaceNeed> total_workspace(const std::vector<Workspace>& workspaces) {
  WorkspaceNeed need;
  for (const Workspace& workspace : workspaces) {
    std::int64_t end = 0;
    if (workspace.bytes < 0 || workspace.bytes > kMaxTensorBytes ||
        __builtin_add_overflow(need.bytes, workspace.bytes, &end) || end > kMaxTensorBytes) {
      return make_error(ErrorCode::kInternal, fmt::format("the workspace {} of {} bytes",
                                                          workspace.name, workspace.bytes));
    }
    need.bytes = (end + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    need.zeroed = need.zeroed || workspace.zeroed;
  }
  return need;
}

}  // namespace attnjit
