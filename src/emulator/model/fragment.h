// SPDX-License-Identifier: Apache-2.0
// Which thread and register hold which element: wgmma, mma.sync, ldmatrix, stmatrix and movmatrix.
//
// Source: PTX ISA 9.1, sections 9.7.15.5.1 (wgmma), 9.7.14.5 (mma.sync) and 9.7.14.5.15 (ldmatrix).
// Pure.
#pragma once

namespace attnjit::emulator {

struct Element {
  int row = 0;
  int column = 0;
  bool operator==(const Element&) const = default;
};

/// wgmma, D with f32 or s32: register i of thread t (0..127). f16: register j holds i = 2j (low),
/// 2j + 1.
constexpr Element wgmma_d(int t, int i) {
  const int lane = t % 32;
  return {16 * (t / 32) + lane / 4 + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)};
}

/// wgmma, A from registers: element e (low bits first) of register j (0..3) of thread t; column is
/// k.
constexpr Element wgmma_a(int t, int j, int e, int element_bytes) {
  const int lane = t % 32;
  const int row = 16 * (t / 32) + lane / 4 + 8 * (j & 1);
  const int per_register = 4 / element_bytes;
  return {row, per_register * (lane % 4) + e + 4 * per_register * (j >> 1)};
}

/// mma.sync m16nNkK, A: element e of register j of a lane. For 8-, 16- and 32-bit elements.
constexpr Element mma_a(int lane, int j, int e, int element_bytes) {
  return wgmma_a(lane, j, e, element_bytes);
}

/// mma.sync m16n8kK, B: element e of register j of a lane; row is k, column is n.
constexpr Element mma_b(int lane, int j, int e, int element_bytes) {
  const int per_register = 4 / element_bytes;
  return {per_register * (lane % 4) + e + 4 * per_register * j, lane / 4};
}

/// mma.sync m16n8kK, C and D with f32: register i of a lane.
constexpr Element mma_d(int lane, int i) {
  return {lane / 4 + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)};
}

/// An 8x8 matrix of 16-bit elements as ldmatrix and stmatrix spread it: half h (0 low) of a lane's
/// register.
constexpr Element matrix8x8(int lane, int h, bool transposed) {
  const int major = lane / 4, minor = 2 * (lane % 4) + h;
  return transposed ? Element{minor, major} : Element{major, minor};
}

}  // namespace attnjit::emulator
