// SPDX-License-Identifier: Apache-2.0
// Tests of what the expression tier refuses, with its places, and of the trusted tier's check.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "spec/expression.h"
#include "spec/text.h"
#include "spec/trusted.h"

namespace attnjit::spec {
namespace {

const std::vector<ParamSpec> kParams = {{"w", ParamSpec::Type::kI32},
                                        {"x", ParamSpec::Type::kF32},
                                        {"doc", ParamSpec::Type::kI32Array},
                                        {"bias", ParamSpec::Type::kF32Array},
                                        {"table", ParamSpec::Type::kI32Matrix}};

struct Hostile {
  std::string code;
  int line;
  int column;
  const char* message;
  SnippetKind kind = SnippetKind::kMask;
};

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

constexpr SnippetKind kScore = SnippetKind::kScoreMod;

const std::vector<Hostile>& hostile() {
  static const std::vector<Hostile> cases = {
      // The preprocessor, in every spelling.
      {"#include \"/etc/passwd\"\ntrue", 1, 1, "preprocessor"},
      {"true\n#define true false\n", 2, 1, "preprocessor"},
      {"true\n%:include \"/etc/passwd\"", 2, 1, "preprocessor"},
      {"true\n?\?=include \"/etc/passwd\"", 2, 1, "trigraph"},
      {"kv_idx <= q_idx \\\n#include \"x\"", 1, 17, "backslash"},
      {"kv_i\\\ndx <= q_idx", 1, 5, "backslash"},
      {"kv_idx <= q_idx ?\?/\n", 1, 17, "trigraph"},
      {"_Pragma(\"once\") true", 1, 1, "no name"},
      {"__has_include(</etc/shadow>)", 1, 1, "no name"},
      {"__has_include(\"/etc/shadow\") == 1", 1, 1, "no name"},
      {"__LINE__ == 1", 1, 1, "no name"},
      {"__FILE__[0] == 47", 1, 1, "no name"},
      {"defined(NDEBUG)", 1, 1, "no name"},
      // Comments.
      {"true // comment", 1, 6, "comment"},
      {"true /* comment */", 1, 6, "comment"},
      {"true /* open", 1, 6, "comment"},
      {"q_idx /*/ kv_idx > 0", 1, 7, "comment"},
      // Strings, characters, assembly, attributes.
      {"\"a\" == \"b\"", 1, 1, "string"},
      {"q_idx == 'a'", 1, 10, "character literal"},
      {"R\"x(a)x\" == 0", 1, 2, "string"},
      {"asm(\"trap;\"), true", 1, 1, "no name"},
      {"__asm__ volatile (\"trap;\")", 1, 1, "no name"},
      {"[[noreturn]] true", 1, 1, "`[` where a value is expected"},
      {"__attribute__((noinline)) true", 1, 1, "no name"},
      // Statements, blocks, escapes from the function.
      {"return kv_idx <= q_idx;", 1, 1, "no name"},
      {"kv_idx <= q_idx;", 1, 16, "end of a statement"},
      {"true; } extern \"C\" __global__ void evil(int* p) { *p = 1;", 1, 5, "end of a statement"},
      {"true) } __global__ void evil() { (void(0)", 1, 5, "`)` where the end"},
      {"{ return true; }", 1, 1, "block"},
      {"({ true; })", 1, 2, "block"},
      {"if (q_idx > 0) true", 1, 1, "no name"},
      {"while (true) {}", 1, 1, "no name"},
      {"for (;;) {}", 1, 1, "no name"},
      {"[](int a) { return a; }(1) > 0", 1, 1, "`[` where a value"},
      {"[&]{ return true; }()", 1, 1, "`[` where a value"},
      // Assignments, pointers, commas, scopes.
      {"q_idx = 1", 1, 7, "assignment"},
      {"p.doc[0] = 1", 1, 10, "assignment"},
      {"q_idx += 1", 1, 7, "assignment"},
      {"q_idx <<= 1", 1, 7, "assignment"},
      {"q_idx >>= 1", 1, 7, "assignment"},
      {"q_idx++ > 0", 1, 6, "assignment"},
      {"--q_idx > 0", 1, 1, "assignment"},
      {"q_idx--kv_idx > 0", 1, 6, "assignment"},
      {"&q_idx != 0", 1, 1, "address"},
      {"*q_idx != 0", 1, 1, "pointer"},
      {"*(int*)0 == 1", 1, 1, "pointer"},
      {"(int*)q_idx == 0", 1, 5, "`*` where `(` of the cast"},
      {"((float*)p.bias)[3] > 0", 1, 8, "`*` where `(` of the cast"},
      {"p->doc[0] == 1", 1, 2, "pointer access"},
      {"q_idx, kv_idx > 0", 1, 6, "`,` where the end"},
      {"(q_idx, kv_idx) > 0", 1, 7, "`,` where `)`"},
      {"p.doc[1, 2] > 0", 1, 8, "`,` where `]`"},
      {"::exit(1)", 1, 1, "scope"},
      {"std::min(1, 2) > 0", 1, 4, "scope"},
      {"attnjit::evil() > 0", 1, 8, "scope"},
      {"min<int>(1, 2) > 0", 1, 1, "lacks its arguments"},
      {"sizeof(int) == 4", 1, 1, "no name"},
      {"new int", 1, 1, "no name"},
      {"throw 1", 1, 1, "no name"},
      {"static_cast<int>(1.5) > 0", 1, 1, "no name"},
      {"(unsigned)q_idx > 0", 1, 2, "no name"},
      {"(void)q_idx", 1, 2, "no name"},
      {"operator+(1, 2) > 0", 1, 1, "no name"},
      {"template", 1, 1, "no name"},
      {"alignof(int) > 0", 1, 1, "no name"},
      {"this == 0", 1, 1, "no name"},
      {"nullptr == 0", 1, 1, "no name"},
      // Names that it does not see.
      {"foo > 0", 1, 1, "no name"},
      {"kv_indx <= q_idx", 1, 1, "no name"},
      {"doc[q_idx] == doc[kv_idx]", 1, 1, "no name"},
      {"p.dok[q_idx] == 1", 1, 3, "no parameter"},
      {"p == 0", 1, 3, "`=="},
      {"p.", 1, 3, "ends where a parameter's name"},
      {"p.doc.size > 0", 1, 6, "lacks an index"},
      {"c.q_idx > 0", 1, 1, "no name"},
      {"score > 0", 1, 1, "no name"},
      {"threadIdx.x == 0", 1, 1, "no name"},
      {"__syncthreads()", 1, 1, "no name"},
      {"printf(1)", 1, 1, "no name"},
      {"__trap()", 1, 1, "no name"},
      {"clock64() > 0", 1, 1, "no name"},
      {"abs > 0", 1, 1, "lacks its arguments"},
      {"abs() > 0", 1, 1, "number of arguments"},
      {"min(1) > 0", 1, 1, "number of arguments"},
      {"min(1, 2, 3) > 0", 1, 1, "number of arguments"},
      {"q_idx(1) > 0", 1, 6, "call of what is no function"},
      {"q_idx[1] > 0", 1, 6, "no array"},
      {"p.w[1] > 0", 1, 4, "no array"},
      {"p.doc > 0", 1, 7, "lacks an index"},
      {"p.doc[0][1] > 0", 1, 9, "no array"},
      {"p.table[0] > 0", 1, 12, "lacks its second index"},
      {"p.doc[0.5] > 0", 1, 7, "index is a float"},
      {"p.doc[score] > 0 ? 1 : 2", 1, 7, "index is a float", kScore},
      // Types.
      {"q_idx - kv_idx", 1, 7, "the mask is int; allowed: bool"},
      {"1", 1, 1, "the mask is int"},
      {"1.5f", 1, 1, "the mask is float"},
      {"q_idx >= kv_idx", 1, 7, "score modification is bool", kScore},
      {"true", 1, 1, "score modification is bool", kScore},
      {"score % 2", 1, 7, "`%` of a float", kScore},
      {"score & 1", 1, 7, "`&` of a float", kScore},
      {"score << 1", 1, 7, "`<<` of a float", kScore},
      {"~score", 1, 1, "`~` of a float", kScore},
      {"~(q_idx > 0)", 1, 1, "`~` of a bool"},
      {"q_idx / 0 == 1", 1, 9, "`/` by 0"},
      {"q_idx % 0 == 1", 1, 9, "`%` by 0"},
      {"q_idx / (1 - 1) == 1", 1, 12, "`/` by 0"},
      {"q_idx % (int)0.5 == 1", 1, 14, "`%` by 0"},
      {"q_idx / min(0, 7) == 1", 1, 9, "`/` by 0"},
      {"score / 0", 1, 9, "`/` by 0", kScore},
      {"score / -0.0f", 1, 9, "`/` by 0", kScore},
      {"score / 1e-60", 1, 9, "`/` by 0", kScore},
      {"true ? 1 / 0 : 2", 1, 12, "`/` by 0", kScore},
      {"q_idx << 32 == 0", 1, 10, "shift by 32"},
      {"q_idx >> -1 == 0", 1, 10, "shift by -1"},
      {"0 <= q_idx < 10", 1, 12, "boolean of the comparison before"},
      {"q_idx == kv_idx == h", 1, 17, "boolean of the comparison before"},
      // Numbers.
      {"q_idx > 2147483648", 1, 9, "out of range"},
      {"q_idx > 99999999999999999999999", 1, 9, "out of range"},
      {"q_idx > 0x80000000", 1, 9, "out of range"},
      {"q_idx > 0xfffffffffffffffff", 1, 9, "out of range"},
      {"q_idx > 010", 1, 9, "octal"},
      {"q_idx > 10u", 1, 9, "no number"},
      {"q_idx > 10LL", 1, 9, "no number"},
      {"q_idx > 1'000", 1, 10, "character literal"},
      {"q_idx > 0b11", 1, 9, "no number"},
      {"q_idx > 0x", 1, 9, "no number"},
      {"q_idx > 1.5.2", 1, 9, "no number"},
      {"q_idx > 1e", 1, 9, "no number"},
      {"q_idx > 1e+", 1, 9, "no number"},
      {"q_idx > 1f", 1, 9, "no number"},
      {"q_idx > 1e39", 1, 9, "out of range"},
      {"q_idx > 1e9999", 1, 9, "out of range"},
      {"q_idx > 0x1.8p3", 1, 9, "no number"},
      {"q_idx > 1.0_km", 1, 9, "no number"},
      // Shapes that no expression has.
      {"", 1, 1, "empty"},
      {"  \n\t ", 2, 3, "empty"},
      {"(", 1, 2, "ends where a value"},
      {")", 1, 1, "`)` where a value"},
      {"()", 1, 2, "`)` where a value"},
      {"(true", 1, 6, "ends where `)`"},
      {"true)", 1, 5, "`)` where the end"},
      {"true true", 1, 6, "`true` where the end"},
      {"q_idx <", 1, 8, "ends where a value"},
      {"< q_idx", 1, 1, "`<` where a value"},
      {"q_idx ? true", 1, 13, "ends where `:`"},
      {"q_idx ? : true", 1, 9, "`:` where a value"},
      {"q_idx ?\? true", 1, 7, "trigraph"},
      {"p.doc[q_idx", 1, 12, "ends where `]`"},
      {"p.doc[] > 0", 1, 7, "`]` where a value"},
      {"p.doc<:0:> > 0", 1, 6, "digraph"},
      {"<% true %>", 1, 1, "digraph"},
      {"min(1, ) > 0", 1, 1, "number of arguments"},
      {"q_idx <=> kv_idx", 1, 7, "three-way"},
      {"q_idx ... kv_idx", 1, 7, "ellipsis"},
      {"q_idx and true", 1, 7, "`and` where the end"},
      {"not true", 1, 1, "no name"},
      {"@true", 1, 1, "no sign of C"},
      {"$x > 0", 1, 1, "no sign of C"},
      {"tru\xc3\xa9", 1, 4, "no ASCII character"},
      {"q_idx \xe2\x89\xa4 kv_idx", 1, 7, "no ASCII character"},
      {"\xef\xbb\xbftrue", 1, 1, "no ASCII character"},
      {std::string("true\0", 5), 1, 5, "control character 0x00"},
      {std::string("q_idx\0> 0", 9), 1, 6, "control character 0x00"},
      {"true\x1b[2J", 1, 5, "control character 0x1b"},
      {"true\v", 1, 5, "control character 0x0b"},
      {"\\u0071_idx > 0", 1, 1, "backslash"},
      // Hostile size.
      {repeated("(", 10000), 1, 129, "nested too deeply"},
      {repeated("!", 10000) + "true", 1, 256, "nested too deeply"},
      {repeated("-", 1), 1, 2, "ends where a value"},
      {repeated("- ", 8000) + "1 > 0", 1, 511, "nested too deeply"},
      {repeated("~", 10000) + "1 > 0", 1, 256, "nested too deeply"},
      {repeated("abs(", 4000), 1, 513, "nested too deeply"},
      {repeated("true ? ", 2000), 1, 1786, "nested too deeply"},
      {repeated("true ? true : ", 1000), 1, 3564, "nested too deeply"},
      {repeated("p.doc[", 2000), 1, 769, "nested too deeply"},
      {repeated("1+", 8000) + "1 > 0", 1, 512, "too deep"},
      {repeated("true&&", 2700) + "true", 1, 1535, "too deep"},
      {"min(" + repeated("1+1,", 4000) + "1)", 1, 1, "number of arguments"},
      {std::string(16385, ' '), 1, 1, "16385 bytes; allowed: up to 16384"},
      {std::string(50 << 20, '('), 1, 1, "allowed: up to 16384"},
      {std::string(16384, 'a'), 1, 1, "no name"},
      {std::string(16384, '9'), 1, 1, "out of range"},
      {"1" + std::string(16000, '.'), 1, 1, "no number"},
  };
  return cases;
}

TEST(HostileSnippets, ThereAreEnough) { EXPECT_GE(hostile().size(), 60U); }

TEST(HostileSnippets, EachIsRefusedAtItsPlaceWithinASecond) {
  for (const Hostile& bad : hostile()) {
    const std::string shown = bad.code.substr(0, 60);
    const auto begin = std::chrono::steady_clock::now();
    const Result<Expression> parsed = parse_expression(bad.code, bad.kind, kParams);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(elapsed.count(), 1.0) << shown;
    ASSERT_FALSE(parsed) << shown;
    const Error& error = parsed.error();
    EXPECT_EQ(error.code, ErrorCode::kInvalid) << shown;
    EXPECT_EQ(error.line, bad.line) << shown << "\n" << error.to_string();
    EXPECT_EQ(error.column, bad.column) << shown << "\n" << error.to_string();
    EXPECT_NE(error.message.find(bad.message), std::string::npos) << shown << "\n"
                                                                  << error.to_string();
    EXPECT_LT(error.to_string().size(), 500U) << shown;
  }
}

TEST(HostileSnippets, EachIsRefusedByValidationWithItsFieldAndExitCode) {
  for (const Hostile& bad : hostile()) {
    AttentionSpec spec;
    spec.num_q_heads = 1;
    spec.qk_depth = 64;
    CustomCode custom{"snippet", bad.code, false, kParams};
    if (bad.kind == SnippetKind::kMask) {
      spec.mask.kind = MaskSpec::Kind::kCustom;
      spec.mask.custom = custom;
    } else {
      spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
      spec.score_mod.custom = custom;
    }
    const std::vector<Error> problems = validate(spec);
    ASSERT_EQ(problems.size(), 1U) << bad.code.substr(0, 60);
    EXPECT_EQ(problems[0].field, bad.kind == SnippetKind::kMask ? "mask.code" : "score_mod.code");
    EXPECT_EQ(problems[0].line, bad.line);
    EXPECT_EQ(problems[0].column, bad.column);
    EXPECT_EQ(exit_code(problems[0].code), 2);
  }
}

TEST(HostileSnippets, HintsSayWhatToDo) {
  const auto hint = [](const char* code, SnippetKind kind = SnippetKind::kMask) {
    const Result<Expression> parsed = parse_expression(code, kind, kParams);
    EXPECT_FALSE(parsed) << code;
    return parsed ? std::string{} : parsed.error().hint;
  };
  EXPECT_EQ(hint("kv_indx <= q_idx"), "did you mean `kv_idx`?");
  EXPECT_EQ(hint("doc[0] > 0"), "a parameter is written p.doc");
  EXPECT_EQ(hint("p.dok[0] > 0"), "did you mean `p.doc`?");
  EXPECT_EQ(hint("q_idx & 1"), "compare it, e.g. (..) != 0");
  EXPECT_EQ(hint("return true"), "a snippet is one expression: write it without return");
  EXPECT_EQ(hint("not true"), "write !");
  EXPECT_EQ(hint("score > 0"), "masks do not see the score; only score modifications do");
  EXPECT_EQ(hint("score > 0 ? score : -INFINITY", kScore), "to hide keys use a mask");
}

TEST(CaretExcerpt, PointsAtTheColumnOfTheLine) {
  EXPECT_EQ(caret_excerpt("a\nq_idx = 1\nb", 2, 7), "    q_idx = 1\n          ^\n");
  EXPECT_EQ(caret_excerpt("ab", 1, 3), "    ab\n      ^\n");
  EXPECT_EQ(caret_excerpt("ab", 1, 4), "");
  EXPECT_EQ(caret_excerpt("ab", 2, 1), "");
  EXPECT_EQ(caret_excerpt("ab", 0, 0), "");
  const std::string cut = caret_excerpt(std::string(5000, 'x') + "=", 1, 5001);
  EXPECT_LT(cut.size(), 300U);
  EXPECT_NE(cut.find("x=\n"), std::string::npos);
}

// --- the trusted tier ----------------------------------------------------------------------------

TEST(TrustedCode, BodiesThatStayInsideTheirFunctionAreAccepted) {
  for (const char* code : {
           "return kv_idx <= q_idx;",
           "int d = q_idx - kv_idx;\nif (d < 0) { return false; }\nreturn d < p.w; // near",
           "for (int i = 0; i < 4; ++i) { if (p.doc[i] == kv_idx) return true; }\nreturn false;",
           "/* a brace } in a comment */ return score * 2.0f;",
           "return '}' == 125 ? 1.0f : 2.0f;",
           "const char* s = \"} \\\" {\"; return s[0] == '\\'';",
           "int n = 1'000'000; return n > kv_idx;",
           "auto f = [](int a) { return a > 0; }; return f(q_idx);",
           "return plasma_asm_like > 0;",
           "return a ? b : c;",
           "int d = 1; // near\r\nreturn d > kv_idx;\r\n",
           "[[maybe_unused]] int x[2] = {1, 2}; return x[0] < x[1];",
       }) {
    const Status status = check_trusted_code(code);
    EXPECT_TRUE(status) << code << "\n" << (status ? "" : status.error().to_string());
  }
}

struct Escape {
  std::string code;
  int line;
  int column;
  const char* message;
};

TEST(TrustedCode, BodiesThatCouldLeaveTheirFunctionAreRefusedAtTheirPlace) {
  const std::vector<Escape> cases = {
      {"return true; } extern \"C\" __global__ void evil() {", 1, 14, "did not open"},
      {"return true; }", 1, 14, "did not open"},
      {"{ return true;", 1, 1, "never closed"},
      {"return (true;", 1, 8, "never closed"},
      {"return (true];", 1, 13, "closes the `(`"},
      {"return true; }{", 1, 14, "did not open"},
      {"#include \"/etc/passwd\"\nreturn true;", 1, 1, "preprocessor"},
      {"// #define\nreturn true;", 1, 4, "preprocessor"},
      {"return \"#\"[0] == 35;", 1, 9, "preprocessor"},
      {"%:include \"x\"\nreturn true;", 1, 1, "another spelling"},
      {"<% return true; %>", 1, 1, "another spelling"},
      {"return p.doc<:0:> > 0;", 1, 13, "another spelling"},
      {"?\?=include \"x\"\nreturn true;", 1, 1, "trigraph"},
      {"// ?\?/\n} evil {\nreturn true;", 1, 4, "trigraph"},
      {"// comment \\\n} void evil() {\nreturn true;", 1, 12, "joins lines"},
      {"// comment \\  \n} void evil() {\nreturn true;", 1, 12, "joins lines"},
      {"return true; // \\", 1, 17, "joins lines"},
      {"as\\\nm(\"trap;\"); return true;", 1, 3, "backslash"},
      {"\\u0061sm(\"trap;\"); return true;", 1, 1, "backslash outside"},
      {"asm(\"trap;\"); return true;", 1, 1, "assembly"},
      {"asm volatile(\"trap;\"); return true;", 1, 1, "assembly"},
      {"__asm(\"trap;\"); return true;", 1, 1, "assembly"},
      {"__asm__ __volatile__(\"trap;\"); return true;", 1, 1, "assembly"},
      {"_Pragma(\"unroll\") return true;", 1, 1, "preprocessor"},
      {"return __has_include(\"/etc/shadow\");", 1, 8, "preprocessor"},
      {"import <vector>; return true;", 1, 1, "module"},
      {"extern int secret; return true;", 1, 1, "outside the function"},
      {"return true; /* open", 1, 14, "never closed"},
      {"return true; /* open /", 1, 14, "never closed"},
      {"return \"open", 1, 8, "not closed on its line"},
      {"return 'a", 1, 8, "not closed on its line"},
      {"return \"a\\\n\";", 1, 10, "joins lines"},
      {"return R\"(})\"[0];", 1, 8, "literal with a prefix"},
      {"return u8R\"x(})x\"[0];", 1, 8, "literal with a prefix"},
      {"return L'a';", 1, 8, "literal with a prefix"},
      {std::string("return\0 true;", 13), 1, 7, "control character"},
      {"return tru\xc3\xa9;", 1, 11, "no ASCII"},
      {"// \xe2\x80\xae\nreturn true;", 1, 4, "no ASCII"},
      // A compiler reads 3__'r01 and 1e+'a as one number each, up to where a literal then begins.
      {"return 3__'r01r0 ;", 1, 11, "touches a number"},
      {"return 1e+'a';'} void evil() {'", 1, 11, "touches a number"},
      {"return 0xE+'a' > 0;", 1, 12, "touches a number"},
      // A carriage return alone ends a line, and so a comment, for some compilers.
      {"// comment \r } void evil() {\nreturn true;", 1, 12, "carriage return"},
      {"/* \\\r */ return true;", 1, 5, "carriage return"},
      {"return 1.asm;", 1, 10, "assembly"},
      {"return __TIME__[7] == '0';", 1, 8, "time of the compile"},
      {"const char* day = __DATE__;\n return day[0] == 'M';", 1, 19, "time of the compile"},
      {"return __TIMESTAMP__[0] != 0;", 1, 8, "time of the compile"},
      {"return 1'' ;", 1, 9, "touches a number"},
      {"return 1\"a\"_x;", 1, 9, "touches a number"},
      {"true;", 1, 6, "without a return"},
      {"", 1, 1, "without a return"},
      {"// return\n", 2, 1, "without a return"},
      {repeated("(", 300) + "return", 1, 257, "nested too deeply"},
      {std::string(65537, ' '), 1, 1, "65537 bytes; allowed: up to 65536"},
      {std::string(65536, '{'), 1, 257, "nested too deeply"},
  };
  for (const Escape& bad : cases) {
    const std::string shown = bad.code.substr(0, 60);
    const Status status = check_trusted_code(bad.code);
    ASSERT_FALSE(status) << shown;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(status.error().line, bad.line) << shown << "\n" << status.error().to_string();
    EXPECT_EQ(status.error().column, bad.column) << shown << "\n" << status.error().to_string();
    EXPECT_NE(status.error().message.find(bad.message), std::string::npos)
        << shown << "\n"
        << status.error().to_string();
  }
}

}  // namespace
}  // namespace attnjit::spec
