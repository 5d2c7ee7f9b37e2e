// SPDX-License-Identifier: Apache-2.0
// KernelSource: a plan rendered as CUDA C++ text, with the options to compile it.
//
// Generation is pure: the templates come in as a value. Thread rules: plain values.
#pragma once

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

 private:
  std::vector<SourceFile> files_;
  std::string digest_;
};

/// Text and options of one compile; everything that decides the image, nothing else.
struct KernelSource {
  std::string name;                  ///< file name that diagnostics show: "attention.cu"
  std::string text;                  ///< the rendered file
  std::vector<SourceFile> headers;   ///< what it includes, in memory
  std::vector<std::string> options;  ///< compiler options, arch included; no path in them
  std::vector<std::string> entries;  ///< exactly the entry symbols that the image must hold
  std::string user_code;             ///< the custom snippets, for the key
  std::string template_digest;
  bool trusted = false;  ///< holds trusted user code: helper process only
  Arch arch = Arch::kSm100a;
};

/// Renders a plan. Errors: kUnsupported where the plan is not supported or the set has no template
/// for it; kInternal where a placeholder and the values do not match one to one.
ATTNJIT_EXPORT Result<KernelSource> generate(
    const KernelPlan& plan, const TemplateSet& templates = TemplateSet::embedded());

}  // namespace attnjit
