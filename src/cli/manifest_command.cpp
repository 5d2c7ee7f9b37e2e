// SPDX-License-Identifier: Apache-2.0
// attnjit manifest: writes a manifest from a model's Hugging Face configuration.
#include <fmt/format.h>

#include <charconv>

#include "attnjit/manifest.h"
#include "attnjit/plan.h"
#include "base/dtype_names.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/report.h"
#include "models/hf_config.h"
#include "models/specs.h"

namespace attnjit::cli {
namespace {

constexpr std::int64_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxNumber = 1 << 16;

/// N[,N..]: numbers from 1 on.
Result<std::vector<int>> read_numbers(const std::string& text, const char* flag) {
  std::vector<int> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    int number = 0;
    const auto [stop, status] = std::from_chars(text.data() + at, text.data() + comma, number);
    if (status != std::errc{} || stop != text.data() + comma || number < 1 || number > kMaxNumber) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("is '{}'; allowed: numbers from 1 to {}, with commas between",
                                    text.substr(0, 64), kMaxNumber),
                        flag);
    }
    numbers.push_back(number);
    at = comma + 1;
  }
  return numbers;
}

bool is_cache_dtype(Dtype dtype) {
  return dtype == Dtype::kBf16 || dtype == Dtype::kFp16 || dtype == Dtype::kE4m3;
}

std::string hint_of_dtype(const std::string& name) {
  const std::optional<Dtype> called = dtype_called(name);
  return called && is_cache_dtype(*called) ? fmt::format("did you mean `{}`?", to_string(*called))
                                           : std::string();
}

Result<models::ServingOptions> read_options(const ManifestArguments& arguments) {
  models::ServingOptions options;
  Result<std::vector<int>> numbers = read_numbers(arguments.tensor_parallel, "tp");
  if (!numbers) return std::move(numbers).error();
  options.tensor_parallel = *std::move(numbers);
  numbers = read_numbers(arguments.page_sizes, "page");
  if (!numbers) return std::move(numbers).error();
  options.page_sizes = *std::move(numbers);
  if (arguments.kv_dtype.empty()) return options;
  const std::optional<Dtype> dtype = dtype_from_string(arguments.kv_dtype);
  if (!dtype || !is_cache_dtype(*dtype)) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("is '{}'; allowed: bf16, fp16, e4m3", arguments.kv_dtype.substr(0, 64)),
        "kv_dtype", hint_of_dtype(arguments.kv_dtype));
  }
  options.kv_dtype = *dtype;
  return options;
}

/// What the kernels of each architecture serve of a manifest, and why they do not serve the rest.
Result<Json> served(const Manifest& manifest) {
  Json archs = Json::object();
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    Json& json = archs[std::string(to_string(arch))];
    json = {{"served", 0}, {"unsupported", Json::object()}};
    for (const Result<SpecDocument>& document : manifest.specs) {
      AttentionSpec spec = document->spec;
      spec.arch = arch;
      const Result<KernelPlan> made = plan(spec, document->options);
      if (!made) return made.error();
      std::int64_t& count =
          made->supported
              ? json["served"].get_ref<std::int64_t&>()
              : json["unsupported"].emplace(made->reason, 0).first->get_ref<std::int64_t&>();
      ++count;
    }
  }
  return archs;
}

/// The kinds of layers as a rank of each number of GPUs has them, for those who make specs of them.
Result<Json> layers_of(const models::ModelAttention& model, const std::vector<int>& gpus) {
  Json layers = Json::array();
  for (const int number : gpus) {
    for (std::size_t i = 0; i < model.kinds.size(); ++i) {
      Result<models::LayerKind> part = models::shard(model.kinds[i], number);
      if (!part) return std::move(part).error();
      layers.push_back({{"gpus", number},
                        {"numbers", model.numbers[i]},
                        {"q_heads", part->q_heads},
                        {"kv_heads", part->kv_heads},
                        {"qk_depth", part->qk_depth},
                        {"ov_depth", part->ov_depth},
                        {"window", part->window},
                        {"both_ways", part->both_ways},
                        {"cross", part->cross},
                        {"chunk", part->chunk},
                        {"softcap", part->softcap},
                        {"sink", part->sink},
                        {"alibi", part->alibi},
                        {"latent", part->latent},
                        {"rope", part->rope},
                        {"topk", part->topk}});
    }
  }
  return layers;
}

}  // namespace

Result<Report> run_manifest(const ManifestArguments& arguments) {
  Result<models::ServingOptions> options = read_options(arguments);
  if (!options) return std::move(options).error();
  Result<std::string> config = read_file(arguments.config, kMaxConfigBytes);
  if (!config) return std::move(config).error();
  Result<models::ModelAttention> model = models::read_hf_config(*config);
  if (!model) {
    Error error = std::move(model).error();
    error.field = error.field.empty() ? arguments.config : arguments.config + ": " + error.field;
    return error;
  }
  Result<std::string> text = models::write_manifest(
      *model, arguments.name.empty() ? model->architecture : arguments.name,
      arguments.source.empty() ? arguments.config : arguments.source, *options);
  if (!text) return std::move(text).error();

  // Every line is a spec that can be planned.
  Result<Manifest> manifest = manifest_from_json(*text);
  if (!manifest) return std::move(manifest).error();
  for (Result<SpecDocument>& document : manifest->specs) {
    if (!document) return std::move(document).error();
  }
  Result<Json> archs = served(*manifest);
  if (!archs) return std::move(archs).error();
  Report report;
  Json json;
  json["name"] = manifest->name;
  json["specs"] = manifest->specs.size();
  json["archs"] = *std::move(archs);
  json["notes"] = model->notes;
  Result<Json> layers = layers_of(*model, options->tensor_parallel);
  if (!layers) return std::move(layers).error();
  json["dtype"] = to_string(model->dtype);
  json["float32"] = model->float32;
  json["images"] = model->images;
  json["encoder"] = model->encoder;
  json["beyond_specs"] = model->beyond_specs;
  json["layers"] = *std::move(layers);
  Result<Json> wholes = layers_of(*model, {1});
  if (!wholes) return std::move(wholes).error();
  json["wholes"] = *std::move(wholes);
  if (arguments.output.empty()) {
    report.text = *text;
    report.verbatim = true;
    json["manifest"] = Json::parse(*text);
  } else {
    if (const Status written = replace_file(arguments.output, *text); !written) {
      return written.error();
    }
    report.text = fmt::format("{}: {} specs\n", arguments.output, manifest->specs.size());
  }
  report.json = to_text(json);
  return report;
}

}  // namespace attnjit::cli
