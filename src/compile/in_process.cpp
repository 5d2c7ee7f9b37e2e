// SPDX-License-Identifier: Apache-2.0
// The compiler in this process: for code that attnjit printed itself.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "attnjit/compile.h"
#include "compile/check_output.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"

namespace attnjit {
namespace {

class InProcessCompiler final : public Compiler {
 public:
  explicit InProcessCompiler(std::string path) : locator_(default_nvrtc_search(std::move(path))) {}

  Result<std::string> build_id() override {
    if (Status same = same_process(); !same) return std::move(same).error();
    {
      // NOTE: once the library is open, what is on disk does not matter any more.
      const std::lock_guard<std::mutex> lock(mutex_);
      if (nvrtc_) return location_.build_id;
    }
    Result<NvrtcLocation> location = locator_.locate();
    if (!location) return std::move(location).error();
    return std::move(location->build_id);
  }

  Result<KernelImage> compile(const CompileRequest& request, Deadline deadline) override {
    if (request.source.trusted) {
      return make_error(ErrorCode::kInvalid, "trusted code compiles in the helper process only");
    }
    if (Status valid = check_request(request); !valid) return std::move(valid).error();
    Result<std::shared_ptr<const Nvrtc>> nvrtc = open();
    if (!nvrtc) return std::move(nvrtc).error();
    if (Status supported = (*nvrtc)->supports(request.source.arch); !supported) {
      return std::move(supported).error();
    }
    const auto late = [deadline] { return std::chrono::steady_clock::now() >= deadline; };
    if (cancelled_) return cancelled();
    if (late()) return too_late();
    const auto start = std::chrono::steady_clock::now();
    CompileOutput output = (*nvrtc)->compile(request, [&] { return cancelled_.load() || late(); });
    if (cancelled_) return cancelled();
    // NOTE: an image that came after the deadline is given all the same: it is paid for, and the
    // caller's cache keeps it.
    if (output.result == kNvrtcCancelled) return too_late();
    Result<KernelImage> image = check_output(request, std::move(output));
    if (!image) return image;
    if (image->nvrtc_version.empty()) {
      image->nvrtc_version = fmt::format("{}.{}", (*nvrtc)->major(), (*nvrtc)->minor());
    }
    image->times.total_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return image;
  }

  void cancel() override { cancelled_ = true; }

 private:
  static Error cancelled() {
    return make_error(ErrorCode::kCancelled, "the compile was cancelled");
  }
  static Error too_late() {
    return make_error(ErrorCode::kTimeout, "the deadline passed before the compile ended");
  }

  /// NOTE: NVRTC has locks of its own; a fork that happens while another thread compiles leaves
  /// them held in the child for ever.
  Status same_process() const {
    if (getpid() == process_) return {};
    return make_error(ErrorCode::kForked,
                      "this process is a fork of the one that made the compiler", {},
                      "make a new one after fork");
  }

  Result<std::shared_ptr<const Nvrtc>> open() {
    if (Status same = same_process(); !same) return std::move(same).error();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!nvrtc_) {
      Result<NvrtcLocation> location = locator_.locate();
      if (!location) return std::move(location).error();
      Result<std::shared_ptr<const Nvrtc>> opened = Nvrtc::open(location->path);
      if (!opened) return opened;
      nvrtc_ = *std::move(opened);
      location_ = *std::move(location);
    }
    return nvrtc_;
  }

  const pid_t process_ = getpid();
  NvrtcLocator locator_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;  ///< guards what follows; never held during a compile
  std::shared_ptr<const Nvrtc> nvrtc_;
  NvrtcLocation location_;  ///< of nvrtc_
};

}  // namespace

std::unique_ptr<Compiler> make_in_process_compiler(std::string nvrtc_path) {
  return std::make_unique<InProcessCompiler>(std::move(nvrtc_path));
}

}  // namespace attnjit
