// SPDX-License-Identifier: Apache-2.0
// Reads the values of custom parameters from the command line and from .npy files.
#include "verify/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "spec/spec_fields.h"
#include "verify/npy.h"
#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

template <class T>
Result<Tensor> parse_integer(std::string_view text, Dtype dtype, const std::string& field) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [at, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || at != end) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("'{}' is not an integer that {} holds", text.substr(0, 64), to_string(dtype)),
        field);
  }
  Tensor tensor = make_tensor(dtype, {});
  *tensor.as<T>() = value;
  return tensor;
}

Result<Tensor> parse_scalar(std::string_view text, ParamSpec::Type type, const std::string& field) {
  const char* end = text.data() + text.size();
  if (type == ParamSpec::Type::kF32) {
    float value = 0;
    const auto [at, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc{} || at != end) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("'{}' is not a number that f32 holds", text.substr(0, 64)),
                        field);
    }
    Tensor tensor = make_tensor(Dtype::kF32, {});
    *tensor.as<float>() = value;
    return tensor;
  }
  if (type == ParamSpec::Type::kU32) return parse_integer<std::uint32_t>(text, Dtype::kU32, field);
  return parse_integer<std::int32_t>(text, Dtype::kI32, field);
}

/// Integers of 64 bits, each of which T holds.
template <class T>
Result<Tensor> narrowed(const Tensor& tensor, Dtype want, const std::string& field) {
  Tensor result = make_tensor(want, tensor.shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t value = tensor.as<std::int64_t>()[i];
    if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
      return make_error(
          ErrorCode::kInvalid,
          fmt::format("element {} is {}, which {} does not hold", i, value, to_string(want)),
          field);
    }
    result.as<T>()[i] = static_cast<T>(value);
  }
  return result;
}

}  // namespace

Result<Tensor> converted(Tensor tensor, Dtype want, const std::string& field) {
  if (tensor.dtype == want) return tensor;
  Tensor result = make_tensor(want, tensor.shape);
  const std::int64_t count = tensor.elements();
  if (want == Dtype::kF32 && tensor.dtype == Dtype::kF64) {
    for (std::int64_t i = 0; i < count; ++i) {
      result.as<float>()[i] = static_cast<float>(tensor.as<double>()[i]);
    }
    return result;
  }
  if (want == Dtype::kI32 && tensor.dtype == Dtype::kI64) {
    return narrowed<std::int32_t>(tensor, want, field);
  }
  if (want == Dtype::kU32 && tensor.dtype == Dtype::kI64) {
    return narrowed<std::uint32_t>(tensor, want, field);
  }
  // .npy has no bf16: files hold wider floats, and are rounded.
  if (want == Dtype::kBf16 && tensor.dtype == Dtype::kF32) {
    for (std::int64_t i = 0; i < count; ++i) store_float(result, i, tensor.as<float>()[i]);
    return result;
  }
  return make_error(ErrorCode::kInvalid,
                    fmt::format("the file holds {}; the spec declares {}", to_string(tensor.dtype),
                                to_string(want)),
                    field);
}

Result<ParamArgument> parse_param(std::string_view text, const std::vector<ParamSpec>& declared) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("'{}' is not NAME=VALUE or NAME=@FILE.npy", text.substr(0, 64)),
                      "param");
  }
  ParamArgument argument;
  argument.name = std::string(text.substr(0, equals));
  const std::string field = "param " + argument.name.substr(0, 64);
  const std::string_view value = text.substr(equals + 1);
  const auto found = std::find_if(declared.begin(), declared.end(), [&](const ParamSpec& param) {
    return param.name == argument.name;
  });
  if (found == declared.end()) {
    std::string names;
    for (const ParamSpec& param : declared) names += (names.empty() ? "" : ", ") + param.name;
    return make_error(ErrorCode::kInvalid,
                      names.empty() ? "the spec declares no parameters"
                                    : "the spec declares no such parameter; it has " + names,
                      field);
  }
  const spec::ParamShape shape = spec::shape_of(found->type);
  const auto rank = static_cast<std::size_t>(shape.rank);
  if (value.empty() || value[0] != '@') {
    if (rank != 0) {
      return make_error(ErrorCode::kInvalid, "an array is given as @FILE.npy", field);
    }
    Result<Tensor> scalar = parse_scalar(value, found->type, field);
    if (!scalar) return std::move(scalar).error();
    argument.value = std::move(*scalar);
    return argument;
  }
  Result<Tensor> tensor = read_npy(std::string(value.substr(1)));
  if (!tensor) {
    Error error = std::move(tensor).error();
    error.message = error.field + ": " + error.message;
    error.field = field;
    return error;
  }
  if (tensor->shape.size() != rank) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("the file has rank {}; the spec declares rank {}", tensor->shape.size(), rank),
        field);
  }
  Result<Tensor> right = converted(std::move(*tensor), shape.element, field);
  if (!right) return std::move(right).error();
  argument.value = std::move(*right);
  return argument;
}

}  // namespace attnjit::verify
