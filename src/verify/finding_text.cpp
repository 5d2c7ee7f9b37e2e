// SPDX-License-Identifier: Apache-2.0
// A finding of the emulator in one line.
#include "verify/finding_text.h"

#include <fmt/format.h>

namespace attnjit::verify {

std::string finding_text(const Finding& finding) {
  if (finding.ptx_line == 0 && finding.warp < 0) {  // found after the launch
    return fmt::format("{}: {} (seed {})", to_string(finding.kind), finding.text, finding.seed);
  }
  std::string place;
  if (finding.source_line > 0) {
    place = fmt::format("{}:{}, ", finding.source_file, finding.source_line);
  }
  return fmt::format("{}: {} ({}PTX line {}, CTA {},{},{}, warp {}, lane {}, seed {})",
                     to_string(finding.kind), finding.text, place, finding.ptx_line, finding.cta[0],
                     finding.cta[1], finding.cta[2], finding.warp, finding.lane, finding.seed);
}

}  // namespace attnjit::verify
