// SPDX-License-Identifier: Apache-2.0
// What of a spec the forward templates of every architecture lack.
#include "plan/kernel/forward_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "spec/interpreted_code.h"

namespace attnjit {

int rows_shift(int group) { return std::bit_width(static_cast<std::uint32_t>(group - 1)); }

std::string first_reason(std::initializer_list<std::string> reasons) {
  const auto* const found =
      std::ranges::find_if(reasons, [](const std::string& reason) { return !reason.empty(); });
  return found == reasons.end() ? std::string() : *found;
}

std::string unsupported_everywhere(const SpecFacts& spec) {
  const auto missing = [&](std::string_view what) {
    return fmt::format("the {} template has no {} yet", to_string(spec.arch), what);
  };
  if (spec.interprets) {
    if (std::string reason = spec::why_not_interpreted(spec); !reason.empty()) return reason;
  }
  if (spec.v_layout != VLayout::kRow) {
    return "V lies in rows (v_layout row): no kernel takes it transposed";
  }
  if (spec.topk > 0 && spec.mla != Mla::kDecode) {
    return missing("lists of keys (topk) but those of absorbed MLA (mla: decode)");
  }
  if (spec.separate_rope) {
    const Dtype rope = *spec.rope_dtype;
    if (spec.arch == Arch::kSm90a) {
      return missing(
          fmt::format("rope part of another type than the rest (rope_dtype {} beside {})",
                      to_string(rope), to_string(spec.qkv_dtype)));
    }
    if (spec.mla != Mla::kPrefill || spec.qkv_dtype != Dtype::kE4m3 || size_of(rope) != 2) {
      return missing(
          fmt::format("rope part of {} beside {} (rope_dtype) but 16 bits in MLA's prefill of e4m3 "
                      "(mla: prefill)",
                      to_string(rope), to_string(spec.qkv_dtype)));
    }
  }
  const Dtype rope = spec.rope_dtype.value_or(spec.qkv_dtype);
  if (spec.rope_gmem_dtype.value_or(rope) != rope) {
    return fmt::format(
        "the rope part has one type in memory and in products: rope_gmem_dtype is to be {}",
        to_string(rope));
  }
  if (spec.upcasts_kv && spec.key_scales && spec.mla == Mla::kDecode) {
    return missing("scales of rows (scales) of absorbed MLA's K (mla: decode)");
  }
  if (spec.scale_dtype && spec.scales != Scales::kToken) {
    return "scale_dtype is of per-token scales: it goes with `scales` token";
  }
  if (spec.scale_dtype.value_or(Dtype::kF32) != Dtype::kF32) {
    return fmt::format("per-token scales are f32; scale_dtype is {}", to_string(*spec.scale_dtype));
  }
  return {};
}

std::string unsupported_output(const SpecFacts& spec) {
  if (size_of(spec.o_dtype) == 2) return {};
  return fmt::format("the {} template has no {} output (output_dtype) yet", to_string(spec.arch),
                     to_string(spec.o_dtype));
}

std::string unsupported_accumulation(const SpecFacts& spec) {
  if (!spec.accumulate || size_of(spec.o_dtype) == 2) return {};
  return fmt::format("a launch that accumulates takes o of bf16 or fp16, not {} (output_dtype)",
                     to_string(spec.o_dtype));
}

std::string unsupported_e4m3(const SpecFacts& spec, std::string_view why) {
  if (spec.type_of_kv() != Dtype::kE4m3) return {};
  return fmt::format("the {} template has no {} operands ({}) yet: {}", to_string(spec.arch),
                     to_string(spec.type_of_kv()), spec.upcasts_kv ? "kv_dtype" : "qkv_dtype", why);
}

std::string unsupported_partitions(const SpecFacts& spec) {
  if ((spec.num_partitions > 1 || spec.partition_keys > 0) && spec.accumulate) {
    return fmt::format("a launch that accumulates does not split the keys ({}) yet",
                       spec.partition_keys > 0 ? "partition_keys" : "num_partitions");
  }
  if (spec.partition_keys % kPartitionStep != 0) {
    return fmt::format(
        "partition_keys is {}; the {} template takes multiples of {} keys, the shortest tile",
        spec.partition_keys, to_string(spec.arch), kPartitionStep);
  }
  return {};
}

}  // namespace attnjit
