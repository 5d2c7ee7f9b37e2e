// SPDX-License-Identifier: Apache-2.0
// Makes a Problem from a spec and a request, and refuses one that would not fit into memory.
#include "verify/problem.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "base/machine_limits.h"
#include "plan/launch/tensors.h"
#include "spec/kinds.h"
#include "spec/names.h"
#include "spec/spec_facts.h"
#include "spec/spec_fields.h"
#include "verify/mask_map.h"
#include "verify/random_inputs.h"

namespace attnjit::verify {
namespace {

constexpr std::array<std::string_view, kInputKinds.size()> kInputNames{
    "normal", "large", "rising", "falling", "spike", "raised", "small", "zero", "far", "stray"};
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 20;

Error invalid(std::string field, std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
}

/// One length for all sequences, or one for each.
struct Lengths {
  std::vector<std::int64_t> q, kv;
};

/// The caller's lengths; where there are none, the usual ones within the spec's bounds.
Lengths lengths_of(const AttentionSpec& spec, const ProblemRequest& request) {
  const auto or_usual = [](const std::vector<std::int64_t>& given, std::int64_t usual,
                           std::int64_t bound) {
    return given.empty() ? std::vector{bound > 0 ? std::min(usual, bound) : usual} : given;
  };
  return {or_usual(request.q_lens, 256, spec.max_q_len),
          or_usual(request.kv_lens, 512, spec.max_seq_len)};
}

Result<int> resolve_batch(std::optional<std::int64_t> given, const Lengths& lengths) {
  const std::int64_t batch =
      given.value_or(static_cast<std::int64_t>(std::max(lengths.q.size(), lengths.kv.size())));
  if (batch < 0 || batch > kMaxBatch) {
    return invalid("batch", fmt::format("{}; 0 to {} is allowed", batch, kMaxBatch));
  }
  for (const auto& [name, list] :
       {std::pair{"q_len", &lengths.q}, std::pair{"kv_len", &lengths.kv}}) {
    if (list->size() != 1 && static_cast<std::int64_t>(list->size()) != batch) {
      return invalid(name,
                     fmt::format("{} lengths for a batch of {}; give one, or one per sequence",
                                 list->size(), batch));
    }
    for (const std::int64_t length : *list) {
      if (length < 0 || length > kMaxLength) {
        return invalid(name, fmt::format("{}; 0 to {} is allowed", length, kMaxLength));
      }
    }
  }
  return static_cast<int>(batch);
}

std::vector<int> per_sequence(const std::vector<std::int64_t>& lengths, int batch) {
  std::vector<int> result;
  result.reserve(static_cast<std::size_t>(batch));
  for (int b = 0; b < batch; ++b) {
    result.push_back(static_cast<int>(lengths[lengths.size() == 1 ? 0 : b]));
  }
  return result;
}

Status fill_launch_scalars(AttentionSpec& spec, const ProblemRequest& request) {
  std::set<std::string_view> taken;
  std::string missing;
  spec::visit_scalars(spec, [&](const auto& scalar, auto& node) {
    if (scalar.get(node) != 0) return;
    const auto given = request.scalars.find(scalar.name);
    if (given == request.scalars.end() && request.all_scalars) missing = scalar.name;
    scalar.set(node, given != request.scalars.end() ? given->second : scalar.sample);
    taken.insert(scalar.name);
  });
  if (!missing.empty()) {
    return make_error(ErrorCode::kInvalid, "is missing: the spec leaves it to the launch", missing,
                      "say it in the spec, or as a flag of the command");
  }
  for (const auto& [name, value] : request.scalars) {
    if (taken.contains(name)) continue;
    return invalid(name, fmt::format("is {}, but a launch of this spec takes none", value));
  }
  return {};
}

Status check_storage(const AttentionSpec& spec) {
  const auto unsupported = [](const char* field, std::string_view value) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{}: verification lays out no such tensors", value), field);
  };
  if (has_separate_rope(spec) && spec.mla != Mla::kPrefill) {
    return unsupported("rope_dtype", to_string(*spec.rope_dtype));
  }
  if (spec.rope_gmem_dtype && spec.rope_gmem_dtype != spec.rope_dtype) {
    return unsupported("rope_gmem_dtype", to_string(*spec.rope_gmem_dtype));
  }
  if (spec.scale_dtype && (spec.scales != Scales::kToken || *spec.scale_dtype != Dtype::kF32)) {
    return unsupported("scale_dtype", to_string(*spec.scale_dtype));
  }
  return {};
}

// Everything that make_problem and its caller will hold: inputs, outputs and the reference.
double estimated_bytes(const Problem& problem, const std::vector<ParamArgument>& given) {
  const AttentionSpec& spec = problem.spec;
  const double heads = spec.num_q_heads;
  const double kv_heads = spec.num_kv_heads();
  const double size = size_of(spec.qkv_dtype);
  const double q_rows = static_cast<double>(problem.total_q) * heads;
  if (spec.merge) {
    return q_rows * spec.ov_depth * (16.0 + problem.num_pairs * double(size_of(problem.o_dtype())));
  }
  double kv_rows = double(problem.batch) * problem.max_kv_len;
  if (spec.ragged_kv) kv_rows = static_cast<double>(problem.total_kv);
  if (spec.page_size > 0) kv_rows = double(problem.num_pages) * spec.page_size;
  const double depth = spec.qk_depth + spec.ov_depth;
  // o is held as the output, as its copy from the device and as the double reference.
  double bytes = q_rows * (spec.qk_depth * size + spec.ov_depth * 16.0 + 24.0) +
                 kv_rows * kv_heads * depth * size_of(spec.type_of_kv()) +
                 double(problem.batch) * problem.max_pages * 4.0 +
                 static_cast<double>(problem.total_q) * spec.topk * 4.0;
  const std::int64_t longest = std::max(problem.max_q_len, problem.max_kv_len);
  for (const ParamSpec& param : spec::declared_params(spec)) {
    const auto found = std::find_if(given.begin(), given.end(), [&](const ParamArgument& argument) {
      return argument.name == param.name;
    });
    if (found != given.end()) {
      bytes += double(found->value.bytes.size());
      continue;
    }
    double param_bytes = size_of(spec::shape_of(param.type).element);
    for (const std::int64_t extent : param_extents(param.type, longest))
      param_bytes *= double(extent);
    bytes += param_bytes;
  }
  if (spec::materialized(spec.mask) != nullptr) {
    bytes += double(problem.batch) * heads * problem.max_q_len * problem.max_kv_len * 4.0;
  }
  if (has_separate_rope(spec)) {
    bytes +=
        (q_rows + kv_rows) * (spec.qk_depth - spec.ov_depth) * double(size_of(*spec.rope_dtype));
  }
  return bytes;
}

Status check_params(const AttentionSpec& spec, const std::vector<ParamArgument>& arguments) {
  const std::vector<ParamSpec> declared = spec::declared_params(spec);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ParamArgument& argument = arguments[i];
    const std::string field = "param " + argument.name;
    for (std::size_t j = 0; j < i; ++j) {
      if (arguments[j].name == argument.name) return invalid(field, "given twice");
    }
    const auto found = std::find_if(declared.begin(), declared.end(), [&](const ParamSpec& param) {
      return param.name == argument.name;
    });
    if (found == declared.end()) {
      std::string names;
      for (const ParamSpec& param : declared) names += (names.empty() ? "" : ", ") + param.name;
      return invalid(field, names.empty() ? "the spec declares no parameters"
                                          : "the spec declares no such parameter, but " + names);
    }
    const spec::ParamShape want = spec::shape_of(found->type);
    if (argument.value.dtype != want.element ||
        argument.value.shape.size() != static_cast<std::size_t>(want.rank)) {
      return invalid(field,
                     fmt::format("{} of rank {} given; the spec declares {} of rank {}",
                                 to_string(argument.value.dtype), argument.value.shape.size(),
                                 to_string(want.element), want.rank));
    }
    for (const std::int64_t extent : argument.value.shape) {
      if (extent > std::numeric_limits<std::int32_t>::max()) {
        return invalid(field, fmt::format("an extent of {}; at most 2^31 - 1", extent));
      }
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(InputKind kind) { return kInputNames[static_cast<std::size_t>(kind)]; }

std::optional<InputKind> input_kind_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kInputNames.size(); ++i) {
    if (kInputNames[i] == name) return static_cast<InputKind>(i);
  }
  return std::nullopt;
}

std::string input_kind_names() { return fmt::format("{}", fmt::join(kInputNames, ", ")); }

std::vector<std::int64_t> param_extents(ParamSpec::Type type, std::int64_t longest) {
  constexpr std::int64_t kMaxPlanes = 16;
  std::vector<std::int64_t> extents(static_cast<std::size_t>(spec::shape_of(type).rank), longest);
  if (extents.size() == 3) extents.front() = std::min(longest, kMaxPlanes);
  return extents;
}

std::int64_t Problem::first_q_row(int b) const {
  if (!spec.ragged) return std::int64_t{b} * max_q_len;
  return table("q_offsets").as<std::int32_t>()[b];
}

std::int64_t Problem::kv_row(int b, int kv_idx) const {
  if (spec.ragged_kv) return std::int64_t{table("kv_offsets").as<std::int32_t>()[b]} + kv_idx;
  if (spec.page_size == 0) return std::int64_t{b} * max_kv_len + kv_idx;
  const std::int32_t page =
      table("page_table").as<std::int32_t>()[std::int64_t{b} * max_pages + kv_idx / spec.page_size];
  return std::int64_t{page} * spec.page_size + kv_idx % spec.page_size;
}

std::int64_t Problem::listed_row(int b, int row, int place) const {
  const std::int32_t index =
      at("topk_indices").as<std::int32_t>()[(first_q_row(b) + row) * spec.topk + place];
  return index < std::int64_t{num_pages} * spec.page_size ? std::max(index, -1) : -1;
}

std::int64_t Problem::lse_index(int b, int h, int row) const {
  if (spec.ragged) return h * total_q + first_q_row(b) + row;
  return (std::int64_t{b} * spec.num_q_heads + h) * max_q_len + row;
}

std::int64_t Problem::pair_row(int pair, int b, int h, int row) const {
  const std::int64_t rows = spec.ragged ? total_q : std::int64_t{batch} * max_q_len;
  return (pair * rows + first_q_row(b) + row) * spec.num_q_heads + h;
}

double Problem::scale_of(const char* name, int b, int head, int row) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return 1;
  const Tensor& scales = found->second;
  const std::int64_t heads = scales.shape.back();
  if (spec.scales == Scales::kToken) {
    const bool is_q_scale = std::string_view(name) == "q_scale";
    return scales.as<float>()[(is_q_scale ? first_q_row(b) + row : kv_row(b, row)) * heads + head];
  }
  return scales.as<float>()[spec.scales == Scales::kHead ? b * heads + head : 0];
}

double Problem::output_scale() const {
  return has("output_scale") ? double{*at("output_scale").as<float>()} : 1;
}

std::vector<std::int64_t> Problem::o_shape() const {
  if (spec.ragged) return {total_q, spec.num_q_heads, spec.ov_depth};
  return {batch, max_q_len, spec.num_q_heads, spec.ov_depth};
}

std::vector<std::int64_t> Problem::lse_shape() const {
  if (spec.ragged) return {spec.num_q_heads, total_q};
  return {batch, spec.num_q_heads, max_q_len};
}

Dtype Problem::o_dtype() const { return spec.output_dtype.value_or(spec.qkv_dtype); }

Tensor Problem::lse_before() const {
  Tensor lse = make_tensor(Dtype::kF32, lse_shape());
  std::fill_n(lse.as<float>(), lse.elements(), -std::numeric_limits<float>::infinity());
  return lse;
}

bool Problem::kv_lens_differ() const {
  return std::any_of(kv_lens.begin(), kv_lens.end(),
                     [&](int length) { return length != max_kv_len; });
}

LaunchShapes Problem::launch_shapes() const {
  LaunchShapes shapes;
  shapes.batch = batch;
  shapes.q_len = max_q_len;
  shapes.kv_len = max_kv_len;
  shapes.total_q = spec.ragged ? static_cast<std::int32_t>(total_q) : 0;
  shapes.num_pairs = num_pairs;
  shapes.total_kv = spec.ragged_kv ? static_cast<std::int32_t>(total_kv) : 0;
  shapes.num_pages = num_pages;
  shapes.max_pages = max_pages;
  shapes.mask_map = mask_map;
  if (has("mask")) {
    const std::vector<std::int64_t>& mask = at("mask").shape;
    shapes.mask_batch = static_cast<std::int32_t>(mask[0]);
    shapes.mask_heads = static_cast<std::int32_t>(mask[1]);
    shapes.mask_rows = static_cast<std::int32_t>(mask[2]);
  }
  return shapes;
}

LaunchScalars Problem::launch_scalars() const {
  LaunchScalars scalars = attnjit::launch_scalars(spec);
  scalars.scale = scale;
  return scalars;
}

std::vector<UserParamShape> Problem::param_values() const {
  std::vector<UserParamShape> values;
  for (const ParamSpec& param : spec::declared_params(spec)) {
    const Tensor& tensor = at("param_" + param.name);
    UserParamShape value;
    value.name = param.name;
    if (tensor.shape.empty()) {
      if (tensor.dtype == Dtype::kF32) {
        value.scalar = *tensor.as<float>();
      } else if (tensor.dtype == Dtype::kU32) {
        value.scalar = *tensor.as<std::uint32_t>();
      } else {
        value.scalar = *tensor.as<std::int32_t>();
      }
    }
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      value.extent[i] = static_cast<std::int32_t>(tensor.shape[i]);
    }
    values.push_back(std::move(value));
  }
  return values;
}

Result<Problem> make_problem(const AttentionSpec& spec, const ProblemRequest& request) {
  Result<Problem> problem = shape_problem(spec, request);
  if (!problem) return problem;
  if (Status filled = fill_problem(request, *problem); !filled) return std::move(filled).error();
  return problem;
}

Status fill_problem(const ProblemRequest& request, Problem& problem) {
  fill_random_inputs(problem, request);
  if (request.given_map == GivenMapKind::kRandom) {
    give_mask_map(random_mask_map(problem), problem);
  } else if (request.given_map == GivenMapKind::kOfMask) {
    const Result<MaskMap> map = make_mask_map(problem, problem.batch, problem.spec.num_kv_heads());
    if (!map) return map.error();
    give_mask_map(*map, problem);
  }
  return {};
}

Result<Problem> shapeless_problem(const AttentionSpec& spec, const ProblemRequest& request) {
  Problem problem;
  problem.seed = request.seed;
  problem.spec = resolve(spec);
  if (Status status = check_storage(problem.spec); !status) return std::move(status).error();
  if (Status status = check_params(spec, request.params); !status) return std::move(status).error();
  if (Status status = fill_launch_scalars(problem.spec, request); !status) {
    return std::move(status).error();
  }
  problem.scale = request.scale.value_or(1.0F / std::sqrt(static_cast<float>(spec.qk_depth)));
  if (!std::isfinite(problem.scale) || problem.scale <= 0) {
    return invalid("scale", fmt::format("{}; a positive finite number", problem.scale));
  }
  return problem;
}

Result<Problem> shape_problem(const AttentionSpec& spec, const ProblemRequest& request) {
  const Lengths lengths = lengths_of(spec, request);
  Result<int> batch = resolve_batch(request.batch, lengths);
  if (!batch) return std::move(batch).error();
  Result<Problem> made = shapeless_problem(spec, request);
  if (!made) return made;
  Problem& problem = *made;

  problem.batch = *batch;
  problem.q_lens = per_sequence(lengths.q, *batch);
  if (spec.merge) {
    if (request.pairs < 1 || request.pairs > kMaxPairs) {
      return invalid("pairs", fmt::format("{}; 1 to {} is allowed", request.pairs, kMaxPairs));
    }
    problem.num_pairs = static_cast<int>(request.pairs);
  }
  // A merge is not asked over how many keys its pairs are.
  problem.kv_lens = per_sequence(spec.merge ? std::vector<std::int64_t>{0} : lengths.kv, *batch);
  for (int b = 0; b < *batch; ++b) {
    problem.max_q_len = std::max(problem.max_q_len, problem.q_lens[b]);
    problem.max_kv_len = std::max(problem.max_kv_len, problem.kv_lens[b]);
    problem.total_q += problem.q_lens[b];
    problem.total_kv += problem.kv_lens[b];
    if (spec.kv_lens_exclude_new && problem.kv_lens[b] < problem.q_lens[b]) {
      return invalid("kv_len",
                     fmt::format("{} keys for {} rows; with kv_lens_exclude_new the rows' "
                                 "own keys are among them",
                                 problem.kv_lens[b], problem.q_lens[b]));
    }
    if (!spec.ragged && problem.q_lens[b] != problem.q_lens[0]) {
      return invalid("q_len", "lengths that differ need \"ragged\": true in the spec");
    }
  }
  if (spec.max_q_len > 0 && problem.max_q_len > spec.max_q_len) {
    return invalid(
        "q_len", fmt::format("{}; the spec's max_q_len is {}", problem.max_q_len, spec.max_q_len));
  }
  if (spec.max_seq_len > 0 && problem.max_kv_len > spec.max_seq_len) {
    return invalid("kv_len", fmt::format("{}; the spec's max_seq_len is {}", problem.max_kv_len,
                                         spec.max_seq_len));
  }
  std::int64_t pages = 0;
  if (spec.page_size > 0) {
    for (const int length : problem.kv_lens) {
      const std::int64_t count = (std::int64_t{length} + spec.page_size - 1) / spec.page_size;
      pages += count;
      problem.max_pages = std::max(problem.max_pages, static_cast<int>(count));
    }
    // One column and two pages more than are needed, so that a stray index is seen.
    problem.max_pages += 1;
    pages += 2;
  }
  constexpr std::int64_t kMaxRows = std::numeric_limits<std::int32_t>::max();
  const std::int64_t keys = spec.ragged_kv ? problem.total_kv : 0;  // that 32 bits count
  if (problem.total_q > kMaxRows || pages > kMaxRows || keys > kMaxRows) {
    return invalid(
        "batch",
        fmt::format("{} query rows, {} pages and {} ragged keys in all; at most {} of each",
                    problem.total_q, pages, keys, kMaxRows));
  }
  problem.num_pages = static_cast<int>(pages);

  const double limit = static_cast<double>(
      request.max_bytes > 0 ? request.max_bytes : machine_limits().memory_bytes / 2);
  const double need = estimated_bytes(problem, request.params);
  if (need > limit) {
    return invalid("batch, q_len, kv_len",
                   fmt::format("these sizes need {:.1f} GiB of memory; at most {:.1f} GiB is used",
                               need / (1 << 30), limit / (1 << 30)));
  }
  return made;
}

}  // namespace attnjit::verify
