// SPDX-License-Identifier: Apache-2.0
// attnjit doctor: what the environment has, and what to do about what it lacks.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "attnjit/driver.h"
#include "attnjit/source.h"
#include "base/architectures.h"
#include "base/environment.h"
#include "cache/remote_tier.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/system_facts.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"
#include "driver/device.h"

namespace attnjit::cli {
namespace {

/// Why a folder that is not there cannot be made; empty: it can be.
std::string why_not_made(std::filesystem::path path) {
  std::error_code error;
  path = std::filesystem::absolute(path, error);
  while (path.has_relative_path() && !std::filesystem::exists(path, error)) {
    path = path.parent_path();
  }
  const bool can = ::access(path.c_str(), W_OK | X_OK) == 0;
  return can ? std::string() : fmt::format("{}: {}", path.string(), std::strerror(errno));
}

class Doctor {
 public:
  Doctor() : json_(Json::object()) {}

  Report examine(bool collect) {
    json_["version"] = ATTNJIT_VERSION;
    if (collect) system();
    nvrtc();
    driver();
    cache();
    remote();
    templates();
    json_["problems"] = Json::array();
    for (const auto& [what, todo] : problems_) {
      json_["problems"].push_back({{"what", what}, {"todo", todo}});
      report_.text += fmt::format("\nmissing: {}\n  {}\n", what, todo);
    }
    if (problems_.empty()) report_.text += "\nnothing is missing\n";
    json_["ok"] = problems_.empty();
    report_.exit_code = problems_.empty() ? 0 : exit_code(ErrorCode::kEnvironment);
    report_.json = to_text(json_);
    if (collect) {  // for others to read: the object, whichever form was asked for
      report_.json = without_home(std::move(report_.json));
      report_.text = report_.json;
    }
    return std::move(report_);
  }

 private:
  void line(const std::string& what, const std::string& found) {
    report_.text += fmt::format("{:<10}{}\n", what, found);
  }
  void problem(const Error& error, const std::string& todo) {
    problems_.emplace_back(error.message, error.hint.empty() ? todo : error.hint);
  }

  void system() {
    for (const auto& [name, value] : system_facts()) json_["system"][name] = value;
    for (const auto& [name, value] : environment_facts()) json_["environment"][name] = value;
  }

  void nvrtc() {
    Json& json = json_["nvrtc"];
    json["found"] = false;
    const std::string todo =
        "install the CUDA toolkit (12.9 or newer) or the wheel nvidia-cuda-nvrtc, or name the "
        "library in ATTNJIT_NVRTC; prewarmed kernels are served without it";
    Result<NvrtcLocation> location = find_nvrtc(default_nvrtc_search({}));
    if (!location) {
      line("nvrtc", "not found");
      return problem(location.error(), todo);
    }
    json["path"] = location->path;
    json["build_id"] = location->build_id;
    json["why"] = location->why;
    Result<std::shared_ptr<const Nvrtc>> library = Nvrtc::open(location->path);
    if (!library) {
      line("nvrtc", location->path + " cannot be opened");
      return problem(library.error(), todo);
    }
    // NOTE: tried, not looked at: its parts may lie anywhere that the dynamic linker looks.
    if (const Status works = (*library)->try_out(); !works) {
      line("nvrtc", location->path + " does not compile");
      return problem(works.error(), todo);
    }
    const std::string version = fmt::format("{}.{}", (*library)->major(), (*library)->minor());
    json["found"] = true;
    json["version"] = version;
    json["archs"] = Json::array();
    for (const ArchTraits& traits : architectures()) {
      Status status = (*library)->supports(traits.arch);
      if (status) {
        json["archs"].push_back(std::string(traits.name));
      } else {
        problem(status.error(), "use a newer NVRTC for this architecture");
      }
    }
    line("nvrtc", fmt::format("{} ({}; {})", version, location->path, location->why));
    if (!json["archs"].empty()) build_id_ = location->build_id;
  }

  void driver() {
    Json& json = json_["driver"];
    json["found"] = false;
    json_["gpus"] = Json::array();
    Result<std::shared_ptr<const Driver>> opened = Driver::open();
    if (!opened) {
      line("driver", "not found");
      return problem(opened.error(),
                     "to launch kernels, install NVIDIA's driver; compiling needs none");
    }
    const int version = (*opened)->version();
    json["found"] = true;
    json["path"] = (*opened)->path();
    json["cuda_version"] = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    line("driver",
         fmt::format("CUDA {}.{} ({})", version / 1000, version % 1000 / 10, (*opened)->path()));
    Result<int> count = device_count(**opened);
    if (!count) return problem(count.error(), "see nvidia-smi");
    if (*count == 0) problems_.emplace_back("there is no GPU", "kernels can be compiled, not run");
    for (int ordinal = 0; ordinal < *count; ++ordinal) {
      Result<DeviceProperties> gpu = device_properties(**opened, ordinal);
      if (!gpu) {
        problem(gpu.error(), "see nvidia-smi");
        continue;
      }
      const std::string arch =
          gpu->arch() ? std::string(to_string(*gpu->arch())) : "no architecture that is supported";
      json_["gpus"].push_back({{"ordinal", ordinal},
                               {"name", gpu->name},
                               {"compute_capability", fmt::format("{}.{}", gpu->major, gpu->minor)},
                               {"arch", gpu->arch() ? Json(arch) : Json()},
                               {"sm_count", gpu->sm_count},
                               {"memory_bytes", gpu->memory_bytes}});
      line("gpu", fmt::format("{}: {}, {}, {} SMs, {:.0f} GiB", ordinal, gpu->name, arch,
                              gpu->sm_count, double(gpu->memory_bytes) / (1 << 30)));
    }
  }

  void cache() {
    Json& json = json_["cache"];
    json["layers"] = Json::array();
    const auto opened = open_command_cache();
    if (!opened) {
      line("cache", "not used");
      return problem(opened.error(), "mend ATTNJIT_TRUST or ATTNJIT_SIGN_KEY");
    }
    const std::vector<CacheLayerInfo> layers = (*opened)->layers();
    if (layers.empty()) {
      line("cache", "none");
      problems_.emplace_back("there is no cache folder",
                             "set ATTNJIT_CACHE_DIR, or HOME, to a folder of your own");
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const CacheLayerInfo& layer = layers[i];
      const bool missing = layer.state == CacheLayerInfo::State::kMissing;
      const std::string cannot = missing && i == 0 ? why_not_made(layer.path) : std::string();
      const bool usable = layer.state == CacheLayerInfo::State::kWritable ||
                          (missing && cannot.empty()) ||
                          (i > 0 && layer.state == CacheLayerInfo::State::kReadOnly);
      const std::string& reason = missing ? cannot : layer.reason;
      json["layers"].push_back({{"path", layer.path},
                                {"usable", usable},
                                {"reason", usable ? "" : reason},
                                {"entries", layer.entries},
                                {"bytes", layer.entry_bytes}});
      line("cache",
           fmt::format("{}: {} kernels, {} bytes{}", layer.path, layer.entries, layer.entry_bytes,
                       !usable   ? "; not used"
                       : missing ? "; not there yet"
                                 : ""));
      if (!usable) {
        problems_.emplace_back(
            fmt::format("the cache layer {} is not used: {}", layer.path, reason),
            "name a folder of your own, mode 0700, in ATTNJIT_CACHE_DIR; kernels are compiled "
            "without one, too, by each process");
      }
    }
    misses(**opened);
  }

  /// Kernels of the cache that the NVRTC at hand would compile again.
  void misses(CubinCache& cache) {
    Json& json = json_["cache"];
    json["misses"] = Json::array();
    const Result<BuildPolicy> policy = with_environment(std::optional<BuildPolicy>());
    if (!policy) return problem(policy.error(), "mend or unset ATTNJIT_NVRTC_POLICY");
    json["nvrtc_policy"] = *policy == BuildPolicy::kAny ? "any" : "exact";
    // Without an NVRTC that compiles, the newest image of a kernel serves.
    if (*policy == BuildPolicy::kAny || build_id_.empty()) return;
    std::set<std::string> served;
    std::map<std::string, std::set<std::string>> others;  // keys by build of NVRTC
    const std::vector<CacheEntryInfo> entries = cache.list();
    for (const CacheEntryInfo& entry : entries) {
      if (entry.build_id == build_id_) served.insert(entry.key);
    }
    for (const CacheEntryInfo& entry : entries) {
      if (!served.contains(entry.key)) others[entry.build_id].insert(entry.key);
    }
    for (const auto& [build, keys] : others) {
      json["misses"].push_back({{"build_id", build}, {"kernels", keys.size()}});
      line("cache", fmt::format("{} kernels would be compiled again: NVRTC {} made them, and the "
                                "one at hand is {}; ATTNJIT_NVRTC_POLICY=any serves them",
                                keys.size(), build.substr(0, 16), build_id_.substr(0, 16)));
    }
  }

  void remote() {
    Result<RemoteOptions> options = with_environment(RemoteOptions{});
    Json& json = json_["remote"];
    if (!options) {
      json["url"] = nullptr;
      json["usable"] = false;
      line("remote", "cannot be used");
      return problem(options.error(), "mend or unset ATTNJIT_REMOTE");
    }
    if (options->url.empty()) {
      json = nullptr;
      return line("remote", "none (ATTNJIT_REMOTE is not set)");
    }
    const cache::RemoteCheck found = cache::check_remote(*options);
    json["url"] = found.url;
    json["library"] = found.library.empty() ? Json() : Json(found.library);
    json["usable"] = found.reachable;
    line("remote", fmt::format("{}{}", found.url, found.reachable ? "" : " does not serve"));
    if (!found.reachable) {
      problem(found.problem, "kernels are compiled and kept on disk without it; see docs/fleet.md");
    }
  }

  void templates() {
    const std::optional<std::string> folder = read_environment().templates;
    Json& json = json_["templates"];
    json["source"] = folder ? *folder : "embedded";
    Result<TemplateSet> set =
        folder ? TemplateSet::from_folder(*folder) : Result<TemplateSet>(TemplateSet::embedded());
    if (!set) {
      line("templates", *folder + " cannot be read");
      return problem(set.error(), "unset ATTNJIT_TEMPLATES to use the embedded ones");
    }
    json["digest"] = set->digest();
    line("templates", fmt::format("{} ({} files, digest {})", folder ? *folder : "embedded",
                                  set->files().size(), set->digest().substr(0, 16)));
  }

  Json json_;
  Report report_;
  std::vector<std::pair<std::string, std::string>> problems_;
  std::string build_id_;  ///< of an NVRTC that compiles; empty: there is none
};

}  // namespace

Result<Report> run_doctor(const DoctorArguments& arguments) {
  return Doctor().examine(arguments.collect);
}

}  // namespace attnjit::cli
