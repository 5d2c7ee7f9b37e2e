// SPDX-License-Identifier: Apache-2.0
// Lists GPUs and their properties, and owns a GPU's memory, streams and events.
#include "driver/device.h"

#include <fmt/format.h>
#include <cstring>

#include "base/architectures.h"
#include "driver/cuda_api.h"

namespace attnjit {
namespace {

Status check(const CudaApi& api, cuda::Result code, std::string_view what) {
  if (code == cuda::kSuccess) return {};
  return cuda_error(api, code, what);
}

cuda::Stream stream_of(void* stream) { return static_cast<cuda::Stream>(stream); }
cuda::Event event_of(void* event) { return static_cast<cuda::Event>(event); }

}  // namespace

std::optional<Arch> DeviceProperties::arch() const {
  for (const ArchTraits& traits : architectures()) {
    if (traits.sm == 10 * major + minor) return traits.arch;
  }
  return std::nullopt;
}

Result<int> device_count(const Driver& driver) {
  int count = 0;
  const cuda::Result code = driver.api().DeviceGetCount(&count);
  if (code == cuda::kNoDevice) return 0;
  if (code != cuda::kSuccess) return cuda_error(driver.api(), code, "cuDeviceGetCount");
  return count;
}

Result<DeviceProperties> device_properties(const Driver& driver, int ordinal) {
  const CudaApi& api = driver.api();
  const Result<int> count = device_count(driver);
  if (!count) return count.error();
  if (ordinal < 0 || ordinal >= *count) {
    return make_error(ErrorCode::kEnvironment,
                      fmt::format("there is no GPU {}: {} found", ordinal, *count), {},
                      "check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  DeviceProperties properties;
  properties.ordinal = ordinal;
  cuda::Device device = 0;
  if (Status got = check(api, api.DeviceGet(&device, ordinal), "cuDeviceGet"); !got) {
    return std::move(got).error();
  }
  char name[256] = {};
  if (Status got = check(api, api.DeviceGetName(name, sizeof name, device), "cuDeviceGetName");
      !got) {
    return std::move(got).error();
  }
  properties.name = name;
  std::size_t memory = 0;
  if (Status got = check(api, api.DeviceTotalMem(&memory, device), "cuDeviceTotalMem"); !got) {
    return std::move(got).error();
  }
  properties.memory_bytes = static_cast<std::int64_t>(memory);
  int max_smem = 0;
  struct Attribute {
    int which;
    int* into;
  };
  for (const Attribute& attribute :
       {Attribute{cuda::kAttributeComputeCapabilityMajor, &properties.major},
        Attribute{cuda::kAttributeComputeCapabilityMinor, &properties.minor},
        Attribute{cuda::kAttributeMultiprocessorCount, &properties.sm_count},
        Attribute{cuda::kAttributeClockRate, &properties.clock_khz},
        Attribute{cuda::kAttributeMemoryClockRate, &properties.memory_clock_khz},
        Attribute{cuda::kAttributeGlobalMemoryBusWidth, &properties.memory_bus_bits},
        Attribute{cuda::kAttributeL2CacheSize, &properties.l2_bytes},
        Attribute{cuda::kAttributeMaxSharedMemoryPerBlockOptin, &max_smem}}) {
    if (Status got = check(api, api.DeviceGetAttribute(attribute.into, attribute.which, device),
                           "cuDeviceGetAttribute");
        !got) {
      return std::move(got).error();
    }
  }
  properties.max_smem_bytes = max_smem;
  return properties;
}

void DeviceBuffer::release() {
  if (pointer_ != 0) (void)api_->MemFree(pointer_);
  pointer_ = 0;
  bytes_ = 0;
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) (void)api_->MemFreeHost(data_);
}

DeviceStream::~DeviceStream() {
  if (stream_ != nullptr) (void)api_->StreamDestroy(stream_of(stream_));
}

DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) (void)api_->EventDestroy(event_of(event_));
}

Result<Device> Device::open(const std::shared_ptr<const Driver>& driver, int ordinal) {
  auto properties = device_properties(*driver, ordinal);
  if (!properties) return std::move(properties).error();
  std::shared_ptr<const CudaApi> api = driver->share();
  cuda::Context context = nullptr;
  if (Status got =
          check(*api, api->DevicePrimaryCtxRetain(&context, ordinal), "cuDevicePrimaryCtxRetain");
      !got) {
    return std::move(got).error();
  }
  Device device(std::move(api), context, *std::move(properties));
  if (Status current = device.make_current(); !current) return std::move(current).error();
  return device;
}

Device::Device(Device&& other) noexcept
    : api_(std::move(other.api_)),
      context_(std::exchange(other.context_, nullptr)),
      properties_(std::move(other.properties_)) {}

Device::~Device() {
  if (context_ == nullptr) return;
  cuda::Context current = nullptr;
  if (api_->CtxGetCurrent(&current) == cuda::kSuccess && current == context_) {
    (void)api_->CtxSetCurrent(nullptr);
  }
  (void)api_->DevicePrimaryCtxRelease(properties_.ordinal);
}

Status Device::make_current() const {
  return check(*api_, api_->CtxSetCurrent(static_cast<cuda::Context>(context_)), "cuCtxSetCurrent");
}

Result<DeviceBuffer> Device::allocate(std::int64_t bytes) const {
  DeviceBuffer buffer;
  if (bytes < 0) {
    return make_error(ErrorCode::kInvalid, fmt::format("cannot allocate {} bytes", bytes));
  }
  if (bytes == 0) return buffer;
  cuda::DevicePtr pointer = 0;
  const cuda::Result code = api_->MemAlloc(&pointer, static_cast<std::size_t>(bytes));
  if (code != cuda::kSuccess) {
    return cuda_error(*api_, code, fmt::format("cuMemAlloc({} bytes)", bytes));
  }
  buffer.api_ = api_;
  buffer.pointer_ = pointer;
  buffer.bytes_ = bytes;
  return buffer;
}

Result<HostBuffer> Device::allocate_host(std::int64_t bytes) const {
  constexpr unsigned kMapped = 2;  // CU_MEMHOSTALLOC_DEVICEMAP
  HostBuffer buffer;
  const auto size = static_cast<std::size_t>(bytes);
  const cuda::Result code = api_->MemHostAlloc(&buffer.data_, size, kMapped);
  if (code != cuda::kSuccess) {
    buffer.data_ = nullptr;
    return cuda_error(*api_, code, fmt::format("cuMemHostAlloc({} bytes)", bytes));
  }
  buffer.api_ = api_;
  std::memset(buffer.data_, 0, size);
  return buffer;
}

Result<std::int64_t> Device::free_bytes() const {
  std::size_t free = 0, total = 0;
  const cuda::Result code = api_->MemGetInfo(&free, &total);
  if (code != cuda::kSuccess) return cuda_error(*api_, code, "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

Status Device::upload(DevicePointer to, const void* from, std::int64_t bytes, void* stream) const {
  if (bytes == 0) return {};
  return check(*api_,
               api_->MemcpyHtoDAsync(to, from, static_cast<std::size_t>(bytes), stream_of(stream)),
               "cuMemcpyHtoDAsync");
}

Status Device::download(void* to, DevicePointer from, std::int64_t bytes, void* stream) const {
  if (bytes == 0) return {};
  return check(*api_,
               api_->MemcpyDtoHAsync(to, from, static_cast<std::size_t>(bytes), stream_of(stream)),
               "cuMemcpyDtoHAsync");
}

Status Device::copy(DevicePointer to, DevicePointer from, std::int64_t bytes, void* stream) const {
  if (bytes == 0) return {};
  return check(*api_,
               api_->MemcpyDtoDAsync(to, from, static_cast<std::size_t>(bytes), stream_of(stream)),
               "cuMemcpyDtoDAsync");
}

Status Device::fill(DevicePointer to, std::uint8_t value, std::int64_t bytes, void* stream) const {
  if (bytes == 0) return {};
  return check(*api_,
               api_->MemsetD8Async(to, value, static_cast<std::size_t>(bytes), stream_of(stream)),
               "cuMemsetD8Async");
}

Result<DeviceStream> Device::create_stream() const {
  cuda::Stream created = nullptr;
  const cuda::Result code = api_->StreamCreate(&created, cuda::kStreamNonBlocking);
  if (code != cuda::kSuccess) return cuda_error(*api_, code, "cuStreamCreate");
  DeviceStream stream;
  stream.api_ = api_;
  stream.stream_ = created;
  return stream;
}

Status Device::synchronize(void* stream) const {
  return check(*api_, api_->StreamSynchronize(stream_of(stream)), "cuStreamSynchronize");
}

Status Device::synchronize() const {
  return check(*api_, api_->CtxSynchronize(), "cuCtxSynchronize");
}

Result<DeviceEvent> Device::create_event() const {
  cuda::Event created = nullptr;
  const cuda::Result code = api_->EventCreate(&created, 0);
  if (code != cuda::kSuccess) return cuda_error(*api_, code, "cuEventCreate");
  DeviceEvent event;
  event.api_ = api_;
  event.event_ = created;
  return event;
}

Status Device::record(const DeviceEvent& event, void* stream) const {
  return check(*api_, api_->EventRecord(event_of(event.event_), stream_of(stream)),
               "cuEventRecord");
}

Result<double> Device::elapsed_ms(const DeviceEvent& begin, const DeviceEvent& end) const {
  if (Status done =
          check(*api_, api_->EventSynchronize(event_of(end.event_)), "cuEventSynchronize");
      !done) {
    return std::move(done).error();
  }
  float ms = 0;
  const cuda::Result code =
      api_->EventElapsedTime(&ms, event_of(begin.event_), event_of(end.event_));
  if (code != cuda::kSuccess) return cuda_error(*api_, code, "cuEventElapsedTime");
  return static_cast<double>(ms);
}

}  // namespace attnjit
