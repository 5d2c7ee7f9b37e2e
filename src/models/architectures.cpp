// SPDX-License-Identifier: Apache-2.0
// The table of architectures. Each row was read from the attention in transformers' modeling code.
#include "models/architectures.h"

namespace attnjit::models {
namespace {

using Kind = LayerRule::Kind;
using A = Architecture;

constexpr std::string_view kPrefix =
    "images see each other in both directions in their prompt: add an `or` with a custom mask";
constexpr std::string_view kLists =
    "each row sees the keys that an indexer lists: specs with topk have its lists, the others are "
    "the dense form";
constexpr std::string_view kBlocks =
    "each row sees blocks of keys that an indexer lists, which no spec has: the specs are the "
    "dense form";
constexpr std::string_view kBias =
    "scores have a learned bias of the distance: add it as a score modification";
constexpr std::string_view kBiasAndSinks =
    "scores have a learned bias of the distance: add it as a score modification; each row has a "
    "sink of its own, which no spec has";
constexpr std::string_view kCanvas =
    "rows of the canvas that is written see all of its keys: the same specs with the null mask";
constexpr std::string_view kCompressed =
    "each row also sees compressed rows of a second cache, all or those that an indexer lists, in "
    "one softmax with its window, which no spec has: the specs are the window";
constexpr std::string_view kSsmax = "queries are scaled by the logarithm of their position";

constexpr LayerRule every(std::string_view pattern, std::string_view period = {}, char last = 0) {
  return {.pattern = pattern, .period = period, .last = last};
}
constexpr LayerRule by(Kind kind) { return {.kind = kind}; }

constexpr LayerRule kAll = {};
constexpr LayerRule kWindows = by(Kind::kWindow);
constexpr LayerRule kFromLayer = by(Kind::kFromLayer);
constexpr LayerRule kIndexed = every("I");
constexpr LayerRule kListedAlone = every("-");
constexpr LayerRule kGated = every("---F", "full_attention_interval");

constexpr Architecture kArchitectures[] = {
    {"afmoe", every("WWWF", "global_attn_every_n_layers")},
    {"apertus", kAll, Heads::kNoHeadDim},
    {"arcee"},
    {"aria_text"},
    {"axk1", kAll, Heads::kLatent},
    {"bailing_hybrid", every("-----F", "layer_group_size"), Heads::kLatent},
    {"bailing_moe", kWindows},
    {"bailing_moe_v2", kWindows},
    {"bamba", kListedAlone},
    {"beam", every("WWWWWF", {}, 'F'), Heads::kUsual, A::kNothing, kSsmax},
    {"bert", kAll, Heads::kNoHeadDim, A::kEncoder},
    {"bitnet"},
    {"bloom", kAll, Heads::kNoHeadDim, A::kUsualAlibi},
    {"chatglm", kAll, Heads::kNoHeadDim},
    {"clip_text_model", kAll, Heads::kNoHeadDim},
    {"cohere"},
    {"cohere2", every("WWWF", "sliding_window_pattern")},
    {"cohere2_moe", every("WWWF", "sliding_window_pattern")},
    {"cwm", every("FWWW")},
    {"dbrx", kAll, Heads::kDbrx},
    {"deepseek", kAll, Heads::kNoHeadDim},
    {"deepseek_v2", kAll, Heads::kLatent},
    {"deepseek_v3", kAll, Heads::kLatent},
    {"deepseek_v32", kIndexed, Heads::kLatent, A::kLists, kLists},
    {"deepseek_v4", every("W"), Heads::kOneRow, A::kSinks | A::kBeyondSpecs, kCompressed},
    {"diffusion_gemma_text", every("WWWWWF"), Heads::kGemma4,
     A::kBothWays | A::kScaleOne | A::kLastIsFull, kCanvas},
    {"dots1", kFromLayer},
    {"dots3_note_text", {.pattern = "WIWW", .first = "II"}, Heads::kDots, A::kLists, kLists},
    {"dots_ocr", kFromLayer},
    {"embedding_gemma2_text", every("WWWWWF", "sliding_window_pattern"), Heads::kGemma4,
     A::kEncoder | A::kWholeWindow | A::kScaleOne | A::kLastIsFull},
    {"ernie4_5"},
    {"ernie4_5_moe"},
    {"exaone"},
    {"exaone4", every("WWWF", "sliding_window_pattern"), Heads::kUsual, A::kFullWithout},
    {"exaone_moe", every("WWWF", "sliding_window_pattern"), Heads::kUsual, A::kFullWithout},
    {"falcon", kAll, Heads::kFalcon, A::kAlibi},
    {"falcon_h1"},
    {"flex_olmo"},
    {"flint", {.pattern = "WFWW", .first = "FF", .last = 'F'}, Heads::kUsual, A::kSinks},
    {"gemma"},
    {"gemma2", every("WF"), Heads::kUsual, A::kSoftcap | A::kScalar},
    {"gemma3_text", every("WWWWWF", "sliding_window_pattern"), Heads::kUsual,
     A::kBothWays | A::kScalar, kPrefix},
    {"gemma3n_text", every("WWWWF"), Heads::kUsual, A::kScaleOne},
    {"gemma4_text", every("WWWWWF"), Heads::kGemma4,
     A::kBothWays | A::kScaleOne | A::kLastIsFull | A::kGatedHeads, kPrefix},
    {"gemma4_unified_text", every("WWWWWF"), Heads::kGemma4,
     A::kBothWays | A::kScaleOne | A::kLastIsFull | A::kGatedHeads, kPrefix},
    {"glm"},
    {"glm4"},
    {"glm4_moe"},
    {"glm4_moe_lite", kAll, Heads::kLatent},
    {"glm4v_moe_text"},
    {"glm4v_text", kAll, Heads::kNoHeadDim},
    {"glm5_next_text", every("---I"), Heads::kLatent, A::kNoLists | A::kBeyondSpecs, kBlocks},
    {"glm_moe_dsa", kIndexed, Heads::kLatent, A::kLists, kLists},
    {"gpt2", kAll, Heads::kNoHeadDim},
    {"gpt_bigcode", kAll, Heads::kFalcon},
    {"gpt_neox", kAll, Heads::kNoHeadDim},
    {"gpt_oss", every("WF"), Heads::kUsual, A::kSinks},
    {"gptj", kAll, Heads::kNoHeadDim},
    {"granite", kAll, Heads::kUsual, A::kMultiplier},
    {"granite_swa", every("FWWW"), Heads::kUsual, A::kSinks | A::kMultiplier},
    {"granitemoe", kAll, Heads::kUsual, A::kMultiplier},
    {"granitemoe_swa", every("FWWW"), Heads::kUsual, A::kSinks | A::kMultiplier},
    {"granitemoehybrid", kListedAlone, Heads::kUsual, A::kMultiplier},
    {"granitemoeshared", kAll, Heads::kUsual, A::kMultiplier},
    {"gte", kAll, Heads::kNoHeadDim, A::kEncoder},
    {"helium"},
    {"hunyuan_v1_dense", kAll, Heads::kGivenDepth},
    {"hunyuan_v1_moe", kAll, Heads::kGivenDepth},
    {"hy_v3"},
    {"hy_v4", kIndexed, Heads::kLatent, A::kLists | A::kSinks, kLists},
    {"hyperclovax", kAll, Heads::kUsual, A::kMultiplier},
    {"inkling2_text", every("WWWWWF"), Heads::kInkling, A::kBeyondSpecs, kBiasAndSinks},
    {"inkling_text", every("WWWWWF"), Heads::kInkling, A::kScaleInverse | A::kBeyondSpecs, kBias},
    {"internlm2", kAll, Heads::kNoHeadDim},
    {"internlm3"},
    {"iquestcoder"},
    {"jais2"},
    {"jamba", by(Kind::kOffset)},
    {"Keye", kFromLayer},
    {"KeyeVL1_5", kFromLayer},
    {"kimi_audio", kFromLayer},
    {"kimi_k2", kAll, Heads::kLatent, A::kNothing, {}, "deepseek_v3"},
    {"kimi_linear", {.pattern = "F---", .first = "-"}, Heads::kLatent},
    {"kolibri1", every("WWWWF")},
    {"laguna", kAll, Heads::kLaguna},
    {"lara_mini", every("-W-FW")},
    {"lfm2"},
    {"lfm2_moe"},
    {"lfm3", {.pattern = "W-F-", .first = "-"}},
    {"llama"},
    {"llama4_text", by(Kind::kNoRope)},
    {"llama_bidirec", kAll, Heads::kUsual, A::kEncoder},
    {"longcat_flash", kAll, Heads::kLatent},
    {"mellum"},
    {"mimo", kFromLayer},
    {"mimo_v2_flash", {.pattern = "WWWWWF", .first = "F"}, Heads::kMimo, A::kWindowSinks},
    {"minicpm", kAll, Heads::kNoHeadDim},
    {"minicpm3", kAll, Heads::kLatent},
    {"minicpmo", kFromLayer},
    {"minicpmv", kFromLayer},
    {"minimax_m2"},
    {"minimax_m3_vl_text", kAll, Heads::kUsual, A::kNoLists | A::kBeyondSpecs, kBlocks},
    {"ministral", kWindows, Heads::kGivenDepth},
    {"ministral3", kWindows},
    {"mistral", kWindows},
    {"mistral4", kAll, Heads::kLatent},
    {"mistral_large4_text", kIndexed, Heads::kLatent, A::kLists | A::kRopeless, kLists},
    {"mixtral", kWindows},
    {"modernbert", every("FWW"), Heads::kNoHeadDim, A::kEncoder | A::kWholeWindow},
    {"molmo", kAll, Heads::kNoHeadDim},
    {"mpt", kAll, Heads::kMpt},
    {"muse_glimmer_text", {.pattern = "WWWF", .from_end = true}},
    {"muse_spark_text", {.pattern = "WWWF", .from_end = true}},
    {"nemotron"},
    {"nemotron-nas", kAll, Heads::kBlocks},
    {"nemotron_h", every("--F-")},
    {"neomme", every("WWWWWF", {}, 'F'), Heads::kUsual,
     A::kEncoder | A::kWholeWindow | A::kLongWindows},
    {"new", kAll, Heads::kNoHeadDim, A::kEncoder},
    {"nomic_bert", kAll, Heads::kUsual, A::kEncoder},
    {"olmo"},
    {"olmo2"},
    {"olmo3", every("WWWF")},
    {"olmo_hybrid", every("---F")},
    {"olmoe"},
    {"opt", kAll, Heads::kNoHeadDim},
    {"orion", kAll, Heads::kNoHeadDim},
    {"paddleocr_vl_text"},
    {"PanguEmbedded"},
    {"phi"},
    {"phi3", kWindows},
    {"phi3_v", kWindows},
    {"phi4mm", kWindows},
    {"phimoe", kWindows},
    {"qwen2", kFromLayer},
    {"qwen2_5_omni_text", kFromLayer},
    {"qwen2_5_vl_text", kFromLayer, Heads::kNoHeadDim},
    {"qwen2_moe", by(Kind::kEvenBelow)},
    {"qwen2_vl_text", kFromLayer, Heads::kNoHeadDim},
    {"qwen3", kFromLayer},
    {"qwen3_5_moe_text", kGated},
    {"qwen3_5_text", kGated},
    {"qwen3_asr_text"},
    {"qwen3_moe", by(Kind::kIfAsked)},
    {"qwen3_next", kGated},
    {"qwen3_omni_moe_text"},
    {"qwen3_vl_moe_text"},
    {"qwen3_vl_text"},
    {"qwen4_exp_text", every("---I", "full_attention_interval"), Heads::kUsual,
     A::kNoLists | A::kBeyondSpecs, kBlocks},
    {"roberta", kAll, Heads::kNoHeadDim, A::kEncoder},
    {"sarvam_mla", kAll, Heads::kLatent},
    {"sarvam_moe"},
    {"seed_oss"},
    {"siglip_text_model", kAll, Heads::kNoHeadDim, A::kEncoder},
    {"smollm3", by(Kind::kNoRopeAsked)},
    {"solar", kWindows},
    {"solar_open"},
    {"stablelm"},
    {"starcoder2", kWindows},
    {"step3_text"},
    {"step3p5", kAll, Heads::kStep, A::kScalar},
    {"telechat", kAll, Heads::kNoHeadDim},
    {"TeleFLM"},
    {"ultrabert", every("WWF"), Heads::kUsual, A::kEncoder | A::kWholeWindow},
    {"vaultgemma", every("WF"), Heads::kUsual, A::kSoftcap | A::kScalar},
    {"whisper", kAll, Heads::kDecoder, A::kCross},
    {"xlm-roberta", kAll, Heads::kNoHeadDim, A::kEncoder},
    {"youtu", kAll, Heads::kLatent},
    {"zamba2", kListedAlone, Heads::kDoubleDepth},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

}  // namespace attnjit::models
