// SPDX-License-Identifier: Apache-2.0
// Evaluates expressions over a grid of scores with the reference's evaluator, for masks_test.py:
// a JSON array of cases on standard input, an array of arrays of values on standard output.
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spec/expression.h"
#include "spec/spec_fields.h"

namespace attnjit {
namespace {

using Json = nlohmann::json;
using spec::Coordinates;
using spec::ParamView;

struct Param {
  ParamSpec spec;
  std::vector<std::int32_t> ints;
  std::vector<float> floats;
  ParamView view;
};

void read_param(const Json& json, Param& param) {
  param.spec = {json.at("name"),
                *spec::from_string<ParamSpec::Type>(json.at("type").get<std::string>())};
  const spec::ParamShape shape = spec::shape_of(param.spec.type);
  const Json& values = json.at("values");
  if (shape.element == Dtype::kF32) {
    param.floats = values.get<std::vector<float>>();
    param.view.f32_data = param.floats.data();
  } else {
    for (const Json& value : values) {
      param.ints.push_back(static_cast<std::int32_t>(value.get<std::int64_t>()));
    }
    param.view.i32_data = param.ints.data();
  }
  if (shape.rank == 0) param.view.i32 = param.ints.at(0);
  const Json& extents = json.at("shape");
  if (shape.rank == 3) param.view.planes = extents.at(0);
  param.view.rows = extents.at(shape.rank == 3 ? 1 : 0);
  if (shape.rank > 1) param.view.columns = extents.at(shape.rank - 1);
}

Json evaluate(const Json& test) {
  std::vector<Param> params(test.at("params").size());
  std::vector<ParamSpec> specs;
  std::vector<ParamView> views;
  for (std::size_t i = 0; i < params.size(); ++i) {
    read_param(test.at("params").at(i), params[i]);
    specs.push_back(params[i].spec);
    views.push_back(params[i].view);
  }
  const bool is_mask = test.at("kind") == "mask";
  const std::string code = test.at("code");
  const Result<spec::Expression> expression = spec::parse_expression(
      code, is_mask ? spec::SnippetKind::kMask : spec::SnippetKind::kScoreMod, specs);
  if (!expression) return expression.error().message;
  spec::Evaluator evaluator(*expression, std::move(views));
  Json values = Json::array();
  // b, h, row, kv_idx, q_len, kv_len, score, and if it is asked for the first row in the batch
  for (const Json& point : test.at("points")) {
    Coordinates at;
    at.b = point.at(0);
    at.h = point.at(1);
    at.kv_h = at.h / 2;
    at.kv_idx = point.at(3);
    at.q_len = point.at(4);
    at.kv_len = point.at(5);
    at.q_idx = point.at(2).get<int>() + at.kv_len - at.q_len;
    if (point.size() > 7) at.first_row = point.at(7);
    if (is_mask) {
      values.push_back(evaluator.visible(at));
    } else {
      const double score = evaluator.score(at, point.at(6));
      // NOTE: JSON has no infinities.
      values.push_back(score == score && score - score == 0 ? Json(score)
                                                            : Json(std::to_string(score)));
    }
  }
  return values;
}

}  // namespace
}  // namespace attnjit

int main() {
  const nlohmann::json tests = nlohmann::json::parse(std::cin);
  nlohmann::json results = nlohmann::json::array();
  for (const nlohmann::json& test : tests) results.push_back(attnjit::evaluate(test));
  std::cout << results << "\n";
}
