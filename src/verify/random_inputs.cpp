// SPDX-License-Identifier: Apache-2.0
// Makes each tensor of a Problem, for each kind of input.
#include "verify/random_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "spec/names.h"
#include "spec/spec_facts.h"
#include "spec/spec_fields.h"
#include "verify/dsv32.h"
#include "verify/mask_and_score_mod.h"
#include "verify/numeric.h"
#include "verify/parallel.h"
#include "verify/random.h"

namespace attnjit::verify {
namespace {

// By how much a row's maximum grows a key with rising inputs: more in 64 keys than the 8 powers of
// two (5.55) within which FA4 puts a rescale off.
constexpr double kRisePerKey = 0.1;
constexpr double kMaxRise = 800;
// Raised keys: every query has kQuery along the raised dimension, so that a raised key's score is
// kRaise, which is above the others', within 0.8 of 0, by more than the 8 powers of two (5.55) and
// yet by so little that the others' share of an output shows.
constexpr double kQuery = 8;
constexpr double kRaise = 6.6;
constexpr double kQuieter = 0.25;
constexpr int kKeysPerRaise = 64;
constexpr float kGarbage = 96;  // exact in e4m3
constexpr std::uint64_t kKeysPerSpike = 61;
// Small inputs: real tensors' scales, by which their largest elements are e4m3's.
constexpr double kSmallScale = -7, kSmallSpread = 2, kSmallest = -14;  // exponents of 2
constexpr double kStoredSize = 128;
// Far inputs: one element of q times one of k, so that scores are exact in any arithmetic and lie
// further apart than a softmax looks.
constexpr double kFarScore = 6e3, kFurtherScore = 6e7, kCustomScore = 64;
constexpr std::array<double, 3> kFarKeys{256, 288, 320};  // exact in e4m3
constexpr double kFarSink = 2e4, kHighSink = 3e38, kLowSink = -1e20;
constexpr float kFarMask = -1e10F, kHighMask = 1e7F;
constexpr std::int64_t kBeyond = 1000;  // stray lengths and ends of rows

class InputMaker {
 public:
  InputMaker(Problem& problem, const ProblemRequest& request)
      : problem_(problem), spec_(problem.spec), request_(request) {
    // score = sum over depth of q k, times this
    dot_scale_ = double{problem.scale} * spec_.qk_depth;
    large_ = std::sqrt(8 / (double{problem.scale} * std::sqrt(double(spec_.qk_depth))));
    rise_ = std::min(kRisePerKey, kMaxRise / std::max(1, problem.max_kv_len));
    const RandomStream stream(request.seed, "direction");
    for (int i = 0; i < spec_.num_kv_heads() * spec_.qk_depth; ++i) {
      directions_.push_back((stream.bits(i) & 1) != 0 ? 1.0 : -1.0);
    }
  }

  void make() {
    if (!spec_.merge) {
      // What the mask is made of: it says which pages are nobody's.
      params();
      mask();
      slopes();
      find_kept_keys();
    }
    small_tensors();
    if (spec_.merge) return pairs();
    queries();
    keys_and_values();
    topk_indices();
    if (request_.input == InputKind::kStray) stray_tables();
  }

 private:
  /// NOTE: K's rope part is one for all heads, where it is apart.
  double direction(int kv_head, int d) const {
    if (d >= depth_) kv_head = 0;
    return directions_[static_cast<std::size_t>(kv_head) * spec_.qk_depth + d];
  }
  bool is_spike(int b, int kv_head, int kv_idx) const {
    const int kv_len = problem_.kv_lens[b];
    const RandomStream stream(request_.seed, "spike");
    const std::uint64_t head = static_cast<std::uint64_t>(b) * spec_.num_kv_heads() + kv_head;
    // One for certain, others by chance.
    if (stream.bits(head) % static_cast<std::uint32_t>(kv_len) ==
        static_cast<std::uint32_t>(kv_idx)) {
      return true;
    }
    return RandomStream(request_.seed, "spikes").bits((head << 32) + kv_idx) % kKeysPerSpike == 0;
  }

  // Of raised inputs, which dimension of q and k raises a key: 0 one of the first half of the keys,
  // 1 one of the second half. A query has one of the two, by turns: the first half's maximum comes
  // last to a kernel that walks the keys backwards, the second half's to one that walks forwards.
  static int raising_dimension(std::int64_t row, int head) {
    return static_cast<int>((row + head) % 2);
  }
  std::optional<int> raised_along(int b, int kv_idx) const {
    const int kv_len = problem_.kv_lens[b];
    const bool first = kv_idx < kv_len / 2;
    const int from_end = first ? kv_idx : kv_len - 1 - kv_idx;
    if (from_end % kKeysPerRaise != 0) return std::nullopt;
    return first ? 0 : 1;
  }

  /// Where sequences that lie one behind another begin, and where the last one ends.
  static Tensor offsets_of(const std::vector<int>& lengths) {
    Tensor offsets = make_tensor(Dtype::kI32, {static_cast<std::int64_t>(lengths.size()) + 1});
    std::int32_t at = 0;
    std::int32_t* next = offsets.as<std::int32_t>();
    for (const int length : lengths) {
      *next++ = at;
      at += length;
    }
    *next = at;
    return offsets;
  }

  /// An entry of q_scale (0), k_scale (1) or v_scale (2).
  float scale_entry(int which, const RandomStream& stream, std::int64_t i) const {
    const double random = stream.uniform(i);
    switch (request_.input) {
      case InputKind::kSmall:
        return static_cast<float>(
            std::exp2(i % 4 == 3 ? kSmallest : kSmallScale - kSmallSpread * random));
      case InputKind::kZero:
        // V's rows have none that is 0.
        if (which == 2 && spec_.scales == Scales::kToken) break;
        if (is_zero(which, i)) return 0;
        break;
      case InputKind::kFar:
        return 1;
      default:
        break;
    }
    return static_cast<float>(std::exp2(2 * random - 1));
  }
  /// Whether entry i of q (0), k (1) or v (2) is 0: by turns, and of a tensor's single ones one is.
  bool is_zero(int which, std::int64_t i) const {
    return (static_cast<std::uint64_t>(i) + static_cast<std::uint64_t>(which) + request_.seed) %
               3 ==
           1;
  }
  /// The same of rows, where there are no scales.
  bool is_zero_row(int which, std::int64_t i) const {
    return request_.input == InputKind::kZero && spec_.scales == Scales::kNone && is_zero(which, i);
  }
  static double inverse(double scale) { return scale == 0 ? 1 : 1 / scale; }

  /// Of far inputs: the score that a row has with the key of the largest element.
  double far_score(std::int64_t row, int head) const {
    if (spec::adds_to_scores(spec_.mask) && is_plain()) return 0;  // the mask's numbers are
    double size = kFarScore;
    if (spec_.score_mod.kind == ScoreModSpec::Kind::kCustom) size = kCustomScore;
    // Parts are merged by their LSEs, which are f32 and must tell sums apart; so must scores of
    // keys that have scales of their own, which are f32 before a maximum is taken off.
    const bool rounds = spec_.num_partitions != 1 || spec_.partition_keys > 0 || spec_.accumulate ||
                        spec_.scales == Scales::kToken;
    if (is_plain() && !rounds && (row / 2 + head) % 2 != 0) size = kFurtherScore;
    return (row + head) % 2 == 0 ? size : -size;
  }
  bool is_plain() const { return spec_.score_mod.kind == ScoreModSpec::Kind::kIdentity; }
  double far_query(std::int64_t row, int head) const {
    const double most = spec_.qkv_dtype == Dtype::kE4m3   ? 256
                        : spec_.qkv_dtype == Dtype::kFp16 ? 32768
                                                          : 1e30;
    const double value = far_score(row, head) / (double{problem_.scale} * kFarKeys.back());
    return std::clamp(value, -most, most);
  }

  void small_tensors() {
    auto& tensors = problem_.tensors;
    const int batch = problem_.batch;
    if (spec_.ragged) tensors["q_offsets"] = offsets_of(problem_.q_lens);
    if (spec_.ragged_kv) {
      tensors["kv_offsets"] = offsets_of(problem_.kv_lens);
    } else if (!spec_.merge && (spec_.ragged || spec_.page_size > 0 || problem_.kv_lens_differ())) {
      Tensor lens = make_tensor(Dtype::kI32, {batch});
      for (int b = 0; b < batch; ++b) {
        const int rows = spec_.kv_lens_exclude_new ? problem_.q_lens[b] : 0;
        lens.as<std::int32_t>()[b] = problem_.kv_lens[b] - rows;
      }
      tensors["kv_lens"] = std::move(lens);
    }
    if (spec_.page_size > 0) page_table();
    if (spec_.sink) {
      // Near the usual logarithm of a denominator, so that forgetting it is seen; but never so far
      // above a row's scores that fp16 outputs leave the normal range: with large scores a row of
      // few keys may well be at -20.
      const double base =
          request_.input == InputKind::kLarge ? -16 : std::log(1.0 + problem_.max_kv_len);
      const RandomStream stream(request_.seed, "sink");
      Tensor sink = make_tensor(Dtype::kF32, {spec_.num_q_heads});
      for (int h = 0; h < spec_.num_q_heads; ++h) {
        double value = base + stream.normal(h);
        if (request_.input == InputKind::kFar) {
          const std::array<double, 4> far{kHighSink, kFarSink, value, kLowSink};
          value = far[(static_cast<std::uint64_t>(h) + request_.seed) % far.size()];
        }
        sink.as<float>()[h] = static_cast<float>(value);
      }
      tensors["sink"] = std::move(sink);
    }
    if (spec_.scales != Scales::kNone) {
      int which = -1;
      for (const auto& [name, heads] :
           {std::pair{"q_scale", spec_.num_q_heads}, std::pair{"k_scale", spec_.num_kv_heads()},
            std::pair{"v_scale", spec_.num_kv_heads()}}) {
        ++which;
        if (name == std::string_view("q_scale") && spec_.qkv_dtype != Dtype::kE4m3) continue;
        const RandomStream stream(request_.seed, name);
        std::vector<std::int64_t> shape{1};
        if (spec_.scales == Scales::kHead) shape = {batch, heads};
        if (spec_.scales == Scales::kToken) {
          shape = name == std::string_view("q_scale") ? problem_.o_shape() : kv_shape(0);
          shape.pop_back();
        }
        Tensor scale = make_tensor(Dtype::kF32, std::move(shape));
        for (std::int64_t i = 0; i < scale.elements(); ++i) {
          scale.as<float>()[i] = scale_entry(which, stream, i);
        }
        if (spec_.scales == Scales::kToken) forget_spare_rows(name, heads, scale);
        tensors[name] = std::move(scale);
      }
      // V of absorbed MLA is K's latent part.
      if (spec_.mla == Mla::kDecode) tensors["v_scale"] = tensors.at("k_scale");
    }
    if (problem_.o_dtype() == Dtype::kE4m3) {
      // Results of a standard deviation from 1 / 16 on are normal numbers. Among the large values
      // of spikes some are above 448, which saturate.
      const bool small = request_.input == InputKind::kSmall && spec_.scales == Scales::kNone;
      const double base = request_.input == InputKind::kSpike ? -4 : small ? kSmallScale - 5 : -5;
      Tensor scale = make_tensor(Dtype::kF32, {1});
      const RandomStream stream(request_.seed, "output_scale");
      *scale.as<float>() = static_cast<float>(std::exp2(base + 2 * stream.uniform(0) - 1));
      tensors["output_scale"] = std::move(scale);
    }
  }

  std::vector<std::int64_t> kv_shape(int depth) const {
    return kv_shape(depth, spec_.num_kv_heads());
  }
  std::vector<std::int64_t> kv_shape(int depth, int kv_heads) const {
    if (spec_.page_size > 0) return {problem_.num_pages, spec_.page_size, kv_heads, depth};
    if (spec_.ragged_kv) return {problem_.total_kv, kv_heads, depth};
    return {problem_.batch, problem_.max_kv_len, kv_heads, depth};
  }

  /// Finds which pages a server has given away: those that lie before all that the sequence's rows
  /// see, as behind a window. NOTE: by the ranges of masks, by which a kernel passes over pages: of
  /// code it knows none.
  void find_kept_keys() {
    first_kept_.assign(static_cast<std::size_t>(problem_.batch), 0);
    if (spec_.page_size == 0 || spec_.topk > 0 || spec_.interpreted) return;
    if (request_.given_map == GivenMapKind::kRandom) return;  // which shows blocks by itself
    const Result<MaskAndScoreMod> rules = MaskAndScoreMod::of(problem_);
    if (!rules) return;
    for (int b = 0; b < problem_.batch; ++b) {
      const int kv_len = problem_.kv_lens[b];
      std::int64_t first = kv_len;
      for (int row = 0; row < problem_.q_lens[b]; ++row) {
        const int q_idx = kv_len - problem_.q_lens[b] + row;
        first =
            std::min(first, std::max<std::int64_t>(rules->visible_range(q_idx, kv_len).begin, 0));
      }
      first_kept_[static_cast<std::size_t>(b)] =
          static_cast<int>(first / spec_.page_size * spec_.page_size);
    }
  }

  /// Makes the scales NaN that belong to no sequence's row.
  void forget_spare_rows(std::string_view name, int heads, Tensor& scale) const {
    Tensor kept = scale;
    poison(scale);
    const bool is_q_scale = name == "q_scale";
    for (int b = 0; b < problem_.batch; ++b) {
      const int begin = is_q_scale ? 0 : first_kept_[static_cast<std::size_t>(b)];
      for (int row = begin; row < (is_q_scale ? problem_.q_lens : problem_.kv_lens)[b]; ++row) {
        const std::int64_t first =
            (is_q_scale ? problem_.first_q_row(b) + row : problem_.kv_row(b, row)) * heads;
        std::copy_n(kept.as<float>() + first, heads, scale.as<float>() + first);
      }
    }
  }

  void page_table() {
    const int pages = problem_.num_pages;
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    const RandomStream stream(request_.seed, "page_table");
    for (int i = pages - 1; i > 0; --i) {
      std::swap(order[i], order[stream.bits(i) % static_cast<std::uint32_t>(i + 1)]);
    }
    Tensor table = make_tensor(Dtype::kI32, {problem_.batch, problem_.max_pages});
    // The last page of the order belongs to nobody: what unused entries point to.
    std::fill_n(table.as<std::int32_t>(), table.elements(), order.back());
    std::size_t next = 0;
    for (int b = 0; b < problem_.batch; ++b) {
      const int used = (problem_.kv_lens[b] + spec_.page_size - 1) / spec_.page_size;
      for (int i = 0; i < used; ++i) {
        table.as<std::int32_t>()[std::int64_t{b} * problem_.max_pages + i] = order[next++];
      }
    }
    problem_.tensors["page_table"] = std::move(table);
  }

  /// What a merge is given: of every four pairs of a row one saw no key. Its o is NaN.
  void pairs() {
    std::vector<std::int64_t> o_shape = problem_.o_shape(), lse_shape = problem_.lse_shape();
    o_shape.insert(o_shape.begin(), problem_.num_pairs);
    lse_shape.insert(lse_shape.begin(), problem_.num_pairs);
    Tensor o = make_tensor(problem_.o_dtype(), std::move(o_shape));
    Tensor lse = make_tensor(Dtype::kF32, std::move(lse_shape));
    poison(o);
    const RandomStream o_stream(request_.seed, "o"), lse_stream(request_.seed, "lse");
    const double spread = request_.input == InputKind::kNormal ? 1 : 8;
    for (int pair = 0; pair < problem_.num_pairs; ++pair) {
      for (int b = 0; b < problem_.batch; ++b) {
        for (int h = 0; h < spec_.num_q_heads; ++h) {
          for (int row = 0; row < problem_.q_lens[b]; ++row) {
            const std::int64_t at =
                pair * (lse.elements() / problem_.num_pairs) + problem_.lse_index(b, h, row);
            const bool seen = lse_stream.bits(at) % 4 != 0;
            lse.as<float>()[at] = seen ? static_cast<float>(spread * lse_stream.normal(at))
                                       : -std::numeric_limits<float>::infinity();
            if (!seen) continue;
            if (request_.input == InputKind::kFar) {
              constexpr std::array<double, 5> kLevels{kFarScore, 0, -kFarScore, kLowSink,
                                                      kHighSink};
              const auto level = (row + h + pair * (row % 2)) % static_cast<int>(kLevels.size());
              lse.as<float>()[at] = static_cast<float>(kLevels[static_cast<std::size_t>(level)] +
                                                       lse_stream.normal(at));
            }
            const std::int64_t first = problem_.pair_row(pair, b, h, row) * spec_.ov_depth;
            for (int d = 0; d < spec_.ov_depth; ++d) {
              store_float(o, first + d, static_cast<float>(o_stream.normal(first + d)));
            }
          }
        }
      }
    }
    problem_.tensors["pairs_o"] = std::move(o);
    problem_.tensors["pairs_lse"] = std::move(lse);
  }

  void queries() {
    std::vector<std::int64_t> shape = problem_.o_shape();
    shape.back() = depth_;
    Tensor q = make_tensor(spec_.qkv_dtype, shape);
    shape.back() = spec_.qk_depth - depth_;
    Tensor rope = make_tensor(spec_.rope_dtype.value_or(spec_.qkv_dtype), std::move(shape));
    const RandomStream stream(request_.seed, "q");
    const std::int64_t row_elements = std::int64_t{spec_.num_q_heads} * spec_.qk_depth;
    for (int b = 0; b < problem_.batch; ++b) {
      const std::int64_t first = problem_.first_q_row(b);
      parallel_for(problem_.q_lens[b], request_.threads, [&](std::int64_t row) {
        const std::uint64_t logical = (static_cast<std::uint64_t>(b) << 32) + row;
        for (int h = 0; h < spec_.num_q_heads; ++h) {
          const int kv_head = h / spec_.group;
          const double q_inverse =
              inverse(problem_.scale_of("q_scale", b, h, static_cast<int>(row)));
          const std::int64_t head_row = (first + row) * spec_.num_q_heads + h;
          for (int d = 0; d < spec_.qk_depth; ++d) {
            const std::int64_t within = std::int64_t{h} * spec_.qk_depth + d;
            double value = stream.normal(logical * row_elements + within);
            switch (request_.input) {
              case InputKind::kNormal:
                break;
              case InputKind::kLarge:
                value *= large_;
                break;
              case InputKind::kRaised:
                if (d < 2) value = d == raising_dimension(row, h) ? kQuery : 0;
                break;
              case InputKind::kSmall:
                if (spec_.scales != Scales::kNone) value *= kStoredSize / q_inverse;
                break;
              case InputKind::kZero:
                if (is_zero_row(0, row + h)) value = 0;
                break;
              case InputKind::kFar:
                value = d == spec_.qk_depth - 1 ? far_query(row, h) : 0;
                break;
              case InputKind::kStray:
                break;
              default:
                value = direction(kv_head, d) + 0.5 * value;
                break;
            }
            const bool is_rope = d >= depth_;
            store_float(
                is_rope ? rope : q,
                is_rope ? head_row * (spec_.qk_depth - depth_) + d - depth_ : head_row * depth_ + d,
                static_cast<float>(value * q_inverse));
          }
        }
      });
    }
    problem_.tensors["q"] = std::move(q);
    if (has_separate_rope(spec_)) problem_.tensors["q_rope"] = std::move(rope);
  }

  void keys_and_values() {
    const bool packs = spec_.cache_format == CacheFormat::kDsv32;
    const Dtype dtype = packs ? Dtype::kF32 : spec_.type_of_kv();
    Tensor k = make_tensor(dtype, kv_shape(depth_));
    Tensor v = make_tensor(dtype, kv_shape(spec_.ov_depth));
    Tensor rope =
        make_tensor(spec_.rope_dtype.value_or(dtype), kv_shape(spec_.qk_depth - depth_, 1));
    fill_garbage(k);
    fill_garbage(v);
    fill_garbage(rope);
    for (int b = 0; b < problem_.batch; ++b) {
      const int kept = first_kept_[static_cast<std::size_t>(b)];
      parallel_for(problem_.kv_lens[b] - kept, request_.threads,
                   [&](std::int64_t row) { key_row(k, v, rope, b, kept + static_cast<int>(row)); });
    }
    problem_.tensors["k"] = packs ? pack_dsv32(k, v) : std::move(k);
    problem_.tensors["v"] = std::move(v);
    if (has_separate_rope(spec_)) problem_.tensors["k_rope"] = std::move(rope);
  }

  void key_row(Tensor& k, Tensor& v, Tensor& rope, int b, int kv_idx) const {
    const int kv_heads = spec_.num_kv_heads();
    const RandomStream k_stream(request_.seed, "k");
    const RandomStream v_stream(request_.seed, "v");
    const RandomStream height_stream(request_.seed, "height");
    const std::uint64_t logical = (static_cast<std::uint64_t>(b) << 32) + kv_idx;
    const std::int64_t row = problem_.kv_row(b, kv_idx);
    for (int h = 0; h < kv_heads; ++h) {
      double along = 0;  // times the head's direction
      double noise = 1, v_size = 1;
      std::optional<int> raised;
      switch (request_.input) {
        case InputKind::kNormal:
          break;
        case InputKind::kLarge:
          noise = large_;
          break;
        case InputKind::kRising:
        case InputKind::kFalling: {
          const int steps =
              request_.input == InputKind::kRising ? kv_idx : problem_.kv_lens[b] - 1 - kv_idx;
          along = std::min(200.0, rise_ * steps / dot_scale_);
          noise = 0.5;
          break;
        }
        case InputKind::kSpike:
          if (is_spike(b, h, kv_idx)) {
            along = (20 + 20 * height_stream.uniform(logical * kv_heads + h)) / dot_scale_;
            v_size = 16;
          }
          break;
        case InputKind::kRaised:
          raised = raised_along(b, kv_idx);
          noise = raised ? 0 : kQuieter;
          v_size = raised ? 1 : kQuieter;
          break;
        case InputKind::kSmall:
          if (spec_.scales == Scales::kNone) v_size = std::exp2(kSmallScale);
          break;
        case InputKind::kZero:
          if (is_zero_row(1, kv_idx + h)) noise = 0;
          if (is_zero_row(2, kv_idx + h)) v_size = 0;
          break;
        case InputKind::kFar:
        case InputKind::kStray:
          break;
      }
      const double k_inverse = inverse(problem_.scale_of("k_scale", b, h, kv_idx));
      const double v_inverse = inverse(problem_.scale_of("v_scale", b, h, kv_idx));
      if (request_.input == InputKind::kSmall && spec_.scales != Scales::kNone) {
        noise = kStoredSize / k_inverse;
        v_size = kStoredSize / v_inverse;
      }
      const std::int64_t k_first = (row * kv_heads + h) * depth_;
      const std::uint64_t k_logical = (logical * kv_heads + h) * spec_.qk_depth;
      for (int d = 0; d < spec_.qk_depth; ++d) {
        double value = noise * k_stream.normal(k_logical + d);
        if (along != 0) value += along * direction(h, d);
        if (request_.input == InputKind::kRaised && d < 2) {
          value = raised == d ? kRaise / (double{problem_.scale} * kQuery) : 0;
        }
        if (request_.input == InputKind::kFar && d == spec_.qk_depth - 1) {
          value = kFarKeys[height_stream.bits(logical) % kFarKeys.size()];
        }
        const auto stored = static_cast<float>(value * k_inverse);
        if (d < depth_) store_float(k, k_first + d, stored);
        if (d < depth_ || h > 0) continue;
        store_float(rope, row * (spec_.qk_depth - depth_) + d - depth_, stored);
      }
      const std::int64_t v_first = (row * kv_heads + h) * spec_.ov_depth;
      const std::uint64_t v_logical = (logical * kv_heads + h) * spec_.ov_depth;
      for (int d = 0; d < spec_.ov_depth; ++d) {
        // Absorbed MLA keeps one tensor: V is the first part of K.
        if (spec_.mla == Mla::kDecode) {
          store_float(v, v_first + d, load_float(k, k_first + d));
          continue;
        }
        double value = v_size * v_stream.normal(v_logical + d);
        // A mean over many keys would vanish: what all but the raised ones share is a number a
        // column, so that an output shows what became of them.
        if (request_.input == InputKind::kRaised && !raised) value += d % 5 - 2;
        store_float(v, v_first + d, static_cast<float>(value * v_inverse));
      }
    }
  }

  void fill_garbage(Tensor& tensor) const {
    if (request_.input == InputKind::kNormal) return poison(tensor);
    const std::int64_t depth = tensor.shape.back();
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      store_float(tensor, i, (i / depth + i) % 2 == 0 ? kGarbage : -kGarbage);
    }
  }

  void params() {
    const std::int64_t longest = std::max(problem_.max_q_len, problem_.max_kv_len);
    for (const ParamSpec& param : spec::declared_params(spec_)) {
      const std::string name = "param_" + param.name;
      const auto given =
          std::find_if(request_.params.begin(), request_.params.end(),
                       [&](const ParamArgument& argument) { return argument.name == param.name; });
      if (given != request_.params.end()) {
        problem_.tensors[name] = given->value;
        continue;
      }
      Tensor tensor =
          make_tensor(spec::shape_of(param.type).element, param_extents(param.type, longest));
      const RandomStream stream(request_.seed, name);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        if (is_float_storage(tensor.dtype)) {
          store_float(tensor, i, static_cast<float>(2 * stream.uniform(i) - 1));
        } else if (tensor.dtype == Dtype::kU32) {
          tensor.as<std::uint32_t>()[i] = static_cast<std::uint32_t>(stream.bits(i));
        } else {
          tensor.as<std::int32_t>()[i] = static_cast<std::int32_t>(stream.bits(i) & 3);
        }
      }
      problem_.tensors[name] = std::move(tensor);
    }
  }

  /// Makes NaN of what a mask that each sequence has has past the end of a sequence.
  void hide_from_kernels(Tensor& mask) const {
    const std::int64_t heads = mask.shape[1], rows = mask.shape[2], columns = mask.shape[3];
    if (mask.shape[0] != problem_.batch) return;
    for (std::int64_t i = 0; i < mask.elements(); ++i) {
      const auto b = static_cast<std::size_t>(i / columns / rows / heads);
      const bool row_ends = rows > 1 && i / columns % rows >= problem_.q_lens[b];
      if (row_ends || i % columns >= problem_.kv_lens[b]) {
        store_float(mask, i, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  void slopes() {
    if (!spec_.score_mod.slopes) return;
    Tensor tensor = make_tensor(Dtype::kF32, {spec_.num_q_heads});
    const RandomStream stream(request_.seed, "slopes");
    for (int h = 0; h < spec_.num_q_heads; ++h) {
      tensor.as<float>()[h] = static_cast<float>(0.25 * stream.uniform(h));
    }
    problem_.tensors["slopes"] = std::move(tensor);
  }

  /// The nth number that is none of `count` things: just outside, and far outside.
  static std::int32_t stray_index(std::int64_t count, std::uint64_t n) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const std::array<std::int64_t, 4> strays{-1, std::min(count, kMost), kMost, -kMost - 1};
    return static_cast<std::int32_t>(strays[n % strays.size()]);
  }

  /// Puts a table aside that the inputs were laid out by; the kernel is given the copy.
  std::int32_t* mislead(const std::string& name) {
    Tensor& table = problem_.tensors.at(name);
    problem_.right_tables.emplace(name, table);
    return table.as<std::int32_t>();
  }

  /// The tables of the last sequence are made wrong, and of three and more those of the first: its
  /// pages, its length, and where its rows begin or end. The others are right, but for what
  /// nothing reads: the entries past a sequence's keys.
  void stray_tables() {
    const int last = problem_.batch - 1;
    if (last < 0 || spec_.merge) return;
    const std::uint64_t seed = request_.seed;
    const bool lists = spec_.topk > 0;  // a launch with lists reads neither pages nor lengths
    std::vector<bool> stray(static_cast<std::size_t>(problem_.batch));
    stray.back() = true;
    if (last >= 2) stray.front() = true;
    bool any = false;
    if (problem_.has("page_table") && !lists) {
      any = true;
      std::int32_t* const table = mislead("page_table");
      for (int b = 0; b <= last; ++b) {
        const int used = (problem_.kv_lens[b] + spec_.page_size - 1) / spec_.page_size;
        for (int i = 0; i < problem_.max_pages; ++i) {
          if (i < used && (!stray[static_cast<std::size_t>(b)] || i % 2 != 0)) continue;
          table[std::int64_t{b} * problem_.max_pages + i] =
              stray_index(problem_.num_pages, static_cast<std::uint64_t>(i / 2) + seed);
        }
      }
    }
    // Of a single sequence seeds take turns between ends.
    const bool above = last > 0 || seed % 2 == 0;
    const bool below = last >= 2 || (last == 0 && !above);
    // Seeds take turns between numbers that are outside at once, which a kernel that believes them
    // soon shows, and the last ones, of which sums overflow.
    const auto over = [&](std::int64_t most) {
      constexpr std::int64_t kLast = std::numeric_limits<std::int32_t>::max();
      return static_cast<std::int32_t>(seed / 2 % 2 == 0 ? std::min(most + kBeyond, kLast) : kLast);
    };
    const std::int32_t under = seed / 2 % 2 == 0 ? std::numeric_limits<std::int32_t>::min() : -1;
    if (problem_.has("kv_lens") && !lists) {
      any = true;
      auto* const lens = problem_.tensors.at("kv_lens").as<std::int32_t>();
      if (above) lens[last] = over(problem_.max_kv_len);
      if (below) lens[0] = under;
    }
    for (const auto& [name, rows] :
         {std::pair{"q_offsets", problem_.total_q}, std::pair{"kv_offsets", problem_.total_kv}}) {
      if (!problem_.has(name)) continue;
      any = true;
      std::int32_t* const offsets = mislead(name);
      if (above) offsets[problem_.batch] = over(rows);
      if (below) offsets[0] = under;
    }
    if (any) problem_.stray = std::move(stray);
  }

  /// A row's list: keys of its sequence in no order, none twice, as many as there are. Of eight
  /// places one hides a key, and of eight rows one hides all.
  void topk_indices() {
    if (spec_.topk == 0) return;
    const std::int64_t rows =
        spec_.ragged ? problem_.total_q : std::int64_t{problem_.batch} * problem_.max_q_len;
    Tensor lists = make_tensor(Dtype::kI32, {rows, spec_.topk});
    std::fill_n(lists.as<std::int32_t>(), lists.elements(), -1);
    if (request_.input == InputKind::kStray) {
      const std::int64_t pool = std::int64_t{problem_.num_pages} * spec_.page_size;
      for (std::int64_t i = 0; i < lists.elements(); ++i) {
        lists.as<std::int32_t>()[i] = stray_index(pool, static_cast<std::uint64_t>(i));
      }
    }
    for (int b = 0; b < problem_.batch; ++b) {
      parallel_for(problem_.q_lens[b], request_.threads, [&](std::int64_t row) {
        const std::int64_t logical = problem_.first_q_row(b) + row;
        const RandomStream rest(request_.seed, "topk rows");
        if (rest.bits(logical) % 8 == 7) return;
        const RandomStream stream(request_.seed ^ static_cast<std::uint64_t>(logical) << 32,
                                  "topk");
        // The first of a shuffled sequence's keys, or of so many places, are the list.
        std::vector<std::int32_t> keys(
            static_cast<std::size_t>(std::max(problem_.kv_lens[b], spec_.topk)), -1);
        std::iota(keys.begin(), keys.begin() + problem_.kv_lens[b], 0);
        for (int place = 0; place < spec_.topk; ++place) {
          const auto left =
              static_cast<std::uint32_t>(keys.size()) - static_cast<std::uint32_t>(place);
          const std::uint32_t random = static_cast<std::uint32_t>(stream.bits(place));
          std::swap(keys[place], keys[place + random % left]);
          if (keys[place] < 0 || stream.bits(spec_.topk + place) % 8 == 0) continue;
          lists.as<std::int32_t>()[logical * spec_.topk + place] =
              static_cast<std::int32_t>(problem_.kv_row(b, keys[place]));
        }
      });
    }
    problem_.tensors["topk_indices"] = std::move(lists);
  }

  /// What hides a key without being an infinity, where a type has such a number.
  static float least_number(Dtype dtype) {
    if (dtype == Dtype::kFp16) return -std::numeric_limits<float>::infinity();
    return dtype == Dtype::kBf16 ? -0x1.FEp127F : std::numeric_limits<float>::lowest();
  }

  void mask() {
    const MaskSpec* mask = spec::materialized(spec_.mask);
    if (mask == nullptr) return;
    const bool bits = mask->dtype == Dtype::kBits;
    // Seeds take turns between masks that are all's and those that are one's.
    const std::int64_t columns = problem_.max_kv_len;
    Tensor tensor = make_tensor(
        bits ? Dtype::kU8 : mask->dtype,
        {(request_.seed & 1) != 0 ? problem_.batch : 1,
         (request_.seed & 2) != 0 ? spec_.num_q_heads : 1,
         (request_.seed & 4) != 0 ? 1 : problem_.max_q_len, bits ? (columns + 7) / 8 : columns});
    const RandomStream stream(request_.seed, "mask");
    const RandomStream blocks(request_.seed, "blocks");
    const RandomStream bias(request_.seed, "bias");
    // Of four blocks as those of a map one is hidden and one is seen, so that there is some to
    // skip. The first is not hidden: a small problem has no other, and all would be empty rows.
    const std::int64_t width = tensor.shape[3], block_width = bits ? 16 : 128;
    const bool far = request_.input == InputKind::kFar && is_plain();
    const float hidden = far ? least_number(mask->dtype) : -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const std::int64_t number = i / width / 128 * width + i % width / block_width;
      const auto drawn = blocks.bits(number) % 4;
      const auto block = number == 0 && drawn == 1 ? 2 : drawn;
      const bool visible = block == 0 || (block > 1 && stream.bits(i) % 4 != 0);
      if (bits) {
        const auto some = static_cast<std::uint8_t>(stream.bits(i) >> 8 | stream.bits(i) >> 16);
        tensor.bytes[i] = block == 0 ? 0xff : block == 1 ? 0 : some;
      } else if (mask->dtype == Dtype::kU8) {
        tensor.bytes[i] = static_cast<std::uint8_t>(visible ? 1 + i % 255 : 0);
      } else {
        auto value = static_cast<float>(bias.normal(i));
        // Rows by turns: all that is seen is far below 0, far above, or neither.
        if (far && i / width % 3 == 0) value = kFarMask;
        if (far && i / width % 3 == 1) value = kHighMask;
        if (mask->dtype == Dtype::kFp16) value = std::clamp(value, -60000.0F, 60000.0F);
        store_float(tensor, i, visible ? value : hidden);
      }
    }
    if (spec::adds_to_scores(*mask)) hide_from_kernels(tensor);
    problem_.tensors["mask"] = std::move(tensor);
  }

  Problem& problem_;
  const AttentionSpec& spec_;
  const ProblemRequest& request_;
  const int depth_ = depth_of_rows(spec_);  ///< of rows of q and k; the rest is the rope parts'
  double dot_scale_ = 1, large_ = 1, rise_ = 0;
  std::vector<double> directions_;  // a sign for each element of a key-value head
  std::vector<int> first_kept_;  // of each sequence, the first key of the pages that it has still
};

}  // namespace

void fill_random_inputs(Problem& problem, const ProblemRequest& request) {
  InputMaker(problem, request).make();
}

}  // namespace attnjit::verify
