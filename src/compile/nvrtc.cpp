// SPDX-License-Identifier: Apache-2.0
// Opens the NVRTC library, resolves its functions and compiles with them.
#include "compile/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "base/architectures.h"

namespace attnjit {
namespace {

/// A symbol of the library, or null.
template <class Function>
void load(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(dlsym(library, name));
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

/// Loads the builtins library, which NVRTC opens by its bare name when it first compiles: where it
/// is not loaded by then, it is looked for in the dynamic linker's folders, not beside NVRTC.
/// Returns what is missing, for whoever compiles; empty: nothing.
///
/// NOTE: by path, so that neither another release of it that this process has loaded, nor one in
/// LD_LIBRARY_PATH, is taken for it.
std::string load_builtins(const std::string& given, const std::string& real, int major, int minor) {
  const bool alt = real.find("/libnvrtc.alt.", folder_of(real).size() - 1) != std::string::npos;
  const std::string name =
      fmt::format("libnvrtc-builtins{}.so.{}.{}", alt ? ".alt" : "", major, minor);
  constexpr int kMode = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE;
  std::string why;
  // Beside the file itself, else beside the link that was given, else in the linker's folders.
  for (const std::string& path : {folder_of(real) + name, folder_of(given) + name, name}) {
    if (dlopen(path.c_str(), kMode) != nullptr) return {};
    const char* error = dlerror();
    if (why.empty() && error != nullptr) why = error;
  }
  return why;
}

int flow_callback(void* payload, void*) {
  return (*static_cast<const std::function<bool()>*>(payload))() ? 1 : 0;
}

}  // namespace

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open(const std::string& path) {
  // NOTE: never unloaded: NVRTC registers handlers that run when the process ends.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    return make_error(ErrorCode::kEnvironment,
                      fmt::format("cannot open NVRTC: {}", why != nullptr ? why : path), path);
  }
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  Functions& f = nvrtc->call_;
  load(library, "nvrtcVersion", f.version);
  load(library, "nvrtcGetErrorString", f.error_string);
  load(library, "nvrtcGetNumSupportedArchs", f.num_supported_archs);
  load(library, "nvrtcGetSupportedArchs", f.supported_archs);
  load(library, "nvrtcCreateProgram", f.create);
  load(library, "nvrtcDestroyProgram", f.destroy);
  load(library, "nvrtcCompileProgram", f.compile);
  load(library, "nvrtcGetProgramLogSize", f.log_size);
  load(library, "nvrtcGetProgramLog", f.log);
  load(library, "nvrtcGetCUBINSize", f.cubin_size);
  load(library, "nvrtcGetCUBIN", f.cubin);
  load(library, "nvrtcGetPTXSize", f.ptx_size);
  load(library, "nvrtcGetPTX", f.ptx);
  load(library, "nvrtcSetFlowCallback", f.set_flow_callback);
  const bool complete = f.version != nullptr && f.error_string != nullptr &&
                        f.num_supported_archs != nullptr && f.supported_archs != nullptr &&
                        f.create != nullptr && f.destroy != nullptr && f.compile != nullptr &&
                        f.log_size != nullptr && f.log != nullptr && f.cubin_size != nullptr &&
                        f.cubin != nullptr && f.ptx_size != nullptr && f.ptx != nullptr;
  if (!complete) {
    return make_error(ErrorCode::kEnvironment,
                      "not NVRTC, or older than 11.2: functions are missing", path,
                      "install NVRTC 12.9 or newer");
  }
  Dl_info info{};
  char absolute[PATH_MAX];
  const bool known = dladdr(reinterpret_cast<void*>(f.version), &info) != 0 &&
                     info.dli_fname != nullptr && realpath(info.dli_fname, absolute) != nullptr;
  nvrtc->path_ = known ? absolute : path;
  int count = 0;
  if (f.version(&nvrtc->major_, &nvrtc->minor_) != kNvrtcSuccess ||
      f.num_supported_archs(&count) != kNvrtcSuccess || count <= 0 || count > 1000) {
    return make_error(ErrorCode::kEnvironment, "NVRTC does not tell its version", path);
  }
  nvrtc->missing_builtins_ = load_builtins(path, nvrtc->path_, nvrtc->major_, nvrtc->minor_);
  nvrtc->archs_.resize(static_cast<std::size_t>(count));
  if (f.supported_archs(nvrtc->archs_.data()) != kNvrtcSuccess) nvrtc->archs_.clear();
  return std::shared_ptr<const Nvrtc>(std::move(nvrtc));
}

Status Nvrtc::supports(Arch arch) const {
  const int number = traits_of(arch).sm;
  const int least = traits_of(arch).least_nvrtc;
  const bool known = std::find(archs_.begin(), archs_.end(), number) != archs_.end();
  if (known && 1000 * major_ + 10 * minor_ >= least) return {};
  return make_error(
      ErrorCode::kEnvironment,
      fmt::format("NVRTC {}.{} at {} cannot compile for {}; it needs NVRTC {}.{}", major_, minor_,
                  path_, to_string(arch), least / 1000, least % 1000 / 10),
      "arch",
      "name a newer one in ATTNJIT_NVRTC, or install the wheel "
      "nvidia-cuda-nvrtc; attnjit doctor says why this one is taken");
}

bool ran_out_of_memory(const CompileOutput& output) {
  return output.result == kNvrtcOutOfMemory ||
         (output.result != kNvrtcSuccess &&
          (output.log.find(": out of memory") != std::string::npos ||
           output.log.find("Memory allocation failure") != std::string::npos));
}

std::optional<Error> fault_of_environment(const CompileOutput& output) {
  if (ran_out_of_memory(output)) {
    return make_error(ErrorCode::kEnvironment, "the compiler ran out of memory", "nvrtc",
                      "give this process more (ulimit -v, the container's limit), or try again");
  }
  if (output.result == kNvrtcBuiltins) {
    return make_error(ErrorCode::kEnvironment,
                      fmt::format("NVRTC is not complete, or ran out of memory or descriptors "
                                  "({}): {}",
                                  output.result_name, output.log.substr(0, 500)),
                      "nvrtc",
                      "install the whole of NVRTC: libnvrtc-builtins.so beside libnvrtc.so, of the "
                      "same release");
  }
  if (output.result == kNvrtcTimeFile) {
    return make_error(ErrorCode::kEnvironment, "NVRTC cannot write its table of times", "nvrtc");
  }
  return std::nullopt;
}

Status Nvrtc::try_out() const {
  CompileRequest request;
  request.source.name = "empty.cu";
  request.source.text = "extern \"C\" __global__ void empty() {}";
  const CompileOutput output = compile(request, nullptr);
  if (output.result == kNvrtcSuccess) return {};
  if (std::optional<Error> fault = fault_of_environment(output)) return *std::move(fault);
  return make_error(ErrorCode::kEnvironment,
                    fmt::format("NVRTC at {} does not compile an empty kernel: {} ({}): {}", path_,
                                output.result_name, output.result, output.log.substr(0, 500)),
                    "nvrtc");
}

namespace {

/// The source's options, and those that the request's flags ask for.
std::vector<std::string> options_of(const CompileRequest& request) {
  std::vector<std::string> options = request.source.options;
  if (request.line_info) options.emplace_back("-lineinfo");
  if (!request.ptx_only) return options;
  // NOTE: NVRTC ends at the PTX where the architecture is a virtual one.
  constexpr std::string_view kArch = "--gpu-architecture=";
  for (std::string& option : options) {
    const bool real = option.starts_with(std::string(kArch) + "sm_");
    if (real) option.replace(kArch.size(), 3, "compute_");
  }
  return options;
}

}  // namespace

CompileOutput Nvrtc::compile(const CompileRequest& request,
                             const std::function<bool()>& should_stop) const {
  std::vector<std::string> options = options_of(request);
  const std::size_t own = options.size();
  // NOTE: neither of these changes the image (tested), so they are no part of the key. --no-cache:
  // whatever an NVRTC keeps on disk by itself was not verified by attnjit. --time=-: into the log.
  options.insert(options.end(), {"--no-cache", "--time=-"});
  CompileOutput output = run(request, options, should_stop);
  if (output.result == kNvrtcInvalidOption) {
    // An NVRTC that lacks one of the two: once more without.
    options.resize(own);
    output = run(request, options, should_stop);
  }
  return output;
}

CompileOutput Nvrtc::run(const CompileRequest& request, const std::vector<std::string>& options,
                         const std::function<bool()>& should_stop) const {
  CompileOutput output;
  const KernelSource& source = request.source;
  std::vector<const char*> names, texts, arguments;
  for (const SourceFile& header : source.headers) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  for (const std::string& option : options) arguments.push_back(option.c_str());

  Program program = nullptr;
  output.result = call_.create(&program, source.text.c_str(), source.name.c_str(),
                               static_cast<int>(names.size()), texts.data(), names.data());
  if (output.result == kNvrtcSuccess) {
    if (should_stop && call_.set_flow_callback != nullptr) {
      call_.set_flow_callback(program, flow_callback,
                              const_cast<std::function<bool()>*>(&should_stop));
    }
    output.result = call_.compile(program, static_cast<int>(arguments.size()), arguments.data());
    const auto read = [program](int (*get_size)(Program, std::size_t*), int (*get)(Program, char*),
                                auto* out) {
      std::size_t size = 0;
      if (get_size(program, &size) != kNvrtcSuccess || size == 0) return;
      out->resize(size);
      if (get(program, reinterpret_cast<char*>(out->data())) != kNvrtcSuccess) out->clear();
    };
    read(call_.log_size, call_.log, &output.log);
    if (output.result == kNvrtcSuccess) {
      read(call_.cubin_size, call_.cubin, &output.cubin);
      read(call_.ptx_size, call_.ptx, &output.ptx);
    }
    // Both texts are given with their terminating NUL; the log holds one before each of its parts.
    std::erase(output.log, '\0');
    while (!output.ptx.empty() && output.ptx.back() == '\0') output.ptx.pop_back();
    call_.destroy(&program);
  }
  if (output.result == kNvrtcBuiltins && !missing_builtins_.empty()) {
    output.log += fmt::format(" ({})", missing_builtins_);
  }
  const char* name = call_.error_string(output.result);
  output.result_name = name != nullptr ? name : "unknown";
  return output;
}

}  // namespace attnjit
