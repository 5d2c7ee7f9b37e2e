// SPDX-License-Identifier: Apache-2.0
// attnjit cache: path, list, show, stats, verify, gc, clear, export, import, keygen, sign.
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "attnjit/manifest.h"
#include "attnjit/service.h"
#include "base/printable.h"
#include "cache/file_hash.h"
#include "cache/minisign.h"
#include "cache/signature.h"
#include "cache/trust.h"
#include "cli/byte_size.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/oci_layout.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"
#include "spec/kinds.h"

namespace attnjit::cli {
namespace {

std::string state_name(CacheLayerInfo::State state) {
  switch (state) {
    case CacheLayerInfo::State::kWritable:
      return "writable";
    case CacheLayerInfo::State::kReadOnly:
      return "read-only";
    case CacheLayerInfo::State::kMissing:
      return "missing";
    case CacheLayerInfo::State::kRefused:
      return "refused";
  }
  return "unknown";
}

std::string findings_text(const std::vector<CacheFinding>& findings) {
  std::string text;
  for (const CacheFinding& finding : findings) {
    text += fmt::format("  {}: {}{}\n", finding.path, finding.problem,
                        finding.quarantined ? " (put aside)" : "");
  }
  return text;
}

/// Says what could not be read, and fails for it.
void tell_unreadable(const std::vector<CacheFinding>& findings, Json& json, Report& report) {
  json["unreadable"] = findings_json(findings);
  if (findings.empty()) return;
  report.exit_code = 1;
  report.note +=
      fmt::format("{}{} folders or files could not be read\n{}", report.note.empty() ? "" : "; ",
                  findings.size(), findings_text(findings));
  report.note.pop_back();
}

std::string time_text(std::int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "?";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

Report path(CubinCache& cache) {
  Report report;
  Json json;
  json["layers"] = Json::array();
  for (const CacheLayerInfo& layer : cache.layers()) {
    json["layers"].push_back(layer.path);
    report.text += layer.path + "\n";
  }
  report.json = to_text(json);
  return report;
}

/// "NAME[3]: ..", by key: the specs of manifests.
using Names = std::map<std::string, std::string>;

/// The keys of the manifests' specs, for the architectures of which the cache has images.
Result<Names> names_of(const std::vector<std::string>& manifests,
                       const std::vector<CacheEntryInfo>& entries) {
  Names names;
  if (manifests.empty()) return names;
  std::set<Arch> archs;
  for (const CacheEntryInfo& entry : entries) archs.insert(entry.arch);
  ServiceOptions options;
  options.use_disk_cache = false;
  options.use_remote = false;
  options.forbid_compile = true;
  const Result<std::unique_ptr<Service>> service = Service::create(std::move(options));
  if (!service) return service.error();
  for (const std::string& path : manifests) {
    const Result<Manifest> manifest = read_manifest(path);
    if (!manifest) return manifest.error();
    for (std::size_t i = 0; i < manifest->specs.size(); ++i) {
      if (!manifest->specs[i]) continue;
      for (const Arch arch : archs) {
        SpecDocument document = *manifest->specs[i];
        document.spec.arch = arch;
        const Result<PreparedSpec> prepared = (*service)->prepare(document);
        if (!prepared) continue;  // what no kernel serves has no image
        std::string& name = names[prepared->key().hex];
        if (!name.empty()) name += ", ";
        name += fmt::format("{}[{}]", manifest->name, i);
      }
    }
  }
  return names;
}

/// A device type by the kind's name in a spec.
template <class Node>
std::string kind_text(const std::string& type) {
  const std::string_view name = std::string_view(type).substr(0, type.find('<'));
  for (const spec::KindRow<Node>& row : spec::kinds<Node>()) {
    if (row.type == name || (!name.empty() && row.type_without == name))
      return std::string(row.name);
  }
  return std::string(name);
}

std::string depth_text(const KernelFacts& facts) {
  if (facts.qk_depth == facts.ov_depth) return fmt::format("depth {}", facts.qk_depth);
  return fmt::format("depths {} and {}", facts.qk_depth, facts.ov_depth);
}

/// What a kernel computes, in a line.
std::string facts_text(const KernelFacts& facts) {
  if (facts.qk_depth == 0) return "no attention";
  std::string text = facts.dtype;
  if (!facts.kv_dtype.empty()) text += " over " + facts.kv_dtype;
  const std::string mask = kind_text<MaskSpec>(facts.mask);
  text += fmt::format(", {}, group {}, {}", depth_text(facts), facts.group,
                      mask == "null" ? "no mask" : mask);
  const std::string score_mod = kind_text<ScoreModSpec>(facts.score_mod);
  if (!score_mod.empty() && score_mod != "identity") text += ", " + score_mod;
  if (facts.page_size > 0) text += fmt::format(", pages of {}", facts.page_size);
  if (facts.topk > 0) text += fmt::format(", lists of {}", facts.topk);
  for (const auto& [is, name] :
       {std::pair{facts.ragged, "ragged"}, std::pair{facts.ragged_kv, "ragged keys"},
        std::pair{facts.sink, "sink"}, std::pair{facts.lse, "lse"},
        std::pair{facts.split, "split"}}) {
    if (is) text += std::string(", ") + name;
  }
  return text;
}

Json facts_json(const KernelFacts& facts) {
  return {{"dtype", facts.dtype},
          {"kv_dtype", facts.kv_dtype},
          {"qk_depth", facts.qk_depth},
          {"ov_depth", facts.ov_depth},
          {"group", facts.group},
          {"mask", kind_text<MaskSpec>(facts.mask)},
          {"score_mod", kind_text<ScoreModSpec>(facts.score_mod)},
          {"page_size", facts.page_size},
          {"topk", facts.topk},
          {"ragged", facts.ragged},
          {"ragged_kv", facts.ragged_kv},
          {"sink", facts.sink},
          {"return_lse", facts.lse},
          {"split", facts.split}};
}

std::string name_of(const Names& names, const CacheEntryInfo& entry) {
  const auto found = names.find(entry.key);
  return found == names.end() ? std::string() : found->second;
}

Json entry_json(const CacheEntryInfo& entry, const Names& names) {
  const std::string name = name_of(names, entry);
  return {{"key", entry.key},
          {"arch", std::string(to_string(entry.arch))},
          {"entry", entry.entry},
          {"bytes", entry.bytes},
          {"build_id", entry.build_id},
          {"nvrtc_version", entry.nvrtc_version},
          {"created_unix_s", entry.created_unix_s},
          {"last_used_unix_s", entry.last_used_unix_s},
          {"registers", entry.usage.registers},
          {"spill_bytes", entry.usage.spill_bytes},
          {"spec", facts_json(entry.facts)},
          {"manifest", name.empty() ? Json() : Json(name)},
          {"layer", entry.layer},
          {"path", entry.path}};
}

Result<Report> list(CubinCache& cache, const CacheArguments& arguments) {
  Report report;
  Json json;
  json["entries"] = Json::array();
  std::vector<CacheFinding> unreadable;
  const std::vector<CacheEntryInfo> entries = cache.list(&unreadable);
  const Result<Names> names = names_of(arguments.manifests, entries);
  if (!names) return names.error();
  for (const CacheEntryInfo& entry : entries) {
    json["entries"].push_back(entry_json(entry, *names));
    if (!arguments.details) {
      report.text += fmt::format("{} {:<8} {:>9} bytes  used {}  {}\n", entry.key.substr(0, 16),
                                 to_string(entry.arch), entry.bytes,
                                 time_text(entry.last_used_unix_s), entry.entry);
      continue;
    }
    const std::string name = name_of(*names, entry);
    report.text += fmt::format("{} {:<8} NVRTC {:<8} {:>9} bytes  used {}  {}{}\n",
                               entry.key.substr(0, 16), to_string(entry.arch), entry.nvrtc_version,
                               entry.bytes, time_text(entry.last_used_unix_s),
                               facts_text(entry.facts), name.empty() ? "" : "  of " + name);
  }
  tell_unreadable(unreadable, json, report);
  report.json = to_text(json);
  return report;
}

Result<Report> show(CubinCache& cache, const CacheArguments& arguments) {
  const std::string& key = arguments.keys.front();
  if (key.size() < 4 || key.size() > 64 ||
      key.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return invalid("key", fmt::format("is '{}'; allowed: 4 to 64 digits of 0 to 9 and a to f",
                                      key.substr(0, 80)));
  }
  std::vector<CacheFinding> unreadable;
  std::vector<CacheEntryInfo> entries = cache.list(&unreadable);
  std::erase_if(entries, [&](const CacheEntryInfo& entry) { return !entry.key.starts_with(key); });
  if (entries.empty()) {
    return invalid("key", fmt::format("no image in the cache has a key that begins with {}", key));
  }
  const Result<Names> names = names_of(arguments.manifests, entries);
  if (!names) return names.error();
  Report report;
  Json json;
  json["entries"] = Json::array();
  for (const CacheEntryInfo& entry : entries) {
    Json one = entry_json(entry, *names);
    one["user_code"] = entry.facts.user_code;
    json["entries"].push_back(std::move(one));
    const std::string name = name_of(*names, entry);
    if (!report.text.empty()) report.text += '\n';
    report.text += fmt::format(
        "key        {}\nspec       {}\nmodel      {}\narch       {}\nNVRTC      {} ({})\n"
        "size       {} bytes, {} registers, {} bytes spilled\nmade       {}\nlast used  {}\n"
        "file       {}\n",
        entry.key, facts_text(entry.facts),
        !name.empty()                 ? name
        : arguments.manifests.empty() ? "not known; give --manifest"
                                      : "in none of the manifests",
        to_string(entry.arch), entry.nvrtc_version, entry.build_id, entry.bytes,
        entry.usage.registers, entry.usage.spill_bytes, time_text(entry.created_unix_s),
        time_text(entry.last_used_unix_s), entry.path);
    if (!entry.facts.user_code.empty()) report.text += "code\n" + entry.facts.user_code + '\n';
  }
  tell_unreadable(unreadable, json, report);
  report.json = to_text(json);
  return report;
}

Report stats(CubinCache& cache) {
  Report report;
  Json json;
  json["layers"] = Json::array();
  std::vector<CacheFinding> unreadable;
  for (const CacheLayerInfo& layer : cache.layers()) {
    unreadable.insert(unreadable.end(), layer.unreadable.begin(), layer.unreadable.end());
    json["layers"].push_back({{"path", layer.path},
                              {"state", state_name(layer.state)},
                              {"reason", layer.reason},
                              {"entries", layer.entries},
                              {"entry_bytes", layer.entry_bytes},
                              {"failures", layer.failures},
                              {"quarantined", layer.quarantined},
                              {"temporary", layer.temporary},
                              {"locks", layer.locks},
                              {"other_bytes", layer.other_bytes}});
    report.text += fmt::format("{} ({}{}{})\n  {} entries, {} bytes; {} failures, {} quarantined\n",
                               layer.path, state_name(layer.state),
                               layer.reason.empty() ? "" : ": ", layer.reason, layer.entries,
                               layer.entry_bytes, layer.failures, layer.quarantined);
  }
  tell_unreadable(unreadable, json, report);
  report.json = to_text(json);
  return report;
}

Report verify(CubinCache& cache) {
  const CacheVerifyReport found = cache.verify();
  Json json;
  json["checked"] = found.checked;
  json["good"] = found.good;
  json["bytes"] = found.bytes;
  json["bad"] = findings_json(found.bad);
  json["unreadable"] = findings_json(found.unreadable);
  Report report;
  report.json = to_text(json);
  report.text = fmt::format("{} of {} entries are good ({} bytes)\n", found.good, found.checked,
                            found.bytes) +
                findings_text(found.bad) + findings_text(found.unreadable);
  if (!found.bad.empty() || !found.unreadable.empty()) {
    report.exit_code = 1;
    report.note =
        fmt::format("{} bad and {} unreadable entries", found.bad.size(), found.unreadable.size());
  }
  return report;
}

Result<Report> gc(CubinCache& cache, const CacheArguments& arguments) {
  std::optional<std::int64_t> max_bytes;
  if (arguments.max_bytes) {
    max_bytes = byte_size(*arguments.max_bytes);
    if (!max_bytes) {
      return make_error(
          ErrorCode::kInvalid,
          fmt::format("is '{}'; allowed: {}, up to {}", arguments.max_bytes->substr(0, 64),
                      kByteSizes, std::numeric_limits<std::int64_t>::max()),
          "max_bytes");
    }
  }
  Result<CacheGcReport> done = cache.gc({max_bytes, arguments.dry_run});
  if (!done) return std::move(done).error();
  Json json;
  json["dry_run"] = arguments.dry_run;
  json["entries_before"] = done->entries_before;
  json["bytes_before"] = done->bytes_before;
  json["entries_after"] = done->entries_after;
  json["bytes_after"] = done->bytes_after;
  json["removed_temporary"] = done->removed_temporary;
  json["removed_locks"] = done->removed_locks;
  json["removed_failures"] = done->removed_failures;
  json["removed_quarantined"] = done->removed_quarantined;
  json["removed_of_older_versions"] = done->removed_of_older_versions;
  json["removed"] = done->removed;
  Report report;
  tell_unreadable(done->unreadable, json, report);
  report.json = to_text(json);
  report.text = fmt::format("{} entries of {} bytes before, {} of {} after\n", done->entries_before,
                            done->bytes_before, done->entries_after, done->bytes_after);
  return report;
}

Result<Report> clear(CubinCache& cache) {
  Result<CacheClearReport> done = cache.clear();
  if (!done) return std::move(done).error();
  Json json;
  json["removed_files"] = done->removed_files;
  json["removed_bytes"] = done->removed_bytes;
  json["left"] = findings_json(done->left);
  Report report;
  report.json = to_text(json);
  report.text =
      fmt::format("{} files of {} bytes removed\n", done->removed_files, done->removed_bytes) +
      findings_text(done->left);
  if (!done->left.empty()) {
    report.exit_code = 1;
    report.note = fmt::format("{} files or folders could not be removed", done->left.size());
  }
  return report;
}

Result<Report> bundle(CubinCache& cache, const CacheArguments& arguments, bool is_export) {
  Result<CacheBundleReport> done = is_export ? cache.export_bundle(arguments.file, arguments.keys)
                                             : cache.import_bundle(arguments.file);
  if (!done) return std::move(done).error();
  Json json;
  json["file"] = arguments.file;
  json["entries"] = done->entries;
  if (!is_export) json["existing"] = done->existing;
  json["bytes"] = done->bytes;
  json["bad"] = findings_json(done->bad);
  Report report;
  report.text = fmt::format("{} entries {} ({} bytes)\n", done->entries,
                            is_export ? "written" : "merged", done->bytes) +
                findings_text(done->bad);
  if (!done->bad.empty()) {
    report.exit_code = 1;
    report.note = fmt::format("{} bad entries were left out", done->bad.size());
  }
  tell_unreadable(done->unreadable, json, report);
  report.json = to_text(json);
  return report;
}

/// To a folder: the bundle is written beside it, under a name that nobody has, and removed again.
Result<Report> export_image(CubinCache& cache, const CacheArguments& arguments) {
  std::string temporary = arguments.oci;
  while (temporary.size() > 1 && temporary.ends_with('/')) temporary.pop_back();
  temporary += ".XXXXXX";
  const int file = ::mkstemp(temporary.data());
  if (file < 0) {
    return make_error(ErrorCode::kIo,
                      std::string("cannot write the image layout: ") + std::strerror(errno),
                      arguments.oci);
  }
  ::close(file);
  CacheArguments as_bundle = arguments;
  as_bundle.file = temporary;
  Result<Report> report = bundle(cache, as_bundle, true);
  const Status written = report ? write_oci_layout(temporary, arguments.oci) : Status();
  (void)std::remove(temporary.c_str());
  if (!report) return report;
  if (!written) return written.error();
  Json json = Json::parse(report->json);
  json["file"] = arguments.oci;
  report->json = to_text(json);
  return report;
}

constexpr std::size_t kMaxBundlePiece = std::size_t{1} << 20;

Result<std::string> hash_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  cache::FileHash hash(cache::FileHash::Kind::kBlake2b512);
  std::string piece(kMaxBundlePiece, '\0');
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    hash.add(std::string_view(piece).substr(0, static_cast<std::size_t>(in.gcount())));
  }
  if (!in.eof()) return make_error(ErrorCode::kInvalid, "cannot read the bundle", path);
  return hash.finish();
}

Result<Report> keygen(const CacheArguments& arguments) {
  Result<cache::SecretKey> key = cache::SecretKey::generate();
  if (!key) return std::move(key).error();
  const std::string pem = key->to_pem();
  // NOTE: made again and for its owner alone, whatever the umask: a key that is there stays.
  const int file = ::open(arguments.file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return make_error(errno == EEXIST ? ErrorCode::kInvalid : ErrorCode::kIo,
                      std::string("cannot make the key: ") + std::strerror(errno), arguments.file);
  }
  const bool written = write_all(file, pem) && ::fsync(file) == 0;
  ::close(file);
  if (!written) return make_error(ErrorCode::kIo, "cannot write the key", arguments.file);
  const std::string public_file = arguments.file + ".pub";
  if (Status s = write_file(public_file, key->public_key().to_minisign()); !s) {
    return std::move(s).error();
  }
  Json json;
  json["secret"] = arguments.file;
  json["public"] = public_file;
  json["key_id"] = cache::key_id_text(key->public_key().id);
  Report report;
  report.json = to_text(json);
  report.text = fmt::format("secret key {}\npublic key {}\nkey id     {}\n", arguments.file,
                            public_file, cache::key_id_text(key->public_key().id));
  return report;
}

Result<Report> sign_bundle(const CacheArguments& arguments, const SignatureOptions& options) {
  Result<SignatureOptions> signatures = with_environment(options);
  if (!signatures) return std::move(signatures).error();
  const auto trust = cache::read_trust(*signatures);
  if (!trust) return trust.error();
  if (!trust->key) {
    return make_error(ErrorCode::kInvalid, "there is no key to sign with", "key",
                      "give --key or ATTNJIT_SIGN_KEY; attnjit cache keygen makes one");
  }
  const auto hash = hash_file(arguments.file);
  if (!hash) return hash.error();
  const std::string path = arguments.file + ".minisig";
  const std::string comment =
      fmt::format("attnjit bundle, template version {}", cache::kTemplateVersion);
  if (Status s = replace_file(path, cache::minisign(*hash, comment, *trust->key)); !s) {
    return std::move(s).error();
  }
  Json json;
  json["file"] = path;
  json["key_id"] = cache::key_id_text(trust->key->public_key().id);
  Report report;
  report.json = to_text(json);
  report.text = path + "\n";
  return report;
}

Result<Report> sign(CubinCache& cache) {
  const auto done = cache.sign();
  if (!done) return done.error();
  Json json;
  json["signed"] = done->signed_now;
  json["bad"] = findings_json(done->bad);
  Report report;
  report.text = fmt::format("{} entries signed\n", done->signed_now) + findings_text(done->bad);
  if (!done->bad.empty()) {
    report.exit_code = 1;
    report.note = fmt::format("{} bad entries were not signed", done->bad.size());
  }
  tell_unreadable(done->unreadable, json, report);
  report.json = to_text(json);
  return report;
}

Result<Report> verify_bundle(const CacheArguments& arguments, const SignatureOptions& options) {
  Result<SignatureOptions> signatures = with_environment(options);
  if (!signatures) return std::move(signatures).error();
  const auto trust = cache::read_trust(*signatures);
  if (!trust) return trust.error();
  if (trust->ring == nullptr) {
    return make_error(ErrorCode::kInvalid, "there is no keyring", "trust",
                      "give --trust or ATTNJIT_TRUST");
  }
  const auto hash = hash_file(arguments.file);
  if (!hash) return hash.error();
  Result<std::string> text = read_file(arguments.file + ".minisig", 65536);
  if (!text) return std::move(text).error();
  const auto comment = cache::verify_minisign(*hash, *text, *trust->ring);
  if (!comment) {
    return make_error(ErrorCode::kCorrupt, comment.error().message, arguments.file + ".minisig");
  }
  Json json;
  json["file"] = arguments.file;
  json["comment"] = *comment;
  Report report;
  report.json = to_text(json);
  report.text = fmt::format("the signature is good: {}\n", printable(*comment));
  return report;
}

}  // namespace

Result<Report> run_cache(const CacheArguments& arguments) {
  using Action = CacheArguments::Action;
  SignatureOptions signatures;
  signatures.sign_key_file = arguments.sign_key;
  signatures.trust_file = arguments.trust;
  if (arguments.action == Action::kKeygen) return keygen(arguments);
  if (!arguments.file.empty()) {
    if (arguments.action == Action::kSign) return sign_bundle(arguments, signatures);
    if (arguments.action == Action::kVerify) return verify_bundle(arguments, signatures);
  }
  if (arguments.action == Action::kExport && arguments.file.empty() && arguments.oci.empty()) {
    return make_error(ErrorCode::kInvalid, "neither FILE nor --oci DIR is given", "file");
  }
  Result<std::unique_ptr<CubinCache>> opened = open_command_cache(signatures);
  if (!opened) return std::move(opened).error();
  const std::unique_ptr<CubinCache> cache = *std::move(opened);
  switch (arguments.action) {
    case CacheArguments::Action::kPath:
      return path(*cache);
    case CacheArguments::Action::kList:
      return list(*cache, arguments);
    case CacheArguments::Action::kShow:
      return show(*cache, arguments);
    case CacheArguments::Action::kStats:
      return stats(*cache);
    case CacheArguments::Action::kVerify:
      return verify(*cache);
    case CacheArguments::Action::kGc:
      return gc(*cache, arguments);
    case CacheArguments::Action::kClear:
      return clear(*cache);
    case CacheArguments::Action::kExport:
      return arguments.oci.empty() ? bundle(*cache, arguments, true)
                                   : export_image(*cache, arguments);
    case CacheArguments::Action::kImport:
      return bundle(*cache, arguments, false);
    case CacheArguments::Action::kSign:
      return sign(*cache);
    case CacheArguments::Action::kKeygen:
      break;
  }
  return make_error(ErrorCode::kInternal, "an unknown action of cache");
}

}  // namespace attnjit::cli
