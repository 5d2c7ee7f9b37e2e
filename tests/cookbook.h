// SPDX-License-Identifier: Apache-2.0
// The recipes of docs/masks.md, as they stand there.
//
// Thread rules: functions that read a file of the source tree.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attnjit/spec.h"
#include "source_dir.h"

namespace attnjit::cookbook {

struct Recipe {
  std::string mask;                  ///< JSON
  std::vector<std::string> params;   ///< of the picture: "w=200"
  std::vector<std::string> picture;  ///< its lines; none: there is no picture
};

inline bool is_picture(const std::string& line) {
  return line.size() > 4 && line.starts_with("    ") &&
         line.find_first_not_of("./#", 4) == std::string::npos;
}

inline std::vector<Recipe> recipes() {
  std::ifstream file(ATTNJIT_SOURCE_DIR "/docs/masks.md");
  std::vector<Recipe> found;
  bool open = false;  // the JSON goes on
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("    {\"kind\"")) {
      found.emplace_back();
      open = true;
    }
    if (found.empty()) continue;
    Recipe& recipe = found.back();
    if (open) {
      recipe.mask += line;
      open = !nlohmann::json::accept(recipe.mask);
    } else if (is_picture(line)) {
      recipe.picture.push_back(line.substr(4));
    } else if (line.starts_with("With `--param")) {
      std::istringstream words(line.substr(0, line.rfind('`')));
      for (std::string word; words >> word;) {
        if (word.find('=') != std::string::npos) recipe.params.push_back(word);
      }
    }
  }
  return found;
}

/// What the cookbook has beside masks: objects with a score_mod.
inline std::vector<nlohmann::json> score_mods() {
  std::ifstream file(ATTNJIT_SOURCE_DIR "/docs/masks.md");
  std::vector<nlohmann::json> found;
  std::string text;  // of a recipe that goes on
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("    {\"score_mod\"") && text.empty()) continue;
    text += line;
    if (!nlohmann::json::accept(text)) continue;
    found.push_back(nlohmann::json::parse(text));
    text.clear();
  }
  return found;
}

/// A spec of which a recipe is a part, with heads that share keys and values. One that cannot be
/// read fails the test.
inline AttentionSpec spec_of(Arch arch, nlohmann::json document) {
  document.update({{"arch", std::string(to_string(arch))},
                   {"num_q_heads", 4},
                   {"group", 2},
                   {"qk_depth", 64},
                   {"return_lse", true}});
  const Result<SpecDocument> read = spec_from_json(document.dump());
  EXPECT_TRUE(read.ok()) << document.dump();
  return read.ok() ? read->spec : AttentionSpec{};
}

}  // namespace attnjit::cookbook
