// SPDX-License-Identifier: Apache-2.0
// Fills the arguments of a launch, one function per kind of source.
#include "plan/launch/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"
#include "spec/interpreted_code.h"
#include "spec/resolved_spec.h"
#include "spec/scalars.h"
#include "spec/spec_fields.h"
#include "spec/text.h"

namespace attnjit {
namespace {

/// NOTE: a launch of other lengths comes through here, mostly with a recipe that was filled before.
/// So what stays is left as it is, and memory is used again: texts were half of such a launch.
class Filler {
 public:
  Filler(const ArgumentValues& values, LaunchRecipe& recipe)
      : values_(values),
        recipe_(recipe),
        scalars_(values.plan.spec.state().scalars),
        declared_(values.plan.spec.state().params) {}

  Status check() const {
    if (values_.scalars.size() <= scalars_.size()) return {};
    return spec::invalid("scalars",
                         "{} numbers are given; the spec's masks and score "
                         "modification have {}",
                         values_.scalars.size(), scalars_.size());
  }

  Status fill(LaunchNumber number, KernelArgument& argument) {
    const LaunchNumbers::Value& value = values_.numbers.get(number);
    if (const auto* i32 = std::get_if<std::int32_t>(&value)) {
      argument.value = *i32;
    } else if (const auto* i64 = std::get_if<std::int64_t>(&value)) {
      argument.value = *i64;
    } else if (const auto* f32 = std::get_if<float>(&value)) {
      argument.value = *f32;
    } else {
      const std::string name(name_of(number));
      return make_error(ErrorCode::kInternal, fmt::format("no value is known for '{}'", name),
                        name);
    }
    return {};
  }

  Status fill(TensorMapId map, KernelArgument& argument) {
    const std::uint32_t index = num_maps_++;
    if (index == recipe_.tensor_maps.size()) recipe_.tensor_maps.emplace_back();
    TensorMapDescription& description = recipe_.tensor_maps[index];
    const BufferId before = description.id;
    begin_again(description);
    values_.describe(map, description);
    // Of a plan's kernel the n-th map is always the same.
    if (description.name.empty() || description.id != before) {
      description.name = name_of(map);
      description.buffer = name_of(values_.plan, description.id);
    }
    if (!std::holds_alternative<KernelArgument::TensorMap>(argument.value)) {
      argument.value = KernelArgument::TensorMap{description.name, index};
    }
    return {};
  }

  Status fill(BufferId buffer, KernelArgument& argument) {
    const auto* old = std::get_if<KernelArgument::Pointer>(&argument.value);
    if (old == nullptr || old->id != buffer || old->offset != 0) {
      argument.value = KernelArgument::Pointer{name_of(values_.plan, buffer), 0, buffer};
    }
    return {};
  }

  template <class Source>
  Status fill(Source source, KernelArgument& argument) {
    Result<KernelArgument> made = (*this)(source);
    if (!made) return std::move(made).error();
    argument = *std::move(made);
    return {};
  }

  /// Maps that a launch before had, and this one has not.
  void end() { recipe_.tensor_maps.resize(num_maps_); }

 private:
  /// A description as a new one is, that keeps its memory and its names.
  static void begin_again(TensorMapDescription& description) {
    static const TensorMapDescription kNew;
    description.offset = kNew.offset;
    description.dtype = kNew.dtype;
    description.dims.clear();
    description.strides.clear();
    description.box.clear();
    description.element_strides.clear();
    description.swizzle = kNew.swizzle;
    description.l2_bytes = kNew.l2_bytes;
    description.oob = kNew.oob;
    description.id = kNew.id;
  }

  Result<KernelArgument> operator()(ScalarSource source) const {
    const spec::SpecScalar& scalar = scalars_.at(source.index);
    const Result<double> value = spec::launch_number(scalar, values_.scalars, source.index);
    if (!value) return value.error();
    if (scalar.is_integer) {
      return KernelArgument{static_cast<std::int32_t>(spec::kernel_value(scalar.traits, *value))};
    }
    return KernelArgument{static_cast<float>(*value)};
  }

  /// What the launch gives for a parameter, or the end of what it gives.
  auto given_for(const ParamSpec& declared) const {
    return std::ranges::find(values_.params, declared.name, &UserParamShape::name);
  }

  Result<KernelArgument> operator()(ParamSource source) const {
    using Part = ParamSource::Part;
    const ParamSpec& declared = declared_.at(source.index);
    const spec::ParamShape shape = spec::shape_of(declared.type);
    const BufferId buffer{BufferId::Kind::kParam, source.index};
    const std::string own = name_of(values_.plan, buffer);
    const auto given = given_for(declared);
    if (given == values_.params.end()) {
      return spec::invalid(own, "the parameter p.{} was not given", declared.name);
    }
    if (shape.rank == 0) return number_of(declared, shape, own, *given);
    const auto extents_end = given->extent.begin() + shape.rank;
    if (std::any_of(given->extent.begin(), extents_end, [](auto extent) { return extent < 0; })) {
      return spec::invalid(own, "the extent of p.{} is negative", declared.name);
    }
    if (source.part == Part::kExtent0) return KernelArgument{given->extent[0]};
    if (source.part == Part::kExtent1) return KernelArgument{given->extent[1]};
    if (source.part == Part::kExtent2) return KernelArgument{given->extent[2]};
    // An array without elements has no address, and no index of it is inside.
    if (std::find(given->extent.begin(), extents_end, 0) != extents_end) {
      return KernelArgument{KernelArgument::Pointer{}};
    }
    return KernelArgument{KernelArgument::Pointer{own, 0, buffer}};
  }

  Result<KernelArgument> operator()(StackSource source) const {
    if (Status made = make_code(); !made) return made.error();
    if (source.array < 0) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(&code_->code);
      return KernelArgument{KernelArgument::Bytes{{bytes, bytes + sizeof(StackCode)}}};
    }
    const auto array = static_cast<std::size_t>(source.array);
    if (array >= code_->arrays.size()) return KernelArgument{KernelArgument::Pointer{}};
    if (code_->arrays[array] == spec::StackProgram::kQOffsets) {
      const BufferId offsets{BufferId::Kind::kQOffsets, 0};
      return KernelArgument{KernelArgument::Pointer{name_of(values_.plan, offsets), 0, offsets}};
    }
    return (*this)(ParamSource{code_->arrays[array], ParamSource::Part::kValue});
  }

  /// The launch's stack code, once.
  Status make_code() const {
    if (code_) return {};
    std::vector<spec::ParamView> params(declared_.size());
    for (std::uint32_t i = 0; i < params.size(); ++i) {
      const Result<KernelArgument> value = (*this)(ParamSource{i, ParamSource::Part::kValue});
      if (!value) return value.error();
      const spec::ParamShape shape = spec::shape_of(declared_[i].type);
      if (const auto* integer = std::get_if<std::int32_t>(&value->value)) params[i].i32 = *integer;
      if (const auto* real = std::get_if<float>(&value->value)) params[i].f32 = *real;
      const auto& extent = given_for(declared_[i])->extent;
      if (shape.rank == 1) params[i].rows = extent[0];
      if (shape.rank == 2) params[i].rows = extent[0], params[i].columns = extent[1];
      if (shape.rank == 3) {
        params[i].planes = extent[0], params[i].rows = extent[1], params[i].columns = extent[2];
      }
    }
    Result<spec::StackProgram> code =
        spec::interpreted_code(values_.plan.spec, values_.scalars, params,
                               std::get<std::int32_t>(values_.numbers.get(LaunchNumber::kBatch)));
    if (!code) return std::move(code).error();
    code_ = *std::move(code);
    return {};
  }

  /// NOTE: the bits of a u32 travel as an i32: what kernels take has no other word.
  static Result<KernelArgument> number_of(const ParamSpec& declared, const spec::ParamShape& shape,
                                          const std::string& own, const UserParamShape& given) {
    const auto as = [&]<class Number>(Number) {
      const auto cast = [](auto number) { return static_cast<Number>(number); };
      return KernelArgument{std::visit(cast, given.scalar)};
    };
    if (shape.element == Dtype::kF32) return as(float{});
    if (!std::holds_alternative<float>(given.scalar)) return as(std::int32_t{});
    return spec::invalid(own, "p.{} is a {}; a float was given", declared.name,
                         spec::to_string(declared.type));
  }

  const ArgumentValues& values_;
  LaunchRecipe& recipe_;
  const std::vector<spec::SpecScalar>& scalars_;
  const std::vector<ParamSpec>& declared_;
  std::uint32_t num_maps_ = 0;
  mutable std::optional<spec::StackProgram> code_;
};

}  // namespace

LaunchNumbers::LaunchNumbers(const AttentionSpec& spec, const LaunchShapes& shapes, float scale) {
  using enum LaunchNumber;
  set({{kBatch, shapes.batch},
       {kNumQHeads, std::int32_t{spec.num_q_heads}},
       {kQLen, shapes.q_len},
       {kKvLen, keys_of_row(spec, shapes)},
       {kTotalQ, shapes.total_q},
       {kTotalKv, shapes.total_kv},
       {kNumPages, shapes.num_pages},
       {kMaxPages, shapes.max_pages},
       {kScale, scale}});
}

void LaunchNumbers::set_strides(const LaunchTensors& tensors) {
  using enum LaunchNumber;
  set({{kMaskBatchBytes, tensors.mask.batch},
       {kMaskHeadBytes, tensors.mask.head},
       {kMaskRowBytes, tensors.mask.row}});
  const auto set_bytes = [&](const TensorView& tensor, const std::array<LaunchNumber, 3>& of) {
    set({{of[0], tensor.strides.batch * tensor.element_bytes()},
         {of[1], tensor.strides.row * tensor.element_bytes()},
         {of[2], tensor.strides.head * tensor.element_bytes()}});
  };
  set(kRows, tensors.o.batch * tensors.o.rows * tensors.o.heads);
  set_bytes(tensors.o, {kOBatchBytes, kORowBytes, kOHeadBytes});
  set_bytes(tensors.k, {kKPageBytes, kKRowBytes, kKHeadBytes});
  set_bytes(tensors.v, {kVPageBytes, kVRowBytes, kVHeadBytes});
  set({{kScalePageStride, tensors.kv_scales.strides.batch},
       {kScaleRowStride, tensors.kv_scales.strides.row},
       {kScaleHeadStride, tensors.kv_scales.strides.head}});
}

Status fill_recipe(KernelId id, std::uint32_t ctas, const ArgumentValues& values,
                   LaunchRecipe& recipe) {
  const std::uint32_t rank = rank_of(values.plan, id);
  const PlannedKernel& kernel = values.plan.kernels.at(rank);
  if (recipe.kernel != rank || recipe.entry.empty()) {
    recipe = {};
    recipe.kernel = rank;
    recipe.entry = kernel.entry;
  }
  recipe.grid = {ctas, 1, 1};
  recipe.block = {static_cast<std::uint32_t>(kernel.threads), 1, 1};
  recipe.cluster = {static_cast<std::uint32_t>(kernel.cluster), 1, 1};
  recipe.dynamic_smem = static_cast<std::uint32_t>(kernel.smem_bytes);
  Filler filler(values, recipe);
  if (Status checked = filler.check(); !checked) return checked;
  recipe.args.resize(kernel.parameters.size(), KernelArgument{std::int32_t{0}});
  for (std::size_t i = 0; i < recipe.args.size(); ++i) {
    Status filled = std::visit([&](auto source) { return filler.fill(source, recipe.args[i]); },
                               kernel.parameters[i].source);
    if (!filled) return filled;
  }
  filler.end();
  return {};
}

}  // namespace attnjit
