// SPDX-License-Identifier: Apache-2.0
// What the C ABI's functions share: errors as objects, and structs whose size the caller gives.
//
// Thread rules: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/attnjit.h"
#include "attnjit/result.h"
#include "base/no_throw.h"

struct attnjit_error {
  attnjit::Error error;
  std::string text;
  std::vector<attnjit_error> others;
};

namespace attnjit {

/// The caller's error object; never null. Where there is no memory for one, a constant one.
attnjit_error* to_c(Error&& error) noexcept;

/// Runs a function that returns a Status, and gives C its error.
template <class Function>
attnjit_error* guarded(Function&& function) noexcept {
  Status status = no_throw(std::forward<Function>(function));
  return status ? nullptr : to_c(std::move(status).error());
}

/// Reads a struct of the caller's version: what it lacks is zero, what it has beyond ours must be.
/// `in` is not null. Errors: kInvalid.
template <class Struct>
Status read_struct(const Struct* in, const char* name, Struct& out) {
  const std::size_t size = in->struct_size;
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  if (size < sizeof(std::size_t) || size > 65536) {
    return make_error(ErrorCode::kInvalid,
                      std::string(name) + ".struct_size is " + std::to_string(size), name,
                      "set it to sizeof the struct");
  }
  for (std::size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] != 0) {
      return make_error(ErrorCode::kInvalid,
                        std::string(name) +
                            " has a field that this library does not know, set "
                            "to other than zero",
                        name, "the library is older than the caller: update it");
    }
  }
  out = Struct{};
  std::memcpy(&out, bytes, std::min(size, sizeof(Struct)));
  return {};
}

/// Writes as much of a struct as the caller's version has; struct_size stays the caller's. Beyond
/// what this library knows, zeros.
template <class Struct>
Status write_struct(Struct value, const char* name, Struct* out) {
  const std::size_t size = out->struct_size;
  if (size < sizeof(std::size_t) || size > 65536) {
    return make_error(ErrorCode::kInvalid,
                      std::string(name) + ".struct_size is " + std::to_string(size), name,
                      "set it to sizeof the struct");
  }
  value.struct_size = size;
  std::memcpy(out, &value, std::min(size, sizeof(Struct)));
  if (size > sizeof(Struct)) {
    std::memset(reinterpret_cast<unsigned char*>(out) + sizeof(Struct), 0, size - sizeof(Struct));
  }
  return {};
}

inline Error null_argument(const char* name) {
  return make_error(ErrorCode::kInvalid, std::string(name) + " is NULL", name);
}

}  // namespace attnjit
