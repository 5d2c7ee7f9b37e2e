// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of a launch's tensors.
#include "plan/launch/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/problems.h"
#include "plan/kernel/signature.h"
#include "spec/names.h"
#include "spec/text.h"

namespace attnjit {
namespace {

constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;  // cuTensorMapEncodeTiled
constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 48;  // the GPU's virtual addresses
constexpr std::int64_t kTmaStep = 16;                            // bytes
constexpr std::int64_t kUnsaid = -1;  // a stride: 0 beside others that are not
constexpr const char* kZeroHint =
    "zeros for all three mean packed; ATTNJIT_STRIDE_ZERO (kStrideZero) is a stride of 0";

void check_lengths(const SpecFacts& spec, const LaunchShapes& shapes, Problems& problems) {
  const struct {
    const char* name;
    std::int32_t value;
  } lengths[] = {{"batch", shapes.batch},         {"q_len", shapes.q_len},
                 {"kv_len", shapes.kv_len},       {"total_q", shapes.total_q},
                 {"num_pages", shapes.num_pages}, {"max_pages", shapes.max_pages},
                 {"total_kv", shapes.total_kv}};
  for (const auto& [name, value] : lengths) check_length(name, value, problems);
  if (problems.any()) return;
  const auto check_total = [&](const char* name, std::int32_t total, std::int32_t longest) {
    const std::int64_t most = std::int64_t{shapes.batch} * longest;
    if (total >= longest && total <= most) return;
    problems.add(name, fmt::format("{} is {}; {} sequences of at most {} rows, one of them so "
                                   "long, have {} to {}",
                                   name, total, shapes.batch, longest, longest, most));
  };
  if (spec.ragged) check_total("total_q", shapes.total_q, shapes.q_len);
  if (spec.ragged_kv) check_total("total_kv", shapes.total_kv, shapes.kv_len);
  if (spec.has_page_table && std::int64_t{shapes.max_pages} * spec.page_size < shapes.kv_len) {
    problems.add("max_pages", fmt::format("max_pages is {}; {} keys in pages of {} need {}",
                                          shapes.max_pages, shapes.kv_len, spec.page_size,
                                          (shapes.kv_len + spec.page_size - 1) / spec.page_size));
  }
  if (spec.max_q_len > 0 && shapes.q_len > spec.max_q_len) {
    problems.add("q_len", fmt::format("q_len {} exceeds the plan's max_q_len {}", shapes.q_len,
                                      spec.max_q_len));
  }
  if (spec.max_seq_len > 0 && shapes.kv_len > spec.max_seq_len) {
    problems.add("kv_len", fmt::format("kv_len {} exceeds the plan's max_seq_len {}", shapes.kv_len,
                                       spec.max_seq_len));
  }
}

/// Settles what the given strides mean: zeros for all three are a packed tensor's, and kStrideZero
/// is a stride of 0. A dimension of one element gets a packed stride whatever was asked: nothing is
/// ever reached through it, and frameworks leave anything there.
/// @pre the packed tensor's size is below kMaxTensorBytes.
void settle_strides(TensorView& tensor) {
  TensorStrides& strides = tensor.strides;
  const bool is_packed = (strides.head == 0 || tensor.heads == 1) &&
                         (strides.row == 0 || tensor.rows == 1) &&
                         (strides.batch == 0 || tensor.batch == 1);
  const auto settle = [&](std::int64_t& stride, std::int64_t count, std::int64_t packed_stride) {
    if (is_packed || count == 1) {
      stride = packed_stride;
    } else if (stride == kStrideZero) {
      stride = 0;
    } else if (stride == 0) {
      stride = kUnsaid;
    }
  };
  settle(strides.head, tensor.heads, tensor.depth);
  settle(strides.row, tensor.rows, tensor.heads * tensor.depth);
  settle(strides.batch, tensor.batch, tensor.rows * tensor.heads * tensor.depth);
}

bool packed_size_overflows(const TensorView& tensor) {
  std::int64_t bytes = tensor.depth * tensor.element_bytes();
  for (const std::int64_t count : {tensor.heads, tensor.rows, tensor.batch}) {
    if (__builtin_mul_overflow(bytes, count, &bytes)) return true;
  }
  return bytes >= kMaxTensorBytes;
}

void add_unsaid(std::string_view tensor, const char* dimension, Problems& problems) {
  problems.add(
      fmt::format("{}.{}", tensor, dimension),
      fmt::format("the stride of {} from one {} to the next is 0, beside others that are not",
                  tensor, dimension),
      kZeroHint);
}

// Adds a problem, and returns false, for strides that TMA cannot take, or no memory has.
// NOTE: texts are made where there is a problem: a launch of other lengths comes through here, and
// they took a quarter of its time.
bool check_strides(const TensorView& tensor, Problems& problems) {
  const std::string_view name = name_of(tensor.tensor);
  const std::int64_t element = tensor.element_bytes();
  const struct {
    const char* name;
    std::int64_t stride, count;
  } dimensions[] = {{"head", tensor.strides.head, tensor.heads},
                    {"row", tensor.strides.row, tensor.rows},
                    {"batch", tensor.strides.batch, tensor.batch}};
  std::int64_t last = (tensor.depth - 1) * element;
  bool overflow = false;
  for (const auto& [dimension, stride, count] : dimensions) {
    if (stride == kUnsaid) {
      add_unsaid(name, dimension, problems);
      return false;
    }
    if (stride < 0 || stride >= kMaxStrideBytes / element) {
      problems.add(fmt::format("{}.{}", name, dimension),
                   fmt::format("the stride of {} from one {} to the next is {} elements; it "
                               "must lie in 0..{}",
                               name, dimension, stride, kMaxStrideBytes / element - 1));
      return false;
    }
    if (stride * element % kTmaStep != 0 && tensor.tensor != BufferId::Kind::kKScale) {
      problems.add(fmt::format("{}.{}", name, dimension),
                   fmt::format("the stride of {} from one {} to the next is {} elements, {} bytes, "
                               "not a multiple of {}",
                               name, dimension, stride, stride * element, kTmaStep),
                   "pad the rows: TMA steps in units of 16 bytes");
      return false;
    }
    std::int64_t extent = 0;
    overflow = overflow || __builtin_mul_overflow(stride * element, count - 1, &extent) ||
               __builtin_add_overflow(last, extent, &last);
  }
  if (overflow || last >= kMaxTensorBytes) {
    problems.add(std::string(name),
                 fmt::format("[{}, {}, {}, {}] spans more than 2^48 bytes", tensor.batch,
                             tensor.rows, tensor.heads, tensor.depth));
    return false;
  }
  return true;
}

/// Adds a problem where rows of a tensor that is written lie over one another: which of them would
/// be the last one nobody knows.
/// @pre its strides passed check_strides.
void check_apart(const TensorView& tensor, Problems& problems) {
  std::array dimensions{std::pair{tensor.strides.head, tensor.heads},
                        std::pair{tensor.strides.row, tensor.rows},
                        std::pair{tensor.strides.batch, tensor.batch}};
  std::ranges::sort(dimensions);
  std::int64_t covered = tensor.depth;  // elements from the first to the end of the last so far
  for (const auto& [stride, count] : dimensions) {
    if (count == 1) continue;
    if (stride < covered) {
      const std::string_view name = name_of(tensor.tensor);
      problems.add(std::string(name),
                   fmt::format("the rows of {} lie over one another: with strides of {} from batch "
                               "to batch, {} from row to row and {} from head to head",
                               name, tensor.strides.batch, tensor.strides.row, tensor.strides.head),
                   "what is expanded cannot be written: give memory of its own");
      return;
    }
    covered += stride * (count - 1);
  }
}

/// Of a materialized mask; packed where none were given.
MaskStrides mask_strides(const SpecFacts& spec, const LaunchShapes& shapes, Problems& problems) {
  MaskStrides bytes;
  const MaskSpec* mask = spec::materialized(spec.mask);
  if (mask == nullptr) return bytes;
  const struct {
    const char* name;
    const char* count_name;
    std::int32_t count, all;
    std::int64_t stride;
    std::int64_t& made;
  } dimensions[] = {
      {"row", "mask_rows", shapes.mask_rows, shapes.q_len, shapes.mask.row, bytes.row},
      {"head", "mask_heads", shapes.mask_heads, spec.num_q_heads, shapes.mask.head, bytes.head},
      {"batch", "mask_batch", shapes.mask_batch, shapes.batch, shapes.mask.batch, bytes.batch}};
  const std::int64_t element = size_of(mask->dtype);
  std::int64_t packed =
      mask->dtype == Dtype::kBits ? (std::int64_t{shapes.kv_len} + 7) / 8 : shapes.kv_len;
  std::int64_t last = packed * element;  // the end of the last row so far
  const bool is_packed = shapes.mask == TensorStrides{};
  for (const auto& dimension : dimensions) {
    const std::int32_t all = dimension.all, count = dimension.count == 0 ? all : dimension.count;
    if (count != 1 && count != all) {
      problems.add(dimension.count_name, fmt::format("{} is {}; allowed: 1, {}, and 0 for these",
                                                     dimension.count_name, count, all));
      return {};
    }
    if (count == 1 || dimension.stride == kStrideZero) continue;  // one for all, or all there is
    if (dimension.stride == 0 && !is_packed) {
      add_unsaid("mask", dimension.name, problems);
      return {};
    }
    const std::int64_t stride = is_packed ? packed : dimension.stride;
    if (stride < 0 || stride >= kMaxStrideBytes / element) {
      problems.add(fmt::format("mask.{}", dimension.name),
                   fmt::format("the stride of mask from one {} to the next is {}; it must lie in "
                               "1..{}, or be 0: packed",
                               dimension.name, stride, kMaxStrideBytes / element - 1));
      return {};
    }
    dimension.made = stride * element;
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(dimension.made, std::int64_t{count} - 1, &extent) ||
        __builtin_add_overflow(last, extent, &last) || last >= kMaxTensorBytes) {
      problems.add("mask",
                   fmt::format("with {} from one {} to the next it spans more than 2^48 bytes",
                               stride, dimension.name));
      return {};
    }
    if (__builtin_mul_overflow(stride, count, &packed)) packed = kMaxStrideBytes;
  }
  return bytes;
}

}  // namespace

const TensorView& tensor_of(const LaunchTensors& tensors, TensorMapId map) {
  static constexpr std::array kMembers{&LaunchTensors::q,      &LaunchTensors::k,
                                       &LaunchTensors::v,      &LaunchTensors::o,
                                       &LaunchTensors::q_rope, &LaunchTensors::k_rope};
  return tensors.*kMembers.at(static_cast<std::size_t>(map));
}

void check_length(const char* name, std::int32_t value, Problems& problems) {
  if (value >= 0 && value <= kMaxLength) return;
  problems.add(name, fmt::format("{} is {}; 0 to {} is allowed", name, value, kMaxLength));
}

Result<LaunchTensors> launch_tensors(const SpecFacts& spec, const LaunchShapes& shapes) {
  using Buffer = BufferId::Kind;
  Problems problems;
  check_lengths(spec, shapes, problems);
  if (problems.any()) return problems.take();
  const int ov_depth = spec.ov_depth > 0 ? spec.ov_depth : spec.qk_depth;
  const std::int64_t q_batch = spec.ragged ? 1 : shapes.batch;
  const std::int64_t q_rows = spec.ragged ? shapes.total_q : shapes.q_len;
  std::int64_t kv_batch = shapes.batch;
  std::int64_t kv_rows = shapes.kv_len;
  if (spec.page_size > 0) {
    kv_batch = shapes.num_pages;
    kv_rows = spec.page_size;
  } else if (spec.ragged_kv) {
    kv_batch = 1;
    kv_rows = shapes.total_kv;
  }
  const int kv_heads = spec.num_kv_heads();
  const int qk_depth = depth_of_rows(spec);
  LaunchTensors tensors{
      {Buffer::kQ, spec.qkv_dtype, q_batch, q_rows, spec.num_q_heads, qk_depth, shapes.q},
      {Buffer::kK, spec.type_of_kv(), kv_batch, kv_rows, kv_heads, qk_depth, shapes.k},
      {Buffer::kV, spec.type_of_kv(), kv_batch, kv_rows, kv_heads, ov_depth, shapes.v},
      {Buffer::kO, spec.o_dtype, q_batch, q_rows, spec.num_q_heads, ov_depth, shapes.o},
      TensorView{},
      TensorView{},
      TensorView{},
      mask_strides(spec, shapes, problems)};
  if (spec.cache_format == CacheFormat::kDsv32) {
    tensors.k.dtype = Dtype::kU8;
    tensors.k.depth = kDsv32RowBytes;
  }
  if (spec.separate_rope) {
    const int depth = spec.qk_depth - qk_depth;
    tensors.q_rope = {Buffer::kQRope, *spec.rope_dtype, q_batch, q_rows, spec.num_q_heads,
                      depth,          shapes.q_rope};
    tensors.k_rope = {Buffer::kKRope, *spec.rope_dtype, kv_batch, kv_rows, 1, depth, shapes.k_rope};
  }
  if (spec.pages_have_scales) {
    tensors.kv_scales = {Buffer::kKScale, Dtype::kF32, kv_batch,        kv_rows,
                         kv_heads,        1,           shapes.kv_scales};
  } else if (shapes.kv_scales != TensorStrides{}) {
    problems.add("k_scale", "only scales of tokens of a paged cache have strides");
  }
  for (TensorView* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.o, &tensors.q_rope,
                             &tensors.k_rope, &tensors.kv_scales}) {
    if (tensor->depth == 0) continue;  // the launch has none
    if (packed_size_overflows(*tensor)) {
      problems.add(std::string(name_of(tensor->tensor)),
                   fmt::format("[{}, {}, {}, {}] is more than 2^48 bytes", tensor->batch,
                               tensor->rows, tensor->heads, tensor->depth));
      continue;
    }
    settle_strides(*tensor);
    if (tensor->empty()) continue;
    if (check_strides(*tensor, problems) && tensor->tensor == Buffer::kO) {
      check_apart(*tensor, problems);
    }
  }
  if (problems.any()) return problems.take();
  return tensors;
}

Result<float> softmax_scale(const SpecFacts& spec, const LaunchScalars& scalars) {
  const float scale = scalars.scale != 0
                          ? scalars.scale
                          : static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.qk_depth)));
  if (!(scale > 0) || !std::isfinite(scale)) {
    return spec::invalid("scale", "scale must be positive and finite, not {}", scale);
  }
  return scale;
}

TensorView packed(TensorView tensor) {
  tensor.strides = {};
  settle_strides(tensor);
  return tensor;
}

}  // namespace attnjit
