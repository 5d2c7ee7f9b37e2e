// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of a launch against its plan: parameters, shapes and strides.
#include "driver/launch_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/in_order.h"
#include "base/problems.h"
#include "plan/kernel/signature.h"
#include "spec/names.h"
#include "spec/resolved_spec.h"
#include "spec/spec_fields.h"

namespace attnjit {
namespace {

/// Where LaunchBuffers holds a tensor, and what its address is a multiple of.
struct Field {
  BufferId::Kind tensor;
  DevicePointer LaunchBuffers::*member;
  int alignment;
};
constexpr int kTmaAlignment = 16;
constexpr int kWordAlignment = 4;      // of f32 and i32
constexpr int kRowBitsAlignment = 16;  // a row of a block's bits is stored at once
constexpr std::array kFields{
    Field{BufferId::Kind::kQ, &LaunchBuffers::q, kTmaAlignment},
    Field{BufferId::Kind::kK, &LaunchBuffers::k, kTmaAlignment},
    Field{BufferId::Kind::kV, &LaunchBuffers::v, kTmaAlignment},
    Field{BufferId::Kind::kO, &LaunchBuffers::o, kTmaAlignment},
    Field{BufferId::Kind::kLse, &LaunchBuffers::lse, kWordAlignment},
    Field{BufferId::Kind::kSink, &LaunchBuffers::sink, kWordAlignment},
    Field{BufferId::Kind::kPageTable, &LaunchBuffers::page_table, kWordAlignment},
    Field{BufferId::Kind::kKvLens, &LaunchBuffers::kv_lens, kWordAlignment},
    Field{BufferId::Kind::kQOffsets, &LaunchBuffers::q_offsets, kWordAlignment},
    Field{BufferId::Kind::kKvOffsets, &LaunchBuffers::kv_offsets, kWordAlignment},
    Field{BufferId::Kind::kPairsO, &LaunchBuffers::pairs_o, kTmaAlignment},
    Field{BufferId::Kind::kPairsLse, &LaunchBuffers::pairs_lse, kWordAlignment},
    Field{BufferId::Kind::kQScale, &LaunchBuffers::q_scale, kWordAlignment},
    Field{BufferId::Kind::kKScale, &LaunchBuffers::k_scale, kWordAlignment},
    Field{BufferId::Kind::kVScale, &LaunchBuffers::v_scale, kWordAlignment},
    Field{BufferId::Kind::kOutputScale, &LaunchBuffers::output_scale, kWordAlignment},
    Field{BufferId::Kind::kMask, &LaunchBuffers::mask, kWordAlignment},
    Field{BufferId::Kind::kKvNumBlocks, &LaunchBuffers::kv_num_blocks, kWordAlignment},
    Field{BufferId::Kind::kKvIndices, &LaunchBuffers::kv_indices, kWordAlignment},
    Field{BufferId::Kind::kFullKvNumBlocks, &LaunchBuffers::full_kv_num_blocks, kWordAlignment},
    Field{BufferId::Kind::kFullKvIndices, &LaunchBuffers::full_kv_indices, kWordAlignment},
    Field{BufferId::Kind::kKvBits, &LaunchBuffers::kv_bits, kWordAlignment},
    Field{BufferId::Kind::kBlockBits, &LaunchBuffers::block_bits, kRowBitsAlignment},
    Field{BufferId::Kind::kSlopes, &LaunchBuffers::slopes, kWordAlignment},
    Field{BufferId::Kind::kTopkIndices, &LaunchBuffers::topk_indices, kWordAlignment},
    Field{BufferId::Kind::kQRope, &LaunchBuffers::q_rope, kTmaAlignment},
    Field{BufferId::Kind::kKRope, &LaunchBuffers::k_rope, kTmaAlignment},
};
static_assert(sizeof(LaunchBuffers) == kFields.size() * sizeof(DevicePointer),
              "every buffer has its row in kFields");
static_assert(in_order(kFields, &Field::tensor, 1),
              "a buffer's row is found by its kind; kNone has none");

const Field* field_of(BufferId::Kind tensor) {
  const auto row = static_cast<std::size_t>(tensor) - 1;
  return row < kFields.size() ? &kFields[row] : nullptr;
}

const std::string kParamField = "param_";
constexpr std::int64_t kMaxWorkspaceBytes = std::int64_t{1} << 48;  // the GPU's virtual addresses

std::string describe(const UserParam& param) {
  if (std::holds_alternative<std::int32_t>(param.value)) return "an i32";
  if (std::holds_alternative<float>(param.value)) return "an f32";
  if (std::holds_alternative<std::uint32_t>(param.value)) return "a u32";
  return fmt::format("an array of {}", to_string(std::get<DeviceArray>(param.value).dtype));
}

/// Fills `value` from `param`; a problem is added where the type or an extent is wrong.
void convert(const ParamSpec& declared, const UserParam& param, UserParamShape& value,
             Problems& problems) {
  const auto add = [&](std::string message) {
    problems.add(kParamField + declared.name, std::move(message));
  };
  const auto wrong_type = [&] {
    add(fmt::format("is {}; the spec declares {}", describe(param),
                    spec::to_string(declared.type)));
  };
  value.name = declared.name;
  const spec::ParamShape shape = spec::shape_of(declared.type);
  if (shape.rank == 0) {
    const auto* integer = std::get_if<std::int32_t>(&param.value);
    if (shape.element == Dtype::kU32 && integer != nullptr && *integer >= 0) {
      value.scalar = static_cast<std::uint32_t>(*integer);
      return;
    }
    const auto number = [&]<class T>(T) {
      const T* given = std::get_if<T>(&param.value);
      if (given == nullptr) return wrong_type();
      value.scalar = *given;
    };
    if (shape.element == Dtype::kF32) return number(float{});
    return shape.element == Dtype::kU32 ? number(std::uint32_t{}) : number(std::int32_t{});
  }
  const auto* array = std::get_if<DeviceArray>(&param.value);
  if (array == nullptr || array->dtype != shape.element) return wrong_type();
  const std::span<const std::int32_t> extents(array->extent.data(),
                                              static_cast<std::size_t>(shape.rank));
  const std::int32_t least = *std::min_element(extents.begin(), extents.end());
  if (least < 0) return add(fmt::format("has the negative extent {}", least));
  std::int64_t elements = 1;
  for (const std::int32_t extent : extents) {
    if (__builtin_mul_overflow(elements, std::int64_t{extent}, &elements)) elements = INT64_MAX;
  }
  if (least > 0 && elements > INT32_MAX) {
    return add(fmt::format("has {} elements; at most {} can be indexed", elements, INT32_MAX));
  }
  if (least == 0) elements = 0;
  if (array->pointer == 0 && elements > 0) {
    return add(fmt::format("is a null pointer with {} elements", elements));
  }
  const int alignment = size_of(shape.element);
  if (array->pointer % static_cast<DevicePointer>(alignment) != 0) {
    return add(fmt::format("is at {:#x}, not a multiple of {}", array->pointer, alignment));
  }
  std::copy(extents.begin(), extents.end(), value.extent.begin());
}

std::int64_t aligned_bytes(const Workspace& workspace) {
  return (workspace.bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

}  // namespace

Status check_params(const std::vector<ParamSpec>& declared, const std::vector<UserParam>& params,
                    std::vector<UserParamShape>& values) {
  Problems problems;
  values.resize(declared.size());
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const ParamSpec& wanted = declared[i];
    const UserParam* found = nullptr;
    for (const UserParam& param : params) {
      if (param.name != wanted.name) continue;
      if (found != nullptr) problems.add(kParamField + wanted.name, "is given twice");
      found = &param;
    }
    if (found == nullptr) {
      problems.add(kParamField + wanted.name, fmt::format("is missing; the spec declares it as {}",
                                                          spec::to_string(wanted.type)));
      continue;
    }
    convert(wanted, *found, values[i], problems);
  }
  for (const UserParam& param : params) {
    const bool known = std::any_of(declared.begin(), declared.end(),
                                   [&](const ParamSpec& p) { return p.name == param.name; });
    if (!known) problems.add(kParamField + param.name, "is not a parameter of the spec");
  }
  if (problems.any()) return problems.take();
  return {};
}

Result<BufferRef> find_buffer(BufferId id, const KernelPlan& plan, const LaunchArgs& args,
                              const std::vector<Workspace>& workspaces) {
  const auto unknown = [&] {
    return make_error(ErrorCode::kInternal,
                      fmt::format("the recipe names an unknown buffer (kind {}, index {})",
                                  static_cast<int>(id.kind), id.index),
                      {}, "report this defect");
  };
  BufferRef ref;
  ref.id = id;
  if (id.kind == BufferId::Kind::kParam) {
    const std::vector<ParamSpec>& declared = plan.spec.state().params;
    if (id.index >= declared.size()) return unknown();
    for (std::size_t i = 0; i < args.params.size(); ++i) {
      if (args.params[i].name == declared[id.index].name) ref.param = i;
    }
    if (ref.param >= args.params.size() ||
        !std::holds_alternative<DeviceArray>(args.params[ref.param].value)) {
      return unknown();
    }
    ref.alignment = size_of(spec::shape_of(declared[id.index].type).element);
    return ref;
  }
  if (id.kind == BufferId::Kind::kWorkspace) {
    if (id.index >= workspaces.size()) return unknown();
    for (std::size_t i = 0; i < id.index; ++i) {
      ref.workspace_offset += aligned_bytes(workspaces[i]);
    }
    ref.alignment = kWordAlignment;
    return ref;
  }
  const Field* field = field_of(id.kind);
  if (field == nullptr) return unknown();
  ref.field = field->member;
  ref.alignment = field->alignment;
  if (id.kind == BufferId::Kind::kMask) {
    if (const MaskSpec* mask = spec::materialized(plan.spec->mask)) {
      ref.alignment = size_of(mask->dtype);
    }
  }
  return ref;
}

DevicePointer address_of(const BufferRef& ref, const LaunchArgs& args) {
  switch (ref.id.kind) {
    case BufferId::Kind::kNone:
      return 0;
    case BufferId::Kind::kParam:
      return std::get<DeviceArray>(args.params[ref.param].value).pointer;
    case BufferId::Kind::kWorkspace:
      return args.workspace == 0
                 ? 0
                 : args.workspace + static_cast<DevicePointer>(ref.workspace_offset);
    default:
      return args.buffers.*ref.field;
  }
}

Result<WorkspaceNeed> total_workspace(const std::vector<Workspace>& workspaces) {
  WorkspaceNeed need;
  for (const Workspace& workspace : workspaces) {
    std::int64_t end = 0;
    if (workspace.bytes < 0 || workspace.bytes > kMaxWorkspaceBytes ||
        __builtin_add_overflow(need.bytes, workspace.bytes, &end) || end > kMaxWorkspaceBytes) {
      return make_error(ErrorCode::kInternal, fmt::format("the workspace {} of {} bytes",
                                                          workspace.name, workspace.bytes));
    }
    need.bytes += aligned_bytes(workspace);
    if (workspace.zeroed && workspace.bytes > 0) need.zero_bytes = need.bytes;
  }
  return need;
}

}  // namespace attnjit
