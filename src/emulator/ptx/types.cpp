// SPDX-License-Identifier: Apache-2.0
// Names and widths of PTX scalar types and state spaces.
#include <array>

#include "emulator/ptx/ast.h"

namespace attnjit::emulator {
namespace {

struct TypeInfo {
  std::string_view name;
  int bits;
};

// In the order of enum Type.
constexpr std::array kTypes = {
    TypeInfo{"", 0},         TypeInfo{"pred", 1},    TypeInfo{"b8", 8},      TypeInfo{"b16", 16},
    TypeInfo{"b32", 32},     TypeInfo{"b64", 64},    TypeInfo{"b128", 128},  TypeInfo{"u8", 8},
    TypeInfo{"u16", 16},     TypeInfo{"u32", 32},    TypeInfo{"u64", 64},    TypeInfo{"s8", 8},
    TypeInfo{"s16", 16},     TypeInfo{"s32", 32},    TypeInfo{"s64", 64},    TypeInfo{"f16", 16},
    TypeInfo{"bf16", 16},    TypeInfo{"tf32", 32},   TypeInfo{"f32", 32},    TypeInfo{"f64", 64},
    TypeInfo{"f16x2", 32},   TypeInfo{"bf16x2", 32}, TypeInfo{"f32x2", 64},  TypeInfo{"u16x2", 32},
    TypeInfo{"s16x2", 32},   TypeInfo{"e4m3", 8},    TypeInfo{"e5m2", 8},    TypeInfo{"e4m3x2", 16},
    TypeInfo{"e5m2x2", 16},  TypeInfo{"e4m3x4", 32}, TypeInfo{"e5m2x4", 32}, TypeInfo{"e2m1", 4},
    TypeInfo{"e2m3", 6},     TypeInfo{"e3m2", 6},    TypeInfo{"e2m1x2", 8},  TypeInfo{"e2m3x2", 16},
    TypeInfo{"e3m2x2", 16},  TypeInfo{"e2m1x4", 16}, TypeInfo{"e2m3x4", 32}, TypeInfo{"e3m2x4", 32},
    TypeInfo{"ue8m0x2", 16}, TypeInfo{"ue8m0", 8},   TypeInfo{"ue4m3", 8},   TypeInfo{"u4", 4},
    TypeInfo{"s4", 4},       TypeInfo{"u2", 2},      TypeInfo{"s2", 2},      TypeInfo{"b1", 1},
    TypeInfo{"b1024", 1024},
};
static_assert(kTypes.size() == static_cast<std::size_t>(Type::kB1024) + 1,
              "one line a type, in the order of the enum");

}  // namespace

int bits_of(Type type) { return kTypes[static_cast<std::size_t>(type)].bits; }

std::string_view to_string(Type type) { return kTypes[static_cast<std::size_t>(type)].name; }

Type type_from_string(std::string_view name) {
  for (std::size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<Type>(i);
  }
  return Type::kNone;
}

std::string_view to_string(Space space) {
  switch (space) {
    case Space::kGeneric:
      return "generic";
    case Space::kGlobal:
      return "global";
    case Space::kShared:
      return "shared";
    case Space::kSharedCluster:
      return "shared::cluster";
    case Space::kLocal:
      return "local";
    case Space::kParam:
      return "param";
    case Space::kConst:
      return "const";
  }
  return "?";
}

}  // namespace attnjit::emulator
