// SPDX-License-Identifier: Apache-2.0
// The tables of launch numbers, tensor maps and buffers, and the parameter lists made from them.
#include "plan/kernel/signature.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "plan/kernel/forward_support.h"
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

template <class Key, class Row, std::size_t kSize>
constexpr bool in_order(const std::array<Row, kSize>& rows, Key Row::*key) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (static_cast<std::size_t>(rows[i].*key) != i) return false;
  }
  return true;
}

struct NumberRow {
  LaunchNumber number;
  std::string_view name;
  Kind kind;
};
constexpr std::array<NumberRow, static_cast<std::size_t>(LaunchNumber::kCount)> kNumbers{{
    {LaunchNumber::kBatch, "batch", Kind::kI32},
    {LaunchNumber::kNumQHeads, "num_q_heads", Kind::kI32},
    {LaunchNumber::kQLen, "q_len", Kind::kI32},
    {LaunchNumber::kKvLen, "kv_len", Kind::kI32},
    {LaunchNumber::kTotalQ, "total_q", Kind::kI32},
    {LaunchNumber::kTotalKv, "total_kv", Kind::kI32},
    {LaunchNumber::kNumPages, "num_pages", Kind::kI32},
    {LaunchNumber::kMaxPages, "max_pages", Kind::kI32},
    {LaunchNumber::kMTiles, "m_tiles", Kind::kI32},
    {LaunchNumber::kTotalTiles, "total_tiles", Kind::kI32},
    {LaunchNumber::kPairedUnits, "paired_units", Kind::kI32},
    {LaunchNumber::kTileGroups, "tile_groups", Kind::kI32},
    {LaunchNumber::kFirstTiles, "first_tiles", Kind::kI32},
    {LaunchNumber::kSecondTiles, "second_tiles", Kind::kI32},
    {LaunchNumber::kTileGrowth, "tile_growth", Kind::kI32},
    {LaunchNumber::kLowBody, "low_body", Kind::kI32},
    {LaunchNumber::kEvenParts, "even_parts", Kind::kI32},
    {LaunchNumber::kJoined, "joined", Kind::kI32},
    {LaunchNumber::kTotalHeads, "total_heads", Kind::kI32},
    {LaunchNumber::kSectionHeads, "section_heads", Kind::kI32},
    {LaunchNumber::kOneQuery, "one_query", Kind::kI32},
    {LaunchNumber::kOBatchBytes, "o_batch_bytes", Kind::kI64},
    {LaunchNumber::kORowBytes, "o_row_bytes", Kind::kI64},
    {LaunchNumber::kOHeadBytes, "o_head_bytes", Kind::kI64},
    {LaunchNumber::kKPageBytes, "k_page_bytes", Kind::kI64},
    {LaunchNumber::kKRowBytes, "k_row_bytes", Kind::kI64},
    {LaunchNumber::kKHeadBytes, "k_head_bytes", Kind::kI64},
    {LaunchNumber::kVPageBytes, "v_page_bytes", Kind::kI64},
    {LaunchNumber::kVRowBytes, "v_row_bytes", Kind::kI64},
    {LaunchNumber::kVHeadBytes, "v_head_bytes", Kind::kI64},
    {LaunchNumber::kScalePageStride, "scale_page_stride", Kind::kI64},
    {LaunchNumber::kScaleRowStride, "scale_row_stride", Kind::kI64},
    {LaunchNumber::kScaleHeadStride, "scale_head_stride", Kind::kI64},
    {LaunchNumber::kPartitions, "partitions", Kind::kI32},
    {LaunchNumber::kScale, "scale", Kind::kF32},
    {LaunchNumber::kRows, "rows", Kind::kI64},
    {LaunchNumber::kRowsPerHead, "rows_per_head", Kind::kI64},
    {LaunchNumber::kMapBatches, "map_batches", Kind::kI32},
    {LaunchNumber::kMapHeads, "map_heads", Kind::kI32},
    {LaunchNumber::kMapQBlocks, "map_q_blocks", Kind::kI32},
    {LaunchNumber::kMapKvBlocks, "map_kv_blocks", Kind::kI32},
    {LaunchNumber::kMapRows, "map_rows", Kind::kI32},
    {LaunchNumber::kHeadsPerMap, "heads_per_map", Kind::kI32},
    {LaunchNumber::kListRows, "list_rows", Kind::kI32},
    {LaunchNumber::kListsPerMap, "lists_per_map", Kind::kI32},
    {LaunchNumber::kRowsPerList, "rows_per_list", Kind::kI32},
    {LaunchNumber::kListPlaces, "list_places", Kind::kI32},
    {LaunchNumber::kHeadsAsked, "heads_asked", Kind::kI32},
    {LaunchNumber::kBitBlocks, "bit_blocks", Kind::kI32},
    {LaunchNumber::kMaskBatchBytes, "mask_batch_bytes", Kind::kI64},
    {LaunchNumber::kMaskHeadBytes, "mask_head_bytes", Kind::kI64},
    {LaunchNumber::kMaskRowBytes, "mask_row_bytes", Kind::kI64},
}};
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
constexpr std::array<BufferRow, 28> kBuffers{{
    {Buffer::kNone, ""},
    {Buffer::kQ, "q"},
    {Buffer::kK, "k"},
    {Buffer::kV, "v"},
    {Buffer::kO, "o"},
    {Buffer::kLse, "lse"},
    {Buffer::kSink, "sink"},
    {Buffer::kPageTable, "page_table"},
    {Buffer::kKvLens, "kv_lens"},
    {Buffer::kQOffsets, "q_offsets"},
    {Buffer::kKvOffsets, "kv_offsets"},
    {Buffer::kPairsO, "pairs_o"},
    {Buffer::kPairsLse, "pairs_lse"},
    {Buffer::kQScale, "q_scale"},
    {Buffer::kKScale, "k_scale"},
    {Buffer::kVScale, "v_scale"},
    {Buffer::kOutputScale, "output_scale"},
    {Buffer::kMask, "mask"},
    {Buffer::kKvNumBlocks, "kv_num_blocks"},
    {Buffer::kKvIndices, "kv_indices"},
    {Buffer::kFullKvNumBlocks, "full_kv_num_blocks"},
    {Buffer::kFullKvIndices, "full_kv_indices"},
    {Buffer::kKvBits, "kv_bits"},
    {Buffer::kBlockBits, "block_bits"},
    {Buffer::kSlopes, "slopes"},
    {Buffer::kTopkIndices, "topk_indices"},
    {Buffer::kQRope, "q_rope"},
    {Buffer::kKRope, "k_rope"},
}};
static_assert(in_order(kBuffers, &BufferRow::buffer));

// The names of an array's extents, after the array's own.
constexpr std::array<std::string_view, 1> kArrayExtents{"_n"};
constexpr std::array<std::string_view, 2> kMatrixExtents{"_rows", "_cols"};
constexpr std::array<std::string_view, 3> kCubeExtents{"_planes", "_rows", "_cols"};

std::span<const std::string_view> extent_suffixes(int rank) {
  if (rank == 1) return kArrayExtents;
  if (rank == 2) return kMatrixExtents;
  if (rank == 3) return kCubeExtents;
  return {};
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
  switch (kind) {
    case KernelParameter::Kind::kTensorMap:
      return "tensor_map";
    case KernelParameter::Kind::kPointer:
      return "pointer";
    case KernelParameter::Kind::kI32:
      return "i32";
    case KernelParameter::Kind::kI64:
      return "i64";
    case KernelParameter::Kind::kF32:
      return "f32";
    case KernelParameter::Kind::kStruct:
      return "struct";
  }
  return "i32";
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
    parameters.push_back(
        parameter(std::string(name_of(buffer)), forward_buffer(plan, buffer), cuda_type));
  };
  if (spec.ragged) {
    add_array(Buffer::kQOffsets, "const int");
    add_array(Buffer::kO, "unsigned char");
    parameters.push_back(parameter(LaunchNumber::kORowBytes));
    parameters.push_back(parameter(LaunchNumber::kOHeadBytes));
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
    for (const LaunchNumber stride : {LaunchNumber::kScalePageStride, LaunchNumber::kScaleRowStride,
                                      LaunchNumber::kScaleHeadStride}) {
      parameters.push_back(parameter(stride));
    }
  }
  if (spec.o_dtype == Dtype::kE4m3) add_array(Buffer::kOutputScale, "const float");
  for (const LaunchNumber number : numbers) parameters.push_back(parameter(number));
  if (has_wait_records(plan)) {
    parameters.push_back(workspace_parameter(plan, WorkspaceId::kWaitRecords, "unsigned int"));
  }
  parameters.push_back(parameter(LaunchNumber::kScale));
  add_function_parameters(spec, parameters);
  return parameters;
}

void add_function_parameters(const SpecFacts& spec, std::vector<KernelParameter>& parameters) {
  if (spec::materialized(spec.mask) != nullptr) {
    parameters.push_back(parameter("mask", {Buffer::kMask, 0}, "const unsigned char"));
    for (const LaunchNumber stride : {LaunchNumber::kMaskBatchBytes, LaunchNumber::kMaskHeadBytes,
                                      LaunchNumber::kMaskRowBytes}) {
      parameters.push_back(parameter(stride));
    }
  }
  if (spec.score_mod.slopes) {
    parameters.push_back(parameter("slopes", {Buffer::kSlopes, 0}, "const float"));
  }
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
  const auto add_array = [&](Buffer buffer) {
    parameters.push_back(parameter(std::string(name_of(buffer)), {buffer, 0}, "const int"));
  };
  if (spec.ragged) add_array(Buffer::kQOffsets);
  if (spec.ragged_kv) add_array(Buffer::kKvOffsets);
  if (spec.has_kv_lens) add_array(Buffer::kKvLens);
  parameters.push_back(parameter(LaunchNumber::kQLen));
  parameters.push_back(parameter(LaunchNumber::kKvLen));
  if (spec.ragged) parameters.push_back(parameter(LaunchNumber::kTotalQ));
  if (spec.ragged_kv) parameters.push_back(parameter(LaunchNumber::kTotalKv));
}

void add_key_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters) {
  for (const Buffer tensor : {Buffer::kK, Buffer::kV}) {
    parameters.push_back(parameter(std::string(name_of(tensor)), forward_buffer(plan, tensor),
                                   "const unsigned char"));
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
