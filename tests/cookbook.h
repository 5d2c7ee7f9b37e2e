// SPDX-License-Identifier: Apache-2.0
// The recipes of docs/masks.md, as they stand there.
//
// Thread rules: functions that read a file of the source tree.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "attnjit/spec.h"
#include "source_dir.h"

namespace attnjit::cookbook {

constexpr int kLength = 1024;  // keys of a picture, and its queries unless it says otherwise

/// A parameter's elements in a picture. A vector has one row.
struct Array {
  std::string name;
  std::vector<std::vector<std::int32_t>> rows;
  bool matrix = false;
};

struct Recipe {
  std::string mask;                  ///< JSON
  int q_len = kLength;               ///< of the picture
  std::vector<std::string> params;   ///< its numbers: "w=200"
  std::vector<Array> arrays;         ///< and its arrays
  std::vector<std::string> picture;  ///< its lines
};

/// Whether a line is one of a picture, or two: a left half and a right one, which goes on below.
inline bool is_picture(const std::string& line) {
  return line.size() > 4 && line.starts_with("    ") && line[4] != ' ' &&
         line.find_first_not_of("./# ", 4) == std::string::npos;
}

/// Reads what a picture is with: "With `--param w=256 --param a=@a.npy`, where a is 3 x 1, 9 x 0:".
inline void read_picture_values(const std::string& text, Recipe& recipe) {
  std::istringstream words(text.substr(0, text.rfind('`')));
  for (std::string word, before; words >> word; before = word) {
    if (before.ends_with("--q-len")) recipe.q_len = std::stoi(word);
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos && word[equals + 1] != '@') recipe.params.push_back(word);
  }
  std::smatch found;
  if (std::regex_search(text, found, std::regex(R"(where (\w+) is ([0-9][0-9x, ]*))"))) {
    Array& array = recipe.arrays.emplace_back(Array{found[1], {{}}});
    std::istringstream runs(found[2]);
    int count = 0, value = 0;
    for (char sign = 0; runs >> count >> sign >> value; runs >> sign) {
      array.rows.front().insert(array.rows.front().end(), count, value);
    }
  }
  if (std::regex_search(text, found, std::regex(R"(where the rows of (\w+) are ([0-9; ]+))"))) {
    Array& array = recipe.arrays.emplace_back(Array{found[1], {}, true});
    std::istringstream rows(found[2]);
    for (std::string row; std::getline(rows, row, ';');) {
      std::istringstream elements(row);
      std::vector<std::int32_t>& made = array.rows.emplace_back();
      for (std::int32_t element = 0; elements >> element;) made.push_back(element);
    }
  }
}

inline std::vector<Recipe> recipes() {
  std::ifstream file(ATTNJIT_SOURCE_DIR "/docs/masks.md");
  std::vector<Recipe> found;
  bool open = false;               // the JSON goes on
  std::string with;                // what a picture is with, which goes on
  std::vector<std::string> below;  // the right half of a picture
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
      std::istringstream halves(line);
      std::string left, right;
      halves >> left >> right;
      recipe.picture.push_back(left);
      if (!right.empty()) below.push_back(right);
    } else if (!below.empty()) {
      recipe.picture.insert(recipe.picture.end(), below.begin(), below.end());
      below.clear();
    } else if (!with.empty() || line.starts_with("With `--")) {
      with += line + ' ';
      if (!line.ends_with(':')) continue;
      read_picture_values(with, recipe);
      with.clear();
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
