// SPDX-License-Identifier: Apache-2.0
// The entry and bundle formats as bytes, and the keys: golden values, bounds and properties.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cache/bundle.h"
#include "cache/bytes.h"
#include "cache/entry_format.h"
#include "cache/failures.h"
#include "cache_test_util.h"

namespace attnjit::cache {
namespace {

/// Recomputes the header's digest, as a writer with bad intentions would.
std::string sealed(std::string bytes) {
  const Sha256Digest digest = sha256(bytes.data(), kHeaderBytes - 32);
  bytes.replace(kHeaderBytes - 32, 32, reinterpret_cast<const char*>(digest.data()), 32);
  return bytes;
}

void put_u64(std::string& bytes, std::size_t at, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

class EntryFormatTest : public ::testing::Test {
 protected:
  const RequestKey key = make_key(1);
  const KernelImage image = make_image(1);
  const std::string bytes = *encode_entry(key, kBuild, image, 1700000000);
};

TEST_F(EntryFormatTest, GivesBackWhatWasPutIn) {
  const auto entry = decode_entry(bytes);
  ASSERT_TRUE(entry.ok()) << entry.error().to_string();
  EXPECT_EQ(entry->id, *entry_id(key, kBuild));
  EXPECT_EQ(entry->created_unix_s, 1700000000);
  EXPECT_EQ(entry->build_id, kBuild);
  EXPECT_EQ(entry->arch, key.arch);
  EXPECT_EQ(entry->key_material, key.material);
  EXPECT_TRUE(same_image(entry->image, image));
}

// The digest comes from a second implementation, written after cache/README.md.
// A change of these bytes is a change of the format, and needs a new kFormatVersion.
TEST_F(EntryFormatTest, HasTheDocumentedLayout) {
  EXPECT_EQ(bytes.substr(0, 8),
            "\x89"
            "ATNJ\r\n\x1a");
  EXPECT_EQ(bytes.substr(8, 8), std::string("\x02\0\0\0\x48\x01\0\0", 8));
  ByteReader in(std::string_view(bytes).substr(16));
  EXPECT_EQ(in.u64(), bytes.size());
  EXPECT_EQ(in.i64(), 1700000000);
  EXPECT_EQ(to_hex(in.digest()), key.hex);
  EXPECT_EQ(in.digest(), sha256(kBuild));
  EXPECT_EQ(in.u32(), 4u);
  EXPECT_EQ(in.u32(), 0u);
  const std::size_t sizes[] = {bytes.size() - 328 - key.material.size() - 1500 - 300,
                               key.material.size(), 1500, 300};
  std::size_t at = 328;
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(in.u32(), i + 1);
    EXPECT_EQ(in.u32(), 0u);
    EXPECT_EQ(in.u64(), sizes[i]);
    EXPECT_EQ(in.digest(), sha256(std::string_view(bytes).substr(at, sizes[i])));
    at += sizes[i];
  }
  EXPECT_EQ(in.digest(), sha256(std::string_view(bytes).substr(0, 296)));
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(to_hex(sha256(bytes)),
            "ea7727c666f9d5a2fe4029b430e5dd4a3cfa651ddc63d124f9cda990d9e69e97");
}

TEST_F(EntryFormatTest, NamesAnEntryAfterItsKeyAndBuild) {
  const std::string name = file_name(*entry_id(key, kBuild));
  EXPECT_EQ(name, key.hex + "." + to_hex(sha256(kBuild)).substr(0, 32) + ".kernel");
  ASSERT_TRUE(parse_file_name(name));
  EXPECT_TRUE(parse_file_name(name)->matches(*entry_id(key, kBuild)));
  EXPECT_FALSE(parse_file_name(name)->matches(*entry_id(key, "another")));
  EXPECT_FALSE(parse_file_name(name)->matches(*entry_id(make_key(2), kBuild)));
  for (const std::string& odd :
       {std::string(), name + "x", name.substr(1), "x" + name, "../" + name.substr(3)}) {
    EXPECT_FALSE(parse_file_name(odd)) << odd;
  }
  std::string upper = name;
  upper[upper.find_first_of("abcdef")] = 'A';
  EXPECT_FALSE(parse_file_name(upper));
}

TEST_F(EntryFormatTest, EveryFlippedBitAndEveryCutIsNoticed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      ASSERT_FALSE(decode_entry(flipped).ok()) << "byte " << i << " bit " << bit;
    }
    ASSERT_FALSE(decode_entry(std::string_view(bytes).substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(decode_entry(bytes + "x").ok());
}

TEST_F(EntryFormatTest, AWriterWithBadIntentionsGainsNothing) {
  // Every u32 and u64 of the header replaced by boundary values, under a right digest.
  const std::uint64_t values[] = {0,
                                  1,
                                  0x7fffffff,
                                  0xffffffff,
                                  bytes.size(),
                                  std::uint64_t{1} << 40,
                                  ~std::uint64_t{0},
                                  ~std::uint64_t{0} - kHeaderBytes};
  for (std::size_t at = 8; at + 8 <= kHeaderBytes - 32; at += 4) {
    for (const std::uint64_t value : values) {
      std::string hostile = bytes;
      put_u64(hostile, at, value);
      if (hostile == bytes) continue;
      const auto entry = decode_entry(sealed(hostile));
      // Only the time of making is anybody's to choose.
      if (entry.ok()) {
        EXPECT_GE(at, 20u);
        EXPECT_LE(at, 28u);
        EXPECT_TRUE(same_image(entry->image, image));
      }
    }
  }
  for (const std::uint64_t size : {std::uint64_t{0}, kMaxEntryBytes + 1, ~std::uint64_t{0}}) {
    EXPECT_FALSE(decode_header(bytes, size).ok());
  }
}

TEST_F(EntryFormatTest, MetadataWithBadIntentionsIsRefused) {
  // Every byte of the metadata changed, under right digests: no crash, and nothing out of bounds.
  const std::size_t size = static_cast<std::size_t>(decode_header(bytes, bytes.size())->size[0]);
  for (std::size_t i = 0; i < size; ++i) {
    for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
      std::string hostile = bytes;
      hostile[kHeaderBytes + i] = static_cast<char>(value);
      const Sha256Digest digest = sha256(hostile.data() + kHeaderBytes, size);
      hostile.replace(120, 32, reinterpret_cast<const char*>(digest.data()), 32);
      const auto entry = decode_entry(sealed(hostile));
      if (entry.ok()) {
        EXPECT_EQ(entry->image.cubin, image.cubin);
      }
    }
  }
}

TEST_F(EntryFormatTest, CutsALongLog) {
  KernelImage chatty = image;
  chatty.log.assign(kMaxLogBytes + 5, 'l');
  const auto entry = decode_entry(*encode_entry(key, kBuild, chatty, 0));
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->image.log.size(), kMaxLogBytes);
}

TEST_F(EntryFormatTest, RefusesWhatDoesNotFit) {
  KernelImage odd = image;
  odd.entries.assign(257, "e");
  EXPECT_FALSE(encode_entry(key, kBuild, odd, 0).ok());
  odd = image;
  odd.entries = {std::string(4097, 'e')};
  EXPECT_FALSE(encode_entry(key, kBuild, odd, 0).ok());
  RequestKey big;
  big.material.assign(kMaxKeyMaterialBytes + 1, 'm');
  big.hex = to_hex(sha256(big.material));
  EXPECT_FALSE(encode_entry(big, kBuild, image, 0).ok());
}

TEST(EntryFormatProperty, RandomEntriesGiveThemselvesBack) {
  std::mt19937 random(7);
  const auto text = [&](std::size_t limit) {
    std::string made(random() % limit, '\0');
    for (char& c : made) c = static_cast<char>(random());
    return made;
  };
  for (int round = 0; round < 300; ++round) {
    RequestKey key;
    key.material = text(2000);
    key.hex = to_hex(sha256(key.material));
    key.arch = static_cast<Arch>(random() % 3);
    KernelImage image = make_image(round, 1 + random() % 3000, random() % 500);
    image.entries.clear();
    for (auto i = random() % 5; i > 0; --i) image.entries.push_back(text(50));
    image.log = text(300);
    image.nvrtc_version = text(20);
    image.usage.spill_bytes = static_cast<int>(random());
    const std::string build = "b" + text(200);
    const auto created = static_cast<std::int64_t>(random());
    const auto encoded = encode_entry(key, build, image, created);
    ASSERT_TRUE(encoded.ok());
    const auto entry = decode_entry(*encoded);
    ASSERT_TRUE(entry.ok());
    EXPECT_TRUE(same_image(entry->image, image));
    EXPECT_EQ(entry->build_id, build);
    EXPECT_EQ(entry->arch, key.arch);
    EXPECT_EQ(entry->created_unix_s, created);
    EXPECT_EQ(*encode_entry(key, build, entry->image, created), *encoded);
  }
}

TEST(BundleFormat, EveryFlippedBitAndEveryCutOfTheHeadIsNoticed) {
  std::vector<BundleRow> rows;
  for (int i = 0; i < 3; ++i) {
    BundleRow row;
    row.id.key[0] = static_cast<std::uint8_t>(i);
    row.size = 400 + static_cast<std::uint64_t>(i);
    rows.push_back(row);
  }
  const std::string head = encode_bundle_head(rows);
  const std::uint64_t size = head.size() + 400 + 401 + 402;
  const auto decode = [&](const std::string& bytes) {
    const auto header = decode_bundle_header(bytes, size);
    return header.ok() && decode_bundle_manifest(*header, bytes).ok();
  };
  ASSERT_TRUE(decode(head));
  for (std::size_t i = 0; i < head.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = head;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      ASSERT_FALSE(decode(flipped)) << i;
    }
    ASSERT_FALSE(decode(head.substr(0, i))) << i;
  }
  std::swap(rows[0], rows[1]);
  EXPECT_FALSE(decode(encode_bundle_head(rows))) << "not sorted";
  rows[0] = rows[1];
  EXPECT_FALSE(decode(encode_bundle_head(rows))) << "twice the same";
}

// --- Keys ----------------------------------------------------------------------------------------

struct Input {
  KernelPlan plan;
  KernelSource source;
};

HeaderSet headers(std::vector<SourceFile> files) { return HeaderSet(std::move(files)); }

Input make_input() {
  Input input;
  input.plan.main().entry = "attnjit_fwd";
  input.plan.main().kernel_header = "sm90/forward.cuh";
  input.plan.main().threads = 384;
  input.plan.main().cluster = 1;
  input.plan.main().smem_bytes = 200000;
  input.plan.main().launch_registers = 168;
  input.plan.main().constants = {{"int", "kBlockM", "128"}, {"bool", "kCausal", "true"}};
  input.plan.main().parameters = {{"q", KernelParameter::Kind::kTensorMap, ""},
                                  {"lse", KernelParameter::Kind::kPointer, "float"}};
  input.source.name = "attention.cu";
  input.source.text = "extern \"C\" __global__ void attnjit_fwd() {}";
  input.source.headers = headers({{"common/ptx.cuh", "// ptx"}, {"common/mask.cuh", "// mask"}});
  input.source.options = {"--gpu-architecture=sm_90a", "-std=c++20"};
  input.source.entries = {"attnjit_fwd"};
  input.source.user_code = "score * 2.0f";
  input.source.template_digest = std::string(64, 'a');
  input.source.arch = Arch::kSm90a;
  return input;
}

std::string key_of(const Input& input) { return request_key(input.plan, input.source).hex; }

TEST(RequestKeyTest, IsTheDigestOfItsMaterial) {
  const Input input = make_input();
  const RequestKey key = request_key(input.plan, input.source);
  EXPECT_EQ(key.hex, to_hex(sha256(key.material)));
  EXPECT_EQ(key.arch, Arch::kSm90a);
}

// The values come from a second implementation, written after cache/README.md.
// The same in every release that keeps the format version: caches are shipped.
TEST(RequestKeyTest, IsTheSameInEveryRelease) {
  EXPECT_EQ(key_of(make_input()),
            "9a678af2d66ae7d2c46c97262d8d84dcf24e2906bb64d0f4077a2e9ebd9699e7");
  EXPECT_EQ(key_of(Input{}), "923cc1ab8fb29b231440333110bc9a58cc9dcdab180a967fecd6ba78e7bcdc6b");
}

TEST(RequestKeyTest, EachInputSeparates) {
  const std::vector<std::function<void(Input&)>> changes = {
      [](Input&) {},
      [](Input& i) { i.plan.main().entry += "x"; },
      [](Input& i) { i.plan.main().kernel_header = "sm90/other.cuh"; },
      [](Input& i) { i.plan.main().threads = 256; },
      [](Input& i) { i.plan.main().cluster = 2; },
      [](Input& i) { i.plan.main().smem_bytes += 1; },
      [](Input& i) { i.plan.main().launch_registers = 160; },
      [](Input& i) { i.plan.main().constants[0].type = "unsigned"; },
      [](Input& i) { i.plan.main().constants[0].name = "kBlockN"; },
      [](Input& i) { i.plan.main().constants[0].value = "64"; },
      [](Input& i) { std::swap(i.plan.main().constants[0], i.plan.main().constants[1]); },
      [](Input& i) { i.plan.main().constants.pop_back(); },
      [](Input& i) { i.plan.main().parameters[0].name = "k"; },
      [](Input& i) { i.plan.main().parameters[0].kind = KernelParameter::Kind::kI64; },
      [](Input& i) { i.plan.main().parameters[1].cuda_type = "const float"; },
      [](Input& i) { i.plan.main().parameters.pop_back(); },
      [](Input& i) { i.source.name = "other.cu"; },
      [](Input& i) { i.source.text += " "; },
      [](Input& i) {
        i.source.headers = headers({{"common/ptx.cuh", "// ptx "}, {"common/mask.cuh", "// mask"}});
      },
      [](Input& i) {
        i.source.headers = headers({{"common/ptx2.cuh", "// ptx"}, {"common/mask.cuh", "// mask"}});
      },
      [](Input& i) {
        i.source.headers = headers({{"common/ptx.cuh", "// ptx"}});
      },
      [](Input& i) { i.source.options[1] = "-std=c++17"; },
      [](Input& i) { i.source.options.push_back("-lineinfo"); },
      [](Input& i) { std::swap(i.source.options[0], i.source.options[1]); },
      [](Input& i) { i.source.entries.push_back("second"); },
      [](Input& i) { i.source.user_code += " "; },
      [](Input& i) { i.source.template_digest[0] = 'b'; },
      [](Input& i) { i.source.trusted = true; },
      [](Input& i) { i.source.arch = Arch::kSm100a; },
      // Boundaries: the same characters, divided otherwise.
      [](Input& i) { i.source.options = {"--gpu-architecture=sm_90a-std=c++20"}; },
      [](Input& i) {
        i.source.options = {"--gpu-architecture=sm_90a", "-std=c++2", "0"};
      },
      [](Input& i) { i.source.options.insert(i.source.options.begin(), ""); },
      [](Input& i) {
        i.source.user_code = i.source.text.substr(40) + i.source.user_code;
        i.source.text.resize(40);
      },
      [](Input& i) {
        i.source.headers = headers({{"common/mask.cuh", "// mask"}, {"common/ptx.cuh// ", "ptx"}});
      },
      [](Input& i) {
        i.plan.main().constants[0] = {"in", "tkBlockM", "128"};
      },
      [](Input& i) {
        i.source.entries = {};
        i.source.options.push_back("attnjit_fwd");
      },
  };
  std::set<std::string> keys;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Input input = make_input();
    changes[i](input);
    EXPECT_TRUE(keys.insert(key_of(input)).second) << "change " << i;
  }
}

TEST(RequestKeyTest, WhatDoesNotReachTheCompilerDoesNotMatter) {
  const std::string key = key_of(make_input());
  const std::vector<std::function<void(Input&)>> changes = {
      [](Input& i) {  // two specs, one plan and text
        AttentionSpec spec;
        spec.num_q_heads = 77;
        spec.qk_depth = 64;
        PlanOptions options;
        options.num_qo = 2;
        i.plan.spec = ResolvedSpec::make(spec, options).value();
      },
      [](Input& i) { i.plan.supported = true; },
      [](Input& i) { i.plan.reason = "said in words"; },
      [](Input& i) {
        i.plan.deviations = {{"BN", "128", "64", "smem"}};
      },
      [](Input& i) {
        i.source.headers = headers({{"common/mask.cuh", "// mask"}, {"common/ptx.cuh", "// ptx"}});
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Input input = make_input();
    changes[i](input);
    EXPECT_EQ(key_of(input), key) << "change " << i;
  }
}

}  // namespace
}  // namespace attnjit::cache
