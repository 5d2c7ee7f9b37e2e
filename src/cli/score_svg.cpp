// SPDX-License-Identifier: Apache-2.0
// Draws a score modification as SVG: shades of what becomes of one score at each place, and curves
// of what becomes of every score at a few places; legible in light and dark.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "cli/score_picture.h"
#include "cli/svg.h"

namespace attnjit::cli {
namespace {

constexpr double kSide = 320;  // px of a panel
constexpr double kPanelTop = 76, kFirstLeft = 76, kSecondLeft = kFirstLeft + kSide + 96;
constexpr double kWholeWidth = kSecondLeft + kSide + 24;
constexpr double kLineHeight = 20;

// NOTE: every selector begins with the picture's class: within a page rules are the whole page's.
constexpr std::string_view kScoreStyle = R"(<style>
.attnjit-score text{fill:#1f2328;font:13px system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
.attnjit-score .title{font-size:15px;font-weight:600}
.attnjit-score .ground{fill:#fff}
.attnjit-score .cell{fill:#0072b2}
.attnjit-score .axis{stroke:#6e7781;fill:none}
.attnjit-score .same{stroke:#6e7781;fill:none;stroke-dasharray:4 4}
.attnjit-score .curve{fill:none;stroke-width:2}
.attnjit-score .c0{stroke:#0072b2}
.attnjit-score .c1{stroke:#b35900}
.attnjit-score .c2{stroke:#00785a}
.attnjit-score .c3{stroke:#a8477e}
@media (prefers-color-scheme:dark){
.attnjit-score text{fill:#e6edf3}
.attnjit-score .ground{fill:#0d1117}
.attnjit-score .cell{fill:#4aa8e0}
.attnjit-score .axis,.attnjit-score .same{stroke:#9198a1}
.attnjit-score .c0{stroke:#4aa8e0}
.attnjit-score .c1{stroke:#f0b429}
.attnjit-score .c2{stroke:#3fc79a}
.attnjit-score .c3{stroke:#e08fc0}
}
</style>
)";

class ScoreDrawing {
 public:
  explicit ScoreDrawing(const ScorePicture& picture) : picture_(picture) {}

  std::string svg() {
    cells();
    curves();
    const double height = std::max(bottom_, kPanelTop + kSide + 60) + 12;
    const std::string title = fmt::format("{}: what it makes of scores", picture_.title);
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attnjit-score\" role=\"img\" "
               "width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n<title>{2}</title>\n",
               px(kWholeWidth), px(height), svg_text(title)) +
           std::string(kScoreStyle) +
           fmt::format("<rect class=\"ground\" width=\"{}\" height=\"{}\"/>\n", px(kWholeWidth),
                       px(height)) +
           body_ + "</svg>\n";
  }

 private:
  void text(double x, double y, std::string_view anchor, std::string_view words,
            std::string_view more = "") {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", px(x), px(y),
                         anchor, more, svg_text(words));
  }

  void frame(double left, std::string_view across, std::string_view down) {
    body_ += fmt::format("<path class=\"axis\" d=\"M{0} {1}h{2}v{2}h-{2}z\"/>\n", px(left),
                         px(kPanelTop), px(kSide));
    text(left + kSide / 2, kPanelTop + kSide + 38, "middle", across);
    const double x = left - 60, y = kPanelTop + kSide / 2;
    text(x, y, "middle", down, fmt::format(" transform=\"rotate(-90 {} {})\"", px(x), px(y)));
  }

  void ticks(double left, std::string_view first, std::string_view last, std::string_view top,
             std::string_view bottom) {
    text(left, kPanelTop + kSide + 19, "start", first);
    text(left + kSide, kPanelTop + kSide + 19, "end", last);
    text(left - 9, kPanelTop + 10, "end", top);
    text(left - 9, kPanelTop + kSide, "end", bottom);
  }

  /// The answers for one score: the greatest is solid.
  void cells() {
    std::string headline = picture_.title;
    constexpr auto kMost = static_cast<std::size_t>((kWholeWidth - 32) / 9);  // px of a wide letter
    if (headline.size() > kMost) headline = headline.substr(0, kMost - 2) + "..";
    text(16, 26, "start", headline, " class=\"title\"");
    double least = INFINITY, most = -INFINITY;
    for (const auto& row : picture_.rows) {
      for (const auto& cell : row) {
        if (!cell || !std::isfinite(*cell)) continue;
        least = std::min(least, *cell);
        most = std::max(most, *cell);
      }
    }
    text(kFirstLeft, 48, "start", fmt::format("what becomes of a score of {:g}:", picture_.score));
    text(kFirstLeft, 65, "start",
         least > most ? "the mask hides all"
                      : fmt::format("solid {:.4g}, palest {:.4g}, blank: hidden", most, least));
    const double across = kSide / picture_.kv_len, down = kSide / picture_.q_len;
    for (std::size_t r = 0; r < picture_.rows.size(); ++r) {
      const auto& row = picture_.rows[r];
      const double top = down * static_cast<double>(r) * picture_.cell_queries;
      const double height = std::min(down * picture_.cell_queries, kSide - top);
      for (std::size_t from = 0; from < row.size();) {
        std::size_t to = from + 1;
        while (to < row.size() && row[to] == row[from]) ++to;
        const double left = across * static_cast<double>(from) * picture_.cell_keys;
        const double right = std::min(across * static_cast<double>(to) * picture_.cell_keys, kSide);
        if (row[from] && std::isfinite(*row[from])) {
          const double share = most > least ? (*row[from] - least) / (most - least) : 1;
          body_ += fmt::format(
              "<rect class=\"cell\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
              "fill-opacity=\"{:.3g}\"/>\n",
              px(kFirstLeft + left), px(kPanelTop + top), px(right - left), px(height),
              0.12 + 0.88 * share);
        }
        from = to;
      }
    }
    frame(kFirstLeft, "keys", "queries");
    ticks(kFirstLeft, "0", grouped(picture_.kv_len), "0", grouped(picture_.q_len));
  }

  /// What becomes of every score, in one scale of both axes unless an answer is beyond it.
  void curves() {
    const double far = picture_.before.back();
    double low = -far, high = far;
    for (const auto& curve : picture_.curves) {
      for (const double value : curve.after) {
        if (!std::isfinite(value)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
    const auto x = [&](double score) { return kSecondLeft + kSide * (score + far) / (2 * far); };
    const auto y = [&](double score) { return kPanelTop + kSide * (high - score) / (high - low); };
    text(kSecondLeft, 48, "start", "what becomes of every score in the last query;");
    text(kSecondLeft, 65, "start", "dashed: nothing would");
    body_ += fmt::format("<path class=\"same\" d=\"M{} {}L{} {}\"/>\n", px(x(-far)), px(y(-far)),
                         px(x(far)), px(y(far)));
    bottom_ = kPanelTop + kSide + 60;
    for (std::size_t i = 0; i < picture_.curves.size(); ++i) {
      const auto& curve = picture_.curves[i];
      std::string path;
      bool pen = false;
      for (std::size_t at = 0; at < picture_.before.size(); ++at) {
        const bool known = std::isfinite(curve.after[at]);
        if (known) {
          path += fmt::format("{}{} {}", pen ? 'L' : 'M', px(x(picture_.before[at])),
                              px(y(curve.after[at])));
        }
        pen = known;
      }
      body_ += fmt::format("<path class=\"curve c{}\" d=\"{}\"/>\n", i, path);
      body_ += fmt::format("<path class=\"curve c{}\" d=\"M{} {}h22\"/>\n", i, px(kSecondLeft),
                           px(bottom_));
      text(
          kSecondLeft + 30, bottom_ + 4, "start",
          picture_.curves.size() == 1 ? "every key" : fmt::format("key {}", grouped(curve.kv_idx)));
      bottom_ += kLineHeight;
    }
    frame(kSecondLeft, "score before", "score after");
    ticks(kSecondLeft, fmt::format("{:g}", -far), fmt::format("{:g}", far),
          fmt::format("{:.4g}", high), fmt::format("{:.4g}", low));
  }

  const ScorePicture& picture_;
  double bottom_ = 0;
  std::string body_;
};

}  // namespace

std::string ScorePicture::svg() const { return ScoreDrawing(*this).svg(); }

}  // namespace attnjit::cli
