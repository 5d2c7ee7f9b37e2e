// SPDX-License-Identifier: Apache-2.0
// Fills a plan's values into attention.cu.tmpl.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "attnjit/source.h"
#include "codegen/include_closure.h"
#include "codegen/renderer.h"
#include "codegen/source_digest.h"
#include "codegen/user_code.h"
#include "spec/names.h"
#include "spec/scalars.h"

namespace attnjit {
namespace {

constexpr const char* kTemplate = "attention.cu.tmpl";
constexpr const char* kFileName = "attention.cu";

Error defect(std::string message) {
  return make_error(ErrorCode::kInternal, std::move(message), "plan");
}

/// "a, b, c" over lines of at most 100 columns.
std::string wrapped(const std::vector<std::string>& items, std::size_t first_column) {
  constexpr std::size_t kColumns = 100;
  std::string text;
  std::size_t column = first_column;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (i > 0 && column + 1 + item.size() > kColumns) {
      text += "\n      ";
      column = 6;
    } else if (i > 0) {
      text += ' ';
      ++column;
    }
    text += item;
    column += item.size();
  }
  return text;
}

std::string lines(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, "\n"));
}

/// A parameter as the entry's list and the structs spell it.
std::string member_type(const KernelParameter& parameter) {
  switch (parameter.kind) {
    case KernelParameter::Kind::kTensorMap:
      return "const attnjit::TensorMap*";
    case KernelParameter::Kind::kPointer:
      return parameter.cuda_type + "*";
    case KernelParameter::Kind::kI32:
      return "int";
    case KernelParameter::Kind::kI64:
      return "long long";
    case KernelParameter::Kind::kF32:
      return "float";
  }
  return {};
}

std::string entry_parameter(const KernelParameter& parameter) {
  if (parameter.kind == KernelParameter::Kind::kTensorMap) {
    return fmt::format("const __grid_constant__ attnjit::TensorMap {}", parameter.name);
  }
  return fmt::format("{} {}", member_type(parameter), parameter.name);
}

/// The parameters of an entry, sorted into the structs of the rendered file.
struct Sorted {
  std::vector<std::string> arguments, argument_values;
  std::vector<std::string> scalars, scalar_values;
  std::vector<std::string> params, param_values;
};

Result<Sorted> sort_parameters(const KernelPlan& plan) {
  Sorted sorted;
  std::vector<std::string> user;  // flat names that belong to user parameters
  const auto has = [&plan](const std::string& name) {
    return std::any_of(plan.parameters.begin(), plan.parameters.end(),
                       [&](const KernelParameter& p) { return p.name == name; });
  };
  for (const ParamSpec& param : spec::declared_params(plan.spec)) {
    const std::string flat = "param_" + param.name;
    std::vector<std::string> names{flat};
    std::string type;  // NOTE: qualified: a parameter before it may be named Array
    switch (param.type) {
      case ParamSpec::Type::kI32:
        type = "int";
        break;
      case ParamSpec::Type::kF32:
        type = "float";
        break;
      case ParamSpec::Type::kI32Array:
        type = "::attnjit::Array<int>";
        names.push_back(flat + "_n");
        break;
      case ParamSpec::Type::kF32Array:
        type = "::attnjit::Array<float>";
        names.push_back(flat + "_n");
        break;
      case ParamSpec::Type::kI32Matrix:
        type = "::attnjit::Matrix<int>";
        names.push_back(flat + "_rows");
        names.push_back(flat + "_cols");
        break;
    }
    for (const std::string& name : names) {
      if (!has(name)) return defect(fmt::format("the plan has no parameter '{}'", name));
    }
    sorted.params.push_back(fmt::format("  {} {};", type, param.name));
    sorted.param_values.push_back(
        names.size() == 1 ? flat : fmt::format("{{{}}}", fmt::join(names, ", ")));
    user.insert(user.end(), names.begin(), names.end());
  }
  std::vector<std::string> scalars;  // what built-in masks and score modifications read
  for (const spec::SpecScalar& scalar : spec::spec_scalars(plan.spec)) {
    if (scalar.constant) continue;
    if (!has(scalar.name)) {
      return defect(fmt::format("the plan has no parameter '{}'", scalar.name));
    }
    scalars.push_back(scalar.name);
  }
  for (const KernelParameter& parameter : plan.parameters) {
    if (std::find(user.begin(), user.end(), parameter.name) != user.end()) continue;
    const std::string member = fmt::format("  {} {};", member_type(parameter), parameter.name);
    if (std::find(scalars.begin(), scalars.end(), parameter.name) != scalars.end()) {
      sorted.scalars.push_back(member);
      sorted.scalar_values.push_back(parameter.name);
      continue;
    }
    const bool map = parameter.kind == KernelParameter::Kind::kTensorMap;
    sorted.arguments.push_back(member);
    sorted.argument_values.push_back((map ? "&" : "") + parameter.name);
  }
  return sorted;
}

/// "sm90/forward.cuh" -> "sm90::forward".
std::string function_of(std::string_view header) {
  constexpr std::string_view kSuffix = ".cuh";
  std::string name;
  if (header.size() <= kSuffix.size() || header.substr(header.size() - kSuffix.size()) != kSuffix) {
    return name;
  }
  for (const char c : header.substr(0, header.size() - kSuffix.size())) {
    name += c == '/' ? "::" : std::string(1, c);
  }
  return name;
}

std::vector<TemplateValue> values_of(const KernelPlan& plan, const Sorted& sorted,
                                     const UserCode& user) {
  std::vector<std::string> constants, parameters;
  for (const ConfigConstant& constant : plan.constants) {
    constants.push_back(fmt::format("  static constexpr {} {} = {};", constant.type, constant.name,
                                    constant.value));
  }
  for (const KernelParameter& parameter : plan.parameters) {
    parameters.push_back("    " + entry_parameter(parameter));
  }
  std::string attributes = fmt::format("__launch_bounds__({}, 1)", plan.threads);
  if (plan.cluster > 1) attributes += fmt::format(" __cluster_dims__({}, 1, 1)", plan.cluster);
  std::string param_values;
  for (const std::string& value : sorted.param_values) param_values += ", " + value;
  return {
      {"arch", std::string(to_string(plan.spec->arch))},
      {"config", lines(constants)},
      {"kernel_include", fmt::format("#include \"{}\"", plan.kernel_header)},
      {"scalars", lines(sorted.scalars)},
      {"params", lines(sorted.params)},
      {"arguments", lines(sorted.arguments)},
      {"user_functions", user.functions},
      {"mask", user.mask},
      {"score_mod", user.score_mod},
      {"attributes", attributes},
      {"entry", plan.entry},
      {"parameters", fmt::format("{}", fmt::join(parameters, ",\n"))},
      {"argument_values", wrapped(sorted.argument_values, 28)},
      {"scalar_values", wrapped(sorted.scalar_values, 24)},
      {"param_values", param_values},
      {"kernel_function", function_of(plan.kernel_header)},
  };
}

/// NOTE: everything here decides the image and is part of the key; no path may be among it. -v
/// makes ptxas report on the kernel, and is recorded in the image.
std::vector<std::string> options_of(const KernelPlan& plan, bool trusted) {
  std::vector<std::string> options = {
      fmt::format("--gpu-architecture={}", to_string(plan.spec->arch)),
      "-std=c++20",
      "-default-device",
      "--no-source-include",
      "--ptxas-options=-v",
  };
  // A body that ends without a return (940), or returns nothing (117), is undefined: an error
  // rather than a warning.
  if (trusted) options.insert(options.end(), {"--diag-error=940", "--diag-error=117"});
  return options;
}

}  // namespace

Result<KernelSource> generate(const KernelPlan& plan, const TemplateSet& templates) {
  const auto unsupported = [](std::string reason) {
    return make_error(ErrorCode::kUnsupported, std::move(reason), "spec");
  };
  if (!plan.supported) {
    return unsupported(plan.reason.empty() ? "no template serves this spec" : plan.reason);
  }
  const SourceFile* file = templates.find(kTemplate);
  if (file == nullptr) return unsupported(fmt::format("the templates hold no {}", kTemplate));
  if (templates.find(plan.kernel_header) == nullptr) {
    return unsupported(fmt::format("the templates hold no {}", plan.kernel_header));
  }
  if (plan.entry.empty() || plan.threads <= 0 || function_of(plan.kernel_header).empty()) {
    return defect("the plan names no entry, threads or kernel header");
  }
  Result<Sorted> sorted = sort_parameters(plan);
  if (!sorted) return std::move(sorted).error();

  // Once to learn the line of the user's functions, once with it: its digits change no line.
  Result<RenderedText> rendered = RenderedText{};
  UserCode user;
  int first_line = 1;
  for (int round = 0; round < 2; ++round) {
    user = print_user_code(plan.spec, kFileName, first_line);
    rendered = render(file->text, values_of(plan, *sorted, user));
    if (!rendered) return std::move(rendered).error();
    for (const RenderedText::Position& position : rendered->positions) {
      if (position.name == "user_functions") first_line = position.line;
    }
  }

  KernelSource source;
  source.name = kFileName;
  source.text = std::move(rendered->text);
  // NOTE: over the include line, not the rendered text: user code names no file.
  Result<std::vector<SourceFile>> headers =
      include_closure(templates, kFileName, fmt::format("#include \"{}\"\n", plan.kernel_header));
  if (!headers) return std::move(headers).error();
  source.headers = *std::move(headers);
  source.options = options_of(plan, user.trusted);
  source.entries = {plan.entry};
  source.user_code = std::move(user.key);
  std::vector<SourceFile> used{*file};
  used.insert(used.end(), source.headers.begin(), source.headers.end());
  source.template_digest = source_digest(used);
  source.trusted = user.trusted;
  source.arch = plan.spec->arch;
  return source;
}

}  // namespace attnjit
