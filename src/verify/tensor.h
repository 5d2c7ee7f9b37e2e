// SPDX-License-Identifier: Apache-2.0
// Tensor: a dense host array with its element type: what inputs, outputs and .npy files are.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/types.h"

namespace attnjit::verify {

/// Row-major and packed; a scalar has an empty shape and one element.
struct Tensor {
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

inline Tensor make_tensor(Dtype dtype, std::vector<std::int64_t> shape) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.bytes.resize(static_cast<std::size_t>(tensor.elements()) *
                      static_cast<std::size_t>(size_of(dtype)));
  return tensor;
}

}  // namespace attnjit::verify
