// SPDX-License-Identifier: Apache-2.0
// The command line as plain values: one struct per command.
//
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "attnjit/result.h"

namespace attnjit::cli {

/// SPEC or --spec SPEC, and the flags of the fields' names, in the order in which they override.
struct SpecArguments {
  std::string file;  ///< empty: none; "-": standard input; also MANIFEST#N
  std::vector<std::pair<std::string, std::string>> flags;
  std::string tuning;                     ///< file of a tuning table; empty: none
  bool accept_unconfined_helper = false;  ///< for the commands that compile
};

/// The shapes and inputs of one attention call, for verify and bench.
struct ProblemArguments {
  std::optional<std::int64_t> batch;
  std::optional<std::string> q_len, kv_len;  ///< M[,M..]
  std::optional<std::int64_t> pairs;         ///< merge
  std::string given_map = "none";            ///< "mask", "random"
  std::string seed = "0";
  std::string input = "normal";
  std::optional<double> scale;
  std::map<std::string, double> scalars;  ///< of masks and score modification: "window", ..
  std::vector<std::string> params;
};

struct PlanArguments {
  SpecArguments spec;
  std::string config = "auto";
  std::optional<std::int64_t> max_prompt_len, batch, sm_count;
  bool draw_mask = false, draw_score_mod = false;
  double score = 0;     ///< that the score modification is asked about
  std::string picture;  ///< file for the picture as SVG; empty: none
  std::string tile;     ///< QUERIESxKEYS; empty: the kernel's
  std::int64_t sequence = 0, head = 0;
  std::string inputs;        ///< folder of tensors that the mask reads; empty: none
  ProblemArguments problem;  ///< whose tiles are drawn: its lengths and values
};

struct GenerateArguments {
  SpecArguments spec;
  std::string folder;                    ///< empty: standard output
  bool launch = false;                   ///< also LAUNCH.json and its inputs
  std::optional<std::int64_t> sm_count;  ///< that the launch is planned for
  ProblemArguments problem;
};

struct CompileArguments {
  SpecArguments spec;
  std::string cubin, ptx;  ///< files; empty: not written
};

struct PrewarmArguments {
  std::vector<std::string> manifests;
  std::vector<std::string> bundles;  ///< imported first
  std::string archs;
  std::int64_t jobs = 0;
  std::string tuning;
  bool accept_unconfined_helper = false;
};

/// Of a clock instead of a run: see docs/clock.md.
struct TimingArguments {
  std::string arch;                 ///< empty: none
  std::optional<std::int64_t> sms;  ///< that are run in detail
  bool report = false;
  bool values = false;
  std::string trace;
};

struct VerifyArguments {
  SpecArguments spec;
  ProblemArguments problem;
  std::string backend = "auto";
  std::optional<std::string> dump;
  // The emulator's.
  std::optional<std::int64_t> sm_count;
  std::optional<std::string> model;
  std::vector<std::string> waivers;
  std::optional<std::int64_t> seeds;
  TimingArguments timing;
};

struct ReferenceArguments {
  SpecArguments spec;
  ProblemArguments problem;  ///< its scale, scalars and parameters
  std::string inputs;        ///< folder of NAME.npy
  std::string output;        ///< folder for o.npy and lse.npy; empty: none
};

struct EmulateArguments {
  std::string ptx, launch;
  std::string model = "silicon";
  std::vector<std::string> waivers;
  std::optional<std::int64_t> seed;
  std::int64_t seeds = 1;
  std::string policy;  ///< empty: the seed's
  bool stats = false;
  TimingArguments timing;  ///< trace: of an untimed run, too
};

struct BenchArguments {
  SpecArguments spec;
  ProblemArguments problem;
  std::int64_t warmup = 5;
  std::int64_t repeats = 20;
};

struct TuneArguments {
  SpecArguments spec;               ///< its tuning is not used
  ProblemArguments problem;         ///< its launch values; not its lengths
  std::vector<std::string> shapes;  ///< BATCH:Q_LEN:KV_LEN
  std::string output;               ///< file of the table; empty: none
  std::string model;                ///< architecture whose model times; empty: a GPU does
  std::optional<std::int64_t> timed_sms;
  std::optional<std::int64_t> pairs;
  std::optional<std::int64_t> max_variants;
};

struct CacheArguments {
  enum class Action {
    kPath,
    kList,
    kShow,
    kStats,
    kVerify,
    kGc,
    kClear,
    kExport,
    kImport,
    kKeygen,
    kSign
  };
  Action action = Action::kPath;
  std::string file;               ///< export, import, keygen; sign and verify: empty: the cache
  std::string oci;                ///< export: folder of an image layout; empty: a bundle
  std::vector<std::string> keys;  ///< export; show: one, or how it begins
  std::vector<std::string> manifests;  ///< list, show: whose specs are named
  bool details = false;                ///< list
  std::string sign_key, trust;         ///< files; empty: as the environment says
  std::optional<std::string> max_bytes;
  bool dry_run = false;
};

struct ManifestArguments {
  std::string config;  ///< file; "-": standard input
  std::string name, source;
  std::string tensor_parallel = "1", page_sizes = "16,64";
  std::string kv_dtype;  ///< empty: the model's
  std::string output;    ///< file; empty: standard output
};

struct DoctorArguments {
  bool collect = false;  ///< also what a bug report needs
};

struct Arguments {
  std::string command;  ///< "compile"
  bool json = false;
  std::variant<PlanArguments, GenerateArguments, CompileArguments, PrewarmArguments,
               VerifyArguments, ReferenceArguments, EmulateArguments, BenchArguments, TuneArguments,
               CacheArguments, ManifestArguments, DoctorArguments>
      values;
};

/// What came of reading a command line: arguments, or a text to print and an exit code.
struct ParsedArguments {
  std::optional<Arguments> arguments;
  int exit_code = 0;
  std::string output;          ///< --help, completion, ..: for standard output
  std::optional<Error> error;  ///< bad usage
};

ParsedArguments parse_arguments(int argc, const char* const* argv);

}  // namespace attnjit::cli
