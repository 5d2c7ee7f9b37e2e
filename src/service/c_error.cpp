// SPDX-License-Identifier: Apache-2.0
// Implements the C ABI's errors.
#include <memory>
#include <new>

#include "service/c_abi.h"

namespace attnjit {
namespace {

constexpr int code_of(ErrorCode code) { return static_cast<int>(code) + 1; }
static_assert(code_of(ErrorCode::kInvalid) == ATTNJIT_INVALID);
static_assert(code_of(ErrorCode::kUnsupported) == ATTNJIT_UNSUPPORTED);
static_assert(code_of(ErrorCode::kEnvironment) == ATTNJIT_ENVIRONMENT);
static_assert(code_of(ErrorCode::kCompileFailed) == ATTNJIT_COMPILE_FAILED);
static_assert(code_of(ErrorCode::kTimeout) == ATTNJIT_TIMEOUT);
static_assert(code_of(ErrorCode::kCancelled) == ATTNJIT_CANCELLED);
static_assert(code_of(ErrorCode::kCompileForbidden) == ATTNJIT_COMPILE_FORBIDDEN);
static_assert(code_of(ErrorCode::kCaptureInProgress) == ATTNJIT_CAPTURE_IN_PROGRESS);
static_assert(code_of(ErrorCode::kForked) == ATTNJIT_FORKED);
static_assert(code_of(ErrorCode::kCorrupt) == ATTNJIT_CORRUPT);
static_assert(code_of(ErrorCode::kIo) == ATTNJIT_IO);
static_assert(code_of(ErrorCode::kDriver) == ATTNJIT_DRIVER);
static_assert(code_of(ErrorCode::kInternal) == ATTNJIT_INTERNAL);

/// The error for which there was no memory. Immutable, and never freed.
attnjit_error* out_of_memory() noexcept {
  static attnjit_error constant{};  // its code is kInternal, its texts are empty
  return &constant;
}

void fill(attnjit_error& out, Error&& error) {
  out.text = error.to_string();
  out.others.resize(error.others.size());
  for (std::size_t i = 0; i < out.others.size(); ++i) {
    fill(out.others[i], std::move(error.others[i]));
  }
  error.others.clear();
  out.error = std::move(error);
}

}  // namespace

attnjit_error* to_c(Error&& error) noexcept {
  try {
    auto out = std::make_unique<attnjit_error>();
    fill(*out, std::move(error));
    return out.release();
  } catch (...) {
    return out_of_memory();
  }
}

}  // namespace attnjit

extern "C" {

int32_t attnjit_error_code(const attnjit_error* error) {
  return error == nullptr ? ATTNJIT_OK : attnjit::code_of(error->error.code);
}
const char* attnjit_error_code_name(const attnjit_error* error) {
  return error == nullptr ? "ok" : attnjit::to_string(error->error.code).data();
}
const char* attnjit_error_message(const attnjit_error* error) {
  return error == nullptr ? "" : error->error.message.c_str();
}
const char* attnjit_error_field(const attnjit_error* error) {
  return error == nullptr ? "" : error->error.field.c_str();
}
const char* attnjit_error_hint(const attnjit_error* error) {
  return error == nullptr ? "" : error->error.hint.c_str();
}
int32_t attnjit_error_line(const attnjit_error* error) {
  return error == nullptr ? 0 : error->error.line;
}
int32_t attnjit_error_column(const attnjit_error* error) {
  return error == nullptr ? 0 : error->error.column;
}
const char* attnjit_error_text(const attnjit_error* error) {
  return error == nullptr ? "" : error->text.c_str();
}
size_t attnjit_error_count_others(const attnjit_error* error) {
  return error == nullptr ? 0 : error->others.size();
}
const attnjit_error* attnjit_error_other(const attnjit_error* error, size_t index) {
  if (error == nullptr || index >= error->others.size()) return nullptr;
  return &error->others[index];
}
void attnjit_error_free(attnjit_error* error) {
  if (error != attnjit::out_of_memory()) delete error;
}

}  // extern "C"
