// What a rendered sm_90a kernel looks like: group 8, depth 128, bf16, causal and a custom mask,
// softcap, sink and LSE. Kept by hand as the agreement between the renderer and templates/sm90.

/// What the plan fixed at compile time.
struct Config {
  static constexpr bool kBf16 = true;
  static constexpr bool kOutputBf16 = true;
  static constexpr int kQkDepth = 128;
  static constexpr int kOvDepth = 128;
  static constexpr int kGroup = 8;
  static constexpr bool kSink = true;
  static constexpr bool kReturnLse = true;
  static constexpr bool kLseIncludesSink = true;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 384;
  static constexpr int kTileM = 128;
  static constexpr int kTileN = 128;
  static constexpr int kStages = 2;
  static constexpr int kQStages = 2;
  static constexpr bool kPingPong = false;
  static constexpr bool kDebugWaits = false;
  static constexpr bool kPairTiles = true;
  static constexpr int kGqaShift = 3;
  static constexpr float kRescaleThreshold = 0x1p+3f;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kQOffset = 0;
  static constexpr int kKOffset = 65536;
  static constexpr int kVOffset = 131072;
  static constexpr int kWorkOffset = 196608;
  static constexpr int kBarrierOffset = 196736;
  static constexpr int kBarQFull = 0;
  static constexpr int kBarQEmpty = 4;
  static constexpr int kBarKFull = 8;
  static constexpr int kBarKEmpty = 10;
  static constexpr int kBarVFull = 12;
  static constexpr int kBarVEmpty = 14;
  static constexpr int kBarriers = 16;
  static constexpr int kArrivals[16] = {1, 1, 1, 1, 4, 4, 4, 4, 1, 1, 8, 8, 1, 1, 8, 8};
  static constexpr int kOBlocks = 0;
  static constexpr int kOOffset = 0;
  static constexpr int kSmemBytes = 196864;
};

#include "sm90/forward.cuh"

using attnjit::Array;
using attnjit::Coord;
using attnjit::Matrix;

/// Run-time values of the built-in masks and score modifications.
struct Scalars {
  float cap;
};

/// What user code sees as p: a parameter of its own hides a scalar of the same name.
struct Params : Scalars {
  Array<int> doc;
};

/// The other arguments of the launch, tensor maps by address.
struct Arguments {
  const attnjit::TensorMap* q_map;
  const attnjit::TensorMap* k_map;
  const attnjit::TensorMap* v_map;
  const attnjit::TensorMap* o_map;
  float* lse;
  const float* sink;
  int num_q_heads;
  int q_len;
  int kv_len;
  int m_tiles;
  int total_tiles;
  int paired_units;
  float scale;
};

namespace attnjit_user {

using namespace attnjit;

/// document
struct Mask {
  __device__ static bool visible(const Coord& c, const Params& p) {
    return array_at(p.doc, c.q_idx) == array_at(p.doc, c.kv_idx);
  }
};

}  // namespace attnjit_user

using Mask = attnjit::AndMask<attnjit::CausalMask, attnjit::CustomMask<attnjit_user::Mask>>;
using ScoreMod = attnjit::SoftcapScoreMod<attnjit::LaunchCap<&Scalars::cap>>;
// Other spellings: NullMask, SlidingWindowMask<&Scalars::window>,
// SlidingWindowMask<Config::kWindow>, ChunkedMask<&Scalars::chunk>, ChunkedMask<Config::kChunk>,
// OrMask<A, B> (more than two nest to the right: AndMask<A, AndMask<B, C>>); IdentityScoreMod,
// AlibiScoreMod, SoftcapScoreMod<ConstantCap<Config>> (Config::kCap, a float),
// CustomScoreMod<attnjit_user::ScoreMod>.

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    attnjit_forward(const __grid_constant__ attnjit::TensorMap q_map,
                    const __grid_constant__ attnjit::TensorMap k_map,
                    const __grid_constant__ attnjit::TensorMap v_map,
                    const __grid_constant__ attnjit::TensorMap o_map, float* lse, const float* sink,
                    int num_q_heads, int q_len, int kv_len, int m_tiles, int total_tiles,
                    int paired_units, float scale, float cap, const int* param_doc,
                    int param_doc_n) {
  const Arguments arguments{&q_map, &k_map, &v_map,  &o_map,      lse,          sink, num_q_heads,
                            q_len,  kv_len, m_tiles, total_tiles, paired_units, scale};
  const Params params{{cap}, {param_doc, param_doc_n}};
  attnjit::sm90::forward<Config, Mask, ScoreMod>(arguments, params);
}
