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
  /// A kernel that is to be launched with args_.
  void load(const AttentionSpec& attention) {
    cuda_.primary(0);
    remake(options());
    const PreparedSpec spec = prepare(*service_, attention);
    plan_ = spec.plan();
    cuda_.kernel_names.clear();
    for (const PlannedKernel& kernel : plan_.kernels) cuda_.kernel_names.push_back(kernel.entry);
    cuda_.arg_sizes = arg_sizes_of(plan_);
    const auto kernel = service_->get(spec, in(seconds(10)));
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    kernel_ = reinterpret_cast<const attnjit_kernel*>(*kernel);
    ASSERT_EQ(attnjit_launch_state_create(&state_), nullptr);
    args_.struct_size = sizeof args_;
  }
  void TearDown() override { attnjit_launch_state_free(state_); }
  void expect_launched() {
    attnjit_error* const error = attnjit_launch(kernel_, &args_, state_);
    EXPECT_EQ(error, nullptr) << attnjit_error_text(error);
    attnjit_error_free(error);
  }
  void expect_refused(const char* field) {
    attnjit_error* const error = attnjit_launch(kernel_, &args_, state_);
    EXPECT_EQ(attnjit_error_code(error), ATTNJIT_INVALID);
    EXPECT_STREQ(attnjit_error_field(error), field);
    attnjit_error_free(error);
  }
  /// An i32 or f32 argument of the last launch.
  double number_of(std::string_view name) {
    const std::vector<KernelParameter>& parameters = plan_.main().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name != name) continue;
      const std::vector<std::uint8_t>& bytes = cuda_.launches.back().args.at(i);
      if (parameters[i].kind == KernelParameter::Kind::kF32) {
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
  const attnjit_kernel* kernel_ = nullptr;
  attnjit_launch_args args_{};
  attnjit_launch_state* state_ = nullptr;
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
  load(attention);
  args_.q = args_.k = args_.v = args_.o = 0x10000000;
  args_.batch = 1;
  args_.q_len = args_.kv_len = 100;
  using Numbers = std::vector<double>;
  const auto launched = [&]() -> Numbers {
    expect_launched();
    Numbers numbers;
    for (const char* name : {"window", "chunk", "window_2", "cap"}) {
      numbers.push_back(number_of(name));
    }
    return numbers;
  };
  args_.window = 10;
  args_.chunk = 11;
  args_.cap = 1.5F;
  EXPECT_EQ(launched(), (Numbers{10, 11, 70, 1.5}));
  args_.more_windows[1] = 12;
  EXPECT_EQ(launched(), (Numbers{10, 11, 12, 1.5}));
  // In preorder; the constant window counts. Zeros, and what is past the end, leave the rest.
  const double list[] = {20, 0, 21, 22, 2.5};
  args_.scalars = list;
  args_.num_scalars = 3;
  EXPECT_EQ(launched(), (Numbers{20, 21, 12, 1.5}));
  args_.num_scalars = 5;
  EXPECT_EQ(launched(), (Numbers{20, 21, 22, 2.5}));
  const double fraction[] = {1.5};
  args_.scalars = fraction;
  args_.num_scalars = 1;
  expect_refused("window");
  const double more[] = {1, 1, 1, 1, 1, 1};
  args_.scalars = more;
  args_.num_scalars = 6;
  expect_refused("scalars");
  args_.scalars = nullptr;
  expect_refused("scalars");
  args_.num_scalars = 0;
  args_.window = 0;
  expect_refused("window");
  // A caller of the version before knows no list.
  args_.scalars = more;
  args_.num_scalars = 6;
  args_.window = 10;
  args_.struct_size = offsetof(attnjit_launch_args, scalars);
  EXPECT_EQ(launched(), (Numbers{10, 11, 12, 1.5}));
}

// What a merge is given, by a caller of this version and of the one before.
TEST_F(CAbiTest, PairsAreMerged) {
  AttentionSpec attention = test_spec();
  attention.mask = {};
  attention.return_lse = true;
  attention.merge = true;
  load(attention);
  args_.o = 0x10000000;
  args_.lse = 0x20000000;
  args_.pairs_o = 0x30000000;
  args_.pairs_lse = 0x40000000;
  args_.batch = 2;
  args_.q_len = 100;
  args_.num_pairs = 3;
  expect_launched();
  EXPECT_EQ(number_of("partitions"), 3);
  EXPECT_EQ(number_of("partial_o"), 0x30000000);
  EXPECT_EQ(number_of("partial_lse"), 0x40000000);
  args_.pairs_lse = 0;
  expect_refused("pairs_lse");
  args_.struct_size = offsetof(attnjit_launch_args, kv_offsets);
  expect_refused("num_pairs");
}

// A mask that is a tensor, with one row for all, and slopes.
TEST_F(CAbiTest, MasksAndSlopesAreGiven) {
  AttentionSpec attention = test_spec();
  attention.arch = Arch::kSm90a;
  attention.mask = {};
  attention.mask.kind = MaskSpec::Kind::kMaterialized;
  attention.mask.dtype = Dtype::kU8;
  attention.score_mod = {};
  attention.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  attention.score_mod.slopes = true;
  load(attention);
  args_.q = args_.k = args_.v = args_.o = 0x10000000;
  args_.batch = 2;
  args_.q_len = 200;
  args_.kv_len = 1000;
  args_.mask = 0x20000000;
  args_.mask_heads = 1;
  args_.mask_rows = 1;
  args_.mask_strides.batch = 4096;
  args_.slopes = 0x30000000;
  args_.mask_map = ATTNJIT_MASK_MAP_READ;
  args_.kv_num_blocks = 0x40000000;
  args_.kv_indices = 0x50000000;
  expect_launched();
  EXPECT_EQ(number_of("mask"), 0x20000000);
  EXPECT_EQ(number_of("slopes"), 0x30000000);
  EXPECT_EQ(number_of("mask_batch_bytes"), 4096);
  EXPECT_EQ(number_of("mask_head_bytes"), 0);
  EXPECT_EQ(number_of("mask_row_bytes"), 0);
  args_.mask_rows = 7;
  expect_refused("mask_rows");
  args_.mask_rows = 0;
  expect_refused("mask.row");  // a stride of 0 beside another
  args_.mask_strides.row = ATTNJIT_STRIDE_ZERO;
  expect_launched();
  EXPECT_EQ(number_of("mask_row_bytes"), 0);
  args_.mask = 0;
  expect_refused("mask");
  args_.mask = 0x20000000;
  for (int32_t* reserved :
       {&args_.reserved, &args_.reserved2, &args_.reserved3, &args_.reserved4}) {
    *reserved = 1;
    expect_refused("args");
    *reserved = 0;
  }
  // A caller of the version before knows no slopes.
  args_.struct_size = offsetof(attnjit_launch_args, slopes);
  expect_refused("slopes");
}

// The lists of absorbed MLA's keys; by a caller of the version before not.
TEST_F(CAbiTest, ListsAreGiven) {
  AttentionSpec attention;
  attention.arch = Arch::kSm90a;
  attention.mla = Mla::kDecode;
  attention.num_q_heads = attention.group = 16;
  attention.qk_depth = 192;
  attention.page_size = 64;
  attention.topk = 64;
  load(attention);
  args_.q = args_.k = args_.o = 0x10000000;
  args_.batch = 2;
  args_.q_len = 1;
  args_.num_pages = 10;
  args_.topk_indices = 0x20000000;
  expect_launched();
  EXPECT_EQ(number_of("topk_indices"), 0x20000000);
  args_.topk_indices = 0;
  expect_refused("topk_indices");
  args_.topk_indices = 0x20000000;
  args_.struct_size = offsetof(attnjit_launch_args, topk_indices);
  expect_refused("topk_indices");
}

// Rope parts of their own type; by a caller of the version before not.
TEST_F(CAbiTest, RopePartsAreGiven) {
  AttentionSpec attention;
  attention.arch = Arch::kSm100a;
  attention.mla = Mla::kPrefill;
  attention.num_q_heads = 16;
  attention.qk_depth = 192;
  attention.qkv_dtype = Dtype::kE4m3;
  attention.rope_dtype = Dtype::kBf16;
  cuda_.devices[0].major = 10;
  load(attention);
  args_.q = args_.k = args_.v = args_.o = 0x10000000;
  args_.batch = 2;
  args_.q_len = args_.kv_len = 300;
  args_.q_rope = 0x20000000;
  args_.k_rope = 0x30000000;
  args_.k_rope_strides.batch = 300 * 576;
  args_.k_rope_strides.row = 576;
  expect_launched();
  const auto encoded = [&](std::uint64_t address) {
    for (const auto& encode : cuda_.encodes) {
      if (encode.address == address) return encode;
    }
    ADD_FAILURE() << address;
    return cuda_.encodes.front();
  };
  EXPECT_EQ(encoded(0x20000000).dims, (std::vector<std::uint64_t>{64, 16, 300, 2}));
  EXPECT_EQ(encoded(0x30000000).strides.at(1), 1152U);
  args_.k_rope_strides.row = 4;
  expect_refused("k_rope.row");
  args_.k_rope_strides = {};
  args_.q_rope_strides.head = 4;
  expect_refused("q_rope.head");
  args_.q_rope_strides = {};
  args_.q_rope = 0;
  expect_refused("q_rope");
  args_.q_rope = 0x20000000;
  args_.struct_size = offsetof(attnjit_launch_args, k_rope);
  expect_refused("k_rope");
}

// A map of the mask is asked about, and given to a launch; by a caller of the version before not.
TEST_F(CAbiTest, MapsAreGiven) {
  AttentionSpec attention = test_spec();
  attention.arch = Arch::kSm90a;
  attention.mask.kind = MaskSpec::Kind::kCustom;
  attention.mask.custom.name = "documents";
  attention.mask.custom.code = "p.doc[q_idx] == p.doc[kv_idx]";
  attention.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
  load(attention);
  attnjit_param doc{};
  doc.struct_size = sizeof doc;
  doc.name = "doc";
  doc.type = ATTNJIT_PARAM_I32_ARRAY;
  doc.extent[0] = 1000;
  doc.pointer = 0x50000000;
  args_.q = args_.k = args_.v = args_.o = 0x10000000;
  args_.batch = 2;
  args_.q_len = 200;
  args_.kv_len = 1000;
  args_.params = &doc;
  args_.num_params = 1;
  int32_t extents[4] = {};
  attnjit_error* error = attnjit_mask_map_shape(kernel_, &args_, extents);
  ASSERT_EQ(error, nullptr) << attnjit_error_text(error);
  EXPECT_EQ(std::vector<int>(extents, extents + 4), (std::vector{1, 1, 2, 8}));
  int32_t bit_blocks = 0;
  error = attnjit_mask_map_bits(kernel_, &args_, &bit_blocks);
  ASSERT_EQ(error, nullptr) << attnjit_error_text(error);
  EXPECT_EQ(bit_blocks, 16);
  args_.mask_map = ATTNJIT_MASK_MAP_READ;
  args_.map_kv_blocks = 5;
  args_.kv_num_blocks = 0x20000000;
  args_.kv_indices = 0x30000000;
  expect_launched();
  EXPECT_EQ(number_of("kv_num_blocks"), 0x20000000);
  EXPECT_EQ(number_of("kv_indices"), 0x30000000);
  EXPECT_EQ(number_of("full_kv_num_blocks"), 0);
  EXPECT_EQ(number_of("map_q_blocks"), 2);
  EXPECT_EQ(number_of("map_kv_blocks"), 5);
  EXPECT_EQ(number_of("kv_bits"), 0);
  args_.bit_blocks = 7;
  expect_refused("kv_bits");
  args_.kv_bits = 0x60000000;
  args_.block_bits = 0x70000008;
  expect_refused("block_bits");
  args_.block_bits = 0x70000000;
  expect_launched();
  EXPECT_EQ(number_of("kv_bits"), 0x60000000);
  EXPECT_EQ(number_of("block_bits"), 0x70000000);
  EXPECT_EQ(number_of("bit_blocks"), 7);
  // A caller of the version before knows no bits.
  args_.struct_size = offsetof(attnjit_launch_args, kv_bits);
  expect_launched();
  EXPECT_EQ(number_of("bit_blocks"), 0);
  args_.struct_size = sizeof args_;
  args_.kv_indices = 0;
  expect_refused("kv_indices");
  args_.map_batch = 3;
  expect_refused("mask_map.batch");
  args_.mask_map = 3;
  expect_refused("mask_map");
  // A caller of the version before knows no map: one is made in the workspace, which is missing.
  args_.struct_size = offsetof(attnjit_launch_args, kv_num_blocks);
  expect_refused("workspace");
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
