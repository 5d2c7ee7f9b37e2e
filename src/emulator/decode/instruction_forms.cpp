// SPDX-License-Identifier: Apache-2.0
// The forms in which PTX has an instruction: which modifiers go with which types.
#include "emulator/decode/instruction_forms.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

namespace attnjit::emulator {
namespace {

/// One syntax line. `modifiers`: groups of alternatives, those in braces optional, each taken once
/// and in any order. `types`: in written order, with alternatives.
struct Form {
  std::string_view roots;
  std::string_view modifiers;
  std::string_view types;
};

#define ATTNJIT_ROUND "rn|rz|rm|rp"
#define ATTNJIT_INTEGRAL "rni|rzi|rmi|rpi"
#define ATTNJIT_INTEGERS "u16|s16|u32|s32|u64|s64"
#define ATTNJIT_BYTES "u8|s8|" ATTNJIT_INTEGERS
#define ATTNJIT_FLOAT_COMPARE "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"

#define ATTNJIT_SPACES \
  "{const|global|local|param|param::entry|param::func|shared|shared::cta|shared::cluster}"
#define ATTNJIT_SHARABLE "{global|shared|shared::cta|shared::cluster}"
#define ATTNJIT_SCOPE "cta|cluster|gpu|sys"
#define ATTNJIT_L1 \
  "{L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate}"
#define ATTNJIT_L2 "{L2::evict_normal|L2::evict_first|L2::evict_last} {L2::cache_hint}"
#define ATTNJIT_FETCH "{L2::64B|L2::128B|L2::256B}"
#define ATTNJIT_ATOMIC "{relaxed|acquire|release|acq_rel} {" ATTNJIT_SCOPE "} {L2::cache_hint} "
#define ATTNJIT_REDUCTION "{relaxed|release} {" ATTNJIT_SCOPE "} {L2::cache_hint} "
#define ATTNJIT_BARRIER "{shared|shared::cta|shared::cluster}"
#define ATTNJIT_WORDS "b8|b16|u8|u16|s8|s16|b32|u32|s32|f32"
#define ATTNJIT_DOUBLES "b64|u64|s64|f64"
// What a load or store may have beside its vector and type, as the ISA's lines have it.
#define ATTNJIT_ACCESSES(root, cached, ordered, fetch, vector, types)                           \
  Form{root, "{weak} " ATTNJIT_SPACES " {" cached "} {L2::cache_hint} " fetch vector, types},   \
      Form{root, "{weak} {global} " ATTNJIT_L1 " " ATTNJIT_L2 " " fetch vector, types},         \
      Form{root, "volatile " ATTNJIT_SHARABLE " " fetch vector, types}, Form {                  \
    root,                                                                                       \
        "relaxed|" ordered " " ATTNJIT_SCOPE " " ATTNJIT_SHARABLE " " ATTNJIT_L1 " " ATTNJIT_L2 \
        " " fetch vector,                                                                       \
        types                                                                                   \
  }
#define ATTNJIT_LOADS(vector, types)                                                         \
  ATTNJIT_ACCESSES("ld", "ca|cg|cs|lu|cv", "acquire", ATTNJIT_FETCH, vector, types),         \
      Form{"ld", "nc global {ca|cg|cs} " ATTNJIT_L2 " " ATTNJIT_FETCH vector, types}, Form { \
    "ld", "nc global " ATTNJIT_L1 " " ATTNJIT_L2 " " ATTNJIT_FETCH vector, types             \
  }
#define ATTNJIT_STORES(vector, types) \
  ATTNJIT_ACCESSES("st", "wb|cg|cs|wt", "release", "", vector, types)
// What atom and red have in common.
#define ATTNJIT_UPDATES(root, order)                                              \
  Form{root, order ATTNJIT_SHARABLE " add", "u32|s32|u64|f32|f64"},               \
      Form{root, order ATTNJIT_SHARABLE " add noftz", "f16|f16x2|bf16|bf16x2"},   \
      Form{root, order ATTNJIT_SHARABLE " min|max", "u32|s32|u64|s64"},           \
      Form{root, order ATTNJIT_SHARABLE " inc|dec", "u32"},                       \
      Form{root, order ATTNJIT_SHARABLE " and|or|xor", "b32|b64"},                \
      Form{root, order "{global} add v2|v4", "f32"},                              \
      Form{root, order "{global} add|min|max noftz v2|v4|v8", "f16|bf16"}, Form { \
    root, order "{global} add|min|max noftz v2|v4", "f16x2|bf16x2"                \
  }

constexpr std::array kForms = {
    // Integers.
    Form{"add sub", "", "u16|s16|u32|u64|s64"},
    Form{"add sub", "{sat}", "s32"},
    Form{"add", "", "u16x2|s16x2"},
    Form{"add sub", "cc", "u32|s32|u64|s64"},
    Form{"addc subc", "{cc}", "u32|s32|u64|s64"},
    Form{"madc", "lo|hi {cc}", "u32|s32|u64|s64"},
    Form{"mul", "lo|hi", ATTNJIT_INTEGERS},
    Form{"mul", "wide", "u16|s16|u32|s32"},
    Form{"mad", "lo|hi", ATTNJIT_INTEGERS},
    Form{"mad", "lo|hi cc", "u32|s32|u64|s64"},
    Form{"mad", "hi sat", "s32"},
    Form{"mad", "wide", "u16|s16|u32|s32"},
    Form{"mul24 mad24", "lo|hi", "u32|s32"},
    Form{"mad24", "hi sat", "s32"},
    Form{"div rem sad", "", ATTNJIT_INTEGERS},
    Form{"abs neg", "", "s16|s32|s64"},
    Form{"min max", "", "u16|u32|u64|s64|s16|u16x2"},
    Form{"min max", "{relu}", "s32|s16x2"},
    Form{"popc clz brev", "", "b32|b64"},
    Form{"bfind", "{shiftamt}", "u32|s32|u64|s64"},
    Form{"fns", "", "b32"},
    Form{"bfe", "", "u32|s32|u64|s64"},
    Form{"bfi", "", "b32|b64"},
    Form{"szext", "wrap|clamp", "u32|s32"},
    Form{"bmsk", "wrap|clamp", "b32"},
    Form{"dp4a", "", "u32|s32 u32|s32"},
    Form{"dp2a", "lo|hi", "u32|s32 u32|s32"},
    // Floats.
    Form{"add sub mul", "{" ATTNJIT_ROUND "} {ftz} {sat}", "f32"},
    Form{"add sub mul", "{" ATTNJIT_ROUND "} {ftz}", "f32x2"},
    Form{"add sub mul", "{" ATTNJIT_ROUND "}", "f64"},
    Form{"add sub mul", "{rn} {ftz} {sat}", "f16|f16x2"},
    Form{"add sub mul", "{rn}", "bf16|bf16x2"},
    Form{"add sub", "{" ATTNJIT_ROUND "} {sat}", "f32 f16|bf16"},
    Form{"fma mad", ATTNJIT_ROUND " {ftz} {sat}", "f32"},
    Form{"fma mad", ATTNJIT_ROUND, "f64"},
    Form{"fma", ATTNJIT_ROUND " {ftz}", "f32x2"},
    Form{"fma", "rn {ftz} {sat}", "f16|f16x2"},
    Form{"fma", "rn {ftz} relu", "f16|f16x2"},
    Form{"fma", "rn {relu}", "bf16|bf16x2"},
    Form{"fma", "rn oob {relu}", "f16|f16x2|bf16|bf16x2"},
    Form{"fma", ATTNJIT_ROUND " {sat}", "f32 f16|bf16"},
    Form{"div", ATTNJIT_ROUND "|approx|full {ftz}", "f32"},
    Form{"div", ATTNJIT_ROUND, "f64"},
    Form{"rcp sqrt", ATTNJIT_ROUND "|approx {ftz}", "f32"},
    Form{"rcp sqrt", ATTNJIT_ROUND, "f64"},
    Form{"rcp", "approx ftz", "f64"},
    Form{"rsqrt", "approx {ftz}", "f32|f64"},
    Form{"sin cos lg2 ex2", "approx {ftz}", "f32"},
    Form{"ex2", "approx", "f16|f16x2"},
    Form{"ex2", "approx ftz", "bf16|bf16x2"},
    Form{"tanh", "approx", "f32|f16|f16x2|bf16|bf16x2"},
    Form{"abs neg", "{ftz}", "f32|f16|f16x2"},
    Form{"abs neg", "", "f64|bf16|bf16x2"},
    Form{"min max", "{ftz} {NaN}", "f32|f16|f16x2"},
    Form{"min max", "{ftz} {NaN} xorsign abs", "f32|f16|f16x2"},
    Form{"min max", "{ftz} {NaN} {abs}", "f32"},  // three inputs
    Form{"min max", "{NaN}", "bf16|bf16x2"},
    Form{"min max", "{NaN} xorsign abs", "bf16|bf16x2"},
    Form{"min max", "", "f64"},
    Form{"copysign", "", "f32|f64"},
    Form{"testp", "finite|infinite|number|notanumber|normal|subnormal", "f32|f64"},
    // Logic and shifts.
    Form{"and or xor not", "", "b16|b32|b64|pred"},
    Form{"cnot", "", "b16|b32|b64"},
    Form{"lop3", "{or|and}", "b32"},
    Form{"shf", "l|r wrap|clamp", "b32"},
    Form{"shl", "", "b16|b32|b64"},
    Form{"shr", "", "b16|b32|b64|" ATTNJIT_INTEGERS},
    Form{"prmt", "{f4e|b4e|rc8|ecl|ecr|rc16}", "b32"},
    // Comparison and selection.
    Form{"setp", "eq|ne {and|or|xor}", "b16|b32|b64"},
    Form{"setp", "eq|ne|lt|le|gt|ge {and|or|xor}", "s16|s32|s64"},
    Form{"setp", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs {and|or|xor}", "u16|u32|u64"},
    Form{"setp", ATTNJIT_FLOAT_COMPARE " {and|or|xor} {ftz}", "f32|f16|f16x2"},
    Form{"setp", ATTNJIT_FLOAT_COMPARE " {and|or|xor}", "f64|bf16|bf16x2"},
    Form{"set", "eq|ne {and|or|xor}", "u32|s32|f32 b16|b32|b64"},
    Form{"set", "eq|ne|lt|le|gt|ge {and|or|xor}", "u32|s32|f32 s16|s32|s64"},
    Form{"set", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs {and|or|xor}", "u32|s32|f32 u16|u32|u64"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor} {ftz}", "u32|s32|f32 f32"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor}", "u32|s32|f32 f64"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor} {ftz}", "u16|s16|u32|s32|f16 f16"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor}", "u16|s16|u32|s32|bf16 bf16"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor} {ftz}", "f16x2|u32|s32 f16x2"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor}", "bf16x2|u32|s32 bf16x2"},
    Form{"set", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs {and|or|xor}",
         "f16|bf16 b16|u16|s16|b32|u32|s32|b64|u64|s64"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor} {ftz}", "f16|bf16 f16|f32"},
    Form{"set", ATTNJIT_FLOAT_COMPARE " {and|or|xor}", "f16|bf16 f64"},
    Form{"selp", "", "b16|b32|b64|f32|f64|" ATTNJIT_INTEGERS},
    Form{"slct", "", "b16|b32|b64|f32|f64|" ATTNJIT_INTEGERS " s32"},
    Form{"slct", "{ftz}", "b16|b32|b64|f32|f64|" ATTNJIT_INTEGERS " f32"},
    // Conversions.
    Form{"cvt", "{sat}", ATTNJIT_BYTES " " ATTNJIT_BYTES},
    Form{"cvt", ATTNJIT_INTEGRAL " {sat}", ATTNJIT_BYTES " f16|bf16|f64"},
    Form{"cvt", ATTNJIT_INTEGRAL " {ftz} {sat}", ATTNJIT_BYTES " f32"},
    Form{"cvt", ATTNJIT_ROUND " {sat}", "f16|bf16|f64 " ATTNJIT_BYTES},
    Form{"cvt", ATTNJIT_ROUND " {ftz} {sat}", "f32 " ATTNJIT_BYTES},
    Form{"cvt", "{" ATTNJIT_INTEGRAL "} {ftz} {sat}", "f32 f32"},
    Form{"cvt", "{" ATTNJIT_INTEGRAL "} {sat}", "f64 f64"},
    Form{"cvt", "{" ATTNJIT_INTEGRAL "} {sat}", "f16 f16"},
    Form{"cvt", "{" ATTNJIT_INTEGRAL "}", "bf16 bf16"},
    Form{"cvt", ATTNJIT_ROUND " {sat}", "f16|bf16 f64"},
    Form{"cvt", ATTNJIT_ROUND " {ftz} {sat}", "f32 f64"},
    Form{"cvt", ATTNJIT_ROUND " {ftz} {sat}", "f16|bf16 f32"},
    Form{"cvt", "rn|rz {relu} {satfinite}", "f16|bf16|f16x2|bf16x2|tf32 f32"},
    Form{"cvt", "rs {relu} {satfinite}", "f16x2|bf16x2 f32"},
    Form{"cvt", "rna {satfinite}", "tf32 f32"},
    Form{"cvt", "{" ATTNJIT_ROUND "}", "f16 bf16"},
    Form{"cvt", "{" ATTNJIT_ROUND "}", "bf16 f16"},
    Form{"cvt", "{" ATTNJIT_ROUND "} {ftz} {sat}", "f32 f16|bf16"},
    Form{"cvt", "{" ATTNJIT_ROUND "} {sat}", "f64 f16|bf16"},
    Form{"cvt", "{ftz} {sat}", "f64 f32"},
    Form{"cvt", "rn satfinite {relu}", "e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2 f32|f16x2|bf16x2"},
    Form{"cvt", "rs satfinite {relu}", "e4m3x4|e5m2x4|e2m1x4|e2m3x4|e3m2x4 f32"},
    Form{"cvt", "rn {relu}", "f16x2 e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2"},
    Form{"cvt", "rz|rp {satfinite}", "ue8m0x2 f32|bf16x2"},
    Form{"cvt", "rn", "bf16x2 ue8m0x2"},
    Form{"cvt", "pack sat", "u16|s16 s32"},
    Form{"cvt", "pack sat", "u8|s8|u4|s4|u2|s2 s32 b32"},
    // Memory.
    ATTNJIT_LOADS(" {v2|v4|v8}", ATTNJIT_WORDS),
    ATTNJIT_LOADS(" {v2|v4}", ATTNJIT_DOUBLES),
    ATTNJIT_LOADS("", "b128"),
    ATTNJIT_STORES(" {v2|v4|v8}", ATTNJIT_WORDS),
    ATTNJIT_STORES(" {v2|v4}", ATTNJIT_DOUBLES),
    ATTNJIT_STORES("", "b128"),
    Form{"ld st", "mmio relaxed sys {global}", ATTNJIT_WORDS "|" ATTNJIT_DOUBLES "|b128"},
    ATTNJIT_UPDATES("atom", ATTNJIT_ATOMIC),
    Form{"atom", ATTNJIT_ATOMIC ATTNJIT_SHARABLE " exch", "b32|b64|b128"},
    Form{"atom", ATTNJIT_ATOMIC ATTNJIT_SHARABLE " cas", "b16|b32|b64|b128"},
    ATTNJIT_UPDATES("red", ATTNJIT_REDUCTION),
    // Fences and barriers.
    Form{"fence", "{sc|acq_rel|acquire|release} " ATTNJIT_SCOPE, ""},
    Form{"fence", "acquire sync_restrict::shared::cluster cluster", ""},
    Form{"fence", "release sync_restrict::shared::cta cluster", ""},
    Form{"fence", "mbarrier_init release cluster", ""},
    Form{"fence membar", "proxy alias", ""},
    Form{"fence", "proxy async {global|shared::cta|shared::cluster}", ""},
    Form{"fence", "proxy tensormap::generic acquire|release " ATTNJIT_SCOPE, ""},
    Form{"fence", "proxy async::generic acquire sync_restrict::shared::cluster cluster", ""},
    Form{"fence", "proxy async::generic release sync_restrict::shared::cta cluster", ""},
    Form{"membar", "cta|gl|sys", ""},
    Form{"bar", "{cta} sync|arrive", ""},
    Form{"bar", "warp sync", ""},
    Form{"bar", "{cta} red popc", "u32"},
    Form{"bar", "{cta} red and|or", "pred"},
    Form{"barrier", "{cta} sync|arrive {aligned}", ""},
    Form{"barrier", "{cta} red popc {aligned}", "u32"},
    Form{"barrier", "{cta} red and|or {aligned}", "pred"},
    Form{"barrier", "cluster arrive {release|relaxed} {aligned}", ""},
    Form{"barrier", "cluster wait {acquire} {aligned}", ""},
    Form{"mbarrier", "init|inval {shared|shared::cta}", "b64"},
    Form{"mbarrier", "expect_tx|complete_tx {relaxed} {cta|cluster} " ATTNJIT_BARRIER, "b64"},
    Form{"mbarrier",
         "arrive|arrive_drop {release|relaxed} {cta|cluster} {expect_tx} " ATTNJIT_BARRIER, "b64"},
    Form{"mbarrier",
         "arrive|arrive_drop noComplete {release|relaxed} {cta|cluster} " ATTNJIT_BARRIER, "b64"},
    Form{"mbarrier",
         "test_wait|try_wait {parity} {acquire|relaxed} {cta|cluster} {shared|shared::cta}", "b64"},
    Form{"mbarrier", "pending_count {shared|shared::cta}", "b64"},
    // Among the lanes of a warp.
    Form{"shfl", "sync up|down|bfly|idx", "b32"},
    Form{"vote", "sync all|any|uni", "pred"},
    Form{"vote", "sync ballot", "b32"},
    Form{"match", "any|all sync", "b32|b64"},
    Form{"redux", "sync add|min|max", "u32|s32"},
    Form{"redux", "sync and|or|xor", "b32"},
    Form{"redux", "sync min|max {abs} {NaN}", "f32"},
};

#undef ATTNJIT_ROUND
#undef ATTNJIT_INTEGRAL
#undef ATTNJIT_INTEGERS
#undef ATTNJIT_BYTES
#undef ATTNJIT_FLOAT_COMPARE
#undef ATTNJIT_SPACES
#undef ATTNJIT_SHARABLE
#undef ATTNJIT_SCOPE
#undef ATTNJIT_L1
#undef ATTNJIT_L2
#undef ATTNJIT_FETCH
#undef ATTNJIT_ATOMIC
#undef ATTNJIT_REDUCTION
#undef ATTNJIT_BARRIER
#undef ATTNJIT_WORDS
#undef ATTNJIT_DOUBLES
#undef ATTNJIT_ACCESSES
#undef ATTNJIT_LOADS
#undef ATTNJIT_STORES
#undef ATTNJIT_UPDATES

/// Cuts the next word off a text; empty at its end.
std::string_view next_word(std::string_view* text, char separator = ' ') {
  while (!text->empty() && text->front() == separator) text->remove_prefix(1);
  const std::size_t end = text->find(separator);
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return word;
}

bool among(std::string_view word, std::string_view words, char separator) {
  while (!words.empty()) {
    if (next_word(&words, separator) == word) return true;
  }
  return false;
}

enum class Match { kNo, kIncomplete, kYes };

Match match(const Form& form, const std::vector<std::string_view>& modifiers,
            const std::vector<std::string_view>& types) {
  std::string_view rest = form.types;
  for (const std::string_view type : types) {
    if (!among(type, next_word(&rest), '|')) return Match::kNo;
  }
  bool complete = rest.empty();
  std::vector<bool> used(modifiers.size(), false);
  std::size_t taken = 0;
  rest = form.modifiers;
  while (!rest.empty()) {
    std::string_view group = next_word(&rest);
    if (group.empty()) break;
    const bool optional = group.front() == '{';
    if (optional) group = group.substr(1, group.size() - 2);
    bool found = false;
    for (std::size_t i = 0; i < modifiers.size() && !found; ++i) {
      if (used[i] || !among(modifiers[i], group, '|')) continue;
      used[i] = found = true;
      ++taken;
    }
    complete = complete && (found || optional);
  }
  if (taken != modifiers.size()) return Match::kNo;
  return complete ? Match::kYes : Match::kIncomplete;
}

}  // namespace

FormFault form_fault(const Instruction& instruction) {
  std::vector<std::string_view> modifiers, types;
  for (const std::string_view m : instruction.modifiers) {
    // st.async, red.async and st.bulk are other instructions.
    if (m == "async" || m == "bulk") return {};
    (type_from_string(m) == Type::kNone ? modifiers : types).push_back(m);
  }
  bool listed = false, incomplete = false;
  std::vector<bool> known(modifiers.size(), false);
  for (const Form& form : kForms) {
    if (!among(instruction.root, form.roots, ' ')) continue;
    listed = true;
    const Match result = match(form, modifiers, types);
    if (result == Match::kYes) return {};
    incomplete = incomplete || result == Match::kIncomplete;
    for (std::size_t i = 0; i < modifiers.size(); ++i) {
      std::string_view rest = form.modifiers;
      while (!rest.empty()) {
        std::string_view group = next_word(&rest);
        if (group.empty()) break;
        if (group.front() == '{') group = group.substr(1, group.size() - 2);
        known[i] = known[i] || among(modifiers[i], group, '|');
      }
    }
  }
  if (!listed) return {};
  if (incomplete) return {"a modifier or type is missing", true};
  for (std::size_t i = 0; i < modifiers.size(); ++i) {
    if (!known[i]) return {fmt::format("modifier .{} is not modelled here", modifiers[i]), false};
  }
  return {"these modifiers do not go with these types", false};
}

}  // namespace attnjit::emulator
