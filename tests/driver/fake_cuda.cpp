// SPDX-License-Identifier: Apache-2.0
// The shared library behind FakeCuda: every driver function that attnjit uses.
#include "fake_cuda.h"

#include <elf.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <thread>

namespace attnjit::fake {
namespace {

using cuda::Result;

class State final : public FakeCuda {
 public:
  State() { reset(); }

  void reset() override {
    const std::lock_guard lock(mutex);
    calls.clear();
    trace.clear();
    failures.clear();
    fail_nth_call = 0;
    fail_nth_code = 0;
    absent.clear();
    version = 12080;
    shut_down = false;
    devices = {FakeDevice{}};
    // For a process without a test in it: the compute capabilities of its GPUs ("9.0,12.0").
    if (const char* gpus = std::getenv("ATTNJIT_FAKE_GPUS"); gpus != nullptr) {
      devices.clear();
      std::istringstream in(gpus);
      for (std::string gpu; std::getline(in, gpu, ',');) {
        FakeDevice device;
        device.name = "GPU of " + gpu;
        device.major = std::stoi(gpu);
        device.minor = std::stoi(gpu.substr(gpu.find('.') + 1));
        devices.push_back(device);
      }
    }
    // And *: the kernels that each image has.
    const char* name = std::getenv("ATTNJIT_FAKE_KERNEL");
    kernel_names = {name != nullptr ? name : "attnjit_kernel"};
    image_kernels.clear();
    arg_sizes.clear();
    arg_sizes_of.clear();
    contexts.clear();
    contexts.emplace_back();  // handle 0 is null
    streams.clear();
    streams.emplace_back();
    libraries.clear();
    libraries.emplace_back();
    launches.clear();
    encodes.clear();
    moves.clear();
    load_delay_ms = 0;
    initialized_pid = 0;
    set_thread_context(0);
    thread_mode() = cuda::kCaptureModeGlobal;
  }

  cuda::Context create_context(int device) override {
    const std::lock_guard lock(mutex);
    FakeContext context;
    context.id = next_context_id++;
    context.device = device;
    contexts.push_back(context);
    set_thread_context(static_cast<int>(contexts.size()) - 1);
    return handle<cuda::Context>(contexts.size() - 1);
  }
  void destroy_context(cuda::Context context) override {
    const std::lock_guard lock(mutex);
    const int index = index_of(context);
    contexts.at(static_cast<std::size_t>(index)).alive = false;
    for (FakeLibrary& library : libraries) {
      library.contexts.erase(contexts[static_cast<std::size_t>(index)].id);
    }
    if (thread_context() == index) set_thread_context(0);
  }
  void set_current(cuda::Context context) override {
    const std::lock_guard lock(mutex);
    set_thread_context(index_of(context));
  }
  cuda::Context primary(int device) override {
    const std::lock_guard lock(mutex);
    const int index = primary_index(device);
    ++contexts[static_cast<std::size_t>(index)].retained;
    set_thread_context(index);
    return handle<cuda::Context>(static_cast<std::size_t>(index));
  }
  cuda::Stream create_stream() override {
    const std::lock_guard lock(mutex);
    FakeStream stream;
    stream.context = thread_context();
    streams.push_back(stream);
    return handle<cuda::Stream>(streams.size() - 1);
  }
  void begin_capture(cuda::Stream stream, int mode) override {
    const std::lock_guard lock(mutex);
    FakeStream& state = streams.at(static_cast<std::size_t>(index_of(stream)));
    state.capturing = 1;
    state.capture_mode = mode;
    state.capturing_thread = std::this_thread::get_id();
  }
  int end_capture(cuda::Stream stream) override {
    const std::lock_guard lock(mutex);
    FakeStream& state = streams.at(static_cast<std::size_t>(index_of(stream)));
    const int status = state.capturing;
    state.capturing = 0;
    return status;
  }

  std::map<std::size_t, std::vector<std::string>> image_kernels;  // by index of libraries

  // Handles are indices plus a base, so that a null or foreign one is noticed.
  template <class Handle>
  static Handle handle(std::size_t index) {
    return reinterpret_cast<Handle>(kBase + index);
  }
  template <class Handle>
  static int index_of(Handle handle) {
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    return value >= kBase ? static_cast<int>(value - kBase) : 0;
  }

  int primary_index(int device) {
    for (std::size_t i = 1; i < contexts.size(); ++i) {
      if (contexts[i].primary && contexts[i].device == device && contexts[i].alive) {
        return static_cast<int>(i);
      }
    }
    FakeContext context;
    context.id = next_context_id++;
    context.device = device;
    context.primary = true;
    contexts.push_back(context);
    return static_cast<int>(contexts.size()) - 1;
  }

  /// Records a call; the error that it is to return, if any. Called with the mutex held.
  Result enter(const char* name) {
    ++calls[name];
    trace.emplace_back(name);
    if (shut_down) return cuda::kDeinitialized;
    if (initialized_pid != 0 && initialized_pid != getpid()) return cuda::kNotInitialized;
    if (initialized_pid == 0 && std::strcmp(name, "cuInit") != 0 &&
        std::strcmp(name, "cuDriverGetVersion") != 0) {
      return cuda::kNotInitialized;
    }
    if (fail_nth_call > 0 && --fail_nth_call == 0) return fail_nth_code;
    const auto failure = failures.find(name);
    if (failure != failures.end() && --failure->second.first == 0) {
      const Result code = failure->second.second;
      failures.erase(failure);
      return code;
    }
    return cuda::kSuccess;
  }

  /// A call that may not be made while something captures, unless the thread is relaxed.
  Result unsafe_call() {
    if (thread_mode() == cuda::kCaptureModeRelaxed) return cuda::kSuccess;
    Result result = cuda::kSuccess;
    for (FakeStream& stream : streams) {
      const bool mine = stream.capturing_thread == std::this_thread::get_id();
      if (stream.capturing != 1 || stream.capture_mode == cuda::kCaptureModeRelaxed ||
          (stream.capture_mode == cuda::kCaptureModeThreadLocal && !mine)) {
        continue;
      }
      stream.capturing = 2;  // invalidated
      result = cuda::kCaptureUnsupported;
    }
    return result;
  }

  FakeContext* current() {
    const int index = thread_context();
    return index == 0 ? nullptr : &contexts[static_cast<std::size_t>(index)];
  }

  static int& thread_mode() {
    thread_local int mode = cuda::kCaptureModeGlobal;
    return mode;
  }
  static std::vector<int>& thread_contexts() {
    thread_local std::vector<int> stack;
    return stack;
  }
  static int thread_context() { return thread_contexts().empty() ? 0 : thread_contexts().back(); }
  static void set_thread_context(int index) {
    if (!thread_contexts().empty()) thread_contexts().pop_back();
    if (index != 0) thread_contexts().push_back(index);
  }

  pid_t initialized_pid = 0;
  unsigned long long next_context_id = 1;

 private:
  static constexpr std::uintptr_t kBase = 0x1000;
};

State& state() {
  // NOTE: never destroyed: tests call the fake after main, as a driver that has shut down.
  static State* instance = new State;
  return *instance;
}

#define FAKE_ENTER(NAME)                \
  State& s = state();                   \
  const std::unique_lock lock(s.mutex); \
  if (const Result entered = s.enter(NAME); entered != cuda::kSuccess) return entered

struct ErrorRow {
  Result code;
  const char* name;
  const char* text;
};
constexpr ErrorRow kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};

Result get_error_name(Result code, const char** name) {
  for (const ErrorRow& row : kErrors) {
    if (row.code == code) return *name = row.name, cuda::kSuccess;
  }
  return cuda::kInvalidValue;
}
Result get_error_string(Result code, const char** text) {
  for (const ErrorRow& row : kErrors) {
    if (row.code == code) return *text = row.text, cuda::kSuccess;
  }
  return cuda::kInvalidValue;
}

Result init(unsigned) {
  FAKE_ENTER("cuInit");
  s.initialized_pid = getpid();
  return cuda::kSuccess;
}
Result driver_get_version(int* version) {
  FAKE_ENTER("cuDriverGetVersion");
  *version = s.version;
  return cuda::kSuccess;
}
Result device_get_count(int* count) {
  FAKE_ENTER("cuDeviceGetCount");
  *count = static_cast<int>(s.devices.size());
  return cuda::kSuccess;
}
Result device_get(cuda::Device* device, int ordinal) {
  FAKE_ENTER("cuDeviceGet");
  *device = ordinal;
  return cuda::kSuccess;
}
Result device_get_name(char* name, int size, cuda::Device device) {
  FAKE_ENTER("cuDeviceGetName");
  std::strncpy(name, s.devices.at(static_cast<std::size_t>(device)).name.c_str(),
               static_cast<std::size_t>(size) - 1);
  return cuda::kSuccess;
}
Result device_get_attribute(int* value, int attribute, cuda::Device device) {
  FAKE_ENTER("cuDeviceGetAttribute");
  const FakeDevice& fake = s.devices.at(static_cast<std::size_t>(device));
  switch (attribute) {
    case cuda::kAttributeComputeCapabilityMajor:
      *value = fake.major;
      return cuda::kSuccess;
    case cuda::kAttributeComputeCapabilityMinor:
      *value = fake.minor;
      return cuda::kSuccess;
    case cuda::kAttributeMultiprocessorCount:
      *value = fake.sm_count;
      return cuda::kSuccess;
    case cuda::kAttributeMaxSharedMemoryPerBlockOptin:
      *value = fake.max_smem;
      return cuda::kSuccess;
    default:
      *value = 1;
      return cuda::kSuccess;
  }
}
Result device_total_mem(std::size_t* bytes, cuda::Device) {
  FAKE_ENTER("cuDeviceTotalMem");
  *bytes = std::size_t{1} << 30;
  return cuda::kSuccess;
}
Result primary_retain(cuda::Context* context, cuda::Device device) {
  FAKE_ENTER("cuDevicePrimaryCtxRetain");
  const auto index = static_cast<std::size_t>(s.primary_index(device));
  ++s.contexts[index].retained;
  *context = State::handle<cuda::Context>(index);
  return cuda::kSuccess;
}
Result primary_release(cuda::Device device) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease");
  FakeContext& context = s.contexts[static_cast<std::size_t>(s.primary_index(device))];
  if (context.retained == 0) return cuda::kInvalidContext;
  if (--context.retained == 0) {
    context.alive = false;
    for (FakeLibrary& library : s.libraries) library.contexts.erase(context.id);
  }
  return cuda::kSuccess;
}
Result primary_state(cuda::Device device, unsigned* flags, int* active) {
  FAKE_ENTER("cuDevicePrimaryCtxGetState");
  *flags = 0;
  *active = 0;
  for (const FakeContext& context : s.contexts) {
    if (context.primary && context.alive && context.device == device) *active = 1;
  }
  return cuda::kSuccess;
}
Result ctx_get_current(cuda::Context* context) {
  FAKE_ENTER("cuCtxGetCurrent");
  const int index = State::thread_context();
  *context = index == 0 ? nullptr : State::handle<cuda::Context>(static_cast<std::size_t>(index));
  return cuda::kSuccess;
}
Result ctx_set_current(cuda::Context context) {
  FAKE_ENTER("cuCtxSetCurrent");
  State::set_thread_context(State::index_of(context));
  return cuda::kSuccess;
}
Result ctx_push_current(cuda::Context context) {
  FAKE_ENTER("cuCtxPushCurrent");
  const int index = State::index_of(context);
  if (index == 0 || !s.contexts[static_cast<std::size_t>(index)].alive) {
    return cuda::kInvalidContext;
  }
  State::thread_contexts().push_back(index);
  return cuda::kSuccess;
}
Result ctx_pop_current(cuda::Context* context) {
  FAKE_ENTER("cuCtxPopCurrent");
  if (State::thread_contexts().empty()) return cuda::kInvalidContext;
  *context = State::handle<cuda::Context>(static_cast<std::size_t>(State::thread_context()));
  State::thread_contexts().pop_back();
  return cuda::kSuccess;
}
Result ctx_get_device(cuda::Device* device) {
  FAKE_ENTER("cuCtxGetDevice");
  const FakeContext* context = s.current();
  if (context == nullptr) return cuda::kInvalidContext;
  *device = context->device;
  return cuda::kSuccess;
}
Result ctx_get_id(cuda::Context handle, unsigned long long* id) {
  FAKE_ENTER("cuCtxGetId");
  const FakeContext& context = s.contexts[static_cast<std::size_t>(State::index_of(handle))];
  if (!context.alive) return cuda::kContextIsDestroyed;
  *id = context.id;
  return cuda::kSuccess;
}
Result ctx_synchronize() {
  FAKE_ENTER("cuCtxSynchronize");
  return s.unsafe_call();
}
Result mem_alloc(cuda::DevicePtr* pointer, std::size_t bytes) {
  FAKE_ENTER("cuMemAlloc");
  if (const Result code = s.unsafe_call(); code != cuda::kSuccess) return code;
  *pointer = reinterpret_cast<cuda::DevicePtr>(::operator new (bytes, std::align_val_t{256}));
  return cuda::kSuccess;
}
Result mem_free(cuda::DevicePtr pointer) {
  // Freed though it fails: an error here may be that of an earlier launch.
  ::operator delete (reinterpret_cast<void*>(pointer), std::align_val_t{256});
  FAKE_ENTER("cuMemFree");
  return cuda::kSuccess;
}
Result mem_host_alloc(void** pointer, std::size_t bytes, unsigned) {
  FAKE_ENTER("cuMemHostAlloc");
  *pointer = ::operator new (bytes, std::align_val_t{256});
  return cuda::kSuccess;
}
Result mem_free_host(void* pointer) {
  ::operator delete (pointer, std::align_val_t{256});
  FAKE_ENTER("cuMemFreeHost");
  return cuda::kSuccess;
}
Result mem_get_info(std::size_t* free, std::size_t* total) {
  FAKE_ENTER("cuMemGetInfo");
  *free = *total = std::size_t{1} << 30;
  return cuda::kSuccess;
}
Result memcpy_htod(cuda::DevicePtr to, const void* from, std::size_t bytes, cuda::Stream) {
  FAKE_ENTER("cuMemcpyHtoDAsync");
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return cuda::kSuccess;
}
Result memcpy_dtoh(void* to, cuda::DevicePtr from, std::size_t bytes, cuda::Stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync");
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return cuda::kSuccess;
}
Result memcpy_dtod(cuda::DevicePtr to, cuda::DevicePtr from, std::size_t bytes, cuda::Stream) {
  FAKE_ENTER("cuMemcpyDtoDAsync");
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return cuda::kSuccess;
}
Result memset_d8(cuda::DevicePtr to, unsigned char value, std::size_t bytes, cuda::Stream) {
  FAKE_ENTER("cuMemsetD8Async");
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return cuda::kSuccess;
}
Result stream_create(cuda::Stream* stream, unsigned) {
  FAKE_ENTER("cuStreamCreate");
  FakeStream fake;
  fake.context = State::thread_context();
  s.streams.push_back(fake);
  *stream = State::handle<cuda::Stream>(s.streams.size() - 1);
  return cuda::kSuccess;
}
Result stream_destroy(cuda::Stream) {
  FAKE_ENTER("cuStreamDestroy");
  return cuda::kSuccess;
}
Result stream_synchronize(cuda::Stream) {
  FAKE_ENTER("cuStreamSynchronize");
  return cuda::kSuccess;
}
Result stream_get_ctx(cuda::Stream stream, cuda::Context* context) {
  FAKE_ENTER("cuStreamGetCtx");
  const int index = stream == nullptr
                        ? State::thread_context()
                        : s.streams.at(static_cast<std::size_t>(State::index_of(stream))).context;
  *context = index == 0 ? nullptr : State::handle<cuda::Context>(static_cast<std::size_t>(index));
  if (index != 0 && !s.contexts[static_cast<std::size_t>(index)].alive) {
    return cuda::kContextIsDestroyed;
  }
  return cuda::kSuccess;
}
Result stream_is_capturing(cuda::Stream stream, int* status) {
  FAKE_ENTER("cuStreamIsCapturing");
  if (stream == nullptr) {
    *status = 0;
    for (const FakeStream& other : s.streams) {
      if (other.capturing == 1) return cuda::kCaptureImplicit;
    }
    return cuda::kSuccess;
  }
  *status = s.streams.at(static_cast<std::size_t>(State::index_of(stream))).capturing;
  return cuda::kSuccess;
}
Result stream_begin_capture(cuda::Stream, int) {
  FAKE_ENTER("cuStreamBeginCapture");
  return cuda::kNotSupported;
}
Result stream_end_capture(cuda::Stream, cuda::Graph*) {
  FAKE_ENTER("cuStreamEndCapture");
  return cuda::kNotSupported;
}
Result exchange_capture_mode(int* mode) {
  FAKE_ENTER("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, State::thread_mode());
  return cuda::kSuccess;
}
Result graph_instantiate(cuda::GraphExec*, cuda::Graph, unsigned long long) {
  return cuda::kNotSupported;
}
Result graph_launch(cuda::GraphExec, cuda::Stream) { return cuda::kNotSupported; }
Result graph_exec_destroy(cuda::GraphExec) { return cuda::kNotSupported; }
Result graph_destroy(cuda::Graph) { return cuda::kNotSupported; }
Result event_create(cuda::Event* event, unsigned) {
  FAKE_ENTER("cuEventCreate");
  *event = State::handle<cuda::Event>(1);
  return cuda::kSuccess;
}
Result event_destroy(cuda::Event) {
  FAKE_ENTER("cuEventDestroy");
  return cuda::kSuccess;
}
Result event_record(cuda::Event, cuda::Stream) {
  FAKE_ENTER("cuEventRecord");
  return cuda::kSuccess;
}
Result event_synchronize(cuda::Event) {
  FAKE_ENTER("cuEventSynchronize");
  return cuda::kSuccess;
}
Result event_elapsed(float* ms, cuda::Event, cuda::Event) {
  FAKE_ENTER("cuEventElapsedTime");
  *ms = 1.5F;
  return cuda::kSuccess;
}

// The kernels of a cubin: symbols that are marked as entries.
std::vector<std::string> kernels_of(const std::uint8_t* image) {
  constexpr unsigned char kEntry = 0x10;  // STO_CUDA_ENTRY
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), image + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  std::vector<std::string> names;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const std::uint64_t strings = sections.at(section.sh_link).sh_offset;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, image + section.sh_offset + at, sizeof symbol);
      if ((symbol.st_other & kEntry) == 0) continue;
      names.emplace_back(reinterpret_cast<const char*>(image + strings + symbol.st_name));
    }
  }
  return names;
}
// The names that a library's kernels go by.
const std::vector<std::string>& names_of(State& s, std::size_t library) {
  return s.kernel_names.front() == "*" ? s.image_kernels[library] : s.kernel_names;
}

Result library_load(cuda::Library* library, const void* code, int*, void**, unsigned, int*, void**,
                    unsigned) {
  int delay = 0;
  {
    FAKE_ENTER("cuLibraryLoadData");
    if (const Result unsafe = s.unsafe_call(); unsafe != cuda::kSuccess) return unsafe;
    FakeLibrary fake;
    const auto* bytes = static_cast<const std::uint8_t*>(code);
    fake.head.assign(bytes, bytes + 16);
    if (s.kernel_names.front() == "*") s.image_kernels[s.libraries.size()] = kernels_of(bytes);
    s.libraries.push_back(fake);
    *library = State::handle<cuda::Library>(s.libraries.size() - 1);
    delay = s.load_delay_ms;
  }
  if (delay > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  return cuda::kSuccess;
}
Result library_unload(cuda::Library library) {
  FAKE_ENTER("cuLibraryUnload");
  FakeLibrary& fake = s.libraries.at(static_cast<std::size_t>(State::index_of(library)));
  if (!fake.loaded) return cuda::kInvalidHandle;
  fake.loaded = false;
  return s.unsafe_call();
}
// A kernel's handle: its library's index, and above it the kernel's among the names.
constexpr std::size_t kLibraries = std::size_t{1} << 20;
template <class Handle>
std::size_t library_index(Handle kernel) {
  return static_cast<std::size_t>(State::index_of(kernel)) % kLibraries;
}
template <class Handle>
std::size_t kernel_index(Handle kernel) {
  return static_cast<std::size_t>(State::index_of(kernel)) / kLibraries;
}

Result library_get_kernel(cuda::KernelHandle* kernel, cuda::Library library, const char* name) {
  FAKE_ENTER("cuLibraryGetKernel");
  const auto& names = names_of(s, static_cast<std::size_t>(State::index_of(library)));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != name) continue;
    *kernel = State::handle<cuda::KernelHandle>(static_cast<std::size_t>(State::index_of(library)) +
                                                i * kLibraries);
    return cuda::kSuccess;
  }
  return cuda::kNotFound;
}
Result library_get_kernel_count(unsigned* count, cuda::Library library) {
  FAKE_ENTER("cuLibraryGetKernelCount");
  const auto& names = names_of(s, static_cast<std::size_t>(State::index_of(library)));
  *count = static_cast<unsigned>(names.size());
  return cuda::kSuccess;
}
Result kernel_get_function(cuda::Function* function, cuda::KernelHandle kernel) {
  FAKE_ENTER("cuKernelGetFunction");
  if (const Result unsafe = s.unsafe_call(); unsafe != cuda::kSuccess) return unsafe;
  const FakeContext* context = s.current();
  if (context == nullptr) return cuda::kInvalidContext;
  if (!context->alive) return cuda::kContextIsDestroyed;
  s.libraries.at(library_index(kernel)).contexts.insert(context->id);
  *function = reinterpret_cast<cuda::Function>(kernel);
  return cuda::kSuccess;
}
Result func_load(cuda::Function) {
  FAKE_ENTER("cuFuncLoad");
  return s.unsafe_call();
}
Result kernel_set_attribute(int attribute, int value, cuda::KernelHandle kernel,
                            cuda::Device device) {
  FAKE_ENTER("cuKernelSetAttribute");
  if (attribute == cuda::kFunctionMaxDynamicSharedSizeBytes) {
    if (value > s.devices.at(static_cast<std::size_t>(device)).max_smem) {
      return cuda::kInvalidValue;
    }
    FakeLibrary& library = s.libraries.at(library_index(kernel));
    library.max_dynamic_smem_of[{kernel_index(kernel), device}] = value;
    if (kernel_index(kernel) == 0) library.max_dynamic_smem[device] = value;
  }
  return cuda::kSuccess;
}
Result launch_kernel(const cuda::LaunchConfig* config, cuda::Function function, void** args,
                     void**) {
  FAKE_ENTER("cuLaunchKernelEx");
  const int stream_index = State::index_of(config->stream);
  FakeStream& stream = s.streams.at(static_cast<std::size_t>(stream_index));
  const int context_index = config->stream == nullptr ? State::thread_context() : stream.context;
  if (context_index == 0) return cuda::kInvalidContext;
  const FakeContext& context = s.contexts[static_cast<std::size_t>(context_index)];
  if (!context.alive) return cuda::kContextIsDestroyed;
  FakeLibrary& library = s.libraries.at(library_index(function));
  if (!library.loaded) return cuda::kInvalidHandle;
  if (library.contexts.count(context.id) == 0) {
    // Lazy loading: allowed, but not while the stream captures.
    if (stream.capturing == 1) {
      stream.capturing = 2;
      return cuda::kCaptureUnsupported;
    }
    library.contexts.insert(context.id);
  }
  if (config->grid_x == 0 || config->grid_y == 0 || config->grid_z == 0) {
    return cuda::kInvalidValue;
  }
  if (config->dynamic_smem > 49152 &&
      static_cast<int>(config->dynamic_smem) >
          library.max_dynamic_smem_of[{kernel_index(function), context.device}]) {
    return cuda::kInvalidValue;
  }
  FakeLaunch launch;
  launch.config = *config;
  if (config->num_attributes > 0) launch.attribute = config->attributes[0];
  launch.function = function;
  launch.kernel = names_of(s, library_index(function)).at(kernel_index(function));
  const auto other = s.arg_sizes_of.find(launch.kernel);
  const std::vector<std::size_t>& sizes =
      other == s.arg_sizes_of.end() ? s.arg_sizes : other->second;
  launch.context_id = context.id;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto* bytes = static_cast<const std::uint8_t*>(args[i]);
    launch.args.emplace_back(bytes, bytes + sizes[i]);
  }
  // A benchmark launches more often than a test wants to remember.
  if (s.launches.size() < 10000) s.launches.push_back(std::move(launch));
  return cuda::kSuccess;
}
Result encode_tiled(cuda::TensorMap* map, int type, std::uint32_t rank, void* address,
                    const std::uint64_t* dims, const std::uint64_t* strides,
                    const std::uint32_t* box, const std::uint32_t* element_strides, int interleave,
                    int swizzle, int l2, int oob) {
  FAKE_ENTER("cuTensorMapEncodeTiled");
  FakeEncode encode;
  encode.type = type;
  encode.address = reinterpret_cast<std::uint64_t>(address);
  encode.dims.assign(dims, dims + rank);
  encode.strides.assign(strides, strides + rank - 1);
  encode.box.assign(box, box + rank);
  encode.element_strides.assign(element_strides, element_strides + rank);
  encode.interleave = interleave;
  encode.swizzle = swizzle;
  encode.l2_promotion = l2;
  encode.oob = oob;
  if (encode.address == 0 || encode.address % 16 != 0) return cuda::kInvalidValue;
  for (const std::uint64_t dim : encode.dims) {
    if (dim == 0 || dim > (std::uint64_t{1} << 32)) return cuda::kInvalidValue;
  }
  std::memset(map, 0, sizeof *map);
  map->opaque[0] = encode.address;
  map->opaque[1] = rank;
  for (std::uint32_t i = 0; i < rank; ++i) map->opaque[2 + i] = dims[i];
  s.encodes.push_back(std::move(encode));
  return cuda::kSuccess;
}
Result replace_address(cuda::TensorMap* map, void* address) {
  FAKE_ENTER("cuTensorMapReplaceAddress");
  s.moves.emplace_back(map->opaque[0], reinterpret_cast<std::uint64_t>(address));
  map->opaque[0] = reinterpret_cast<std::uint64_t>(address);
  return cuda::kSuccess;
}

struct Export {
  const char* name;
  void* address;
};
template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

const Export kExports[] = {
    {"cuGetErrorName", address_of(get_error_name)},
    {"cuGetErrorString", address_of(get_error_string)},
    {"cuInit", address_of(init)},
    {"cuDriverGetVersion", address_of(driver_get_version)},
    {"cuDeviceGetCount", address_of(device_get_count)},
    {"cuDeviceGet", address_of(device_get)},
    {"cuDeviceGetName", address_of(device_get_name)},
    {"cuDeviceGetAttribute", address_of(device_get_attribute)},
    {"cuDeviceTotalMem", address_of(device_total_mem)},
    {"cuDevicePrimaryCtxRetain", address_of(primary_retain)},
    {"cuDevicePrimaryCtxRelease", address_of(primary_release)},
    {"cuDevicePrimaryCtxGetState", address_of(primary_state)},
    {"cuCtxGetCurrent", address_of(ctx_get_current)},
    {"cuCtxSetCurrent", address_of(ctx_set_current)},
    {"cuCtxPushCurrent", address_of(ctx_push_current)},
    {"cuCtxPopCurrent", address_of(ctx_pop_current)},
    {"cuCtxGetDevice", address_of(ctx_get_device)},
    {"cuCtxGetId", address_of(ctx_get_id)},
    {"cuCtxSynchronize", address_of(ctx_synchronize)},
    {"cuMemAlloc", address_of(mem_alloc)},
    {"cuMemFree", address_of(mem_free)},
    {"cuMemHostAlloc", address_of(mem_host_alloc)},
    {"cuMemFreeHost", address_of(mem_free_host)},
    {"cuMemGetInfo", address_of(mem_get_info)},
    {"cuMemcpyHtoDAsync", address_of(memcpy_htod)},
    {"cuMemcpyDtoHAsync", address_of(memcpy_dtoh)},
    {"cuMemcpyDtoDAsync", address_of(memcpy_dtod)},
    {"cuMemsetD8Async", address_of(memset_d8)},
    {"cuStreamCreate", address_of(stream_create)},
    {"cuStreamDestroy", address_of(stream_destroy)},
    {"cuStreamSynchronize", address_of(stream_synchronize)},
    {"cuStreamGetCtx", address_of(stream_get_ctx)},
    {"cuStreamIsCapturing", address_of(stream_is_capturing)},
    {"cuStreamBeginCapture", address_of(stream_begin_capture)},
    {"cuStreamEndCapture", address_of(stream_end_capture)},
    {"cuThreadExchangeStreamCaptureMode", address_of(exchange_capture_mode)},
    {"cuGraphInstantiateWithFlags", address_of(graph_instantiate)},
    {"cuGraphLaunch", address_of(graph_launch)},
    {"cuGraphExecDestroy", address_of(graph_exec_destroy)},
    {"cuGraphDestroy", address_of(graph_destroy)},
    {"cuEventCreate", address_of(event_create)},
    {"cuEventDestroy", address_of(event_destroy)},
    {"cuEventRecord", address_of(event_record)},
    {"cuEventSynchronize", address_of(event_synchronize)},
    {"cuEventElapsedTime", address_of(event_elapsed)},
    {"cuLibraryLoadData", address_of(library_load)},
    {"cuLibraryUnload", address_of(library_unload)},
    {"cuLibraryGetKernel", address_of(library_get_kernel)},
    {"cuLibraryGetKernelCount", address_of(library_get_kernel_count)},
    {"cuKernelGetFunction", address_of(kernel_get_function)},
    {"cuFuncLoad", address_of(func_load)},
    {"cuKernelSetAttribute", address_of(kernel_set_attribute)},
    {"cuLaunchKernelEx", address_of(launch_kernel)},
    {"cuTensorMapEncodeTiled", address_of(encode_tiled)},
    {"cuTensorMapReplaceAddress", address_of(replace_address)},
};

}  // namespace
}  // namespace attnjit::fake

extern "C" ATTNJIT_EXPORT attnjit::fake::FakeCuda* attnjit_fake_cuda() {
  return &attnjit::fake::state();
}

// The launches and the encoded tensor maps as lines, for a process without a test in it:
//   launch NAME STREAM
//   encode ADDRESS DIM.. / STRIDE..
// The text belongs to the fake and is another one after the next call.
extern "C" ATTNJIT_EXPORT const char* attnjit_fake_report() {
  static std::string text;
  attnjit::fake::State& s = attnjit::fake::state();
  const std::lock_guard lock(s.mutex);
  std::ostringstream out;
  for (const attnjit::fake::FakeLaunch& launch : s.launches) {
    out << "launch " << launch.kernel << " "
        << reinterpret_cast<std::uintptr_t>(launch.config.stream) << "\n";
  }
  for (const attnjit::fake::FakeEncode& encode : s.encodes) {
    out << "encode " << encode.address;
    for (const std::uint64_t dim : encode.dims) out << " " << dim;
    out << " /";
    for (const std::uint64_t stride : encode.strides) out << " " << stride;
    out << "\n";
  }
  text = out.str();
  return text.c_str();
}

extern "C" ATTNJIT_EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                  std::uint64_t, int* status) {
  attnjit::fake::State& s = attnjit::fake::state();
  const std::lock_guard lock(s.mutex);
  *function = nullptr;
  *status = 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
  if (s.absent.count(symbol) != 0) return attnjit::cuda::kNotFound;
  if (version > s.version) {
    *status = 2;  // CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
    return attnjit::cuda::kNotFound;
  }
  for (const attnjit::fake::Export& known : attnjit::fake::kExports) {
    if (std::strcmp(known.name, symbol) != 0) continue;
    *function = known.address;
    *status = 0;
    return attnjit::cuda::kSuccess;
  }
  return attnjit::cuda::kNotFound;
}
