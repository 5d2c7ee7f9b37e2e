// SPDX-License-Identifier: Apache-2.0
// Parses the command line, and holds the help texts of all commands.
#include "cli/arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <sstream>

#include "base/architectures.h"
#include "cli/examples.h"
#include "cli/help_text.h"
#include "cli/usage_error.h"
#include "spec/scalars.h"
#include "spec/spec_flags.h"
#include "tune/variants.h"
#include "verify/problem.h"

namespace attnjit::cli {
namespace {

constexpr const char* kFooter = R"(
A spec is a file, SPEC.json, MANIFEST.json#0 (a manifest's spec) or - (standard input), or
flags of the fields' names (--num-q-heads 32 --qk-depth 128 --group 4 --mask causal,
--mask '{"kind": ...}'); flags override the file. Required: num_q_heads and qk_depth, and
where there is no GPU arch.

Exit codes: 0 done; 1 the work failed (a compile error, a wrong result, a finding);
2 bad usage or bad input; 3 unsupported (the reason is on standard error);
4 the environment lacks something (NVRTC, a GPU): see attnjit doctor.

Environment: ATTNJIT_CACHE_DIR (cache layers A:B:C, the first is written),
ATTNJIT_LOG_LEVEL (debug, info, warn, error), ATTNJIT_NVRTC (path of the library),
ATTNJIT_NVRTC_POLICY (exact, or any: the cache's kernels of another NVRTC serve, too),
ATTNJIT_TEMPLATES (folder that replaces the embedded templates), ATTNJIT_REMOTE
(base URL of the remote cache), ATTNJIT_LEASE (redis URL), ATTNJIT_TRUST (keyring),
ATTNJIT_SIGN_KEY (secret key); docs/fleet.md describes these.)";

/// The names of the architectures, and what else stands for one.
std::vector<std::string> architecture_choices(const char* beside = nullptr) {
  std::vector<std::string> names;
  for (const ArchTraits& row : architectures()) names.emplace_back(row.name);
  if (beside != nullptr) names.emplace_back(beside);
  return names;
}

class Parser {
 public:
  Parser()
      : app_("attnjit generates, compiles, caches and verifies attention kernels.", "attnjit") {
    app_.footer(kFooter);
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "attnjit " ATTNJIT_VERSION);
    app_.get_formatter()->column_width(34);
    plan();
    generate();
    compile();
    prewarm();
    verify();
    reference();
    emulate();
    bench();
    tune();
    cache();
    manifest();
    doctor();
    help_texts();
  }

  ParsedArguments parse(int argc, const char* const* argv) {
    ParsedArguments result;
    const std::vector<std::string> words = with_whole_flags(argc, argv);
    std::vector<const char*> whole;
    whole.reserve(words.size());
    for (const std::string& word : words) whole.push_back(word.c_str());
    try {
      app_.parse(argc, whole.data());
    } catch (const CLI::ParseError& error) {
      std::ostringstream out, unused;
      if (app_.exit(error, out, unused) == 0) {
        result.output = out.str();
        return result;
      }
      result.exit_code = 2;
      result.error = usage_error(app_, error, argc, argv);
      return result;
    }
    if (std::optional<Error> error = bad_value(app_)) {
      result.exit_code = 2;
      result.error = std::move(error);
      return result;
    }
    if (!shell_.empty()) {
      result.output = completion_script(app_, shell_, choices_);
    } else if (man_) {
      result.output = man_page(app_, ATTNJIT_VERSION);
    } else {
      result.arguments = std::move(arguments_);
    }
    return result;
  }

 private:
  /// Whether a word is a spec, and not the value of a flag that may stand alone.
  static bool names_spec(const std::string& word) {
    for (const char* const value : {"true", "false", "null", "mask", "random", "none"}) {
      if (word == value) return false;
    }
    return word == "-" || word.find_first_of("./#") != std::string::npos ||
           ::access(word.c_str(), F_OK) == 0;
  }

  /// The words, of which a flag whose value may be left out leaves out none: CLI11 would give it
  /// the spec that follows.
  std::vector<std::string> with_whole_flags(int argc, const char* const* argv) const {
    std::vector<std::string> words(argv, argv + argc);
    for (int i = 1; i < argc && words[i] != "--"; ++i) {
      const auto flag = value_left_out_.find(words[i]);
      if (flag == value_left_out_.end() || i + 1 == argc) continue;
      if (names_spec(words[i + 1])) words[i] += "=" + flag->second;
    }
    return words;
  }

  /// A flag that alone means `value`.
  void may_stand_alone(CLI::Option* flag, const std::string& value) {
    flag->expected(0, 1)->default_str(value);
    value_left_out_[flag->get_name()] = value;
  }

  /// Values that a shell offers.
  CLI::Option* with_choices(CLI::Option* option, std::vector<std::string> values) {
    choices_[option] = std::move(values);
    return option;
  }

  /// NOTE: of a list CLI11 takes all words up to the next flag, what a command requires among them.
  static CLI::Option* may_be_repeated(CLI::Option* option) {
    return option->expected(1)->take_all()->allow_extra_args(false);
  }

  // Adds a command whose values are a T inside arguments_ once the command was named.
  template <class T>
  CLI::App* command(const std::string& name, const std::string& description, T& values) {
    CLI::App* app = app_.add_subcommand(name, description);
    app->footer(examples_of(name) + kFooter);
    app->add_flag("--json", arguments_.json, "Print one JSON object on standard output");
    app->final_callback([this, name, &values] {
      arguments_.command = name;
      arguments_.values = values;
    });
    return app;
  }

  void add_spec(CLI::App* app, SpecArguments& spec) {
    app->add_option("--tuning", spec.tuning,
                    "Tuning table (JSON) that plans are made with; 'modelled': the library's")
        ->type_name("FILE");
    add_untuned_spec(app, spec);
  }

  static void add_helper(CLI::App* app, bool& accept_unconfined) {
    app->add_flag("--accept-unconfined-helper", accept_unconfined,
                  "Compile trusted code also where system calls cannot be filtered (seccomp)");
  }

  void add_timing(CLI::App* app, TimingArguments& timing) {
    const char* group = "Clock";
    with_choices(app->add_option("--timing", timing.arch,
                                 "Say how long the launch takes on a GPU of this architecture, by "
                                 "a model; its results are not looked at"),
                 architecture_choices())
        ->type_name("ARCH")
        ->group(group);
    app->add_option("--timed-sms", timing.sms,
                    "SMs that are run in detail, evenly spaced; default 4")
        ->group(group);
    app->add_flag("--report", timing.report,
                  "With --timing: where the time of each role's warps went")
        ->group(group);
    app->add_flag("--values", timing.values,
                  "With --timing: compute products, for kernels whose time depends on them; else "
                  "scores are zeros")
        ->group(group);
    app->add_option("--trace", timing.trace,
                    "Write a Chrome/Perfetto trace; with --timing its times are real ones")
        ->type_name("FILE")
        ->group(group);
  }

  void add_untuned_spec(CLI::App* app, SpecArguments& spec) {
    app->add_option("spec,--spec", spec.file,
                    "JSON file of the spec; - reads standard input, MANIFEST#N a manifest's spec")
        ->type_name("FILE")
        ->group(kSpecGroup);
    for (const spec::SpecFlag& flag : spec::spec_flags()) {
      CLI::Option* option = app->add_option_function<std::string>(
                                   flag.name,
                                   [&spec, field = flag.field](const std::string& value) {
                                     spec.flags.emplace_back(field, value);
                                   },
                                   flag.help)
                                ->type_name(flag.type)
                                ->group(kSpecGroup);
      if (flag.is_bool) may_stand_alone(option, "true");
      if (!flag.values.empty()) with_choices(option, flag.values);
    }
  }

  void add_problem(CLI::App* app, ProblemArguments& problem) {
    const char* group = "Problem";
    app->add_option("--batch", problem.batch,
                    "Number of sequences; default: the length of the longer list")
        ->group(group);
    add_lengths(app, problem);
    may_stand_alone(
        with_choices(app->add_option("--given-map", problem.given_map,
                                     "Give the launch a map of its mask, made on the host (mask), "
                                     "or of any blocks (random)"),
                     {"mask", "random", "none"})
            ->type_name("KIND")
            ->group(group),
        "mask");
    app->add_option("--pairs", problem.pairs, "Pairs of o and lse that a merge is given; default 2")
        ->group(group);
    add_input(app, problem);
    add_values(app, problem);
  }

  static void add_lengths(CLI::App* app, ProblemArguments& problem) {
    const char* group = "Problem";
    app->add_option(
           "--q-len", problem.q_len,
           "Queries per sequence, or one number for each (M,M,..: ragged); default 256, or "
           "the spec's max_q_len where that is less")
        ->type_name("M[,M..]")
        ->group(group);
    app->add_option(
           "--kv-len", problem.kv_len,
           "Keys per sequence, or one number for each (N,N,..); default 512, or the spec's "
           "max_seq_len where that is less")
        ->type_name("N[,N..]")
        ->group(group);
  }

  void add_input(CLI::App* app, ProblemArguments& problem) {
    std::vector<std::string> kinds;
    kinds.reserve(std::size(verify::kInputKinds));
    for (const verify::InputKind kind : verify::kInputKinds) kinds.emplace_back(to_string(kind));
    with_choices(app->add_option("--input", problem.input,
                                 "normal, large (scores of deviation 8), rising or falling (a "
                                 "row's scores grow or fall with kv_idx), spike or raised (a few "
                                 "keys above all others), small, zero, far or stray; default "
                                 "normal"),
                 kinds)
        ->group("Problem");
  }

  static void add_values(CLI::App* app, ProblemArguments& problem) {
    app->add_option("--seed", problem.seed, "Seed of the inputs; default 0")->group("Problem");
    add_numbers(app, problem, true);
  }

  /// What a launch is given beside tensors.
  /// @param sampled what is not given has a default, or is drawn from the seed
  static void add_numbers(CLI::App* app, ProblemArguments& problem, bool sampled) {
    const char* group = "Problem";
    app->add_option("--scale", problem.scale, "Score scale; default 1/sqrt(qk_depth)")
        ->group(group);
    for (const spec::ScalarFlag& flag : spec::scalar_flags())
      add_scalar(app, problem, flag, sampled);
    may_be_repeated(app->add_option("--param", problem.params,
                                    std::string("Value of a parameter of custom code") +
                                        (sampled ? "; drawn from the seed where not given" : "")))
        ->type_name("NAME=VALUE|NAME=@F.npy")
        ->group(group);
  }

  /// A number of a mask or a score modification that the spec leaves to the launch.
  static void add_scalar(CLI::App* app, ProblemArguments& problem, const spec::ScalarFlag& flag,
                         bool sampled) {
    const std::string name(flag.traits.name);
    std::string flag_name = "--" + name;
    std::replace(flag_name.begin(), flag_name.end(), '_', '-');
    const std::string help =
        fmt::format("The {} at launch where the spec gives none; {}", name,
                    sampled ? fmt::format("default {}", flag.traits.sample) : "needed there");
    const auto take = [&problem, name](auto value) {
      problem.scalars[name] = static_cast<double>(value);
    };
    CLI::Option* option = flag.is_integer
                              ? app->add_option_function<std::int64_t>(flag_name, take, help)
                              : app->add_option_function<double>(flag_name, take, help);
    option->group("Problem");
  }

  template <class T>
  void add_model(CLI::App* app, T& model, std::vector<std::string>& waivers) {
    with_choices(
        app->add_option("--model", model, "The emulator's model, isa or silicon; default silicon"),
        {"isa", "silicon"});
    may_be_repeated(
        with_choices(app->add_option("--waive", waivers,
                                     "Grant an order that the isa model does not promise: "
                                     "in-order-mma; may be repeated. verify also grants what the "
                                     "kernel's plan declares"),
                     {"in-order-mma"}))
        ->type_name("NAME");
  }

  void plan() {
    CLI::App* app = command("plan", "Show the configuration of a spec's kernel", plan_);
    add_spec(app, plan_.spec);
    with_choices(app->add_option("--config", plan_.config,
                                 "auto, fa4, mla, depth512 or sm90: the configuration to show; "
                                 "default auto"),
                 {"auto", "fa4", "mla", "depth512", "sm90"});
    app->add_option("--max-prompt-len", plan_.max_prompt_len,
                    "Longest query of a launch; the plan then says whether it uses 1Q or 2Q");
    app->add_option("--batch", plan_.batch, "Number of sequences of that launch");
    app->add_option("--sm-count", plan_.sm_count,
                    "Number of SMs of the GPU; default: that of an H200, a B200 or a GB300");
    app->add_flag("--draw-mask", plan_.draw_mask,
                  "Show instead which tiles of scores the mask hides, shows, or cuts");
    app->add_flag("--draw-score-mod", plan_.draw_score_mod,
                  "Show instead what the score modification makes of scores");
    app->add_option("--score", plan_.score, "With --draw-score-mod: of which; default 0");
    app->add_option("-o,--output", plan_.picture, "File for the picture, in SVG")
        ->type_name("F.svg");
    app->add_option("--tile", plan_.tile,
                    "Tiles of this size in place of the kernel's, by asking about each score; 1x1 "
                    "shows all")
        ->type_name("QUERIESxKEYS");
    app->add_option("--sequence", plan_.sequence,
                    "With --tile or --draw-score-mod: whose scores; default 0");
    app->add_option("--head", plan_.head, "The same: the query head; default 0");
    app->add_option("--inputs", plan_.inputs,
                    "The same: folder of what is read, as mask.npy, slopes.npy and param_NAME.npy")
        ->type_name("DIR");
    add_lengths(app, plan_.problem);
    add_numbers(app, plan_.problem, false);
  }

  void generate() {
    CLI::App* app =
        command("generate", "Print or write the CUDA source and the compile options", generate_);
    add_spec(app, generate_.spec);
    app->add_option("-o,--output", generate_.folder,
                    "Folder for the source, its headers and options.txt; default: standard output")
        ->type_name("DIR");
    app->add_flag("--launch", generate_.launch,
                  "Also write LAUNCH.json and its inputs, for attnjit emulate; needs -o");
    app->add_option("--sm-count", generate_.sm_count,
                    "SMs that the launch is planned for; default: those of an H200, a B200 or "
                    "a GB300 (verify's emulator: 2)");
    add_problem(app, generate_.problem);
  }

  void compile() {
    CLI::App* app =
        command("compile", "Compile a spec's kernel, or find it in the cache", compile_);
    add_spec(app, compile_.spec);
    add_helper(app, compile_.spec.accept_unconfined_helper);
    app->add_option("-o,--output", compile_.cubin, "Write the cubin")->type_name("F.cubin");
    app->add_option("--ptx", compile_.ptx, "Write the PTX")->type_name("FILE");
  }

  void prewarm() {
    CLI::App* app = command("prewarm", "Compile every spec of manifests into the cache", prewarm_);
    app->add_option("manifest", prewarm_.manifests,
                    "{\"name\", \"source\", \"specs\": [SPEC, ..]}, the specs without arch; - "
                    "reads standard input")
        ->required()
        ->type_name("MANIFEST");
    may_be_repeated(
        app->add_option("--from", prewarm_.bundles, "Import this bundle first; may be repeated"))
        ->type_name("BUNDLE");
    with_choices(
        app->add_option("--arch", prewarm_.archs,
                        architecture_names() +
                            ": one or several; native, or left out: that of the GPU at hand"),
        architecture_choices("native"))
        ->type_name("A[,B]");
    app->add_option("-j,--jobs", prewarm_.jobs,
                    "Compiles at once; default: what cores and memory allow");
    app->add_option("--tuning", prewarm_.tuning,
                    "Tuning table (JSON) that plans are made with; 'modelled': the library's")
        ->type_name("FILE");
    add_helper(app, prewarm_.accept_unconfined_helper);
  }

  void verify() {
    CLI::App* app =
        command("verify", "Run a spec's kernel and compare it with a float64 reference", verify_);
    add_spec(app, verify_.spec);
    add_helper(app, verify_.spec.accept_unconfined_helper);
    add_problem(app, verify_.problem);
    with_choices(
        app->add_option("--backend", verify_.backend, "auto, gpu or emulator; default auto"),
        {"auto", "gpu", "emulator"});
    add_model(app, verify_.model, verify_.waivers);
    app->add_option("--seeds", verify_.seeds,
                    "Seeds of the emulator's scheduler to run; all must pass; default 1");
    app->add_option("--sm-count", verify_.sm_count,
                    "SMs that the emulator's launch is planned for; default 2, so that small "
                    "problems give a CTA several tiles");
    add_timing(app, verify_.timing);
    app->add_option("--dump", verify_.dump,
                    "Folder for spec.json and every input and output as .npy")
        ->type_name("DIR");
  }

  void reference() {
    CLI::App* app = command(
        "reference", "Compute a spec's attention in float64 on the CPU, without a GPU or NVRTC",
        reference_);
    add_untuned_spec(app, reference_.spec);
    app->add_option("--inputs", reference_.inputs,
                    "Folder of q.npy, k.npy, v.npy and what else the spec needs, by the names of "
                    "verify --dump")
        ->required()
        ->type_name("DIR");
    app->add_option("-o,--output", reference_.output, "Folder for o.npy and lse.npy, in float64")
        ->type_name("DIR");
    add_numbers(app, reference_.problem, false);
  }

  void emulate() {
    CLI::App* app = command("emulate",
                            "Execute a launch of a PTX kernel on the CPU and report "
                            "what is wrong with it",
                            emulate_);
    app->add_option("ptx", emulate_.ptx, "PTX module")->required()->type_name("KERNEL.ptx");
    app->add_option("--launch", emulate_.launch, "The launch: see docs/emulator.md")
        ->required()
        ->type_name("LAUNCH.json");
    add_model(app, emulate_.model, emulate_.waivers);
    app->add_option("--seed", emulate_.seed, "First seed of the scheduler; default: the launch's");
    app->add_option("--seeds", emulate_.seeds, "Seeds to run; all must pass; default 1");
    with_choices(app->add_option("--policy,--mood", emulate_.policy,
                                 "What the scheduler tends to, random, eager, lazy or starve; "
                                 "default: each seed chooses"),
                 {"random", "eager", "lazy", "starve"})
        ->type_name("NAME");
    app->add_flag("--stats", emulate_.stats, "Count instructions, bytes, conflicts and waits");
    add_timing(app, emulate_.timing);
  }

  void bench() {
    CLI::App* app = command("bench", "Time a spec's kernel on the GPU", bench_);
    add_spec(app, bench_.spec);
    add_helper(app, bench_.spec.accept_unconfined_helper);
    add_problem(app, bench_.problem);
    app->add_option("--warmup", bench_.warmup, "Launches before timing; default 5");
    app->add_option("--repeats", bench_.repeats, "Samples; the median is reported; default 20");
  }

  void tune() {
    CLI::App* app = command(
        "tune",
        "Time the variants of a spec's kernel, on the GPU or by a model; write a tuning table",
        tune_);
    add_untuned_spec(app, tune_.spec);
    add_helper(app, tune_.spec.accept_unconfined_helper);
    app->add_option("-o,--output", tune_.output,
                    "The table to write; a table that is there keeps its other rows")
        ->type_name("FILE");
    may_be_repeated(app->add_option("--shape", tune_.shapes,
                                    "Lengths to time, each once; default 16:1024:1024, "
                                    "4:4096:4096, 1:16384:16384"))
        ->type_name("BATCH:M:N");
    with_choices(app->add_option("--model", tune_.model,
                                 "Time by the clock's model of this architecture's GPU, where none "
                                 "is at hand"),
                 architecture_choices())
        ->type_name("ARCH");
    app->add_option("--timed-sms", tune_.timed_sms,
                    "With --model: SMs that are run in detail, evenly spaced; default 2");
    app->add_option("--pairs", tune_.pairs, "Pairs of blocks per finalist and shape; default 9");
    app->add_option(
        "--max-variants", tune_.max_variants,
        fmt::format("Variants to try, those nearest to the untuned plan first; default {}",
                    tune::kMaxVariants));
    add_values(app, tune_.problem);
  }

  void add_manifests(CLI::App* app) {
    may_be_repeated(app->add_option("--manifest", cache_.manifests,
                                    "A manifest whose specs and model are to be named; may be "
                                    "repeated"))
        ->type_name("MANIFEST");
  }

  void cache() {
    CLI::App* app = app_.add_subcommand("cache", "Look after the cache of compiled kernels");
    app->require_subcommand(1);
    app->footer(examples_of("cache") + kFooter);
    using Action = CacheArguments::Action;
    const auto action = [&](const char* name, const char* description, Action value) {
      CLI::App* sub = app->add_subcommand(name, description);
      sub->footer(examples_of(std::string("cache ") + name));
      sub->add_flag("--json", arguments_.json, "Print one JSON object on standard output");
      sub->final_callback([this, value] {
        cache_.action = value;
        arguments_.command = "cache";
        arguments_.values = cache_;
      });
      return sub;
    };
    action("path", "Show where the cache is: its layers, the written one first", Action::kPath);
    CLI::App* listing =
        action("list", "List every image: key, architecture, size, last use", Action::kList);
    listing->add_flag(
        "--long", cache_.details,
        "Say also what each computes, its model where --manifest names it, and NVRTC");
    add_manifests(listing);
    CLI::App* show =
        action("show", "Say all that is known of an image: of its key, or of how that begins",
               Action::kShow);
    show->add_option("key", cache_.keys, "The key, or its first digits")
        ->required()
        ->expected(1)
        ->type_name("KEY");
    add_manifests(show);
    action("stats", "Count the entries and bytes of each layer", Action::kStats);
    CLI::App* check = action(
        "verify", "Read and check every entry, or a bundle's signature; bad entries are put aside",
        Action::kVerify);
    check->add_option("bundle", cache_.file, "A bundle, with its signature in BUNDLE.minisig")
        ->type_name("BUNDLE");
    check->add_option("--trust", cache_.trust, "Keyring of those who may sign")->type_name("FILE");
    CLI::App* gc =
        action("gc", "Remove leftovers and, above the cap, the least recently used", Action::kGc);
    gc->add_option("--max-bytes", cache_.max_bytes,
                   "Cap of the written layer, also as 500M or 5G; default 1G")
        ->type_name("BYTES");
    gc->add_flag("--dry-run", cache_.dry_run, "Say what would be removed");
    action("clear", "Remove everything that attnjit keeps in the written layer", Action::kClear);
    CLI::App* out =
        action("export", "Write entries to one file, or to an OCI image layout", Action::kExport);
    CLI::Option* file = out->add_option("file", cache_.file, "The bundle to write");
    file->type_name("FILE");
    CLI::Option* oci = out->add_option("--oci", cache_.oci, "The image layout to write");
    oci->type_name("DIR");
    file->excludes(oci);
    may_be_repeated(out->add_option("--key", cache_.keys, "Only this key; may be repeated"));
    CLI::App* in = action("import", "Merge a bundle into the written layer", Action::kImport);
    in->add_option("file", cache_.file, "The bundle to read")->required()->type_name("FILE");
    CLI::App* keygen = action("keygen", "Make a key to sign with", Action::kKeygen);
    keygen->add_option("file", cache_.file, "The secret key to write; FILE.pub is the public one")
        ->required()
        ->type_name("FILE");
    CLI::App* sign =
        action("sign", "Sign every entry of the written layer, or a bundle", Action::kSign);
    sign->add_option("bundle", cache_.file, "A bundle; its signature is BUNDLE.minisig")
        ->type_name("BUNDLE");
    sign->add_option("--key", cache_.sign_key, "Secret key")->type_name("FILE");
  }

  void manifest() {
    CLI::App* app = command(
        "manifest", "Write a manifest for prewarm from a model's Hugging Face configuration",
        manifest_);
    app->add_option("config", manifest_.config, "config.json of the model; - reads standard input")
        ->required()
        ->type_name("CONFIG");
    app->add_option("--tp", manifest_.tensor_parallel, "Numbers of GPUs that share the heads")
        ->type_name("N[,N..]");
    app->add_option("--page", manifest_.page_sizes, "Rows of the cache's pages")
        ->type_name("N[,N..]");
    with_choices(app->add_option("--kv-dtype", manifest_.kv_dtype,
                                 "Type of the cache: bf16, fp16, e4m3; default: the model's"),
                 {"bf16", "fp16", "e4m3"});
    app->add_option("--name", manifest_.name, "The model's name; default: its architecture");
    app->add_option("--source", manifest_.source, "Where the numbers are from; default: CONFIG");
    app->add_option("-o", manifest_.output, "The manifest to write; default: standard output")
        ->type_name("FILE");
  }

  void doctor() {
    command("doctor",
            "Report what was found (NVRTC, driver, GPU, cache), and what to do about the rest",
            doctor_)
        ->add_flag("--collect", doctor_.collect,
                   "Print what a bug report needs: also the system, the CPU and the environment");
  }

  // Commands that print what the others are.
  void help_texts() {
    CLI::App* completion = app_.add_subcommand(
        "completion", "Print a script that completes the command line in a shell");
    completion->footer(examples_of("completion"));
    with_choices(completion->add_option("shell", shell_, "bash, zsh or fish"),
                 {"bash", "zsh", "fish"})
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    app_.add_subcommand("man", "Print the manual page: attnjit man | man -l -")->callback([this] {
      man_ = true;
    });
  }

  CLI::App app_;
  std::map<std::string, std::string> value_left_out_;  ///< by flag: what it means alone
  Choices choices_;
  std::string shell_;
  bool man_ = false;
  Arguments arguments_;
  PlanArguments plan_;
  GenerateArguments generate_;
  CompileArguments compile_;
  PrewarmArguments prewarm_;
  VerifyArguments verify_;
  ReferenceArguments reference_;
  EmulateArguments emulate_;
  BenchArguments bench_;
  TuneArguments tune_;
  CacheArguments cache_;
  ManifestArguments manifest_;
  DoctorArguments doctor_;
};

}  // namespace

ParsedArguments parse_arguments(int argc, const char* const* argv) {
  return Parser().parse(argc, argv);
}

}  // namespace attnjit::cli
