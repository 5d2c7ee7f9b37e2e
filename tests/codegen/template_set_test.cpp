// SPDX-License-Identifier: Apache-2.0
// Template sets: embedded and from a folder are the same; the include closure is exact.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "../temporary_folder.h"
#include "attnjit/source.h"
#include "codegen/include_closure.h"
#include "source_dir.h"

namespace attnjit {
namespace {

class Folder : public test::TemporaryFolder {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(path()) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
};

std::vector<std::string> names(const std::vector<SourceFile>& files) {
  std::vector<std::string> out;
  for (const SourceFile& file : files) out.push_back(file.name);
  return out;
}

TEST(TemplateSet, EmbeddedEqualsTheFolderItWasMadeFrom) {
  const auto folder = TemplateSet::from_folder(ATTNJIT_SOURCE_DIR "/templates");
  ASSERT_TRUE(folder.ok()) << folder.error().to_string();
  const TemplateSet& embedded = TemplateSet::embedded();
  EXPECT_EQ(names(embedded.files()), names(folder->files()));
  for (const SourceFile& file : embedded.files()) {
    ASSERT_NE(folder->find(file.name), nullptr) << file.name;
    EXPECT_EQ(folder->find(file.name)->text, file.text) << file.name;
  }
  EXPECT_EQ(embedded.digest(), folder->digest());
  EXPECT_EQ(embedded.digest().size(), 64u);
}

TEST(TemplateSet, DigestCoversNamesTextsAndTheirBounds) {
  const auto digest = [](std::vector<SourceFile> files) {
    return TemplateSet(std::move(files)).digest();
  };
  const std::string base = digest({{"a", "xy"}, {"b", ""}});
  EXPECT_EQ(base, digest({{"b", ""}, {"a", "xy"}}));
  EXPECT_NE(base, digest({{"a", "x"}, {"b", "y"}}));
  EXPECT_NE(base, digest({{"a", "xy"}}));
  EXPECT_NE(base, digest({{"a", "xy"}, {"c", ""}}));
  EXPECT_NE(digest({{"ab", "c"}}), digest({{"a", "bc"}}));
}

TEST(TemplateSet, FolderErrorsSayWhatIsMissing) {
  const auto absent = TemplateSet::from_folder("/nonexistent/templates");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kEnvironment);
  const Folder folder;
  folder.write("common/a.cuh", "");
  const auto incomplete = TemplateSet::from_folder(folder.path());
  ASSERT_FALSE(incomplete.ok());
  EXPECT_NE(incomplete.error().message.find("attention.cu.tmpl"), std::string::npos);
}

TEST(TemplateSet, FolderSkipsWhatIsNoTemplate) {
  const Folder folder;
  folder.write("attention.cu.tmpl", "t");
  folder.write("sm90/forward.cuh", "f");
  folder.write("notes.md", "n");
  folder.write("sm90/forward.cuh~", "n");
  ASSERT_EQ(mkfifo((folder.path() + "/pipe.cuh").c_str(), 0600), 0);
  const auto set = TemplateSet::from_folder(folder.path());
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(names(set->files()),
            (std::vector<std::string>{"attention.cu.tmpl", "sm90/forward.cuh"}));
}

TEST(IncludeClosure, FollowsIncludesAndNothingElse) {
  const TemplateSet set({{"a.cuh", "#pragma once\n  #  include \"b.cuh\"\n"},
                         {"b.cuh", "#include \"a.cuh\"\n#include \"d/e.cuh\""},
                         {"c.cuh", "#include \"b.cuh\""},
                         {"d/e.cuh", "// #include \"c.cuh\"\n"}});
  const auto files = include_closure(set, "main", "int x;\n#include \"a.cuh\"\n");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(names(*files), (std::vector<std::string>{"a.cuh", "b.cuh", "d/e.cuh"}));
}

TEST(IncludeClosure, RefusesOtherIncludes) {
  const TemplateSet set(std::vector<SourceFile>{{"a.cuh", "\n#include <cuda_bf16.h>\n"}});
  const auto angle = include_closure(set, "main", "#include \"a.cuh\"");
  ASSERT_FALSE(angle.ok());
  EXPECT_EQ(angle.error().line, 2);
  EXPECT_NE(angle.error().message.find("a.cuh"), std::string::npos);
  for (const char* text :
       {"#include \"zzz.cuh\"", "#include NAME", "#include \"a.cuh", "#include \"\""}) {
    EXPECT_FALSE(include_closure(set, "main", text).ok()) << text;
  }
}

}  // namespace
}  // namespace attnjit
