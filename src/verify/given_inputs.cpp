// SPDX-License-Identifier: Apache-2.0
// Checks tensors against a spec and against one another, and makes a Problem of them.
#include "verify/given_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/names.h"
#include "spec/spec_facts.h"
#include "spec/spec_fields.h"
#include "verify/npy.h"
#include "verify/numeric.h"
#include "verify/params.h"

namespace attnjit::verify {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kAny = -1;     // an extent that is not asked about
constexpr std::int64_t kBlock = 128;  // of lists of blocks

Error wrong_input(std::string field, std::string message, std::string hint = {}) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint));
}

std::string text_of(const Shape& shape) {
  std::vector<std::string> extents;
  extents.reserve(shape.size());
  for (const std::int64_t extent : shape) {
    extents.push_back(extent == kAny ? "n" : std::to_string(extent));
  }
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

bool fits(const Shape& shape, const Shape& wanted) {
  if (shape.size() != wanted.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (wanted[i] != kAny && shape[i] != wanted[i]) return false;
  }
  return true;
}

/// Moves given tensors into a problem, one by one.
class Giver {
 public:
  Giver(NamedTensors given, Problem& problem)
      : given_(std::move(given)), problem_(problem), spec_(problem.spec) {}

  Status take_call() {
    if (Status s = take_queries(); !s) return s;
    if (Status s = take_keys(); !s) return s;
    if (Status s = take_scales(); !s) return s;
    if (spec_.sink) {
      if (Status s = take("sink", Dtype::kF32, {spec_.num_q_heads}); !s) return s;
    }
    return take_lists();
  }

  /// After the lengths are known.
  Status take_modifications(const ProblemRequest& request) {
    if (spec_.score_mod.slopes) {
      if (Status s = take("slopes", Dtype::kF32, {spec_.num_q_heads}); !s) return s;
    }
    if (Status s = take_materialized(); !s) return s;
    if (Status s = take_params(request); !s) return s;
    return take_blocks();
  }

  Status finish() const {
    if (given_.empty()) return {};
    return wrong_input(given_.begin()->first, "the spec has no such tensor");
  }

 private:
  bool has(const std::string& name) const { return given_.contains(name); }

  Result<Tensor> found(const std::string& name, const Shape& wanted) {
    const auto at = given_.find(name);
    if (at == given_.end()) {
      return wrong_input(name, fmt::format("is missing; {} is needed", text_of(wanted)));
    }
    if (!fits(at->second.shape, wanted)) {
      return wrong_input(name, fmt::format("has the shape {}; {} is needed",
                                           text_of(at->second.shape), text_of(wanted)));
    }
    Tensor tensor = std::move(at->second);
    given_.erase(at);
    return tensor;
  }

  Status take(const std::string& name, Dtype dtype, const Shape& wanted) {
    Result<Tensor> tensor = found(name, wanted);
    if (!tensor) return std::move(tensor).error();
    Result<Tensor> right = converted(std::move(*tensor), dtype, name);
    if (!right) return std::move(right).error();
    problem_.tensors[name] = std::move(*right);
    return {};
  }

  /// q, k or v: floats of any width.
  Status take_floats(const std::string& name, const Shape& wanted) {
    Result<Tensor> tensor = found(name, wanted);
    if (!tensor) return std::move(tensor).error();
    if (!is_float_storage(tensor->dtype) && tensor->dtype != Dtype::kF64) {
      return wrong_input(name, fmt::format("holds {}; allowed: floats", to_string(tensor->dtype)));
    }
    problem_.tensors[name] = std::move(*tensor);
    return {};
  }

  const std::int32_t* ints(const std::string& name) const {
    return problem_.at(name).as<std::int32_t>();
  }

  /// The lengths between offsets that grow from 0 to at most `rows`.
  Result<std::vector<int>> lengths_of(const std::string& name, std::int64_t rows) const {
    std::vector<int> lengths;
    std::int64_t last = 0;
    const Tensor& offsets = problem_.at(name);
    for (std::int64_t i = 0; i < offsets.elements(); ++i) {
      const std::int64_t at = ints(name)[i];
      if (at < last || at > rows) {
        return wrong_input(name,
                           fmt::format("entry {} is {}; allowed: {} to {}", i, at, last, rows));
      }
      if (i > 0) lengths.push_back(static_cast<int>(at - last));
      last = at;
    }
    return lengths;
  }

  Status take_queries() {
    const int heads = spec_.num_q_heads, depth = depth_of_rows(spec_);
    if (spec_.ragged) {
      if (Status s = take_floats("q", {kAny, heads, depth}); !s) return s;
      if (Status s = take("q_offsets", Dtype::kI32, {kAny}); !s) return s;
      problem_.total_q = problem_.at("q").shape[0];
      const std::int64_t entries = problem_.at("q_offsets").elements();
      if (entries < 1) return wrong_input("q_offsets", "has no entry; batch + 1 are needed");
      problem_.batch = static_cast<int>(entries - 1);
      Result<std::vector<int>> lengths = lengths_of("q_offsets", problem_.total_q);
      if (!lengths) return std::move(lengths).error();
      problem_.q_lens = std::move(*lengths);
    } else {
      if (Status s = take_floats("q", {kAny, kAny, heads, depth}); !s) return s;
      const Shape& shape = problem_.at("q").shape;
      problem_.batch = static_cast<int>(shape[0]);
      problem_.q_lens.assign(static_cast<std::size_t>(shape[0]), static_cast<int>(shape[1]));
      problem_.total_q = shape[0] * shape[1];
      problem_.max_q_len = static_cast<int>(shape[1]);
    }
    for (const int length : problem_.q_lens) {
      problem_.max_q_len = std::max(problem_.max_q_len, length);
    }
    return {};
  }

  Status take_keys() {
    const int heads = spec_.num_kv_heads(), batch = problem_.batch;
    const auto both = [&](Shape shape) -> Status {
      shape.push_back(heads);
      shape.push_back(depth_of_rows(spec_));
      if (Status s = take_floats("k", shape); !s) return s;
      const Shape& k_shape = problem_.at("k").shape;
      std::copy_n(k_shape.begin(), k_shape.size() - 2, shape.begin());
      shape.back() = spec_.ov_depth;
      return take_floats("v", shape);
    };
    std::int64_t most = 0;  // keys of a sequence that there is room for
    if (spec_.page_size > 0) {
      if (Status s = both({kAny, spec_.page_size}); !s) return s;
      if (Status s = take("page_table", Dtype::kI32, {batch, kAny}); !s) return s;
      problem_.num_pages = static_cast<int>(problem_.at("k").shape[0]);
      problem_.max_pages = static_cast<int>(problem_.at("page_table").shape[1]);
      most = std::int64_t{problem_.max_pages} * spec_.page_size;
    } else if (spec_.ragged_kv) {
      if (Status s = both({kAny}); !s) return s;
      if (Status s = take("kv_offsets", Dtype::kI32, {batch + 1}); !s) return s;
      problem_.total_kv = problem_.at("k").shape[0];
      Result<std::vector<int>> lengths = lengths_of("kv_offsets", problem_.total_kv);
      if (!lengths) return std::move(lengths).error();
      problem_.kv_lens = std::move(*lengths);
    } else {
      if (Status s = both({batch, kAny}); !s) return s;
      most = problem_.at("k").shape[1];
      problem_.kv_lens.assign(static_cast<std::size_t>(batch), static_cast<int>(most));
    }
    if (!spec_.ragged_kv && (spec_.page_size > 0 || has("kv_lens"))) {
      if (Status s = take_kv_lens(most); !s) return s;
    }
    for (const int length : problem_.kv_lens) {
      problem_.max_kv_len = std::max(problem_.max_kv_len, length);
    }
    // Rows of k lie so far apart.
    if (spec_.page_size == 0 && !spec_.ragged_kv) problem_.max_kv_len = static_cast<int>(most);
    return spec_.page_size > 0 ? check_pages() : Status();
  }

  Status take_kv_lens(std::int64_t most) {
    if (Status s = take("kv_lens", Dtype::kI32, {problem_.batch}); !s) return s;
    problem_.kv_lens.clear();
    for (int b = 0; b < problem_.batch; ++b) {
      const std::int64_t own = spec_.kv_lens_exclude_new ? problem_.q_lens[b] : 0;
      const std::int64_t length = ints("kv_lens")[b] + own;
      if (length < own || length > most) {
        return wrong_input("kv_lens", fmt::format("entry {} is {}; allowed: 0 to {}", b,
                                                  length - own, most - own));
      }
      problem_.kv_lens.push_back(static_cast<int>(length));
    }
    return {};
  }

  Status check_pages() const {
    for (int b = 0; b < problem_.batch; ++b) {
      for (int i = 0; i * spec_.page_size < problem_.kv_lens[b]; ++i) {
        const std::int32_t page = ints("page_table")[std::int64_t{b} * problem_.max_pages + i];
        if (page < 0 || page >= problem_.num_pages) {
          return wrong_input("page_table",
                             fmt::format("entry {} of sequence {} is {}; allowed: 0 to {}", i, b,
                                         page, problem_.num_pages - 1));
        }
      }
    }
    return {};
  }

  Status take_scales() {
    if (spec_.scales != Scales::kNone) {
      for (const auto& [name, of] :
           {std::pair{"q_scale", "q"}, std::pair{"k_scale", "k"}, std::pair{"v_scale", "v"}}) {
        if (of == std::string_view("q") && spec_.qkv_dtype != Dtype::kE4m3) continue;
        Shape shape{1};
        const Shape& tensor_shape = problem_.at(of).shape;
        if (spec_.scales == Scales::kHead)
          shape = {problem_.batch, tensor_shape[tensor_shape.size() - 2]};
        if (spec_.scales == Scales::kToken)
          shape.assign(tensor_shape.begin(), tensor_shape.end() - 1);
        if (Status s = take(name, Dtype::kF32, shape); !s) return s;
      }
    }
    if (problem_.o_dtype() == Dtype::kE4m3) return take("output_scale", Dtype::kF32, {1});
    return {};
  }

  Status take_lists() {
    if (spec_.topk == 0) return {};
    const std::int64_t rows =
        spec_.ragged ? problem_.total_q : std::int64_t{problem_.batch} * problem_.max_q_len;
    return take("topk_indices", Dtype::kI32, {rows, spec_.topk});
  }

  Status take_materialized() {
    const MaskSpec* const mask = spec::materialized(spec_.mask);
    if (mask == nullptr) return {};
    Result<Tensor> tensor = found("mask", {kAny, kAny, kAny, kAny});
    if (!tensor) return std::move(tensor).error();
    const bool bits = mask->dtype == Dtype::kBits, numbers = spec::adds_to_scores(*mask);
    if (numbers ? !is_float_storage(tensor->dtype) && tensor->dtype != Dtype::kF64
                : tensor->dtype != Dtype::kU8) {
      return wrong_input("mask", fmt::format("holds {}; the spec says {}", to_string(tensor->dtype),
                                             to_string(mask->dtype)));
    }
    int longest = 0;
    for (const int length : problem_.kv_lens) longest = std::max(longest, length);
    const Shape& shape = tensor->shape;
    const std::int64_t needed = bits ? (longest + 7) / 8 : longest;
    if ((shape[0] != 1 && shape[0] != problem_.batch) ||
        (shape[1] != 1 && shape[1] != spec_.num_q_heads) ||
        (shape[2] != 1 && shape[2] < problem_.max_q_len) || shape[3] < needed) {
      return wrong_input(
          "mask",
          fmt::format("has the shape {}; [{} or 1, {} or 1, {} or 1, {}] is needed", text_of(shape),
                      problem_.batch, spec_.num_q_heads, problem_.max_q_len, needed));
    }
    if (tensor->dtype == Dtype::kF64) {
      Result<Tensor> narrow = converted(std::move(*tensor), Dtype::kF32, "mask");
      if (!narrow) return std::move(narrow).error();
      tensor = std::move(narrow);
    }
    problem_.tensors["mask"] = std::move(*tensor);
    return {};
  }

  Status take_params(const ProblemRequest& request) {
    for (const ParamSpec& param : spec::declared_params(spec_)) {
      const std::string name = "param_" + param.name;
      const auto argument =
          std::find_if(request.params.begin(), request.params.end(),
                       [&](const ParamArgument& one) { return one.name == param.name; });
      if (argument != request.params.end()) {
        problem_.tensors[name] = argument->value;
        continue;
      }
      const spec::ParamShape shape = spec::shape_of(param.type);
      if (!has(name)) {
        return wrong_input(
            "param " + param.name, "has no value",
            shape.rank == 0 ? "give --param NAME=VALUE" : "give --param NAME=@FILE.npy");
      }
      const Shape wanted(static_cast<std::size_t>(shape.rank), kAny);
      if (Status s = take(name, shape.element, wanted); !s) return s;
    }
    return {};
  }

  Status take_blocks() {
    if (!has("kv_num_blocks") && !has("kv_indices")) return {};
    if (Status s = take("kv_num_blocks", Dtype::kI32, {kAny, kAny, kAny}); !s) return s;
    Shape rows = problem_.at("kv_num_blocks").shape;
    Shape places = rows;
    places.push_back(kAny);
    if (Status s = take("kv_indices", Dtype::kI32, places); !s) return s;
    MaskMapShape& map = problem_.mask_map;
    map.use = MaskMapUse::kRead;
    map.no_full = !has("full_kv_num_blocks");
    if (!map.no_full) {
      places = problem_.at("kv_indices").shape;
      if (Status s = take("full_kv_num_blocks", Dtype::kI32, rows); !s) return s;
      if (Status s = take("full_kv_indices", Dtype::kI32, places); !s) return s;
    }
    const std::int64_t q_blocks = (problem_.max_q_len + kBlock - 1) / kBlock;
    if ((rows[0] != 1 && rows[0] != problem_.batch) || rows[1] < 1 ||
        spec_.num_q_heads % rows[1] != 0 || rows[2] < q_blocks) {
      return wrong_input("kv_num_blocks",
                         fmt::format("has the shape {}; [{} or 1, a divisor of {}, {}] is needed",
                                     text_of(rows), problem_.batch, spec_.num_q_heads, q_blocks));
    }
    map.batch = static_cast<std::int32_t>(rows[0]);
    map.heads = static_cast<std::int32_t>(rows[1]);
    map.q_blocks = static_cast<std::int32_t>(rows[2]);
    map.kv_blocks = static_cast<std::int32_t>(problem_.at("kv_indices").shape[3]);
    return {};
  }

  NamedTensors given_;
  Problem& problem_;
  const AttentionSpec& spec_;
};

}  // namespace

Result<NamedTensors> read_inputs(const std::string& folder) {
  const std::set<std::string> added{"o", "lse", "scale"};
  NamedTensors tensors;
  std::error_code failure;
  std::filesystem::directory_iterator files(folder, failure);
  if (failure) {
    return wrong_input(folder, fmt::format("this folder cannot be read: {}", failure.message()));
  }
  for (const std::filesystem::directory_entry& file : files) {
    const std::string name = file.path().stem().string();
    if (file.path().extension() != ".npy" || added.contains(name)) continue;
    Result<Tensor> tensor = read_npy(file.path().string());
    if (!tensor) return std::move(tensor).error();
    tensors.emplace(name, std::move(*tensor));
  }
  return tensors;
}

Result<Problem> given_problem(const AttentionSpec& spec, NamedTensors given,
                              const ProblemRequest& request) {
  const auto unsupported = [](const char* field) {
    return make_error(ErrorCode::kUnsupported, "the reference takes no such inputs", field);
  };
  Result<Problem> problem = shapeless_problem(spec, request);
  if (!problem) return problem;
  if (spec.merge) return unsupported("merge");
  if (spec.cache_format != CacheFormat::kPlain) return unsupported("cache_format");
  if (has_separate_rope(problem->spec)) return unsupported("rope_dtype");
  Giver giver(std::move(given), *problem);
  if (Status s = giver.take_call(); !s) return std::move(s).error();
  if (Status s = giver.take_modifications(request); !s) return std::move(s).error();
  if (Status s = giver.finish(); !s) return std::move(s).error();
  return problem;
}

Status give_modification_tensors(NamedTensors given, const ProblemRequest& request,
                                 Problem& problem) {
  Giver giver(std::move(given), problem);
  if (Status s = giver.take_modifications(request); !s) return s;
  return giver.finish();
}

}  // namespace attnjit::verify
