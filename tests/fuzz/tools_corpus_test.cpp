// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz targets of what verify and the emulator read over their corpora, in every build.
#include "corpus.h"

namespace attnjit::fuzz {
namespace {

TEST(FuzzToolsCorpus, Npy) { run_corpus("npy", fuzz_npy); }
TEST(FuzzToolsCorpus, Ptx) { run_corpus("ptx", fuzz_ptx); }

}  // namespace
}  // namespace attnjit::fuzz
