// SPDX-License-Identifier: Apache-2.0
// Reads key material in the order in which key.cpp writes it.
#include "cache/key_facts.h"

#include <charconv>
#include <map>
#include <string>

#include "cache/bytes.h"
#include "cache/entry_format.h"

namespace attnjit::cache {
namespace {

constexpr std::string_view kBegin = "attnjit request key\n";

/// The constants of the first kernel, which is the attention's.
class Constants {
 public:
  /// Also passes over the other kernels.
  static Constants read(ByteReader& in) {
    Constants constants;
    const std::uint64_t kernels = in.u64();
    for (std::uint64_t i = 0; i < kernels && in.ok(); ++i) {
      string(in);  // entry
      string(in);  // header
      for (int number = 0; number < 4; ++number) in.i64();
      const std::uint64_t count = in.u64();
      for (std::uint64_t c = 0; c < count && in.ok(); ++c) {
        string(in);  // type
        const std::string name = string(in);
        const std::string value = string(in);
        if (i == 0) constants.values_.emplace(name, value);
      }
      const std::uint64_t parameters = in.u64();
      for (std::uint64_t p = 0; p < parameters && in.ok(); ++p) {
        string(in);
        in.u32();
        string(in);
      }
    }
    return constants;
  }

  static std::string string(ByteReader& in) { return in.string(kMaxKeyMaterialBytes); }

  bool has(const std::string& name) const { return values_.contains(name); }
  bool is(const std::string& name) const {
    const auto found = values_.find(name);
    return found != values_.end() && found->second == "true";
  }
  int number(const std::string& name) const {
    const auto found = values_.find(name);
    int value = 0;
    if (found != values_.end()) {
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    }
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
};

/// TYPE of the line "using NAME = TYPE;", without its namespace.
std::string type_of(std::string_view text, const std::string& name) {
  const std::string begin = "\nusing " + name + " = ";
  const std::size_t at = text.find(begin);
  if (at == std::string_view::npos) return {};
  const std::size_t first = at + begin.size();
  std::string type(text.substr(first, text.find(';', first) - first));
  constexpr std::string_view kNamespace = "attnjit::";
  for (std::size_t found = type.find(kNamespace); found != std::string::npos;
       found = type.find(kNamespace)) {
    type.erase(found, kNamespace.size());
  }
  return type;
}

}  // namespace

KernelFacts facts_of(std::string_view material) {
  ByteReader in(material);
  if (in.raw(kBegin.size()) != kBegin || in.u32() != kFormatVersion) return {};
  Constants::string(in);  // trusted or not
  Constants::string(in);  // architecture
  const std::string plan_bytes = Constants::string(in);
  ByteReader plan(plan_bytes);
  const Constants constants = Constants::read(plan);
  Constants::string(in);  // file name
  Constants::string(in);  // templates
  Constants::string(in);  // headers
  const std::string text = Constants::string(in);
  KernelFacts facts;
  facts.user_code = Constants::string(in);
  if (!in.ok() || !plan.at_end()) return {};
  if (constants.has("kBf16")) {
    facts.dtype = constants.is("kE4m3") ? "e4m3" : constants.is("kBf16") ? "bf16" : "fp16";
  }
  // The second is absorbed MLA's, and the others were their names to version 0.2.0.
  if (constants.is("kUpcastsKv") || constants.number("kUpcastBlocks") > 0 ||
      constants.is("kWidensKv") || constants.number("kWidenedBlocks") > 0) {
    facts.kv_dtype = "e4m3";
  }
  facts.qk_depth = constants.number("kQkDepth");
  facts.ov_depth = constants.number("kOvDepth");
  facts.group = constants.number("kGroup");
  facts.page_size = constants.number("kPageSize");
  facts.topk = constants.number("kTopk");
  facts.ragged = constants.is("kRagged");
  facts.ragged_kv = constants.is("kRaggedKv");
  facts.sink = constants.is("kSink");
  facts.lse = constants.is("kReturnLse");
  facts.split = constants.is("kSplit");
  facts.mask = type_of(text, "Mask");
  facts.score_mod = type_of(text, "ScoreMod");
  return facts;
}

}  // namespace attnjit::cache
