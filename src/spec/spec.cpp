// SPDX-License-Identifier: Apache-2.0
// Validates an AttentionSpec and fills in its defaults.
#include "attnjit/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "spec/kinds.h"
#include "spec/names.h"
#include "spec/resolved_spec.h"
#include "spec/spec_fields.h"
#include "spec/text.h"
#include "spec/trusted.h"

namespace attnjit {
namespace {

using spec::Holds;
using spec::in_quotes;
using spec::SpecField;

constexpr int kRopeDepth = 64;
constexpr int kDsv32Latent = 512;

/// Collects the problems of one spec.
class Validator {
 public:
  explicit Validator(const AttentionSpec& attention) : spec_(attention) {}

  spec::CheckedSpec run(const PlanOptions& options) {
    const struct {
      const AttentionSpec& spec;
      const PlanOptions& options;
    } given{spec_, options};
    for (const SpecField& field : spec::spec_fields()) {
      spec::visit_field(field, given, [&](const auto& value) { check(field, value); });
    }
    check_shape();
    int materialized = 0;
    int nodes = 0;
    check_mask("mask", spec_.mask, 1, nodes, materialized);
    check_score_mod();
    return {std::move(problems_), std::move(snippets_)};
  }

 private:
  void problem(std::string field, std::string message, std::string hint = {}) {
    if (problems_.size() >= static_cast<std::size_t>(spec::kMaxProblems)) return;
    problems_.push_back(
        make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint)));
  }

  // --- fields, by their type --------------------------------------------------------------------

  void check(const SpecField& field, int value) {
    if (value == field.unset) return;
    const bool good = field.values.empty() ? value >= field.min && value <= field.max
                                           : std::find(field.values.begin(), field.values.end(),
                                                       value) != field.values.end();
    if (!good) {
      problem(std::string(field.name),
              fmt::format("is {}; allowed: {}", value, spec::allowed(field)));
    }
  }
  void check(const SpecField& field, Dtype value) {
    if (std::find(field.dtypes.begin(), field.dtypes.end(), value) == field.dtypes.end()) {
      problem(std::string(field.name),
              fmt::format("is {}; allowed: {}", to_string(value), spec::allowed(field)));
    }
  }
  template <class T>
  void check(const SpecField& field, const std::optional<T>& value) {
    if (value) check(field, *value);
  }
  template <class T>
  void check(const SpecField&, const T&) {}  // every value is good, or see below

  /// Whether the spec says that there are parts, or may be.
  bool splits_keys() const {
    return spec_.num_partitions != AttentionSpec::kDefaultPartitions && spec_.num_partitions != 1;
  }
  bool asks_for_more_than_a_merge() const {
    return spec_.mla != Mla::kNone || spec_.page_size != 0 || spec_.ragged_kv ||
           spec_.kv_lens_exclude_new || spec_.sink || spec_.scales != Scales::kNone ||
           spec_.type_of_kv() != spec_.qkv_dtype || splits_keys() || spec_.partition_keys != 0 ||
           spec_.topk != 0 || spec_.cache_format != CacheFormat::kPlain ||
           spec_.mask.kind != MaskSpec::Kind::kNull ||
           spec_.score_mod.kind != ScoreModSpec::Kind::kIdentity;
  }

  /// What fields ask of one another.
  void check_shape() {
    const Dtype kv_dtype = spec_.type_of_kv();
    const bool topk = spec_.topk != 0, formatted = spec_.cache_format != CacheFormat::kPlain;
    const bool latent = spec_.ov_depth == 0 || spec_.ov_depth == kDsv32Latent;
    const std::string_view format = spec::to_string(spec_.cache_format);
    const struct {
      bool wrong;
      const char* field;
      std::string message;
      const char* hint = "";
    } rules[] = {
        // NOTE: a list says where rows lie in the pool of pages, and not which kv_idx they have:
        // what asks for that has no answer.
        {topk && spec_.page_size == 0, "topk",
         fmt::format("is {}; allowed with page_size: an index is page * page_size + the row in it",
                     spec_.topk)},
        {topk && spec_.kv_lens_exclude_new, "kv_lens_exclude_new",
         "is true; allowed without topk, where a launch has no kv_lens"},
        {topk && spec_.mask.kind != MaskSpec::Kind::kNull, "mask",
         "is given; allowed with topk: null", "the list says which keys a row sees"},
        {topk && spec_.score_mod.kind != ScoreModSpec::Kind::kIdentity &&
             spec_.score_mod.kind != ScoreModSpec::Kind::kSoftcap,
         "score_mod", "is given; allowed with topk: identity, softcap",
         "where a listed key stands in its sequence is not known"},
        {formatted && kv_dtype != spec_.qkv_dtype, "kv_dtype",
         fmt::format("is {}; allowed with cache_format {}: none, the format says what K is of",
                     to_string(kv_dtype), format)},
        {formatted && (spec_.mla != Mla::kDecode || spec_.qk_depth != kDsv32Latent + kRopeDepth ||
                       !latent || spec_.qkv_dtype != Dtype::kBf16),
         "cache_format",
         fmt::format("is {}; allowed with mla decode, qk_depth {}, ov_depth {}, qkv_dtype bf16",
                     format, kDsv32Latent + kRopeDepth, kDsv32Latent),
         "the format says what K is of; qkv_dtype is Q's"},
        {formatted && spec_.page_size == 0, "cache_format",
         fmt::format("is {}; allowed with page_size", format)},
        {spec_.group >= 1 && spec_.num_q_heads >= 1 && spec_.num_q_heads % spec_.group != 0,
         "group",
         fmt::format("is {}; allowed: a divisor of num_q_heads, which is {}", spec_.group,
                     spec_.num_q_heads)},
        {kv_dtype != spec_.qkv_dtype && kv_dtype != Dtype::kE4m3, "kv_dtype",
         fmt::format("is {}; allowed: qkv_dtype, which is {}, or e4m3 beside bf16 and fp16",
                     to_string(kv_dtype), to_string(spec_.qkv_dtype))},
        {spec_.scales != Scales::kNone && kv_dtype != Dtype::kE4m3, "scales",
         fmt::format("is {}; allowed with k and v of e4m3, which are {}",
                     spec::to_string(spec_.scales), to_string(kv_dtype))},
        {spec_.accumulate && !spec_.return_lse, "accumulate",
         "is true; allowed with return_lse: an LSE says how much a part counts"},
        {spec_.accumulate && spec_.sink && !spec_.lse_includes_sink, "accumulate",
         "is true; allowed with a sink where lse_includes_sink is true: an LSE without it does not "
         "say how much a part counts"},
        {spec_.merge && asks_for_more_than_a_merge(), "merge",
         "is true; allowed with arch, heads, depths, dtypes, ragged, return_lse and accumulate "
         "alone",
         "leave out what the pairs were computed with"},
        {spec_.ragged_kv && spec_.page_size > 0, "ragged_kv",
         "is true; allowed without pages: a page_table says where their rows are"},
        {spec_.kv_lens_exclude_new && (spec_.ragged_kv || (spec_.page_size == 0 && !spec_.ragged)),
         "kv_lens_exclude_new",
         "is true; allowed with kv_lens: with page_size or ragged, without ragged_kv"},
        {spec_.partition_keys > 0 && splits_keys(), "num_partitions",
         spec::partitions_beside_keys(spec_.num_partitions)},
        {spec_.mla != Mla::kNone && spec_.qk_depth >= 1 && spec_.qk_depth <= kRopeDepth, "qk_depth",
         fmt::format("is {}; allowed with mla {}: above {}, the rope's part of it", spec_.qk_depth,
                     spec::to_string(spec_.mla), kRopeDepth),
         spec_.mla == Mla::kDecode ? "absorbed MLA has 576 = 512 + 64"
                                   : "MLA prefill has 192 = 128 + 64"}};
    for (const auto& [wrong, field, message, hint] : rules) {
      if (wrong) problem(field, message, hint);
    }
  }

  // --- masks and score modifications -----------------------------------------------------------

  void check_mask(const std::string& path, const MaskSpec& mask, int depth, int& nodes,
                  int& materialized) {
    if (++nodes > spec::kMaxMaskNodes || depth > spec::kMaxMaskDepth) {
      if (!too_large_) {
        problem(path, fmt::format("makes the mask too large; allowed: {} masks in all, {} levels",
                                  spec::kMaxMaskNodes, spec::kMaxMaskDepth));
      }
      too_large_ = true;
      return;
    }
    check_scalars(path, mask);
    switch (spec::row_of(mask).holds) {
      case Holds::kNothing:
        break;
      case Holds::kOperands:
        if (mask.of.size() < 2) {
          problem(path + ".of", fmt::format("has {} mask{}; allowed: at least two", mask.of.size(),
                                            mask.of.size() == 1 ? "" : "s"));
        }
        for (std::size_t i = 0; i < mask.of.size() && !too_large_; ++i) {
          check_mask(fmt::format("{}.of[{}]", path, i), mask.of[i], depth + 1, nodes, materialized);
        }
        break;
      case Holds::kDtype:
        if (std::find(std::begin(spec::kMaskDtypes), std::end(spec::kMaskDtypes), mask.dtype) ==
            std::end(spec::kMaskDtypes)) {
          problem(path + ".dtype", fmt::format("is {}; allowed: {}", to_string(mask.dtype),
                                               spec::join(spec::dtype_names(spec::kMaskDtypes))));
        }
        if (++materialized == 2) {
          problem(path, "is the second materialized mask; allowed: one",
                  "combine them into one tensor");
        }
        break;
      case Holds::kSlopes:
        break;
      case Holds::kCode:
        check_custom(path, mask.custom, spec::SnippetKind::kMask);
        break;
    }
  }

  /// The numbers of a mask or a score modification.
  template <class Node>
  void check_scalars(const std::string& path, const Node& node) {
    for (const spec::KindScalar<Node>& scalar : spec::scalars_of(node)) {
      const double value = scalar.get(node);
      const std::string field = fmt::format("{}.{}", path, scalar.name);
      if (value != 0 && !spec::is_allowed(scalar, value)) {
        problem(field, fmt::format("is {}; allowed: {}", value, spec::allowed(scalar)));
      } else if (value == 0 && node.constant) {
        problem(
            field,
            fmt::format("is missing; allowed with \"constant\": true: {}", spec::allowed(scalar)),
            "give it a value, or leave constant out to give it at launch");
      }
    }
  }

  void check_score_mod() {
    const ScoreModSpec& mod = spec_.score_mod;
    check_scalars("score_mod", mod);
    if (spec::row_of(mod).holds == Holds::kCode) {
      check_custom("score_mod", mod.custom, spec::SnippetKind::kScoreMod);
    }
  }

  void check_custom(const std::string& path, const CustomCode& custom, spec::SnippetKind kind) {
    if (!spec::is_custom_name(custom.name)) {
      problem(path + ".name",
              fmt::format("is {}; allowed: 1 to 64 of a-z, 0-9 and _", in_quotes(custom.name)));
    } else if (kind == spec::SnippetKind::kMask) {
      const auto [known, added] = masks_.emplace(custom.name, &custom);
      if (!added && !(*known->second == custom)) {
        problem(path + ".name", fmt::format("is {}, as another mask is named whose code differs; "
                                            "allowed: a name of its own",
                                            in_quotes(custom.name)));
      }
    }
    if (custom.params.size() > static_cast<std::size_t>(spec::kMaxParams)) {
      problem(path + ".params", fmt::format("has {} parameters; allowed: up to {}",
                                            custom.params.size(), spec::kMaxParams));
      return;
    }
    bool good = true;
    for (std::size_t i = 0; i < custom.params.size(); ++i) {
      good &= check_param(fmt::format("{}.params[{}]", path, i), custom, i);
    }
    // NOTE: with a bad declaration the snippet would only repeat that problem.
    if (!good) return;
    const auto bad_code = [&](Error error) {
      error.field = path + ".code";
      if (problems_.size() < static_cast<std::size_t>(spec::kMaxProblems)) {
        problems_.push_back(std::move(error));
      }
    };
    if (custom.trusted) {
      if (Status status = spec::check_trusted_code(custom.code); !status) {
        bad_code(std::move(status).error());
      }
      snippets_.emplace_back();
      return;
    }
    Result<spec::Expression> parsed = spec::parse_expression(custom.code, kind, custom.params);
    if (!parsed) return bad_code(std::move(parsed).error());
    snippets_.emplace_back(*std::move(parsed));
  }

  bool check_param(const std::string& path, const CustomCode& custom, std::size_t index) {
    const ParamSpec& param = custom.params[index];
    if (const std::string why = spec::why_no_param_name(param.name); !why.empty()) {
      problem(path + ".name", fmt::format("is {}, {}; allowed: a C identifier of at most 64 "
                                          "characters that nothing else uses",
                                          in_quotes(param.name), why));
      return false;
    }
    for (std::size_t i = 0; i < index; ++i) {
      if (custom.params[i].name == param.name) {
        problem(path + ".name",
                fmt::format("is {}, as params[{}] is named; allowed: each name once",
                            in_quotes(param.name), i));
        return false;
      }
    }
    const auto [known, added] = params_.emplace(param.name, param.type);
    if (!added && known->second != param.type) {
      problem(path + ".type",
              fmt::format("is {}, but the parameter {} of other custom code is {}; allowed: one "
                          "type, since a parameter's name has one value per launch",
                          spec::to_string(param.type), in_quotes(param.name),
                          spec::to_string(known->second)),
              "rename one of them");
      return false;
    }
    return true;
  }

  const AttentionSpec& spec_;
  std::vector<Error> problems_;
  spec::Snippets snippets_;
  bool too_large_ = false;
  std::map<std::string_view, const CustomCode*> masks_;
  std::map<std::string_view, ParamSpec::Type> params_;
};

}  // namespace

spec::CheckedSpec spec::check_spec(const AttentionSpec& attention, const PlanOptions& options) {
  return Validator(attention).run(options);
}

std::vector<Error> validate(const AttentionSpec& attention, const PlanOptions& options) {
  return spec::check_spec(attention, options).problems;
}

AttentionSpec resolve(const AttentionSpec& attention) {
  AttentionSpec resolved = attention;
  if (resolved.ov_depth == 0) {
    // MLA's rope part takes part in Q and K only.
    resolved.ov_depth =
        resolved.mla == Mla::kNone ? resolved.qk_depth : resolved.qk_depth - kRopeDepth;
  }
  if (!resolved.output_dtype) {
    resolved.output_dtype = resolved.qkv_dtype == Dtype::kE4m3 ? Dtype::kBf16 : resolved.qkv_dtype;
  }
  // NOTE: specs that say the same have one canonical form, and one key.
  if (resolved.kv_dtype == resolved.qkv_dtype) resolved.kv_dtype.reset();
  if (!resolved.sink) resolved.lse_includes_sink = true;
  if (resolved.num_partitions == AttentionSpec::kDefaultPartitions) {
    resolved.num_partitions = spec::default_partitions(resolved);
  }
  // NOTE: spec_to_json() writes what a kind holds, and a Service knows a spec by that text.
  if (spec::row_of(resolved.score_mod).holds != spec::Holds::kSlopes) {
    resolved.score_mod.slopes = false;
  }
  if (resolved.scales == Scales::kToken && !resolved.scale_dtype) {
    resolved.scale_dtype = Dtype::kF32;
  }
  if (resolved.qk_depth > resolved.ov_depth) {
    if (!resolved.rope_dtype) resolved.rope_dtype = resolved.qkv_dtype;
    if (!resolved.rope_gmem_dtype) resolved.rope_gmem_dtype = resolved.rope_dtype;
  }
  return resolved;
}

}  // namespace attnjit
