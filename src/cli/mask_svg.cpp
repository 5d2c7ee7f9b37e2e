// SPDX-License-Identifier: Apache-2.0
// Draws a mask as SVG: tiles in true proportion, axes, a legend; legible in light and dark.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "cli/mask_picture.h"
#include "cli/svg.h"

namespace attnjit::cli {
namespace {

constexpr double kLongSide = 640;  // px of the longer axis
constexpr double kLeastSide = 24;  // px of the shorter one: what is thinner is stretched
constexpr double kLeft = 76, kTop = 60, kRight = 24, kLegend = 20;
constexpr double kLeastWidth = 460;
constexpr double kLeastGrid = 5;  // px of a tile from which on lines are drawn between tiles

// NOTE: every selector begins with the picture's class: within a page rules are the whole page's.
constexpr std::string_view kStyle = R"(<style>
.attnjit-mask text{fill:#1f2328;font:13px system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
.attnjit-mask .title{font-size:15px;font-weight:600}
.attnjit-mask .ground{fill:#fff}
.attnjit-mask .hidden{fill:#e4e8ec}
.attnjit-mask .partial{fill:#e69f00}
.attnjit-mask .full{fill:#0072b2}
.attnjit-mask .grid{stroke:#fff;fill:none}
.attnjit-mask .axis{stroke:#6e7781;fill:none}
@media (prefers-color-scheme:dark){
.attnjit-mask text{fill:#e6edf3}
.attnjit-mask .ground{fill:#0d1117}
.attnjit-mask .hidden{fill:#2a313a}
.attnjit-mask .partial{fill:#f0b429}
.attnjit-mask .full{fill:#4aa8e0}
.attnjit-mask .grid{stroke:#0d1117}
.attnjit-mask .axis{stroke:#9198a1}
}
</style>
)";

/// One axis: how long it is in elements and on paper.
struct Axis {
  int length = 0;
  double scale = 1;  ///< px of an element
  double side() const { return length * scale; }
  double at(int element) const { return std::min(element, length) * scale; }
  /// Elements from tick to tick: a power of two, about eight of which fill the axis.
  int step() const {
    int step = 1;
    while (step * 8 < length) step *= 2;
    return step;
  }
};

class Drawing {
 public:
  explicit Drawing(const MaskPicture& picture) : picture_(picture) {
    const double scale = kLongSide / std::max({picture.q_len, picture.kv_len, 1});
    const auto axis = [scale](int length) {
      const double least = length > 0 ? kLeastSide / length : 1;
      return Axis{length, std::max(scale, least)};
    };
    queries_ = axis(picture.q_len);
    keys_ = axis(picture.kv_len);
    width_ = std::max(kLeft + keys_.side() + kRight, kLeastWidth);
  }

  std::string svg() {
    tiles();
    grid();
    ticks();
    legend();
    const std::string title = fmt::format(
        "{}: {} queries and {} keys in tiles of {} by {}", picture_.title, grouped(queries_.length),
        grouped(keys_.length), picture_.tile_queries, picture_.tile_keys);
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attnjit-mask\" role=\"img\" "
               "width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n<title>{2}</title>\n",
               px(width_), px(bottom_), svg_text(title)) +
           std::string(kStyle) +
           fmt::format("<rect class=\"ground\" width=\"{}\" height=\"{}\"/>\n", px(width_),
                       px(bottom_)) +
           headline() + body_ + "</svg>\n";
  }

 private:
  void text(double x, double y, std::string_view anchor, std::string_view words,
            std::string_view more = "") {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", px(x), px(y),
                         anchor, more, svg_text(words));
  }

  std::string headline() const {
    std::string title = picture_.title;
    const auto most = static_cast<std::size_t>((width_ - 32) / 9);  // px of a wide letter
    if (title.size() > most) title = title.substr(0, most - 2) + "..";
    std::string under =
        fmt::format("tiles of {} queries and {} keys", picture_.tile_queries, picture_.tile_keys);
    if (keys_.length > 0 && queries_.scale != keys_.scale) under += "; the axes' scales differ";
    return fmt::format(
        "<text class=\"title\" x=\"16\" y=\"26\">{}</text>\n<text x=\"16\" y=\"46\">{}</text>\n",
        svg_text(title), under);
  }

  /// Runs of tiles of one kind, and equal rows at once.
  void tiles() {
    const auto& rows = picture_.rows;
    for (std::size_t first = 0; first < rows.size();) {
      std::size_t end = first + 1;
      while (end < rows.size() && rows[end] == rows[first]) ++end;
      const double top = queries_.at(static_cast<int>(first) * picture_.tile_queries);
      const double height = queries_.at(static_cast<int>(end) * picture_.tile_queries) - top;
      const auto& row = rows[first];
      for (std::size_t from = 0; from < row.size();) {
        const TileKind& kind = kind_of(row[from]);
        std::size_t to = from + 1;
        while (to < row.size() && &kind_of(row[to]) == &kind) ++to;
        const double left = keys_.at(static_cast<int>(from) * picture_.tile_keys);
        const double right = keys_.at(static_cast<int>(to) * picture_.tile_keys);
        body_ +=
            fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                        kind.name, px(kLeft + left), px(kTop + top), px(right - left), px(height));
        from = to;
      }
      first = end;
    }
  }

  void grid() {
    std::string lines;
    if (picture_.tile_keys * keys_.scale >= kLeastGrid) {
      for (int key = picture_.tile_keys; key < keys_.length; key += picture_.tile_keys) {
        lines += fmt::format("M{} {}v{}", px(kLeft + keys_.at(key)), px(kTop), px(queries_.side()));
      }
    }
    if (picture_.tile_queries * queries_.scale >= kLeastGrid) {
      for (int row = picture_.tile_queries; row < queries_.length; row += picture_.tile_queries) {
        lines += fmt::format("M{} {}h{}", px(kLeft), px(kTop + queries_.at(row)), px(keys_.side()));
      }
    }
    if (!lines.empty()) body_ += fmt::format("<path class=\"grid\" d=\"{}\"/>\n", lines);
  }

  void ticks() {
    const double bottom = kTop + queries_.side();
    std::string marks = fmt::format("M{0} {1}h{2}v{3}h-{2}z", px(kLeft), px(kTop), px(keys_.side()),
                                    px(queries_.side()));
    const auto each = [](const Axis& axis, const auto& mark) {
      const int step = axis.step();
      for (int at = 0; at < axis.length; at += step) {
        if (at == 0 || axis.length - at > step / 2) mark(at);
      }
      mark(axis.length);
    };
    each(keys_, [&](int at) {
      marks += fmt::format("M{} {}v5", px(kLeft + keys_.at(at)), px(bottom));
      text(kLeft + keys_.at(at), bottom + 19, "middle", grouped(at));
    });
    // NOTE: of a stretched axis labels would lie upon one another.
    double last = -kLeastSide;
    each(queries_, [&](int at) {
      const double y = queries_.at(at);
      marks += fmt::format("M{} {}h-5", px(kLeft), px(kTop + y));
      if (y - last < 14) return;
      last = y;
      text(kLeft - 9, kTop + y + 4, "end", grouped(at));
    });
    body_ += fmt::format("<path class=\"axis\" d=\"{}\"/>\n", marks);
    const bool thin = queries_.side() < 80;  // too low for a word
    text(kLeft + keys_.side() / 2, bottom + 38, "middle", thin ? "keys; queries go down" : "keys");
    if (!thin) {
      text(16, kTop + queries_.side() / 2, "middle", "queries",
           fmt::format(" transform=\"rotate(-90 16 {})\"", px(kTop + queries_.side() / 2)));
    }
    bottom_ = std::max(bottom + 52, kTop + 84);
  }

  void legend() {
    std::int64_t all = 0;
    for (const TileKind& kind : kTileKinds) all += picture_.count(kind);
    for (const TileKind& kind : kTileKinds) {
      const std::int64_t tiles = picture_.count(kind);
      body_ += fmt::format("<rect class=\"{}\" x=\"16\" y=\"{}\" width=\"14\" height=\"14\"/>\n",
                           kind.name, px(bottom_ + 2));
      text(38, bottom_ + 14, "start",
           fmt::format(
               "{}: {} ({:.1f} %)", picture_.shows_tiles ? kind.kernel_does : kind.scores_are,
               grouped(tiles),
               all > 0 ? 100.0 * static_cast<double>(tiles) / static_cast<double>(all) : 0.0));
      bottom_ += kLegend;
    }
    bottom_ += 12;
  }

  const MaskPicture& picture_;
  Axis queries_, keys_;
  double width_ = 0, bottom_ = 0;
  std::string body_;
};

}  // namespace

std::string MaskPicture::svg() const { return Drawing(*this).svg(); }

}  // namespace attnjit::cli
