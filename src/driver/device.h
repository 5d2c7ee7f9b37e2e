// SPDX-License-Identifier: Apache-2.0
// Device: a GPU with its primary context, memory, streams and timing, for whoever runs kernels in
// this process by itself: verify, bench and the GPU tests. A serving runtime brings its own.
//
// Thread rules: a Device makes its context current on the thread that opens it; other threads call
// make_current(). Buffers, streams and events are used by one thread at a time and die before the
// Device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/driver.h"
#include "attnjit/launch.h"
#include "attnjit/result.h"

namespace attnjit {

struct DeviceProperties {
  int ordinal = 0;
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int sm_count = 0;
  int clock_khz = 0;  ///< of the SMs, at most
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  int l2_bytes = 0;
  std::int64_t max_smem_bytes = 0;  ///< opt-in, a CTA
  std::int64_t memory_bytes = 0;

  /// The architecture whose images run on this device; nullopt: none that attnjit knows.
  std::optional<Arch> arch() const;
  DeviceShape shape() const { return {sm_count, max_smem_bytes}; }
};

/// Number of GPUs; 0 without one. Errors: kDriver.
Result<int> device_count(const Driver& driver);
Result<DeviceProperties> device_properties(const Driver& driver, int ordinal);

class Device;

/// Device memory, freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  ~DeviceBuffer() { release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer taken(std::move(other));
    swap(taken);
    return *this;
  }

  DevicePointer pointer() const { return pointer_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  void release();
  void swap(DeviceBuffer& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<const CudaApi> api_;
  DevicePointer pointer_ = 0;
  std::int64_t bytes_ = 0;
};

/// Host memory that kernels reach at the same address, freed with its owner. What they wrote there
/// can be read after an error that no device memory outlives.
class HostBuffer {
 public:
  HostBuffer() = default;
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    HostBuffer taken(std::move(other));
    swap(taken);
    return *this;
  }

  void* data() const { return data_; }
  DevicePointer pointer() const { return reinterpret_cast<DevicePointer>(data_); }

 private:
  friend class Device;
  void swap(HostBuffer& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(data_, other.data_);
  }
  std::shared_ptr<const CudaApi> api_;
  void* data_ = nullptr;
};

/// A non-blocking stream, or (stream() null) the default stream where none was created.
class DeviceStream {
 public:
  DeviceStream() = default;
  ~DeviceStream();
  DeviceStream(DeviceStream&& other) noexcept
      : api_(std::move(other.api_)), stream_(std::exchange(other.stream_, nullptr)) {}
  DeviceStream& operator=(DeviceStream&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  void* stream() const { return stream_; }

 private:
  friend class Device;
  std::shared_ptr<const CudaApi> api_;
  void* stream_ = nullptr;
};

/// A point in a stream that can be timed.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&& other) noexcept
      : api_(std::move(other.api_)), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(event_, other.event_);
    return *this;
  }
  void* event() const { return event_; }

 private:
  friend class Device;
  std::shared_ptr<const CudaApi> api_;
  void* event_ = nullptr;
};

class Device {
 public:
  /// Retains the primary context of a GPU and makes it current. Errors: kEnvironment if there is no
  /// such GPU; kDriver.
  static Result<Device> open(const std::shared_ptr<const Driver>& driver, int ordinal = 0);
  ~Device();
  Device(Device&& other) noexcept;
  Device& operator=(Device&&) = delete;

  const DeviceProperties& properties() const { return properties_; }
  Status make_current() const;

  /// At least 256-byte aligned. 0 bytes: a buffer with a null pointer.
  Result<DeviceBuffer> allocate(std::int64_t bytes) const;
  /// Zeroed. @pre bytes > 0
  Result<HostBuffer> allocate_host(std::int64_t bytes) const;
  Result<std::int64_t> free_bytes() const;

  // Enqueued on the stream; host memory must live until the stream is synchronised.
  Status upload(DevicePointer to, const void* from, std::int64_t bytes,
                void* stream = nullptr) const;
  Status download(void* to, DevicePointer from, std::int64_t bytes, void* stream = nullptr) const;
  Status copy(DevicePointer to, DevicePointer from, std::int64_t bytes,
              void* stream = nullptr) const;
  Status fill(DevicePointer to, std::uint8_t value, std::int64_t bytes,
              void* stream = nullptr) const;

  Result<DeviceStream> create_stream() const;
  /// Waits; reports what a kernel did wrong (kDriver).
  Status synchronize(void* stream) const;
  Status synchronize() const;  ///< the whole context

  Result<DeviceEvent> create_event() const;
  Status record(const DeviceEvent& event, void* stream) const;
  /// Waits for `end`. Milliseconds, GPU clock.
  Result<double> elapsed_ms(const DeviceEvent& begin, const DeviceEvent& end) const;

 private:
  Device(std::shared_ptr<const CudaApi> api, void* context, DeviceProperties properties)
      : api_(std::move(api)), context_(context), properties_(std::move(properties)) {}
  std::shared_ptr<const CudaApi> api_;
  void* context_ = nullptr;
  DeviceProperties properties_;
};

}  // namespace attnjit
