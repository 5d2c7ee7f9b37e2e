// SPDX-License-Identifier: Apache-2.0
// Draws a memory map in box-drawing characters.
#include "plan/print/memory_map_text.h"

#include <algorithm>
#include <string_view>

namespace attnjit {
namespace {

// A row of glyphs, each one character wide on a terminal however many bytes it has.
class GlyphRow {
 public:
  explicit GlyphRow(int width) : glyphs_(static_cast<std::size_t>(width), " ") {}

  void put(int column, std::string_view glyph) {
    if (column >= 0 && column < static_cast<int>(glyphs_.size())) {
      glyphs_[static_cast<std::size_t>(column)] = glyph;
    }
  }
  bool is_blank(int column) const {
    return column < 0 || column >= static_cast<int>(glyphs_.size()) ||
           glyphs_[static_cast<std::size_t>(column)] == " ";
  }
  void fill(int from, int to, std::string_view glyph) {
    for (int column = from; column < to; ++column) put(column, glyph);
  }
  // ASCII text, cut at `to`.
  void write(int from, int to, std::string_view text) {
    for (std::size_t i = 0; i < text.size() && from + static_cast<int>(i) < to; ++i) {
      put(from + static_cast<int>(i), text.substr(i, 1));
    }
  }
  std::string line(const std::string& indent) const {
    std::string text = indent;
    std::size_t end = glyphs_.size();
    while (end > 0 && glyphs_[end - 1] == " ") --end;
    for (std::size_t i = 0; i < end; ++i) text += glyphs_[i];
    return text + "\n";
  }

 private:
  std::vector<std::string> glyphs_;
};

struct Scale {
  std::int64_t total;
  int width;

  // The border column of a position; the last one is the bar's right edge.
  int column(std::int64_t position) const {
    return static_cast<int>((position * (width - 1) * 2 + total) / (total * 2));
  }
};

void centre(GlyphRow& row, int left, int right, const std::string& label) {
  const int room = right - left - 1;
  const int length = std::min(room, static_cast<int>(label.size()));
  row.write(left + 1 + (room - length) / 2, right, label);
}

// A corner, or a junction where another box is already.
void corner(GlyphRow& row, int column, std::string_view alone, std::string_view joined) {
  row.put(column, row.is_blank(column) ? alone : joined);
}

// Boxes beside one another.
struct BoxRow {
  explicit BoxRow(int width) : top(width), middle(width), bottom(width) {}

  void add(int left, int right, const std::string& label) {
    top.fill(left + 1, right, "─");
    bottom.fill(left + 1, right, "─");
    corner(top, left, "┌", "┬");
    corner(bottom, left, "└", "┴");
    corner(top, right, "┐", "┬");
    corner(bottom, right, "┘", "┴");
    middle.put(left, "│");
    middle.put(right, "│");
    centre(middle, left, right, label);
  }

  GlyphRow top, middle, bottom;
};

}  // namespace

std::string draw_memory_map(const std::vector<MapCell>& cells, const std::vector<MapCell>& overlays,
                            std::int64_t total, int width, const std::string& indent) {
  if (total <= 0 || width < 2) return {};
  const Scale scale{total, width};
  GlyphRow ruler(width + 12);
  BoxRow boxes(width);
  boxes.middle.fill(0, width, "░");
  int ruler_end = 0;
  auto mark = [&](std::int64_t position) {
    const int column = scale.column(position);
    if (column < ruler_end) return;
    const std::string number = std::to_string(position);
    ruler.write(column, width + 12, number);
    ruler_end = column + static_cast<int>(number.size()) + 1;
  };
  for (const MapCell& cell : cells) {
    const int left = scale.column(cell.begin);
    const int right = scale.column(cell.begin + cell.size);
    if (right <= left) continue;
    mark(cell.begin);
    boxes.middle.fill(left + 1, right, " ");
    boxes.add(left, right, cell.label);
  }
  if (!cells.empty()) mark(cells.back().begin + cells.back().size);
  std::string text = ruler.line(indent) + boxes.top.line(indent) + boxes.middle.line(indent) +
                     boxes.bottom.line(indent);
  if (overlays.empty()) return text;
  BoxRow under(width);
  for (const MapCell& overlay : overlays) {
    const int left = scale.column(overlay.begin);
    const int right = std::max(scale.column(overlay.begin + overlay.size), left + 1);
    under.add(left, right, overlay.label);
  }
  return text + under.middle.line(indent) + under.bottom.line(indent);
}

}  // namespace attnjit
