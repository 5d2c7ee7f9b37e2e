// SPDX-License-Identifier: Apache-2.0
// The C ABI: from C99 in this process, and from Python through the shared library.
#include "c_abi_test.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "attnjit/attnjit.h"
#include "service_fixture.h"
#include "spec/stack_code.h"

extern char** environ;

namespace attnjit {
namespace {

class CAbiTest : public ServiceFixture {
 protected:
  /// A folder that holds the image of c_abi_spec(), or of the kernel that interprets its mask.
  void fill_cache(bool interpreted = false) {
    auto document = spec_from_json(c_abi_spec());
    ASSERT_TRUE(document.ok()) << document.error().to_string();
    document->spec.interpreted = interpreted;
    ServiceOptions cached = options();
    cached.use_disk_cache = true;
    cached.cache_layers = {folder_.path()};
    remake(cached);
    const PreparedSpec spec = prepare(*service_, document->spec);
    const auto compiled = service_->compile(spec, in(seconds(10)));
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    entry_ = spec.plan().main().entry;
    plan_ = spec.plan();
    service_.reset();
  }
  static std::vector<std::size_t> arg_sizes_of(const KernelPlan& plan) {
    std::vector<std::size_t> sizes;
    for (const KernelParameter& parameter : plan.main().parameters) {
      const bool map = parameter.kind == KernelParameter::Kind::kTensorMap;
      const bool word = parameter.kind == KernelParameter::Kind::kI32 ||
                        parameter.kind == KernelParameter::Kind::kF32;
      const bool code = parameter.kind == KernelParameter::Kind::kStruct;
      sizes.push_back(map ? 128 : code ? sizeof(StackCode) : word ? 4 : 8);
    }
    return sizes;
  }
  /// An i32 or f32 argument of the last launch.
  double number_of(const KernelPlan& plan, std::string_view name) {
    for (std::size_t i = 0; i < plan.main().parameters.size(); ++i) {
      if (plan.main().parameters[i].name != name) continue;
      const std::vector<std::uint8_t>& bytes = cuda_.launches.back().args.at(i);
      if (plan.main().parameters[i].kind == KernelParameter::Kind::kF32) {
        float value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
      }
      std::int32_t value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      return value;
    }
    ADD_FAILURE() << "no argument " << name;
    return 0;
  }
  std::string entry_;
  KernelPlan plan_;
};

TEST_F(CAbiTest, Errors) { EXPECT_EQ(c_abi_errors(), 0) << "line of c_abi_test.c"; }

TEST_F(CAbiTest, OlderAndNewerCallers) { EXPECT_EQ(c_abi_versions(), 0) << "line of c_abi_test.c"; }

TEST_F(CAbiTest, TuningTables) { EXPECT_EQ(c_abi_tuning(), 0) << "line of c_abi_test.c"; }

TEST_F(CAbiTest, FromSpecToLaunch) {
  fill_cache();
  cuda_.primary(0);
  EXPECT_EQ(c_abi_launch(folder_.path().c_str(), ATTNJIT_FAKE_CUDA, 0x10000000), 0)
      << "line of c_abi_test.c";
  EXPECT_EQ(cuda_.launches.size(), 4U);
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
}

// The kernel that is launched gets the mask's code by value, and the array's address.
TEST_F(CAbiTest, FromFallbackToLaunch) {
  fill_cache(true);
  cuda_.primary(0);
  constexpr std::uint64_t kMemory = 0x10000000;
  cuda_.kernel_names.clear();
  for (const PlannedKernel& kernel : plan_.kernels) cuda_.kernel_names.push_back(kernel.entry);
  cuda_.arg_sizes_of[entry_] = arg_sizes_of(plan_);
  EXPECT_EQ(c_abi_fallback(folder_.path().c_str(), ATTNJIT_FAKE_CUDA, kMemory), 0)
      << "line of c_abi_test.c";
  std::vector<std::vector<std::vector<std::uint8_t>>> launched;
  for (const auto& launch : cuda_.launches) {
    if (!launch.args.empty()) launched.push_back(launch.args);
  }
  ASSERT_EQ(launched.size(), 2U);
  for (std::size_t n = 0; n < launched.size(); ++n) {
    for (std::size_t i = 0; i < plan_.main().parameters.size(); ++i) {
      const std::string& name = plan_.main().parameters[i].name;
      const std::vector<std::uint8_t>& bytes = launched[n].at(i);
      if (name == "stack_code") {
        StackCode code;
        ASSERT_EQ(bytes.size(), sizeof code);
        std::memcpy(&code, bytes.data(), sizeof code);
        EXPECT_GT(code.mask_end, 5);
        EXPECT_EQ(code.extents[0][0], 500);
      } else if (name == "stack_array_0") {
        std::uint64_t address = 0;
        std::memcpy(&address, bytes.data(), sizeof address);
        EXPECT_EQ(address, kMemory + 0x400000 + 0x1000 * n);
      }
    }
  }
}

// The numbers of masks and score modification: from the list, else from the old fields, else the
// spec's. The kernel's arguments tell which.
TEST_F(CAbiTest, NumbersComeFromTheListOrTheOldFields) {
  cuda_.primary(0);
  ServiceOptions steered = options();
  remake(steered);
  MaskSpec window;
  window.kind = MaskSpec::Kind::kSlidingWindow;
  MaskSpec chunked;
  chunked.kind = MaskSpec::Kind::kChunked;
  MaskSpec constant = window;
  constant.window = 7;
  constant.constant = true;
  MaskSpec last = window;
  last.window = 70;
  AttentionSpec attention = test_spec();
  attention.mask.kind = MaskSpec::Kind::kOr;
  attention.mask.of = {window, constant, chunked, last};
  attention.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  const PreparedSpec spec = prepare(*service_, attention);
  cuda_.arg_sizes = arg_sizes_of(spec.plan());
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const auto* handle = reinterpret_cast<const attnjit_kernel*>(*kernel);

  attnjit_launch_args args{};
  args.struct_size = sizeof args;
  args.q = args.k = args.v = args.o = 0x10000000;
  args.batch = 1;
  args.q_len = args.kv_len = 100;
  attnjit_launch_state* state = nullptr;
  ASSERT_EQ(attnjit_launch_state_create(&state), nullptr);
  using Numbers = std::vector<double>;
  const auto launched = [&]() -> Numbers {
    attnjit_error* error = attnjit_launch(handle, &args, state);
    if (error != nullptr) {
      ADD_FAILURE() << attnjit_error_text(error);
      attnjit_error_free(error);
      return {};
    }
    Numbers numbers;
    for (const char* name : {"window", "chunk", "window_2", "cap"}) {
      numbers.push_back(number_of(spec.plan(), name));
    }
    return numbers;
  };
  args.window = 10;
  args.chunk = 11;
  args.cap = 1.5F;
  EXPECT_EQ(launched(), (Numbers{10, 11, 70, 1.5}));
  args.more_windows[1] = 12;
  EXPECT_EQ(launched(), (Numbers{10, 11, 12, 1.5}));
  // In preorder; the constant window counts. Zeros, and what is past the end, leave the rest.
  const double list[] = {20, 0, 21, 22, 2.5};
  args.scalars = list;
  args.num_scalars = 3;
  EXPECT_EQ(launched(), (Numbers{20, 21, 12, 1.5}));
  args.num_scalars = 5;
  EXPECT_EQ(launched(), (Numbers{20, 21, 22, 2.5}));

  const auto refused = [&](const char* field) {
    attnjit_error* error = attnjit_launch(handle, &args, state);
    EXPECT_EQ(attnjit_error_code(error), ATTNJIT_INVALID);
    EXPECT_STREQ(attnjit_error_field(error), field);
    attnjit_error_free(error);
  };
  const double fraction[] = {1.5};
  args.scalars = fraction;
  args.num_scalars = 1;
  refused("window");
  const double more[] = {1, 1, 1, 1, 1, 1};
  args.scalars = more;
  args.num_scalars = 6;
  refused("scalars");
  args.scalars = nullptr;
  refused("scalars");
  args.num_scalars = 0;
  args.window = 0;
  refused("window");
  // A caller of the version before knows no list.
  args.scalars = more;
  args.num_scalars = 6;
  args.window = 10;
  args.struct_size = offsetof(attnjit_launch_args, scalars);
  EXPECT_EQ(launched(), (Numbers{10, 11, 12, 1.5}));
  attnjit_launch_state_free(state);
}

// What a merge is given, by a caller of this version and of the one before.
TEST_F(CAbiTest, PairsAreMerged) {
  cuda_.primary(0);
  remake(options());
  AttentionSpec attention = test_spec();
  attention.mask = {};
  attention.return_lse = true;
  attention.merge = true;
  const PreparedSpec spec = prepare(*service_, attention);
  cuda_.arg_sizes = arg_sizes_of(spec.plan());
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const auto* handle = reinterpret_cast<const attnjit_kernel*>(*kernel);
  attnjit_launch_args args{};
  args.struct_size = sizeof args;
  args.o = 0x10000000;
  args.lse = 0x20000000;
  args.pairs_o = 0x30000000;
  args.pairs_lse = 0x40000000;
  args.batch = 2;
  args.q_len = 100;
  args.num_pairs = 3;
  attnjit_launch_state* state = nullptr;
  ASSERT_EQ(attnjit_launch_state_create(&state), nullptr);
  attnjit_error* error = attnjit_launch(handle, &args, state);
  ASSERT_EQ(error, nullptr) << attnjit_error_text(error);
  EXPECT_EQ(number_of(spec.plan(), "partitions"), 3);
  EXPECT_EQ(number_of(spec.plan(), "partial_o"), 0x30000000);
  EXPECT_EQ(number_of(spec.plan(), "partial_lse"), 0x40000000);
  const auto refused = [&](const char* field) {
    error = attnjit_launch(handle, &args, state);
    EXPECT_EQ(attnjit_error_code(error), ATTNJIT_INVALID);
    EXPECT_STREQ(attnjit_error_field(error), field);
    attnjit_error_free(error);
  };
  args.pairs_lse = 0;
  refused("pairs_lse");
  args.struct_size = offsetof(attnjit_launch_args, kv_offsets);
  refused("num_pairs");
  attnjit_launch_state_free(state);
}

// A mask that is a tensor, with one row for all, and slopes.
TEST_F(CAbiTest, MasksAndSlopesAreGiven) {
  cuda_.primary(0);
  remake(options());
  AttentionSpec attention = test_spec();
  attention.arch = Arch::kSm90a;
  attention.mask = {};
  attention.mask.kind = MaskSpec::Kind::kMaterialized;
  attention.mask.dtype = Dtype::kU8;
  attention.score_mod = {};
  attention.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  attention.score_mod.slopes = true;
  const PreparedSpec spec = prepare(*service_, attention);
  cuda_.kernel_names = {"attnjit_forward", "attnjit_map"};
  cuda_.arg_sizes = arg_sizes_of(spec.plan());
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const auto* handle = reinterpret_cast<const attnjit_kernel*>(*kernel);
  attnjit_launch_args args{};
  args.struct_size = sizeof args;
  args.q = args.k = args.v = args.o = 0x10000000;
  args.batch = 2;
  args.q_len = 200;
  args.kv_len = 1000;
  args.mask = 0x20000000;
  args.mask_heads = 1;
  args.mask_rows = 1;
  args.mask_strides.batch = 4096;
  args.slopes = 0x30000000;
  args.mask_map = ATTNJIT_MASK_MAP_READ;
  args.kv_num_blocks = 0x40000000;
  args.kv_indices = 0x50000000;
  attnjit_launch_state* state = nullptr;
  ASSERT_EQ(attnjit_launch_state_create(&state), nullptr);
  attnjit_error* error = attnjit_launch(handle, &args, state);
  ASSERT_EQ(error, nullptr) << attnjit_error_text(error);
  EXPECT_EQ(number_of(spec.plan(), "mask"), 0x20000000);
  EXPECT_EQ(number_of(spec.plan(), "slopes"), 0x30000000);
  EXPECT_EQ(number_of(spec.plan(), "mask_batch_bytes"), 4096);
  EXPECT_EQ(number_of(spec.plan(), "mask_head_bytes"), 0);
  EXPECT_EQ(number_of(spec.plan(), "mask_row_bytes"), 0);
  const auto refused = [&](const char* field) {
    error = attnjit_launch(handle, &args, state);
    EXPECT_EQ(attnjit_error_code(error), ATTNJIT_INVALID);
    EXPECT_STREQ(attnjit_error_field(error), field);
    attnjit_error_free(error);
  };
  args.mask_rows = 7;
  refused("mask_rows");
  args.mask_rows = 0;
  args.mask = 0;
  refused("mask");
  args.mask = 0x20000000;
  for (int32_t* reserved : {&args.reserved, &args.reserved2, &args.reserved3}) {
    *reserved = 1;
    refused("args");
    *reserved = 0;
  }
  // A caller of the version before knows no slopes.
  args.struct_size = offsetof(attnjit_launch_args, slopes);
  refused("slopes");
  attnjit_launch_state_free(state);
}

// A map of the mask is asked about, and given to a launch; by a caller of the version before not.
TEST_F(CAbiTest, MapsAreGiven) {
  cuda_.primary(0);
  remake(options());
  AttentionSpec attention = test_spec();
  attention.arch = Arch::kSm90a;
  attention.mask.kind = MaskSpec::Kind::kCustom;
  attention.mask.custom.name = "documents";
  attention.mask.custom.code = "p.doc[q_idx] == p.doc[kv_idx]";
  attention.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
  const PreparedSpec spec = prepare(*service_, attention);
  cuda_.kernel_names = {"attnjit_forward", "attnjit_map"};
  cuda_.arg_sizes = arg_sizes_of(spec.plan());
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const auto* handle = reinterpret_cast<const attnjit_kernel*>(*kernel);
  attnjit_param doc{};
  doc.struct_size = sizeof doc;
  doc.name = "doc";
  doc.type = ATTNJIT_PARAM_I32_ARRAY;
  doc.extent[0] = 1000;
  doc.pointer = 0x50000000;
  attnjit_launch_args args{};
  args.struct_size = sizeof args;
  args.q = args.k = args.v = args.o = 0x10000000;
  args.batch = 2;
  args.q_len = 200;
  args.kv_len = 1000;
  args.params = &doc;
  args.num_params = 1;
  int32_t extents[4] = {};
  attnjit_error* error = attnjit_mask_map_shape(handle, &args, extents);
  ASSERT_EQ(error, nullptr) << attnjit_error_text(error);
  EXPECT_EQ(std::vector<int>(extents, extents + 4), (std::vector{1, 1, 2, 8}));
  args.mask_map = ATTNJIT_MASK_MAP_READ;
  args.map_kv_blocks = 5;
  args.kv_num_blocks = 0x20000000;
  args.kv_indices = 0x30000000;
  attnjit_launch_state* state = nullptr;
  ASSERT_EQ(attnjit_launch_state_create(&state), nullptr);
  error = attnjit_launch(handle, &args, state);
  ASSERT_EQ(error, nullptr) << attnjit_error_text(error);
  EXPECT_EQ(number_of(spec.plan(), "kv_num_blocks"), 0x20000000);
  EXPECT_EQ(number_of(spec.plan(), "kv_indices"), 0x30000000);
  EXPECT_EQ(number_of(spec.plan(), "full_kv_num_blocks"), 0);
  EXPECT_EQ(number_of(spec.plan(), "map_q_blocks"), 2);
  EXPECT_EQ(number_of(spec.plan(), "map_kv_blocks"), 5);
  const auto refused = [&](const char* field) {
    error = attnjit_launch(handle, &args, state);
    EXPECT_EQ(attnjit_error_code(error), ATTNJIT_INVALID);
    EXPECT_STREQ(attnjit_error_field(error), field);
    attnjit_error_free(error);
  };
  args.kv_indices = 0;
  refused("kv_indices");
  args.map_batch = 3;
  refused("mask_map.batch");
  args.mask_map = 3;
  refused("mask_map");
  // A caller of the version before knows no map: one is made in the workspace, which is missing.
  args.struct_size = offsetof(attnjit_launch_args, kv_num_blocks);
  refused("workspace");
  attnjit_launch_state_free(state);
}

TEST_F(CAbiTest, Python) {
  if (*ATTNJIT_SANITIZED != '\0') GTEST_SKIP() << "python3 has no " ATTNJIT_SANITIZED " runtime";
  if (access("/usr/bin/env", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/env";
  fill_cache();
  const std::vector<std::string> arguments = {"/usr/bin/env",  "python3",          "-B",
                                              ATTNJIT_PY_TEST, ATTNJIT_PY_BINDING, ATTNJIT_SHARED,
                                              folder_.path(),  ATTNJIT_FAKE_CUDA,  c_abi_spec()};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // The fake of the other process knows the kernel's name from here.
  setenv("ATTNJIT_FAKE_KERNEL", entry_.c_str(), 1);
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) GTEST_SKIP() << "no python3";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the traceback above";
}

}  // namespace
}  // namespace attnjit
