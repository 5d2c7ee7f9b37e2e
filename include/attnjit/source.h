// SPDX-License-Identifier: Apache-2.0
// KernelSource: a plan rendered as CUDA C++ text, with the options to compile it.
//
// Generation is pure: the templates come in as a value. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/plan.h"
#include "attnjit/result.h"

namespace attnjit {

struct SourceFile {
  std::string name;  ///< as #include names it: "common/ptx.cuh"
  std::string text;
};

/// Files that a source includes, in memory, sorted by name. They never change, and copies share
/// them: one set serves all kernels that include the same files.
class ATTNJIT_EXPORT HeaderSet {
 public:
  HeaderSet() : HeaderSet(std::vector<SourceFile>{}) {}
  explicit HeaderSet(std::vector<SourceFile> files);

  const std::vector<SourceFile>& files() const { return shared_->files; }
  /// SHA-256, hex, over names and texts, each with its length before it (32 bits, little-endian).
  const std::string& digest() const { return shared_->digest; }

  auto begin() const { return files().begin(); }
  auto end() const { return files().end(); }
  std::size_t size() const { return files().size(); }

 private:
  struct Shared {
    std::vector<SourceFile> files;
    std::string digest;
  };
  std::shared_ptr<const Shared> shared_;
};

/// The CUDA sources that kernels are made of: attention.cu.tmpl and the .cuh files beside it.
class ATTNJIT_EXPORT TemplateSet {
 public:
  explicit TemplateSet(std::vector<SourceFile> files);

  /// The templates that were embedded when the library was built.
  static const TemplateSet& embedded();
  /// The templates of a folder that replaces the embedded ones (ATTNJIT_TEMPLATES).
  static Result<TemplateSet> from_folder(const std::string& folder);

  const std::vector<SourceFile>& files() const { return files_; }  ///< sorted by name
  const SourceFile* find(std::string_view name) const;
  const std::string& digest() const { return digest_; }  ///< SHA-256 over names and texts, hex

  /// The files that `text` includes, directly or through others; found once for each text. Only
  /// `#include "name"` with a name of the set is known to kernel code; conditional compilation is
  /// not followed. Errors, with file and line: kInternal for any other spelling of an include,
  /// kEnvironment for a name that the set lacks. `name`: of the text, for errors.
  Result<HeaderSet> included_by(std::string_view name, std::string_view text) const;

 private:
  struct Found;
  std::vector<SourceFile> files_;
  std::string digest_;
  std::shared_ptr<Found> found_;  ///< what included_by found, of all copies
};

/// How an entry is launched, by which the gate tells whether a GPU can launch what was compiled.
struct EntryLaunch {
  int threads = 0;              ///< per CTA; 0: unknown
  std::int64_t smem_bytes = 0;  ///< dynamic shared memory
};

/// Text and options of one compile: everything that decides the image and whether it is taken.
struct KernelSource {
  std::string name;                   ///< file name that diagnostics show: "attention.cu"
  std::string text;                   ///< the rendered file
  HeaderSet headers;                  ///< what it includes, in memory
  std::vector<std::string> options;   ///< compiler options, arch included; no path in them
  std::vector<std::string> entries;   ///< exactly the entry symbols that the image must hold
  std::vector<EntryLaunch> launches;  ///< as entries; those past its end are unknown
  std::string user_code;              ///< the custom snippets, for the key
  std::string template_digest;
  bool trusted = false;  ///< holds trusted user code: helper process only
  /// ptxas may wait between products (wgmma) where registers lack: the kernel then is right and
  /// slow. Only for kernels whose speed nobody asks for.
  bool may_serialise = false;
  Arch arch = Arch::kSm100a;
};

/// Renders a plan. Errors: kUnsupported where the plan is not supported; kEnvironment where the set
/// lacks a template or a header; kInternal where a placeholder and the values do not match one to
/// one.
ATTNJIT_EXPORT Result<KernelSource> generate(
    const KernelPlan& plan, const TemplateSet& templates = TemplateSet::embedded());

}  // namespace attnjit
