// SPDX-License-Identifier: Apache-2.0
// Implements the C ABI's services, specs, kernels and images.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/service.h"
#include "base/longest_time.h"
#include "service/c_abi.h"

struct attnjit_service {
  std::unique_ptr<attnjit::Service> service;
};
struct attnjit_spec {
  attnjit::PreparedSpec spec;
};
struct attnjit_image {
  attnjit::CompiledKernel kernel;
};

namespace attnjit {
namespace {

static_assert(static_cast<int>(Outcome::kMemory) == ATTNJIT_OUTCOME_MEMORY);
static_assert(static_cast<int>(Outcome::kDisk) == ATTNJIT_OUTCOME_DISK);
static_assert(static_cast<int>(Outcome::kRemote) == ATTNJIT_OUTCOME_REMOTE);
static_assert(static_cast<int>(Outcome::kCompiled) == ATTNJIT_OUTCOME_COMPILED);

std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : text; }

std::vector<std::string> split_layers(std::string_view layers) {
  std::vector<std::string> folders;
  while (!layers.empty()) {
    const std::size_t end = std::min(layers.find(':'), layers.size());
    if (end > 0) folders.emplace_back(layers.substr(0, end));
    layers.remove_prefix(std::min(end + 1, layers.size()));
  }
  return folders;
}

/// An event with the texts that it refers to.
class EventForC {
 public:
  explicit EventForC(const CompileEvent& event) : key_(event.key), arch_(to_string(event.arch)) {
    if (event.error != nullptr) message_ = event.error->to_string();
    out_.struct_size = sizeof out_;
    out_.key = key_.c_str();
    out_.arch = arch_.c_str();
    out_.compile_ms = event.compile_ms;
    out_.failed = event.error != nullptr ? 1 : 0;
    out_.message = message_.c_str();
    if (event.image == nullptr) return;
    out_.registers = event.image->usage.registers;
    out_.spill_bytes = event.image->usage.spill_bytes;
    out_.cubin_bytes = static_cast<int64_t>(event.image->cubin.size());
  }

  const attnjit_compile_event& get() const { return out_; }

 private:
  std::string key_, arch_, message_;
  attnjit_compile_event out_{};
};

Result<ServiceOptions> options_from_c(const attnjit_service_options* given) {
  ServiceOptions options;
  if (given == nullptr) return options;
  attnjit_service_options in{};
  if (Status read = read_struct(given, "options", in); !read) return std::move(read).error();
  if (in.reserved != 0 || in.reserved2 != 0) {
    return make_error(ErrorCode::kInvalid, "options.reserved is not zero", "options");
  }
  if (in.cache_max_bytes < 0) {
    return make_error(ErrorCode::kInvalid, "options.cache_max_bytes is negative",
                      "cache_max_bytes");
  }
  options.cache_layers = split_layers(text_or_empty(in.cache_layers));
  options.use_disk_cache = in.no_disk_cache == 0;
  options.forbid_compile = in.forbid_compile != 0;
  options.compile_in_helper = in.compile_in_helper != 0;
  options.accept_unconfined_helper = in.accept_unconfined_helper != 0;
  options.compile_threads = in.compile_threads;
  options.compile_fallbacks = in.compile_fallbacks != 0;
  options.nvtx_ranges = in.nvtx_ranges != 0;
  if (in.any_build != 0) options.build_policy = BuildPolicy::kAny;
  if (in.cache_max_bytes > 0) options.cache_max_bytes = in.cache_max_bytes;
  if (in.failure_ttl_s != 0) {
    options.failure_ttl = std::chrono::seconds(std::max<std::int64_t>(in.failure_ttl_s, 0));
  }
  options.nvrtc_path = text_or_empty(in.nvrtc_path);
  options.driver_path = text_or_empty(in.driver_path);
  options.helper_path = text_or_empty(in.helper_path);
  options.templates_folder = text_or_empty(in.templates_folder);
  if (in.remote != nullptr) {
    options.remote.url = in.remote;
    options.use_remote = *in.remote != '\0';
  }
  if (in.remote_budget_ms < 0) {
    return make_error(ErrorCode::kInvalid, "options.remote_budget_ms is negative",
                      "remote_budget_ms");
  }
  if (in.remote_budget_ms > 0) {
    options.remote.lookup_budget = std::chrono::milliseconds(in.remote_budget_ms);
  }
  if (in.tuning != nullptr) {
    Result<Tuning> tuning = tuning_from_json(in.tuning);
    if (!tuning) {
      Error error = std::move(tuning).error();
      error.field = error.field.empty() ? "tuning" : "tuning: " + error.field;
      return error;
    }
    options.tuning = std::make_shared<const Tuning>(*std::move(tuning));
  }
  if (in.log != nullptr) {
    options.log = [log = in.log, context = in.log_context](LogLevel level, std::string_view text) {
      log(context, static_cast<int32_t>(level), text.data(), text.size());
    };
  }
  if (in.on_compile != nullptr) {
    options.on_compile = [call = in.on_compile,
                          context = in.on_compile_context](const CompileEvent& event) {
      const EventForC out(event);
      call(context, &out.get());
    };
  }
  return options;
}

Compiler::Deadline deadline_of(int64_t timeout_ms) {
  using std::chrono::milliseconds;
  const milliseconds limit = timeout_ms < 0 ? milliseconds::max() : milliseconds(timeout_ms);
  return std::chrono::steady_clock::now() + bounded(limit);
}

const attnjit_kernel* handle_of(const Kernel* kernel) {
  return reinterpret_cast<const attnjit_kernel*>(kernel);
}

}  // namespace
}  // namespace attnjit

using attnjit::guarded;
using attnjit::null_argument;
using attnjit::Status;

extern "C" {

const char* attnjit_version(void) { return ATTNJIT_VERSION; }
uint32_t attnjit_abi_version(void) { return ATTNJIT_ABI_VERSION; }

attnjit_error* attnjit_service_create(const attnjit_service_options* options,
                                      attnjit_service** service) {
  if (service != nullptr) *service = nullptr;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    auto converted = attnjit::options_from_c(options);
    if (!converted) return std::move(converted).error();
    auto created = attnjit::Service::create(*std::move(converted));
    if (!created) return std::move(created).error();
    *service = new attnjit_service{*std::move(created)};
    return {};
  });
}

void attnjit_service_destroy(attnjit_service* service) { delete service; }

attnjit_error* attnjit_service_statistics(const attnjit_service* service,
                                          attnjit_statistics* statistics) {
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (statistics == nullptr) return null_argument("statistics");
    const attnjit::ServiceStatistics now = service->service->statistics();
    attnjit_statistics out{};
    out.memory_hits = now.memory_hits;
    out.disk_hits = now.disk_hits;
    out.remote_hits = now.remote_hits;
    out.compiles = now.compiles;
    out.failures = now.failures;
    out.waits = now.waits;
    out.quarantined = now.quarantined;
    out.queued = now.queued;
    out.compile_ms_total = now.compile_ms_total;
    out.fallbacks = now.fallbacks;
    return attnjit::write_struct(out, "statistics", statistics);
  });
}

attnjit_error* attnjit_service_prometheus(const attnjit_service* service, char* text,
                                          size_t capacity, size_t* length) {
  if (length != nullptr) *length = 0;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (length == nullptr) return null_argument("length");
    if (text == nullptr && capacity > 0) return null_argument("text");
    const std::string all = attnjit::to_prometheus(service->service->statistics());
    if (capacity > 0) {
      const std::size_t fits = std::min(all.size(), capacity - 1);
      std::memcpy(text, all.data(), fits);
      text[fits] = '\0';
    }
    *length = all.size();
    return {};
  });
}

attnjit_error* attnjit_service_flush(attnjit_service* service, int64_t timeout_ms,
                                     int32_t* flushed) {
  if (flushed != nullptr) *flushed = 0;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    const bool done = service->service->flush(attnjit::deadline_of(timeout_ms));
    if (flushed != nullptr) *flushed = done ? 1 : 0;
    return {};
  });
}

attnjit_error* attnjit_spec_prepare(attnjit_service* service, const char* json, size_t length,
                                    attnjit_spec** spec) {
  if (spec != nullptr) *spec = nullptr;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (json == nullptr) return null_argument("json");
    if (spec == nullptr) return null_argument("spec");
    const std::string_view text =
        length == SIZE_MAX ? std::string_view(json) : std::string_view(json, length);
    auto prepared = service->service->prepare(text);
    if (!prepared) return std::move(prepared).error();
    *spec = new attnjit_spec{*std::move(prepared)};
    return {};
  });
}

const char* attnjit_spec_key(const attnjit_spec* spec) {
  return spec == nullptr ? "" : spec->spec.key().hex.c_str();
}

void attnjit_spec_free(attnjit_spec* spec) { delete spec; }

attnjit_error* attnjit_spec_partitions(const attnjit_spec* spec, int32_t batch, int32_t q_len,
                                       int32_t kv_len, int32_t total_q, int32_t sm_count,
                                       int32_t* partitions) {
  if (partitions != nullptr) *partitions = 0;
  return guarded([&]() -> Status {
    if (spec == nullptr) return null_argument("spec");
    if (partitions == nullptr) return null_argument("partitions");
    const std::pair<const char*, int32_t> numbers[] = {{"batch", batch},
                                                       {"q_len", q_len},
                                                       {"kv_len", kv_len},
                                                       {"total_q", total_q},
                                                       {"sm_count", sm_count}};
    for (const auto& [name, number] : numbers) {
      if (number >= 0) continue;
      return attnjit::make_error(attnjit::ErrorCode::kInvalid,
                                 "is " + std::to_string(number) + "; 0 and more is allowed", name);
    }
    attnjit::LaunchShapes shapes;
    shapes.batch = batch;
    shapes.q_len = q_len;
    shapes.kv_len = kv_len;
    shapes.total_q = total_q;
    attnjit::DeviceShape device;
    device.sm_count = sm_count;
    *partitions = attnjit::launch_partitions(spec->spec.plan(), shapes, device);
    return {};
  });
}

attnjit_error* attnjit_get(attnjit_service* service, const attnjit_spec* spec, int64_t timeout_ms,
                           void* stream, const attnjit_kernel** kernel) {
  if (kernel != nullptr) *kernel = nullptr;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (spec == nullptr) return null_argument("spec");
    if (kernel == nullptr) return null_argument("kernel");
    const auto got = service->service->get(spec->spec, attnjit::deadline_of(timeout_ms), stream);
    if (!got) return got.error();
    *kernel = attnjit::handle_of(*got);
    return {};
  });
}

const attnjit_kernel* attnjit_find(const attnjit_service* service, const attnjit_spec* spec) {
  if (service == nullptr || spec == nullptr) return nullptr;
  return attnjit::handle_of(service->service->find(spec->spec));
}

attnjit_error* attnjit_try_get(attnjit_service* service, const attnjit_spec* spec,
                               const attnjit_kernel** kernel) {
  if (kernel != nullptr) *kernel = nullptr;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (spec == nullptr) return null_argument("spec");
    if (kernel == nullptr) return null_argument("kernel");
    const auto got = service->service->try_get(spec->spec);
    if (!got) return got.error();
    *kernel = attnjit::handle_of(*got);
    return {};
  });
}

attnjit_error* attnjit_get_or_fallback(attnjit_service* service, const attnjit_spec* spec,
                                       void* stream, const attnjit_kernel** kernel,
                                       int32_t* is_fallback) {
  if (kernel != nullptr) *kernel = nullptr;
  if (is_fallback != nullptr) *is_fallback = 0;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (spec == nullptr) return null_argument("spec");
    if (kernel == nullptr) return null_argument("kernel");
    const auto served = service->service->get_or_fallback(spec->spec, stream);
    if (!served) return served.error();
    *kernel = attnjit::handle_of(served->kernel);
    if (is_fallback != nullptr) *is_fallback = served->fallback ? 1 : 0;
    return {};
  });
}

attnjit_error* attnjit_compile(attnjit_service* service, const attnjit_spec* spec,
                               int64_t timeout_ms, int32_t want_ptx, attnjit_image** image) {
  if (image != nullptr) *image = nullptr;
  return guarded([&]() -> Status {
    if (service == nullptr) return null_argument("service");
    if (spec == nullptr) return null_argument("spec");
    if (image == nullptr) return null_argument("image");
    auto compiled = service->service->compile(
        spec->spec, attnjit::deadline_of(timeout_ms),
        want_ptx != 0 ? attnjit::PtxNeed::kRequired : attnjit::PtxNeed::kSkip);
    if (!compiled) return std::move(compiled).error();
    *image = new attnjit_image{*std::move(compiled)};
    return {};
  });
}

attnjit_error* attnjit_image_get_info(const attnjit_image* image, attnjit_image_info* info) {
  return guarded([&]() -> Status {
    if (image == nullptr) return null_argument("image");
    if (info == nullptr) return null_argument("info");
    const attnjit::CompiledKernel& kernel = image->kernel;
    attnjit_image_info out{};
    out.cubin = kernel.image->cubin.data();
    out.cubin_bytes = kernel.image->cubin.size();
    out.ptx = kernel.image->ptx.c_str();
    out.ptx_bytes = kernel.image->ptx.size();
    out.outcome = static_cast<int32_t>(kernel.outcome);
    out.registers = kernel.image->usage.registers;
    out.spill_bytes = kernel.image->usage.spill_bytes;
    out.stack_bytes = kernel.image->usage.stack_bytes;
    out.static_smem_bytes = kernel.image->usage.static_smem_bytes;
    out.compile_ms = kernel.compile_ms;
    out.total_ms = kernel.total_ms;
    out.nvrtc_version = kernel.image->nvrtc_version.c_str();
    return attnjit::write_struct(out, "info", info);
  });
}

void attnjit_image_free(attnjit_image* image) { delete image; }

}  // extern "C"
