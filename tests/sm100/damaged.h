// SPDX-License-Identifier: Apache-2.0
// Templates with a fault, for tests that some input shows it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attnjit/source.h"

namespace attnjit::sm100 {

/// The embedded templates with one text of one file replaced.
inline TemplateSet damaged(const std::string& file, const std::string& from,
                           const std::string& to) {
  std::vector<SourceFile> files = TemplateSet::embedded().files();
  int places = 0;
  for (SourceFile& source : files) {
    if (source.name != file) continue;
    for (std::size_t at = source.text.find(from); at != std::string::npos;
         at = source.text.find(from, at + to.size())) {
      source.text.replace(at, from.size(), to);
      ++places;
    }
  }
  EXPECT_EQ(places, 1) << file << " has this text more or less than once: " << from;
  return TemplateSet(std::move(files));
}

}  // namespace attnjit::sm100
