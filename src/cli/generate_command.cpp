// SPDX-License-Identifier: Apache-2.0
// attnjit generate: writes a spec's CUDA source and its compile options.
#include <fmt/format.h>

#include <filesystem>

#include "attnjit/cache.h"
#include "attnjit/source.h"
#include "base/architectures.h"
#include "base/environment.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/launch_folder.h"
#include "cli/report.h"
#include "cli/spec_source.h"

namespace attnjit::cli {
namespace {

Status write_folder(const std::string& folder, const KernelSource& source, const ResolvedSpec& spec,
                    std::vector<std::string>& files) {
  const auto write = [&](const std::string& name, const std::string& text) -> Status {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    if (failure) {
      return make_error(ErrorCode::kIo, "this folder cannot be made: " + failure.message(),
                        path.parent_path().string());
    }
    files.push_back(path.string());
    return write_file(path.string(), text);
  };
  if (Status status = write(source.name, source.text); !status) return status;
  for (const SourceFile& header : source.headers) {
    if (Status status = write(header.name, header.text); !status) return status;
  }
  std::string options;
  for (const std::string& option : source.options) options += option + "\n";
  if (Status status = write("options.txt", options); !status) return status;
  return write("spec.json", spec_to_json(spec.given(), spec.options()) + "\n");
}

// What LAUNCH.json is planned for: where nobody says, the architecture's GPU. Errors: kInvalid.
Result<DeviceShape> read_device(const GenerateArguments& arguments, Arch arch) {
  constexpr std::int64_t kMaxSms = 1 << 20;
  DeviceShape device;
  device.sm_count = traits_of(arch).sm_count;
  if (!arguments.sm_count) return device;
  if (!arguments.launch) {
    return make_error(ErrorCode::kInvalid, "is of the launch: give --launch", "sm_count");
  }
  if (*arguments.sm_count < 1 || *arguments.sm_count > kMaxSms) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is {}; allowed: 1 to {}", *arguments.sm_count, kMaxSms),
                      "sm_count");
  }
  device.sm_count = static_cast<int>(*arguments.sm_count);
  return device;
}

}  // namespace

Result<Report> run_generate(const GenerateArguments& arguments) {
  if (arguments.launch && arguments.folder.empty()) {
    return make_error(ErrorCode::kInvalid, "a launch is written to a folder: give -o DIR",
                      "launch");
  }
  Result<ResolvedSpec> spec = read_spec(arguments.spec);
  if (!spec) return std::move(spec).error();
  Result<DeviceShape> device = read_device(arguments, (*spec)->arch);
  if (!device) return std::move(device).error();
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.spec.tuning);
  if (!tuning) return std::move(tuning).error();
  Result<KernelPlan> kernel = plan(*spec, tuning->get());
  if (!kernel) return std::move(kernel).error();
  const std::optional<std::string> folder = read_environment().templates;
  Result<TemplateSet> templates =
      folder ? TemplateSet::from_folder(*folder) : Result<TemplateSet>(TemplateSet::embedded());
  if (!templates) return std::move(templates).error();
  Result<KernelSource> source = generate(*kernel, *templates);
  if (!source) return std::move(source).error();

  Json json;
  json["key"] = request_key(*kernel, *source).hex;
  json["arch"] = std::string(to_string(source->arch));
  json["entries"] = source->entries;
  json["name"] = source->name;
  json["options"] = source->options;
  json["template_digest"] = source->template_digest;
  Report report;
  if (arguments.folder.empty()) {
    report.verbatim = true;
    report.text = "// Compile options:";
    for (const std::string& option : source->options) report.text += " " + option;
    report.text += "\n" + source->text;
    json["text"] = source->text;
    json["headers"] = Json::object();
    for (const SourceFile& header : source->headers) json["headers"][header.name] = header.text;
  } else {
    std::vector<std::string> files;
    Status status = write_folder(arguments.folder, *source, *spec, files);
    if (!status) return std::move(status).error();
    if (arguments.launch) {
      status = write_launch(arguments.folder, *kernel, arguments.problem, *device, files);
      if (!status) return std::move(status).error();
    }
    for (const std::string& file : files) report.text += file + "\n";
    json["files"] = files;
  }
  report.json = to_text(json);
  return report;
}

}  // namespace attnjit::cli
