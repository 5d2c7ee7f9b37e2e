// SPDX-License-Identifier: Apache-2.0
// Reads the conformance cases recorded on a GPU: tests/emulator/conformance/recorded.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "source_dir.h"

namespace attnjit::emulator {

class Recorded {
 public:
  explicit Recorded(const std::string& group) {
    const std::string base =
        std::string(ATTNJIT_SOURCE_DIR) + "/tests/emulator/conformance/recorded/" + group;
    std::ifstream json_file(base + ".json");
    json_ = nlohmann::json::parse(json_file);
    std::ifstream bin_file(base + ".bin", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(bin_file), {});
  }

  const nlohmann::json& cases() const { return json_.at("cases"); }

  /// The contents of a buffer: kind is "inputs" or "expect".
  std::vector<std::uint8_t> buffer(const nlohmann::json& c, const char* kind,
                                   const std::string& name) const {
    const auto& at = c.at(kind).at(name);
    const auto begin = bytes_.begin() + at[0].get<std::ptrdiff_t>();
    return {begin, begin + at[1].get<std::ptrdiff_t>()};
  }

  template <class T>
  std::vector<T> array(const nlohmann::json& c, const char* kind, const std::string& name) const {
    const std::vector<std::uint8_t> raw = buffer(c, kind, name);
    std::vector<T> out(raw.size() / sizeof(T));
    std::memcpy(out.data(), raw.data(), out.size() * sizeof(T));
    return out;
  }

 private:
  nlohmann::json json_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace attnjit::emulator
