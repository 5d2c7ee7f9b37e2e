// SPDX-License-Identifier: Apache-2.0
// Fills a plan's values into attention.cu.tmpl.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <variant>

#include "attnjit/source.h"
#include "codegen/include_closure.h"
#include "codegen/renderer.h"
#include "codegen/source_digest.h"
#include "codegen/user_code.h"
#include "plan/kernel/signature.h"
#include "spec/names.h"
#include "spec/scalars.h"
#include "spec/spec_facts.h"
#include "spec/spec_fields.h"

namespace attnjit {
namespace {

constexpr const char* kTemplate = "attention.cu.tmpl";  // of a plan's main kernel
constexpr const char* kStepTemplate = "step.cu.tmpl";   // of each beside it
constexpr const char* kMaskTemplate = "map.cu.tmpl";    // of one that has the mask, too
constexpr const char* kFileName = "attention.cu";
constexpr const char* kUserFunctions = "user_functions";  // the placeholder

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
    case KernelParameter::Kind::kStruct:
      return fmt::format("const {}*", parameter.cuda_type);
  }
  return {};
}

std::string entry_parameter(const KernelParameter& parameter) {
  if (parameter.kind == KernelParameter::Kind::kTensorMap) {
    return fmt::format("const __grid_constant__ attnjit::TensorMap {}", parameter.name);
  }
  if (parameter.kind == KernelParameter::Kind::kStruct) {
    return fmt::format("const __grid_constant__ {} {}", parameter.cuda_type, parameter.name);
  }
  return fmt::format("{} {}", member_type(parameter), parameter.name);
}

/// The type of a parameter of custom code, as that code sees it.
std::string device_type(const spec::ParamShape& shape) {
  const char* const element = shape.element == Dtype::kF32    ? "float"
                              : shape.element == Dtype::kU32  ? "unsigned int"
                              : shape.element == Dtype::kBf16 ? "::attnjit::Bf16"
                                                              : "int";
  static constexpr const char* kArrays[] = {"", "Array", "Matrix", "Cube"};
  if (shape.rank == 0) return element;
  return fmt::format("::attnjit::{}<{}>", kArrays[shape.rank], element);
}

/// A struct of the rendered file: its members, and the values that the entry gives them.
struct StructText {
  std::vector<std::string> members, values;
};

/// The parameters of an entry, each in the struct of its group.
struct EntryText {
  StructText arguments, scalars, params;
};

/// @param reads_offsets whether the user's functions ask where sequences begin
EntryText entry_text(const PlannedKernel& kernel, const std::vector<ParamSpec>& declared,
                     bool reads_offsets) {
  EntryText text;
  std::vector<std::vector<std::string>> parts(declared.size());  // of each p.<name>
  for (const KernelParameter& parameter : kernel.parameters) {
    if (const auto* param = std::get_if<ParamSource>(&parameter.source)) {
      parts.at(param->index).push_back(parameter.name);
      continue;
    }
    const bool by_address = parameter.kind == KernelParameter::Kind::kTensorMap ||
                            parameter.kind == KernelParameter::Kind::kStruct;
    const auto add_to = [&](StructText& group) {
      group.members.push_back(fmt::format("  {} {};", member_type(parameter), parameter.name));
      group.values.push_back((by_address ? "&" : "") + parameter.name);
    };
    add_to(is_of_masks(parameter) ? text.scalars : text.arguments);
    if (reads_offsets && parameter.source == ParameterSource(BufferId{BufferId::Kind::kQOffsets})) {
      add_to(text.scalars);
    }
  }
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const spec::ParamShape shape = spec::shape_of(declared[i].type);
    const std::string type = device_type(shape);
    text.params.members.push_back(fmt::format("  {} {};", type, declared[i].name));
    if (shape.rank > 0) {
      text.params.values.push_back(fmt::format("{{{}}}", fmt::join(parts[i], ", ")));
    } else if (shape.element == Dtype::kU32) {
      text.params.values.push_back(fmt::format("static_cast<{}>({})", type, parts[i].front()));
    } else {
      text.params.values.push_back(parts[i].front());
    }
  }
  return text;
}

/// A defect of a plan whose main kernel lacks a parameter that the user's functions name.
Status check_parameters(const KernelPlan& plan, const std::vector<ParamSpec>& declared) {
  const std::vector<KernelParameter>& parameters = plan.main().parameters;
  const auto missing = [](const std::string& name) {
    return defect(fmt::format("the plan has no parameter '{}'", name));
  };
  const std::vector<spec::SpecScalar> scalars = spec::spec_scalars(plan.spec);
  for (std::uint32_t i = 0; i < scalars.size(); ++i) {
    const bool there = std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) {
      return p.source == ParameterSource(ScalarSource{i});
    });
    if (!scalars[i].constant && !scalars[i].in_code && !there) return missing(scalars[i].name);
  }
  for (std::uint32_t i = 0; i < declared.size(); ++i) {
    const auto parts = std::count_if(parameters.begin(), parameters.end(), [&](const auto& p) {
      const auto* source = std::get_if<ParamSource>(&p.source);
      return source != nullptr && source->index == i;
    });
    if (parts != 1 + spec::shape_of(declared[i].type).rank) return missing("p." + declared[i].name);
  }
  return {};
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

std::string declaration(const ConfigConstant& constant) {
  return fmt::format("  static constexpr {} {} = {};", constant.type, constant.name,
                     constant.value);
}

/// What a kernel's text includes.
std::string includes_of(const PlannedKernel& kernel) {
  const bool interprets = std::any_of(
      kernel.parameters.begin(), kernel.parameters.end(),
      [](const auto& parameter) { return std::holds_alternative<StackSource>(parameter.source); });
  return fmt::format("{}#include \"{}\"", interprets ? "#include \"common/interpreter.cuh\"\n" : "",
                     kernel.kernel_header);
}

/// What both templates show of a kernel.
std::vector<TemplateValue> kernel_values(const PlannedKernel& kernel, const StructText& arguments) {
  std::vector<std::string> constants, parameters;
  for (const ConfigConstant& constant : kernel.constants) {
    constants.push_back(declaration(constant));
  }
  if (!kernel.small_tile_constants.empty()) {
    constants.emplace_back("  struct SmallTile {");
    for (const ConfigConstant& constant : kernel.small_tile_constants) {
      constants.push_back("  " + declaration(constant));
    }
    constants.emplace_back("  };");
  }
  for (const KernelParameter& parameter : kernel.parameters) {
    parameters.push_back("    " + entry_parameter(parameter));
  }
  std::string attributes =
      fmt::format("__launch_bounds__({}, {})", kernel.threads, kernel.ctas_per_sm);
  if (kernel.cluster > 1) {
    attributes += fmt::format(" __cluster_dims__({}, 1, 1)", kernel.cluster);
  }
  return {
      {"config", lines(constants)},
      {"kernel_include", includes_of(kernel)},
      {"arguments", lines(arguments.members)},
      {"attributes", attributes},
      {"entry", kernel.entry},
      {"parameters", fmt::format("{}", fmt::join(parameters, ",\n"))},
      {"argument_values", wrapped(arguments.values, 28)},
      {"kernel_function", function_of(kernel.kernel_header)},
  };
}

/// Of a kernel that user's functions are part of.
std::vector<TemplateValue> user_values(const PlannedKernel& kernel, const EntryText& text) {
  std::string param_values;
  for (const std::string& value : text.params.values) param_values += ", " + value;
  std::vector<TemplateValue> values = kernel_values(kernel, text.arguments);
  values.insert(values.end(), {{"scalar_values", wrapped(text.scalars.values, 24)},
                               {"param_values", param_values}});
  return values;
}

std::vector<TemplateValue> main_values(const KernelPlan& plan, const EntryText& text,
                                       const UserCode& user) {
  std::vector<TemplateValue> values = user_values(plan.main(), text);
  values.insert(values.end(), {{"arch", std::string(to_string(plan.spec->arch))},
                               {"scalars", lines(text.scalars.members)},
                               {"params", lines(text.params.members)},
                               {kUserFunctions, user.functions},
                               {"mask", user.mask},
                               {"score_mod", user.score_mod}});
  return values;
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

const char* template_of(KernelId kernel) {
  switch (kernel) {
    case KernelId::kAttention:
      return kTemplate;
    case KernelId::kMap:
      return kMaskTemplate;
    case KernelId::kMerge:
    case KernelId::kMapLists:
      break;
  }
  return kStepTemplate;
}

/// The plan and the set go together. Errors: kUnsupported, kEnvironment, kInternal.
Status check_plan(const KernelPlan& plan, const TemplateSet& templates) {
  const auto unsupported = [](std::string reason) {
    return make_error(ErrorCode::kUnsupported, std::move(reason), "spec");
  };
  if (!plan.supported) {
    return unsupported(plan.reason.empty() ? "no template serves this spec" : plan.reason);
  }
  for (const PlannedKernel& kernel : plan.kernels) {
    for (const std::string_view file :
         {std::string_view(template_of(kernel.id)), std::string_view(kernel.kernel_header)}) {
      if (templates.find(file) == nullptr) return incomplete_templates(file);
    }
    if (kernel.entry.empty() || kernel.threads <= 0 || function_of(kernel.kernel_header).empty()) {
      return defect("the plan names no entry, threads or kernel header");
    }
  }
  return {};
}

/// The parameters that the text of user's functions names.
std::vector<ParamSpec> params_of(const KernelPlan& plan) {
  const SpecFacts& spec = plan.spec;
  return spec.interprets ? std::vector<ParamSpec>() : spec::declared_params(spec);
}

/// The main kernel, with the user's functions.
Result<std::string> render_main(const KernelPlan& plan, const SourceFile& file, UserCode& user) {
  const std::vector<ParamSpec> declared = params_of(plan);
  if (Status checked = check_parameters(plan, declared); !checked) return checked.error();
  // Once to learn the line of the user's functions, once with it: its digits change no line.
  Result<RenderedText> rendered = RenderedText{};
  int first_line = 1;
  for (int round = 0; round < 2; ++round) {
    user = print_user_code(plan.spec, kFileName, first_line);
    const EntryText text = entry_text(plan.main(), declared, user.reads_offsets);
    rendered = render(file.text, main_values(plan, text, user));
    if (!rendered) return std::move(rendered).error();
    for (const RenderedText::Position& position : rendered->positions) {
      if (position.name == kUserFunctions) first_line = position.line;
    }
  }
  return std::move(rendered->text);
}

/// A kernel beside the main one.
Result<std::string> render_step(const KernelPlan& plan, const PlannedKernel& kernel,
                                const SourceFile& file, const UserCode& user) {
  const bool has_mask = kernel.id == KernelId::kMap;
  const std::vector<ParamSpec> declared = has_mask ? params_of(plan) : std::vector<ParamSpec>();
  const EntryText text = entry_text(kernel, declared, user.reads_offsets);
  Result<RenderedText> rendered = render(
      file.text, has_mask ? user_values(kernel, text) : kernel_values(kernel, text.arguments));
  if (!rendered) return std::move(rendered).error();
  return std::move(rendered->text);
}

}  // namespace

Result<KernelSource> generate(const KernelPlan& plan, const TemplateSet& templates) {
  if (Status checked = check_plan(plan, templates); !checked) return checked.error();
  UserCode user;
  KernelSource source;
  source.name = kFileName;
  std::vector<SourceFile> used;
  // NOTE: over the include lines, not the rendered text: user code names no file.
  std::string includes;
  for (const PlannedKernel& kernel : plan.kernels) {
    includes += includes_of(kernel) + "\n";
    source.entries.push_back(kernel.entry);
    source.launches.push_back({kernel.threads, kernel.smem_bytes});
    const SourceFile& file = *templates.find(template_of(kernel.id));
    Result<std::string> text = kernel.id == KernelId::kAttention
                                   ? render_main(plan, file, user)
                                   : render_step(plan, kernel, file, user);
    if (!text) return std::move(text).error();
    source.text += *text;
    if (used.empty() || used.back().name != file.name) used.push_back(file);
  }
  Result<HeaderSet> headers = templates.included_by(kFileName, includes);
  if (!headers) return std::move(headers).error();
  source.headers = *std::move(headers);
  source.options = options_of(plan, user.trusted);
  source.user_code = std::move(user.key);
  used.push_back({"headers", source.headers.digest()});
  source.template_digest = source_digest(used);
  source.trusted = user.trusted;
  source.may_serialise = plan.spec.options().debug_waits.value_or(false);
  source.arch = plan.spec->arch;
  return source;
}

}  // namespace attnjit
