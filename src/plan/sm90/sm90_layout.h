// SPDX-License-Identifier: Apache-2.0
// Shared memory and barriers of the sm_90a forward kernel.
#pragma once

#include <cstdint>

#include "plan/sm90/sm90_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Of an SM, with what the system takes of a CTA's.
inline constexpr std::int64_t kSm90SmSmemBytes = 233472;

/// A CTA's share of an SM's shared memory.
std::int64_t sm90_smem_room(const Sm90Plan& plan);

/// Bytes of a KV tile of BN keys: of K and V as they are multiplied, and of what is rewritten to be
/// that, as it comes.
struct Sm90KvBytes {
  std::int64_t k, v, raw_k, raw_v;
};
Sm90KvBytes sm90_kv_bytes(const SpecFacts& spec, int BN);

/// Bytes that a warp of a consumer stashes (templates/sm90/consumer.cuh), which are stored 16 at a
/// time.
inline constexpr int kSm90StashBytes = 48;

/// Bytes of the buffers of what the scales of a tile's keys are (templates/sm90/key_scales.cuh),
/// one more than stages of V, and of what is published of each raw tile of V.
std::int64_t sm90_key_scales_bytes(int BN, int v_stages, int raw_stages);

/// Sizes the tiles in shared memory, and finds O a place there.
void sm90_size_tiles(Sm90Plan& plan);

/// Shared memory and barriers, in their order.
void sm90_lay_out(Sm90Plan& plan);

}  // namespace attnjit
