// SPDX-License-Identifier: Apache-2.0
// A memory map as text, drawn to scale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnjit {

/// A labelled range of a map, in the map's unit.
struct MapCell {
  std::string label;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// A bar of `width` characters for `total` units: a box a cell, each border at its place to scale,
/// shading where nothing lies. `cells` ascend and do not overlap; `overlays` are drawn below the
/// bar, in rows of their own. A cell below a character's worth has no box. Each line begins with
/// `indent`.
std::string draw_memory_map(const std::vector<MapCell>& cells, const std::vector<MapCell>& overlays,
                            std::int64_t total, int width, const std::string& indent);

}  // namespace attnjit
