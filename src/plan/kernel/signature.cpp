// SPDX-License-Identifier: Apache-2.0
// The tables of launch numbers, tensor maps and buffers, and the parameter lists made from them.
#include "plan/kernel/signature.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "base/in_order.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/sequence.h"
#include "spec/names.h"
#include "spec/resolved_spec.h"
#include "spec/scalars.h"
#include "spec/spec_fields.h"
#include "spec/stack_code.h"

namespace attnjit {
namespace {

using Kind = KernelParameter::Kind;
using Buffer = BufferId::Kind;

struct NumberRow {
  LaunchNumber number;
  std::string_view name;
  Kind kind = Kind::kI32;
};
constexpr auto kNumbers = [] {
  using enum LaunchNumber;
  using enum KernelParameter::Kind;
  return std::to_array<NumberRow>({{kBatch, "batch"},
                                   {kNumQHeads, "num_q_heads"},
                                   {kQLen, "q_len"},
                                   {kKvLen, "kv_len"},
                                   {kTotalQ, "total_q"},
                                   {kTotalKv, "total_kv"},
                                   {kNumPages, "num_pages"},
                                   {kMaxPages, "max_pages"},
                                   {kMTiles, "m_tiles"},
                                   {kTotalTiles, "total_tiles"},
                                   {kPairedUnits, "paired_units"},
                                   {kTileGroups, "tile_groups"},
                                   {kFirstTiles, "first_tiles"},
                                   {kSecondTiles, "second_tiles"},
                                   {kTileGrowth, "tile_growth"},
                                   {kSmallTile, "small_tile"},
                                   {kUniformSplits, "uniform_splits"},
                                   {kClusterReduced, "cluster_reduced"},
                                   {kTotalHeads, "total_heads"},
                                   {kSectionHeads, "section_heads"},
                                   {kOneQuery, "one_query"},
                                   {kOBatchBytes, "o_batch_bytes", kI64},
                                   {kORowBytes, "o_row_bytes", kI64},
                                   {kOHeadBytes, "o_head_bytes", kI64},
                                   {kKPageBytes, "k_page_bytes", kI64},
                                   {kKRowBytes, "k_row_bytes", kI64},
                                   {kKHeadBytes, "k_head_bytes", kI64},
                                   {kVPageBytes, "v_page_bytes", kI64},
                                   {kVRowBytes, "v_row_bytes", kI64},
                                   {kVHeadBytes, "v_head_bytes", kI64},
                                   {kScalePageStride, "scale_page_stride", kI64},
                                   {kScaleRowStride, "scale_row_stride", kI64},
                                   {kScaleHeadStride, "scale_head_stride", kI64},
                                   {kPartitions, "partitions"},
                                   {kScale, "scale", kF32},
                                   {kRows, "rows", kI64},
                                   {kRowsPerHead, "rows_per_head", kI64},
                                   {kMapBatches, "map_batches"},
                                   {kMapHeads, "map_heads"},
                                   {kMapQBlocks, "map_q_blocks"},
                                   {kMapKvBlocks, "map_kv_blocks"},
                                   {kMapRows, "map_rows"},
                                   {kHeadsPerMap, "heads_per_map"},
                                   {kListRows, "list_rows"},
                                   {kListsPerMap, "lists_per_map"},
                                   {kRowsPerList, "rows_per_list"},
                                   {kListPlaces, "list_places"},
                                   {kHeadsAsked, "heads_asked"},
                                   {kBitBlocks, "bit_blocks"},
                                   {kMaskBatchBytes, "mask_batch_bytes", kI64},
                                   {kMaskHeadBytes, "mask_head_bytes", kI64},
                                   {kMaskRowBytes, "mask_row_bytes", kI64}});
}();
static_assert(kNumbers.size() == static_cast<std::size_t>(LaunchNumber::kCount));
static_assert(in_order(kNumbers, &NumberRow::number));

struct MapRow {
  TensorMapId map;
  std::string_view name;
  Buffer buffer;
};
constexpr std::array<MapRow, 6> kMaps{{
    {TensorMapId::kQ, "q_map", Buffer::kQ},
    {TensorMapId::kK, "k_map", Buffer::kK},
    {TensorMapId::kV, "v_map", Buffer::kV},
    {TensorMapId::kO, "o_map", Buffer::kO},
    {TensorMapId::kQRope, "q_rope_map", Buffer::kQRope},
    {TensorMapId::kKRope, "k_rope_map", Buffer::kKRope},
}};
static_assert(in_order(kMaps, &MapRow::map));

struct BufferRow {
  Buffer buffer;
  std::string_view name;
};
constexpr auto kBuffers = [] {
  using enum BufferId::Kind;
  return std::to_array<BufferRow>({{kNone, ""},
                                   {kQ, "q"},
                                   {kK, "k"},
                                   {kV, "v"},
                                   {kO, "o"},
                                   {kLse, "lse"},
                                   {kSink, "sink"},
                                   {kPageTable, "page_table"},
                                   {kKvLens, "kv_lens"},
                                   {kQOffsets, "q_offsets"},
                                   {kKvOffsets, "kv_offsets"},
                                   {kPairsO, "pairs_o"},
                                   {kPairsLse, "pairs_lse"},
                                   {kQScale, "q_scale"},
                                   {kKScale, "k_scale"},
                                   {kVScale, "v_scale"},
                                   {kOutputScale, "output_scale"},
                                   {kMask, "mask"},
                                   {kKvNumBlocks, "kv_num_blocks"},
                                   {kKvIndices, "kv_indices"},
                                   {kFullKvNumBlocks, "full_kv_num_blocks"},
                                   {kFullKvIndices, "full_kv_indices"},
                                   {kKvBits, "kv_bits"},
                                   {kBlockBits, "block_bits"},
                                   {kSlopes, "slopes"},
                                   {kTopkIndices, "topk_indices"},
                                   {kQRope, "q_rope"},
                                   {kKRope, "k_rope"}});
}();
static_assert(in_order(kBuffers, &BufferRow::buffer));

// The names of an array's extents, after the array's own.
std::span<const std::string_view> extent_suffixes(int rank) {
  static constexpr std::array<std::string_view, 1> kOnly{"_n"};
  static constexpr std::array<std::string_view, 3> kLast{"_planes", "_rows", "_cols"};
  if (rank == 1) return kOnly;
  return std::span(kLast).last(static_cast<std::size_t>(rank));
}

constexpr std::string_view kParamPrefix = "param_";

/// What an array's pointer points at.
std::string cuda_element(Dtype element) {
  switch (element) {
    case Dtype::kF32:
      return "const float";
    case Dtype::kU32:
      return "const unsigned int";
    case Dtype::kBf16:
      return "const attnjit::Bf16";
    default:
      return "const int";
  }
}

/// The stack code, and the arrays that it may read.
void add_stack_parameters(std::vector<KernelParameter>& parameters) {
  parameters.push_back({"stack_code", Kind::kStruct, "attnjit::StackCode", StackSource{}});
  for (std::int32_t i = 0; i < kStackArrays; ++i) {
    parameters.push_back(
        {fmt::format("stack_array_{}", i), Kind::kPointer, "const void", StackSource{i}});
  }
}

void add_user_parameters(const SpecFacts& spec, std::vector<KernelParameter>& parameters) {
  using Part = ParamSource::Part;
  const std::vector<ParamSpec> declared = spec::declared_params(spec);
  for (std::uint32_t i = 0; i < declared.size(); ++i) {
    const spec::ParamShape shape = spec::shape_of(declared[i].type);
    const std::string name = std::string(kParamPrefix) + declared[i].name;
    const Kind number = shape.element == Dtype::kF32 ? Kind::kF32 : Kind::kI32;
    parameters.push_back({name, shape.rank == 0 ? number : Kind::kPointer,
                          shape.rank == 0 ? "" : cuda_element(shape.element),
                          ParamSource{i, Part::kValue}});
    static constexpr std::array kParts{Part::kExtent0, Part::kExtent1, Part::kExtent2};
    const std::span<const std::string_view> suffixes = extent_suffixes(shape.rank);
    for (std::size_t extent = 0; extent < suffixes.size(); ++extent) {
      parameters.push_back({name + std::string(suffixes[extent]), Kind::kI32, "",
                            ParamSource{i, kParts.at(extent)}});
    }
  }
}

}  // namespace

std::string_view to_string(KernelParameter::Kind kind) {
  static constexpr std::array<std::string_view, 6> kNames{"tensor_map", "pointer", "i32",
                                                          "i64",        "f32",     "struct"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(LaunchNumber number) {
  return kNumbers.at(static_cast<std::size_t>(number)).name;
}

std::string_view name_of(TensorMapId map) { return kMaps.at(static_cast<std::size_t>(map)).name; }

std::string_view tensor_name(TensorMapId map) {
  return name_of(kMaps.at(static_cast<std::size_t>(map)).buffer);
}

std::string_view name_of(BufferId::Kind buffer) {
  return kBuffers.at(static_cast<std::size_t>(buffer)).name;
}

std::string name_of(const KernelPlan& plan, BufferId buffer) {
  if (buffer.kind == Buffer::kParam) {
    return std::string(kParamPrefix) + plan.spec.state().params.at(buffer.index).name;
  }
  if (buffer.kind == Buffer::kWorkspace) {
    return std::string(name_of(plan.workspaces.at(buffer.index)));
  }
  return std::string(name_of(buffer.kind));
}

BufferId buffer_of(const KernelPlan& plan, TensorMapId map) {
  return forward_buffer(plan, kMaps.at(static_cast<std::size_t>(map)).buffer);
}

KernelParameter parameter(LaunchNumber number) {
  const NumberRow& row = kNumbers.at(static_cast<std::size_t>(number));
  return {std::string(row.name), row.kind, "", number};
}

KernelParameter parameter(TensorMapId map) {
  return {std::string(name_of(map)), Kind::kTensorMap, "", map};
}

KernelParameter parameter(std::string name, BufferId buffer, std::string cuda_type) {
  return {std::move(name), Kind::kPointer, std::move(cuda_type), buffer};
}

void add_array(BufferId::Kind array, const char* cuda_type,
               std::vector<KernelParameter>& parameters) {
  parameters.push_back(parameter(std::string(name_of(array)), {array, 0}, cuda_type));
}

KernelParameter workspace_parameter(const KernelPlan& plan, WorkspaceId workspace,
                                    std::string cuda_type) {
  return parameter(std::string(name_of(workspace)), workspace_buffer(plan, workspace),
                   std::move(cuda_type));
}

std::vector<KernelParameter> forward_parameters(const KernelPlan& plan,
                                                std::span<const TensorMapId> maps,
                                                std::span<const LaunchNumber> numbers) {
  const SpecFacts& spec = plan.spec;
  std::vector<KernelParameter> parameters;
  for (const TensorMapId map : maps) parameters.push_back(parameter(map));
  const auto add_array = [&](Buffer buffer, const char* cuda_type) {
    parameters.push_back(forward_array(plan, buffer, cuda_type));
  };
  if (spec.ragged) {
    add_array(Buffer::kQOffsets, "const int");
    add_array(Buffer::kO, "unsigned char");
    add_numbers({LaunchNumber::kORowBytes, LaunchNumber::kOHeadBytes}, parameters);
  }
  if (spec.has_page_table) add_array(Buffer::kPageTable, "const int");
  if (spec.ragged_kv) add_array(Buffer::kKvOffsets, "const int");
  if (spec.has_kv_lens) add_array(Buffer::kKvLens, "const int");
  if (spec.topk > 0) add_array(Buffer::kTopkIndices, "const int");
  if (spec.return_lse) add_array(Buffer::kLse, "float");
  if (spec.sink) add_array(Buffer::kSink, "const float");
  if (spec.scales != Scales::kNone) {
    if (spec.qkv_dtype == Dtype::kE4m3) add_array(Buffer::kQScale, "const float");
    add_array(Buffer::kKScale, "const float");
    // V of absorbed MLA is K's latent part.
    if (spec.mla != Mla::kDecode) add_array(Buffer::kVScale, "const float");
  }
  if (spec.pages_have_scales) {
    add_numbers({LaunchNumber::kScalePageStride, LaunchNumber::kScaleRowStride,
                 LaunchNumber::kScaleHeadStride},
                parameters);
  }
  if (spec.o_dtype == Dtype::kE4m3) add_array(Buffer::kOutputScale, "const float");
  add_numbers(numbers, parameters);
  if (has_wait_records(plan)) {
    parameters.push_back(workspace_parameter(plan, WorkspaceId::kWaitRecords, "unsigned int"));
  }
  parameters.push_back(parameter(LaunchNumber::kScale));
  add_function_parameters(spec, parameters);
  return parameters;
}

void add_function_parameters(const SpecFacts& spec, std::vector<KernelParameter>& parameters) {
  if (spec::materialized(spec.mask) != nullptr) {
    add_array(Buffer::kMask, "const unsigned char", parameters);
    add_numbers(
        {LaunchNumber::kMaskBatchBytes, LaunchNumber::kMaskHeadBytes, LaunchNumber::kMaskRowBytes},
        parameters);
  }
  if (spec.score_mod.slopes) add_array(Buffer::kSlopes, "const float", parameters);
  const std::vector<spec::SpecScalar> scalars = spec::spec_scalars(spec);
  for (std::uint32_t i = 0; i < scalars.size(); ++i) {
    if (scalars[i].constant || scalars[i].in_code) continue;
    parameters.push_back(
        {scalars[i].name, scalars[i].is_integer ? Kind::kI32 : Kind::kF32, "", ScalarSource{i}});
  }
  if (spec.interprets) {
    add_stack_parameters(parameters);
  } else {
    add_user_parameters(spec, parameters);
  }
}

void add_length_parameters(const SpecFacts& spec, std::vector<KernelParameter>& parameters) {
  if (spec.ragged) add_array(Buffer::kQOffsets, "const int", parameters);
  if (spec.ragged_kv) add_array(Buffer::kKvOffsets, "const int", parameters);
  if (spec.has_kv_lens) add_array(Buffer::kKvLens, "const int", parameters);
  add_numbers({LaunchNumber::kQLen, LaunchNumber::kKvLen}, parameters);
  if (spec.ragged) parameters.push_back(parameter(LaunchNumber::kTotalQ));
  if (spec.ragged_kv) parameters.push_back(parameter(LaunchNumber::kTotalKv));
}

KernelParameter forward_array(const KernelPlan& plan, Buffer tensor, const char* cuda_type) {
  return parameter(std::string(name_of(tensor)), forward_buffer(plan, tensor), cuda_type);
}

void add_key_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters) {
  for (const Buffer tensor : {Buffer::kK, Buffer::kV}) {
    parameters.push_back(forward_array(plan, tensor, "const unsigned char"));
  }
}

bool is_of_masks(const KernelParameter& parameter) {
  if (std::holds_alternative<ScalarSource>(parameter.source) ||
      std::holds_alternative<StackSource>(parameter.source)) {
    return true;
  }
  if (const auto* number = std::get_if<LaunchNumber>(&parameter.source)) {
    return *number == LaunchNumber::kMaskBatchBytes || *number == LaunchNumber::kMaskHeadBytes ||
           *number == LaunchNumber::kMaskRowBytes;
  }
  const auto* buffer = std::get_if<BufferId>(&parameter.source);
  return buffer != nullptr && (buffer->kind == Buffer::kMask || buffer->kind == Buffer::kSlopes);
}

std::string why_no_parameters(const SpecFacts& spec) {
  const std::vector<ParamSpec> declared = spec::declared_params(spec);
  std::set<std::string> names;
  for (const ParamSpec& param : declared) names.insert(param.name);
  for (const ParamSpec& param : declared) {
    for (const std::string_view suffix : extent_suffixes(spec::shape_of(param.type).rank)) {
      if (names.count(param.name + std::string(suffix)) == 0) continue;
      return fmt::format(
          "the parameter {0} needs the names {0}_n, {0}_planes, {0}_rows and {0}_cols for its "
          "extent",
          param.name);
    }
  }
  return {};
}

}  // namespace attnjit
