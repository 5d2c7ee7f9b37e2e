// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz targets of what the library reads over their corpora, in every build.
#include "corpus.h"

namespace attnjit::fuzz {
namespace {

TEST(FuzzCorpus, Expression) { run_corpus("expression", fuzz_expression); }
TEST(FuzzCorpus, Trusted) { run_corpus("trusted", fuzz_trusted); }
TEST(FuzzCorpus, SpecJson) { run_corpus("spec_json", fuzz_spec_json); }
TEST(FuzzCorpus, Manifest) { run_corpus("manifest", fuzz_manifest); }
TEST(FuzzCorpus, LaunchJson) { run_corpus("launch_json", fuzz_launch_json); }
TEST(FuzzCorpus, Tuning) { run_corpus("tuning", fuzz_tuning); }
TEST(FuzzCorpus, Template) { run_corpus("template", fuzz_template); }
TEST(FuzzCorpus, Cubin) { run_corpus("cubin", fuzz_cubin); }
TEST(FuzzCorpus, Worker) { run_corpus("worker", fuzz_worker); }
TEST(FuzzCorpus, CacheEntry) { run_corpus("cache_entry", fuzz_cache_entry); }

}  // namespace
}  // namespace attnjit::fuzz
