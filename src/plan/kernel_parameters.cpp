// SPDX-License-Identifier: Apache-2.0
// Adds the parameters that every forward kernel has, and says which specs no kernel serves.
#include "plan/kernel_parameters.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "spec/names.h"
#include "spec/scalars.h"

namespace attnjit {

bool contains(const MaskSpec& mask, MaskSpec::Kind kind) {
  if (mask.kind == kind) return true;
  for (const MaskSpec& child : mask.of) {
    if (contains(child, kind)) return true;
  }
  return false;
}

std::string why_no_parameters(const AttentionSpec& spec) {
  std::set<std::string> names;
  for (const ParamSpec& param : spec::declared_params(spec)) {
    names.insert(param.name);
  }
  for (const ParamSpec& param : spec::declared_params(spec)) {
    const bool array =
        param.type == ParamSpec::Type::kI32Array || param.type == ParamSpec::Type::kF32Array;
    const bool matrix = param.type == ParamSpec::Type::kI32Matrix;
    if ((array && names.count(param.name + "_n") > 0) ||
        (matrix &&
         (names.count(param.name + "_rows") > 0 || names.count(param.name + "_cols") > 0))) {
      return fmt::format(
          "the parameter {} needs the names {}_n, {}_rows and {}_cols for its extent", param.name,
          param.name, param.name, param.name);
    }
  }
  return {};
}

std::string why_no_forward(const AttentionSpec& spec) {
  const auto missing = [&](std::string_view what) {
    return fmt::format("the {} template has no {} yet", to_string(spec.arch), what);
  };
  if (spec.qkv_dtype != Dtype::kBf16 && spec.qkv_dtype != Dtype::kFp16) {
    return missing(fmt::format("{} operands (qkv_dtype)", to_string(spec.qkv_dtype)));
  }
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  if (output != Dtype::kBf16 && output != Dtype::kFp16) {
    return missing(fmt::format("{} output (output_dtype)", to_string(output)));
  }
  const Dtype rope = spec.rope_dtype.value_or(spec.qkv_dtype);
  if (rope != spec.qkv_dtype || spec.rope_gmem_dtype.value_or(rope) != rope) {
    return missing("rope part of another type than the rest (rope_dtype, rope_gmem_dtype)");
  }
  if (spec.scale_dtype) return missing("per-token scales (scale_dtype)");
  if (spec.num_partitions > 1) return missing("split of kv_len (num_partitions)");
  if (contains(spec.mask, MaskSpec::Kind::kMaterialized)) {
    return missing("materialized masks (mask)");
  }
  return {};
}

void add_forward_parameters(const AttentionSpec& spec, const std::vector<std::string>& integers,
                            KernelPlan& plan) {
  using Kind = KernelParameter::Kind;
  const auto add = [&](std::string name, Kind kind, std::string cuda_type = {}) {
    plan.parameters.push_back({std::move(name), kind, std::move(cuda_type)});
  };
  for (const char* map : {"q_map", "k_map", "v_map", "o_map"}) add(map, Kind::kTensorMap);
  if (spec.ragged) {
    add("q_offsets", Kind::kPointer, "const int");
    add("o", Kind::kPointer, "unsigned char");
    add("o_row_bytes", Kind::kI64);
    add("o_head_bytes", Kind::kI64);
  }
  if (spec.page_size > 0) add("page_table", Kind::kPointer, "const int");
  if (spec.page_size > 0 || spec.ragged) add("kv_lens", Kind::kPointer, "const int");
  if (spec.return_lse) add("lse", Kind::kPointer, "float");
  if (spec.sink) add("sink", Kind::kPointer, "const float");
  for (const std::string& name : integers) add(name, Kind::kI32);
  add("scale", Kind::kF32);
  for (const spec::SpecScalar& scalar : spec::spec_scalars(spec)) {
    if (!scalar.constant) add(scalar.name, scalar.is_integer ? Kind::kI32 : Kind::kF32);
  }
  for (const ParamSpec& param : spec::declared_params(spec)) {
    const std::string name = "param_" + param.name;
    switch (param.type) {
      case ParamSpec::Type::kI32:
        add(name, Kind::kI32);
        break;
      case ParamSpec::Type::kF32:
        add(name, Kind::kF32);
        break;
      case ParamSpec::Type::kI32Array:
      case ParamSpec::Type::kF32Array:
        add(name, Kind::kPointer,
            param.type == ParamSpec::Type::kI32Array ? "const int" : "const float");
        add(name + "_n", Kind::kI32);
        break;
      case ParamSpec::Type::kI32Matrix:
        add(name, Kind::kPointer, "const int");
        add(name + "_rows", Kind::kI32);
        add(name + "_cols", Kind::kI32);
        break;
    }
  }
}

void add_user_constants(const AttentionSpec& spec, KernelPlan& plan) {
  for (const spec::SpecScalar& scalar : spec::spec_scalars(spec)) {
    if (!scalar.constant) continue;
    if (scalar.is_integer) {
      const auto value = static_cast<std::int64_t>(scalar.value);
      plan.constants.push_back({"int", scalar.constant_name, std::to_string(value)});
    } else {
      // Hexadecimal: the same float whatever the locale and the reader's rounding.
      const auto value = static_cast<float>(scalar.value);
      plan.constants.push_back({"float", scalar.constant_name, fmt::format("{:a}f", value)});
    }
  }
}

}  // namespace attnjit
