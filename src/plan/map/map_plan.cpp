// SPDX-License-Identifier: Apache-2.0
// The kernel that makes the map of a mask, and its launch.
#include "plan/map/map_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "plan/kernel/constants.h"
#include "plan/kernel/family_traits.h"
#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"
#include "plan/launch/tensors.h"
#include "spec/expression_ranges.h"
#include "spec/interpreted_code.h"
#include "spec/names.h"
#include "spec/resolved_spec.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using Buffer = BufferId::Kind;

constexpr int kThreads = 512;  // whose warps look at blocks beside one another
constexpr int kCtasPerSm = 4;  // as many as an SM has threads for
constexpr int kWordBytes = 4;  // of an i32
constexpr std::int64_t kBlockBitsBytes = kMaskBlock * kMaskBlock / 8;
/// Blocks that a map has bits of, at most: 32 MiB.
constexpr std::int64_t kMostBitBlocks = 1 << 14;
/// The most that a caller may give room for: a place has 24 bits (templates/maps/block_bits.cuh).
constexpr std::int32_t kMostGivenBitBlocks = (1 << 24) - 1;
constexpr int kListThreads = 128;
constexpr std::array kListWorkspaces{WorkspaceId::kListCounts, WorkspaceId::kList,
                                     WorkspaceId::kListDescriptors};

std::int64_t rows_of(const MaskMapShape& map) {
  return std::int64_t{map.batch} * map.heads * map.q_blocks;
}

// The arrays of a map: the caller's, or the plan's own.
struct MapArray {
  enum class Extent : std::uint8_t {
    kRows,       ///< a word for each row of blocks
    kPlaces,     ///< a word for each block of a row
    kBitBlocks,  ///< the bits of as many blocks
  };
  enum class Of : std::uint8_t { kPart, kWhole, kBits };
  Buffer buffer;
  WorkspaceId workspace;
  Extent extent;
  Of of;
};
constexpr auto kArrays = [] {
  using enum MapArray::Extent;
  using enum MapArray::Of;
  using enum WorkspaceId;
  return std::to_array<MapArray>({{Buffer::kKvNumBlocks, kMapKvNumBlocks, kRows, kPart},
                                  {Buffer::kKvIndices, kMapKvIndices, kPlaces, kPart},
                                  {Buffer::kFullKvNumBlocks, kMapFullKvNumBlocks, kRows, kWhole},
                                  {Buffer::kFullKvIndices, kMapFullKvIndices, kPlaces, kWhole},
                                  {Buffer::kKvBits, kMapKvBits, kPlaces, kBits},
                                  {Buffer::kBlockBits, kMapBlockBits, kBitBlocks, kBits}});
}();

/// Whether the map of a launch lacks one that the plan's have.
bool lacks_array(const MaskMapShape& map, const MapArray& array) {
  if (array.of == MapArray::Of::kBits) return map.bit_blocks == 0;
  return array.of == MapArray::Of::kWhole && map.use != MaskMapUse::kNone && map.no_full;
}

std::int64_t bytes_of(const MapArray& array, const MaskMapShape& map) {
  switch (array.extent) {
    case MapArray::Extent::kRows:
      return rows_of(map) * kWordBytes;
    case MapArray::Extent::kPlaces:
      // NOTE: never empty: who launches gives no address of nothing.
      return rows_of(map) * std::max(map.kv_blocks, 1) * kWordBytes;
    case MapArray::Extent::kBitBlocks:
      break;
  }
  return map.bit_blocks * kBlockBitsBytes;
}

/// Whether the launch says which heads share a map, and not the kernel that makes it.
bool counted_at_launch(const KernelPlan& plan) {
  return plan.map->by_tensor || spec::interprets_mask(plan.spec);
}

bool has_lists(const SpecFacts& spec) { return family_traits(spec).lists; }

bool has_trusted_code(const MaskSpec& mask) {
  return mask.custom.trusted || std::any_of(mask.of.begin(), mask.of.end(), has_trusted_code);
}

/// Whether a mask may tell apart what a coordinate counts: a trusted body may name any.
bool may_name(const ResolvedSpec& spec, spec::Coord coord) {
  return has_trusted_code(spec->mask) ||
         spec::any_of_mask(spec.state().snippets, [&](const spec::Expression& expression) {
           return spec::names(expression, coord);
         });
}

/// Whether a kernel would ask a mask about scores one by one: not where rows see intervals of keys,
/// nor where nothing is hidden but by what is added to scores.
bool hides_scores(const MaskSpec& mask) {
  if (hides_nothing(mask)) return false;
  switch (mask.kind) {
    case MaskSpec::Kind::kCustom:
    case MaskSpec::Kind::kOr:
    case MaskSpec::Kind::kMaterialized:
      return true;
    default:
      return std::any_of(mask.of.begin(), mask.of.end(), hides_scores);
  }
}

/// Whether a kernel that walks a map has registers for more: sm_90a's deepest bodies have not.
bool has_registers(const SpecFacts& spec) {
  constexpr int kMostDepth = 192;
  return has_lists(spec) || spec.qk_depth <= kMostDepth;
}

/// Why the kernel of a spec can walk no map; empty: it can.
std::string_view why_none_walked(const ResolvedSpec& spec) {
  if (!family_traits(spec).maps) {
    return "only kernels of depths up to 256 walk one, and of those none of absorbed MLA";
  }
  // NOTE: a work tile of a pair of CTAs has four rows of blocks, and a list has two at most.
  if (spec.options().pair_cta.value_or(false)) {
    return "CTAs that multiply alone walk one: pair_cta is to be false";
  }
  // NOTE: beside what reads a tensor a list of tiles spills in sm_90a's deepest bodies.
  if (spec::materialized(spec->mask) != nullptr && !has_registers(spec)) {
    return "sm_90a has no registers for one beside a tensor at depths above 192";
  }
  return {};
}

bool wants_map(const ResolvedSpec& spec) { return spec.options().mask_map.value_or(false); }

std::int32_t blocks_of(std::int32_t length) {
  return length / kMaskBlock + (length % kMaskBlock != 0 ? 1 : 0);
}

template <class... Args>
Error bad_map(const char* field, fmt::format_string<Args...> message, Args&&... args) {
  return spec::invalid(fmt::format("mask_map.{}", field), message, std::forward<Args>(args)...);
}

/// Whether each sequence, or each head, has a mask of its own in the tensor that is part of it.
bool has_batches(const PlannedMap& map, const LaunchShapes& shapes) {
  return map.by_tensor && shapes.mask_batch != 1;
}
bool has_heads(const PlannedMap& map, const LaunchShapes& shapes) {
  return map.by_tensor && shapes.mask_heads != 1;
}

/// Of the heads that share a map, those that are asked about to make it: all where they may see
/// different keys.
std::int32_t heads_asked(const KernelPlan& plan, const LaunchShapes& shapes,
                         const MaskMapShape& map) {
  const bool by_head = plan.map->by_head || has_heads(*plan.map, shapes);
  return by_head ? std::int32_t{plan.spec->num_q_heads / map.heads} : 1;
}

/// The blocks that the map of a launch has bits of, at most. Heads that see different keys have no
/// bits in common.
std::int32_t bit_blocks_of(const KernelPlan& plan, const LaunchShapes& shapes,
                           const MaskMapShape& map) {
  if (!plan.map->bits || heads_asked(plan, shapes, map) > 1) return 0;
  // NOTE: divided, not multiplied: the product overflows.
  const std::int64_t rows = rows_of(map);
  if (map.kv_blocks > 0 && rows > kMostBitBlocks / map.kv_blocks) {
    return static_cast<std::int32_t>(kMostBitBlocks);
  }
  return static_cast<std::int32_t>(rows * map.kv_blocks);
}

/// Points a launch's arguments at the workspaces, or nowhere, where the caller gave no array.
void place_map(const KernelPlan& plan, const MaskMapShape& map, LaunchRecipe& recipe) {
  const bool given = map.use != MaskMapUse::kNone;
  for (KernelArgument& argument : recipe.args) {
    auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value);
    if (pointer == nullptr) continue;
    for (const MapArray& array : kArrays) {
      if (pointer->id.kind != array.buffer) continue;
      if (lacks_array(map, array)) {
        *pointer = {};
      } else if (!given) {
        const BufferId own = workspace_buffer(plan, array.workspace);
        *pointer = {name_of(plan, own), 0, own};
      }
      break;
    }
  }
}

void add_lists_of_blocks(const char* cuda_type, std::vector<KernelParameter>& parameters) {
  for (const MapArray& array : kArrays) {
    if (array.of != MapArray::Of::kBits) add_array(array.buffer, cuda_type, parameters);
  }
}

void add_lists(const KernelPlan& plan, const char* cuda_type,
               std::vector<KernelParameter>& parameters) {
  for (const WorkspaceId list : kListWorkspaces) {
    if (list == WorkspaceId::kListDescriptors && !block_mask_has_bits(plan.spec)) continue;
    parameters.push_back(workspace_parameter(plan, list, cuda_type));
  }
}

PlannedKernel map_kernel(const KernelPlan& plan) {
  using enum LaunchNumber;
  const SpecFacts& spec = plan.spec;
  PlannedKernel kernel;
  kernel.id = KernelId::kMap;
  kernel.entry = "attnjit_map";
  kernel.kernel_header = "maps/list_blocks.cuh";
  kernel.threads = kThreads;
  kernel.overlaps = true;
  Constants constants;
  constants.add("kThreads", kThreads);
  constants.add("kHeads", spec.num_q_heads);
  constants.add("kGroup", spec.group);
  constants.add("kMapHeads", counted_at_launch(plan) ? 0 : plan.map->heads);
  constants.add("kByHead", plan.map->by_head && !spec::interprets_mask(spec));
  constants.add("kBlockMaskBits", plan.map->bits);
  constants.add("kLengthsDiffer", spec.lengths_differ);
  constants.add("kRagged", spec.ragged);
  constants.add("kRaggedKv", spec.ragged_kv);
  constants.add("kKvLensExcludeNew", spec.kv_lens_exclude_new);
  kernel.constants = std::move(constants).take();
  add_lists_of_blocks("int", kernel.parameters);
  if (plan.map->bits) {
    add_array(Buffer::kKvBits, "int", kernel.parameters);
    add_array(Buffer::kBlockBits, "unsigned int", kernel.parameters);
    kernel.parameters.push_back(parameter(kBitBlocks));
  }
  add_length_parameters(spec, kernel.parameters);
  add_numbers({kMapQBlocks, kMapKvBlocks, kMapRows}, kernel.parameters);
  if (counted_at_launch(plan)) {
    add_numbers({kMapHeads, kHeadsPerMap, kHeadsAsked}, kernel.parameters);
  }
  add_function_parameters(spec, kernel.parameters);
  return kernel;
}

PlannedKernel lists_kernel(const KernelPlan& plan) {
  using enum LaunchNumber;
  PlannedKernel kernel;
  kernel.id = KernelId::kMapLists;
  kernel.entry = "attnjit_map_lists";
  kernel.kernel_header = "maps/list_tiles.cuh";
  kernel.threads = kListThreads;
  kernel.overlaps = true;
  Constants constants;
  constants.add("kThreads", kListThreads);
  constants.add("kBlockMaskBits", plan.map->bits);
  kernel.constants = std::move(constants).take();
  add_lists_of_blocks("const int", kernel.parameters);
  if (plan.map->bits) {
    add_array(Buffer::kKvBits, "const int", kernel.parameters);
    kernel.parameters.push_back(parameter(kBitBlocks));
  }
  add_lists(plan, "int", kernel.parameters);
  add_numbers({kMapQBlocks, kMapKvBlocks, kListRows, kListsPerMap, kRowsPerList, kListPlaces},
              kernel.parameters);
  return kernel;
}

/// A launch of one of a plan's kernels, of `rows` rows.
Status rows_launch(const KernelPlan& plan, KernelId kernel, const LaunchRequest& request,
                   std::int64_t rows, LaunchRecipe& recipe) {
  ArgumentValues values{plan,
                        request.scalars.values,
                        request.params,
                        LaunchNumbers(plan.spec, request.shapes, request.scale),
                        {}};
  values.numbers.set_strides(request.tensors);
  set_map_numbers(request, plan.spec, values.numbers);
  values.numbers.set(LaunchNumber::kHeadsAsked, heads_asked(plan, request.shapes, request.map));
  const std::int64_t ctas =
      std::min(rows, std::int64_t{kCtasPerSm} * std::max(request.device.sm_count, 1));
  Status filled = fill_recipe(kernel, static_cast<std::uint32_t>(ctas), values, recipe);
  if (filled) place_map(plan, request.map, recipe);
  return filled;
}

/// Lists of a head's rows of blocks.
std::int32_t lists_per_map(const LaunchRequest& request) {
  return (request.map.q_blocks - 1) / request.rows_per_list + 1;
}

}  // namespace

bool walks_block_mask(const ResolvedSpec& spec) {
  if (!why_none_walked(spec).empty()) return false;
  // What a launch brings to be interpreted may be anything.
  return spec::materialized(spec->mask) != nullptr || spec::interprets_mask(spec) ||
         wants_map(spec) || spec::any_of_mask(spec.state().snippets, spec::reads_arrays);
}

std::string why_no_map(const ResolvedSpec& spec) {
  const std::string_view why = wants_map(spec) ? why_none_walked(spec) : std::string_view();
  return why.empty() ? std::string() : fmt::format("a map is asked for (mask_map), and {}", why);
}

bool block_mask_has_bits(const SpecFacts& spec) {
  // NOTE: in sm_90a's deepest bodies what reads them spills.
  return has_registers(spec) && (spec::interprets_mask(spec) || hides_scores(spec.mask));
}

PlannedMap planned_map(const ResolvedSpec& spec, int packed_heads) {
  const SpecFacts& facts = spec;
  const bool by_head = may_name(spec, spec::Coord::kH);
  PlannedMap map;
  map.by_batch = facts.lengths_differ || may_name(spec, spec::Coord::kB) ||
                 may_name(spec, spec::Coord::kTotalRow);
  if (by_head) {
    map.heads = spec->num_q_heads / packed_heads;
  } else if (may_name(spec, spec::Coord::kKvH)) {
    map.heads = spec->num_kv_heads();
  }
  map.by_head = by_head;
  map.packed_heads = packed_heads;
  map.by_tensor = spec::materialized(spec->mask) != nullptr;
  map.bits = block_mask_has_bits(spec);
  return map;
}

void add_map_workspaces(KernelPlan& plan) {
  if (!walks_block_mask(plan.spec)) return;
  const bool bits = block_mask_has_bits(plan.spec);
  for (const MapArray& array : kArrays) {
    if (bits || array.of != MapArray::Of::kBits) plan.workspaces.push_back(array.workspace);
  }
  if (!has_lists(plan.spec)) return;
  for (const WorkspaceId list : kListWorkspaces) {
    if (bits || list != WorkspaceId::kListDescriptors) plan.workspaces.push_back(list);
  }
}

void add_map_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters) {
  using enum LaunchNumber;
  const bool bits = block_mask_has_bits(plan.spec);
  std::vector<LaunchNumber> numbers{kMapBatches, kMapHeads, kHeadsPerMap};
  if (has_lists(plan.spec)) {
    add_lists(plan, "const int", parameters);
    numbers.insert(numbers.end(), {kListsPerMap, kRowsPerList, kListPlaces});
  } else {
    add_lists_of_blocks("const int", parameters);
    if (bits) add_array(Buffer::kKvBits, "const int", parameters);
    numbers.insert(numbers.end(), {kMapQBlocks, kMapKvBlocks});
  }
  if (bits) {
    add_array(Buffer::kBlockBits, "const unsigned int", parameters);
    numbers.push_back(kBitBlocks);
  }
  add_numbers(numbers, parameters);
}

void add_map_kernels(KernelPlan& plan) {
  if (!plan.map) return;
  plan.kernels.push_back(map_kernel(plan));
  if (has_lists(plan.spec)) plan.kernels.push_back(lists_kernel(plan));
}

Result<MaskMapShape> mask_map_shape(const KernelPlan& plan, const LaunchShapes& shapes) {
  if (!plan.map) {
    return make_error(ErrorCode::kUnsupported, "the plan of this spec walks no map of its mask",
                      "mask_map");
  }
  Problems problems;
  check_length("batch", shapes.batch, problems);
  check_length("q_len", shapes.q_len, problems);
  check_length("kv_len", shapes.kv_len, problems);
  if (problems.any()) return problems.take();
  MaskMapShape map;
  map.use = shapes.mask_map.use;
  map.batch = plan.map->by_batch || has_batches(*plan.map, shapes) ? shapes.batch : 1;
  map.heads = has_heads(*plan.map, shapes) ? plan.spec->num_q_heads / plan.map->packed_heads
                                           : plan.map->heads;
  map.q_blocks = blocks_of(shapes.q_len);
  map.kv_blocks = blocks_of(shapes.kv_len);
  // NOTE: divided, not multiplied: the product of three such numbers overflows 64 bits.
  if (map.batch > 0 && std::int64_t{map.heads} * map.q_blocks > kMaxTiles / map.batch) {
    return bad_map("q_blocks", "{} x {} x {} rows of blocks exceed {}", map.batch, map.heads,
                   map.q_blocks, kMaxTiles);
  }
  map.bit_blocks = bit_blocks_of(plan, shapes, map);
  return map;
}

Result<MaskMapShape> map_of_launch(const KernelPlan& plan, const LaunchShapes& shapes) {
  const MaskMapShape& given = shapes.mask_map;
  if (!plan.map) {
    if (given.use == MaskMapUse::kNone) return MaskMapShape{};
    return bad_map("use", "the plan of this spec walks no map of its mask");
  }
  Result<MaskMapShape> made = mask_map_shape(plan, shapes);
  if (!made || given.use == MaskMapUse::kNone) return made;
  MaskMapShape map = given;
  for (const auto extent : {&MaskMapShape::batch, &MaskMapShape::heads, &MaskMapShape::q_blocks,
                            &MaskMapShape::kv_blocks}) {
    if (map.*extent == 0) map.*extent = (*made).*extent;
    if (map.*extent < 0) return bad_map("shape", "an extent is negative");
  }
  const int heads = plan.spec->num_q_heads;
  if (map.batch != 1 && map.batch != shapes.batch) {
    return bad_map("batch", "is {}; allowed: 1 or {}", map.batch, shapes.batch);
  }
  if (map.heads < 1 || heads % map.heads != 0 || heads / map.heads % plan.map->packed_heads != 0) {
    return bad_map("heads",
                   "is {}; allowed: 1, or maps that as many of the {} heads "
                   "share, {} at least",
                   map.heads, heads, plan.map->packed_heads);
  }
  if (map.q_blocks < made->q_blocks) {
    return bad_map("q_blocks", "is {}; q_len {} has {}", map.q_blocks, shapes.q_len,
                   made->q_blocks);
  }
  if (map.kv_blocks > std::int64_t{1} << 24 || rows_of(map) > kMaxTiles) {
    return bad_map("shape", "{} x {} x {} rows of {} blocks are too many", map.batch, map.heads,
                   map.q_blocks, map.kv_blocks);
  }
  if (map.bit_blocks < 0 || map.bit_blocks > kMostGivenBitBlocks) {
    return bad_map("bit_blocks", "is {}; allowed: 0 to {}", map.bit_blocks, kMostGivenBitBlocks);
  }
  if (!plan.map->bits) map.bit_blocks = 0;
  if (map.use == MaskMapUse::kWrite &&
      (map.batch != made->batch || map.heads != made->heads || map.q_blocks != made->q_blocks ||
       map.kv_blocks != made->kv_blocks || map.no_full)) {
    return bad_map("shape", "a map of [{}, {}, {}, {}] is made, with both lists", made->batch,
                   made->heads, made->q_blocks, made->kv_blocks);
  }
  return map;
}

void set_map_numbers(const LaunchRequest& request, const SpecFacts& spec, LaunchNumbers& numbers) {
  const MaskMapShape& map = request.map;
  if (map.heads == 0) return;
  using enum LaunchNumber;
  numbers.set({{kMapBatches, map.batch},
               {kMapHeads, map.heads},
               {kMapQBlocks, map.q_blocks},
               {kMapKvBlocks, map.kv_blocks},
               {kMapRows, static_cast<std::int32_t>(rows_of(map))},
               {kHeadsPerMap, std::int32_t{spec.num_q_heads / map.heads}},
               {kBitBlocks, map.bit_blocks}});
  if (request.rows_per_list == 0) return;
  const std::int32_t lists = lists_per_map(request);
  numbers.set({{kListRows, std::int32_t{map.batch * map.heads * lists}},
               {kListsPerMap, lists},
               {kRowsPerList, request.rows_per_list},
               {kListPlaces, blocks_of(request.shapes.kv_len)}});
}

std::size_t map_launches(const KernelPlan& plan, const LaunchRequest& request) {
  if (!plan.map) return 0;
  return (request.map.use != MaskMapUse::kRead ? 1U : 0U) + (request.rows_per_list > 0 ? 1U : 0U);
}

Status fill_map_launches(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchSequence& sequence) {
  if (!plan.map) return {};
  const MaskMapShape& map = request.map;
  for (std::size_t i = map_launches(plan, request); i < sequence.launches.size(); ++i) {
    place_map(plan, map, sequence.launches[i]);
  }
  for (const MapArray& array : kArrays) {
    if (!plan.map->bits && array.of == MapArray::Of::kBits) continue;
    if (map.use != MaskMapUse::kNone || lacks_array(map, array)) continue;
    set_bytes(plan, array.workspace, bytes_of(array, map), sequence);
  }
  std::size_t next = 0;
  if (map.use != MaskMapUse::kRead) {
    Status made =
        rows_launch(plan, KernelId::kMap, request, rows_of(map), sequence.launches[next++]);
    if (!made) return made;
  }
  if (request.rows_per_list > 0) {
    const std::int64_t lists = std::int64_t{map.batch} * map.heads * lists_per_map(request);
    const std::int64_t places = std::max(blocks_of(request.shapes.kv_len), 1);
    set_bytes(plan, WorkspaceId::kListCounts, lists * kWordBytes, sequence);
    set_bytes(plan, WorkspaceId::kList, lists * places * kWordBytes, sequence);
    if (plan.map->bits) {
      set_bytes(plan, WorkspaceId::kListDescriptors,
                lists * places * request.rows_per_list * kWordBytes, sequence);
    }
    return rows_launch(plan, KernelId::kMapLists, request, lists, sequence.launches[next]);
  }
  return {};
}

}  // namespace attnjit
