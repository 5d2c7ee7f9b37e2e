// SPDX-License-Identifier: Apache-2.0
// The PTX front end: whole modules, scopes, operands, limits and malformed text.
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>

#include "attnjit/emulator.h"
#include "emulator/ptx/parser.h"
#include "source_dir.h"

namespace attnjit::emulator {
namespace {

std::string data(const std::string& name) {
  std::ifstream in(std::string(ATTNJIT_SOURCE_DIR) + "/tests/emulator/data/" + name,
                   std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string plain_kernel(const std::string& body) {
  return ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 "
         "k_param_0)\n{\n" +
         body + "\nret;\n}\n";
}

Module parsed(const std::string& text) {
  auto module = parse_ptx(text);
  if (!module) {
    ADD_FAILURE() << module.error().to_string();
    return {};
  }
  return std::move(module).value();
}

Error refused(const std::string& text) {
  auto module = parse_ptx(text);
  if (module) {
    ADD_FAILURE() << "parsed: " << text;
    return {};
  }
  return module.error();
}

TEST(Parser, SpecimensOfNvrtc) {
  const Module fa90 = parsed(data("fa90.sm_90a.ptx"));
  ASSERT_EQ(fa90.functions.size(), 1u);
  EXPECT_EQ(fa90.target, "sm_90a");
  EXPECT_EQ(fa90.functions[0].parameters.size(), 5u);
  EXPECT_EQ(fa90.functions[0].parameters[0].bytes, 128u);
  EXPECT_EQ(fa90.functions[0].parameters[0].align, 64u);
  EXPECT_EQ(fa90.functions[0].required_cluster[0], 2u);
  EXPECT_EQ(fa90.functions[0].max_threads[0], 384u);
  // The counts of instructions were taken independently when the specimens were recorded.
  EXPECT_EQ(fa90.functions[0].instructions.size(), 1256u);
  const Module fa100 = parsed(data("fa100.sm_100a.ptx"));
  ASSERT_EQ(fa100.functions.size(), 1u);
  EXPECT_EQ(fa100.functions[0].instructions.size(), 2931u);
  const Module util = parsed(data("util.sm_100a.ptx"));
  std::size_t count = 0;
  for (const Function& f : util.functions) count += f.instructions.size();
  EXPECT_EQ(count, 1628u);
  EXPECT_EQ(util.functions.size(), 10u);
}

TEST(Parser, EverySpellingParses) {
  std::istringstream lines(data("spellings.txt"));
  std::string line;
  int seen = 0;
  while (std::getline(lines, line)) {
    const std::size_t bar = line.rfind(" | ");
    if (bar == std::string::npos) continue;
    std::string statement = line.substr(bar + 3);
    if (statement.find("...") != std::string::npos) continue;  // shortened in the record
    const std::string registers =
        ".reg .b32 sa,sb,sc,tm,tm2,tm3,tm4,id; .reg .b32 r<128>; .reg .b64 ga,da,db,dz; .reg .b64 "
        "d<8>;"
        ".reg .b16 h<8>; .reg .f32 f<8>; .reg .b128 q0; .reg .pred p,q;";
    const auto module = parse_ptx(plain_kernel(registers + statement));
    EXPECT_TRUE(module.ok()) << statement << "\n" << (module ? "" : module.error().to_string());
    ++seen;
  }
  EXPECT_GT(seen, 300);
}

TEST(Parser, BlockScopesHideRegistersAndLabels) {
  const Module m = parsed(plain_kernel(
      ".reg .pred %p; .reg .b32 %r<4>;\n{ .reg .pred P; W: setp.eq.u32 P, %r1, 0; @P bra W; }\n"
      "{ .reg.b32 P;\tW:\n@!%p bra W; mov.b32 P, 1; }"));
  const Function& f = m.functions.at(0);
  ASSERT_EQ(f.labels.size(), 2u);
  EXPECT_NE(f.labels[0].scope, f.labels[1].scope);
  EXPECT_EQ(f.instructions[0].operands[0].kind, Operand::Kind::kRegister);
  EXPECT_NE(f.instructions[0].operands[0].reg, f.instructions[3].operands[0].reg);
  EXPECT_TRUE(f.instructions[2].guard_negated);
}

TEST(Parser, Operands) {
  const Module m = parsed(plain_kernel(
      ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .shared .align 8 .b8 buf[64];\n"
      "ld.shared.v4.u32 {%r1, %r2, %r3, _}, [buf+16];\n"
      "mov.b32 %r1, 0f3F800000; add.s32 %r1, %r2, -5; mov.b64 %rd1, {%r1, 7};\n"
      "elect.sync _|%p1, -1; mov.u32 %r3, %tid.x; ld.global.u32 %r1, [%rd1-8];\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
      "[%rd2, {%r3, %r4}], [%r5];\n"
      "mov.f64 %rd1, 0d3FF0000000000000; mov.u64 %rd1, buf; mov.f32 %r1, 1.5; add.u32 %r1, "
      "%r1, (2+3)*4;\n"
      "and.pred %p1, %p2, !%p1;"));
  const auto& i = m.functions.at(0).instructions;
  EXPECT_EQ(i[0].operands[0].parts.size(), 4u);
  EXPECT_EQ(i[0].operands[0].parts[3].kind, Operand::Kind::kSink);
  EXPECT_EQ(i[0].operands[1].symbol, "buf");
  EXPECT_EQ(i[0].operands[1].value, 16u);
  EXPECT_EQ(i[1].operands[1].value, 0x3F800000u);
  EXPECT_EQ(static_cast<std::int64_t>(i[2].operands[2].value), -5);
  EXPECT_EQ(i[4].operands[0].kind, Operand::Kind::kPair);
  EXPECT_EQ(i[5].operands[1].special, SpecialRegister::kTidX);
  EXPECT_EQ(static_cast<std::int64_t>(i[6].operands[1].value), -8);
  EXPECT_EQ(i[7].modifiers.size(), 7u);
  EXPECT_EQ(i[7].operands[1].parts.size(), 2u);
  EXPECT_EQ(i[8].operands[1].kind, Operand::Kind::kDouble);
  EXPECT_EQ(i[11].operands[2].value, 20u);
  EXPECT_TRUE(i[12].operands[2].negated);
}

TEST(Parser, VariablesAndInitialisers) {
  const Module m = parsed(
      ".version 9.0\n.target sm_90a, debug\n.address_size 64\n.file 1 \"/src/a b.cu\", 17, 22\n"
      ".global .align 4 .u32 ST = 3;\n.const .align 4 .b8 t[6] = {1, 2, 255};\n"
      ".global .align 8 .u64 p[2] = {generic(ST), t+4};\n.global .f32 pi = 0f40490FDB;\n"
      ".extern .shared .align 1024 .b8 sm[];\n.global .b16 open[] = {1,2,3};\n.visible .global "
      ".f32 m[2][2] = {{1.0,2.0},{3.0,4.0}};\n"
      ".section .debug_str\n{\n$L__s:\n.b8 99,108\n.b32 .debug_abbrev\n}\n");
  EXPECT_EQ(m.files.at(1), "/src/a b.cu");
  EXPECT_EQ(m.variables.at(0).initial.at(0), 3);
  EXPECT_EQ(m.variables.at(1).initial.at(2), 255);
  EXPECT_EQ(m.variables.at(1).initial.size(), 6u);
  EXPECT_EQ(m.variables.at(2).symbols.size(), 2u);
  EXPECT_EQ(m.variables.at(2).symbols[1].addend, 4u);
  EXPECT_TRUE(m.variables.at(4).unsized);
  EXPECT_EQ(m.variables.at(5).bytes, 6u);
  EXPECT_EQ(m.variables.at(6).bytes, 16u);
}

TEST(Parser, ConstantExpressionsHaveCsPrecedence) {
  const Module m = parsed(
      ".version 9.0\n.target sm_90a\n.global .u64 x[9] = {1+2*3, (1+2)*3, 10-4-3, 1<<2+1, 7&3|8, "
      "6/2*3, -2+5, ~0&255, 1==1&&2>3||!0};\n");
  std::vector<std::uint64_t> v(9);
  std::memcpy(v.data(), m.variables.at(0).initial.data(), 72);
  EXPECT_EQ(v, (std::vector<std::uint64_t>{7, 9, 3, 8, 11, 9, 3, 255, 1}));
}

TEST(Parser, CallsAndTables) {
  const Module m = parsed(
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".func (.param .b32 func_retval0) f(.param .b32 a, .param .align 4 .b8 s[8]);\n"
      ".entry k()\n{\n.reg .b32 %r<3>; .reg .b64 %rd<2>;\n{ // callseq 0, 0\n.param .b32 "
      "param0;\nst.param.b32 [param0+0], %r1;\n.param .b32 retval0;\n"
      "call.uni (retval0), \nf,\n(\nparam0\n);\nld.param.b32 %r2, [retval0];\n}\n"
      "T: .branchtargets A, B;\nproto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
      "A: brx.idx %r1, T;\nB: call (%r1), %rd1, (%r2), proto;\ncall g;\nret;\n}\n.func g() { ret; "
      "}\n");
  ASSERT_EQ(m.functions.size(), 3u);
  const Function& k = m.functions[1];
  EXPECT_EQ(k.tables.at(0).targets.size(), 2u);
  EXPECT_EQ(k.prototypes.at(0).parameters.size(), 1u);
  EXPECT_EQ(k.instructions.at(1).operands.size(), 4u);
  EXPECT_EQ(k.instructions.at(1).operands[2].parts.size(), 1u);
}

TEST(Parser, LocationsReachInstructions) {
  const Module m = parsed(
      plain_kernel(".reg .b32 %r<3>;\n.loc 1 12 3\nadd.s32 %r1, %r2, 1;\n.loc 1 50 7, "
                   "function_name $L__info_string0, inlined_at 1 13 3\nadd.s32 %r1, %r1, 2;"));
  EXPECT_EQ(m.functions[0].instructions[0].source.line, 12u);
  EXPECT_EQ(m.functions[0].instructions[1].source.line, 50u);
  EXPECT_EQ(m.functions[0].instructions[0].line, 8);
}

TEST(Parser, RefusesWithTheLine) {
  EXPECT_EQ(refused("").code, ErrorCode::kInvalid);
  EXPECT_EQ(refused("hello").code, ErrorCode::kInvalid);
  const Error undeclared = refused(plain_kernel("add.s32 %r1, %r2, 1;"));
  EXPECT_EQ(undeclared.code, ErrorCode::kInvalid);
  EXPECT_EQ(undeclared.line, 6);
  EXPECT_EQ(refused(plain_kernel(".reg .b32 %r<2>; add.s32 %r2, %r1, 1;")).code,
            ErrorCode::kInvalid);
  EXPECT_EQ(refused(plain_kernel(".reg .b32 %r<2>; add.s32 %r1, %r1")).code, ErrorCode::kInvalid);
  EXPECT_EQ(refused(".version 9.0\n.texfoo x;").code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused(".version 9.0\n.address_size 32").code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused(".version 9.0\n.global .b8 x[99999999999];").code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused(".version 9.0\n.global .b8 x[1048576]={1},y[268435456];").code,
            ErrorCode::kUnsupported);
  EXPECT_EQ(refused(".version 9.0\n/* never closed").code, ErrorCode::kInvalid);
  EXPECT_EQ(refused(".version 9.0\n.global .u32 x = " + std::string(100000, '(')).code,
            ErrorCode::kInvalid);
  EXPECT_EQ(refused(".version 9.0\n.global .u32 x = " + std::string(100000, '{')).code,
            ErrorCode::kInvalid);
  EXPECT_EQ(refused(plain_kernel(std::string(100000, '{'))).code, ErrorCode::kInvalid);
}

// Every cut and many damages of real modules end in a decoded module or an error: no crash, no
// hang.
void load_damaged(const std::string& whole, unsigned rounds, unsigned seed) {
  std::mt19937 random(seed);
  const std::string alphabet = "{}[]().,;:@!|%$_0x9fdAr \n\"-+*/<>~";
  for (unsigned round = 0; round < rounds; ++round) {
    std::string text = whole;
    for (int n = 0; n < 6; ++n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, random() % 20);
          break;
        case 2: {
          // A token of one place at another: still tokens, in the wrong order.
          const std::size_t from = text.find_first_of(" ,;", random() % text.size());
          if (from != std::string::npos) text.insert(at, text.substr(from, random() % 24));
          break;
        }
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
    }
    (void)PtxModule::load(std::move(text));
  }
}

TEST(Parser, DamagedTextIsHarmless) {
  const std::string whole = data("fa90.sm_90a.ptx").substr(0, 12000);
  for (std::size_t cut = 0; cut < whole.size(); cut += 37)
    (void)PtxModule::load(whole.substr(0, cut));
  const std::string spellings = data("spellings.txt");
  std::string all =
      ".reg .b32 sa,sb,sc,tm,tm2,tm3,tm4,id; .reg .b32 r<128>; .reg .b64 ga,da,db,dz; .reg .b64 "
      "d<8>;.reg .b16 h<8>; .reg .f32 f<8>; .reg .b128 q0; .reg .pred p,q;\n";
  std::istringstream lines(spellings);
  std::vector<std::string> statements;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t bar = line.rfind(" | ");
    if (bar != std::string::npos && line.find("...") == std::string::npos)
      statements.push_back(line.substr(bar + 3));
  }
  load_damaged(whole, 200, 1);
  std::mt19937 random(2);
  for (int round = 0; round < 150; ++round) {
    std::string body = all;
    for (int n = 0; n < 12; ++n) body += statements[random() % statements.size()] + "\n";
    load_damaged(plain_kernel(body), 4, static_cast<unsigned>(random()));
  }
}

// What every target's assembler accepts must decode, or be refused as unsupported with its line.
TEST(Parser, EverySpellingDecodesOrIsRefusedAsUnsupported) {
  std::istringstream lines(data("spellings.txt"));
  int decoded = 0, unsupported = 0;
  std::string refused_text;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t bar = line.rfind(" | ");
    if (bar == std::string::npos || line.find("...") != std::string::npos ||
        line.find('Y') == std::string::npos || line.find('Y') > 13)
      continue;
    const std::string registers =
        ".reg .b32 sa,sb,sc,tm,tm2,tm3,tm4,id; .reg .b32 r<128>; .reg .b64 ga,da,db,dz; .reg .b64 "
        "d<8>;"
        ".reg .b16 h<8>; .reg .f32 f<8>; .reg .b128 q0; .reg .pred p,q;";
    const auto module = PtxModule::load(plain_kernel(registers + line.substr(bar + 3)));
    if (module) {
      ++decoded;
      continue;
    }
    EXPECT_EQ(module.error().code, ErrorCode::kUnsupported) << line << "\n"
                                                            << module.error().to_string();
    EXPECT_EQ(module.error().line, 6) << line;
    ++unsupported;
    refused_text += module.error().message + "\n";
  }
  RecordProperty("unsupported", refused_text);
  EXPECT_GT(decoded, 250);
  EXPECT_LT(unsupported, 40) << refused_text;
}

// What is linear takes seconds of processor time at most, sanitized too; what is quadratic takes
// minutes. The clock of the wall would measure what else the machine does.
TEST(LargeModules, TakeLinearTime) {
  const std::string head = ".version 9.0\n.target sm_100a\n.address_size 64\n";
  std::string variables = head, functions = head;
  for (int i = 0; i < 200000; ++i) {
    variables += ".global .u32 v" + std::to_string(i) + ";\n";
  }
  variables += ".visible .entry k()\n{ ret; }\n";
  for (int i = 0; i < 60000; ++i) {
    functions += ".func f" + std::to_string(i) + "()\n{ ret; }\n";
  }
  std::string labels, table = "t: .branchtargets ";
  for (int i = 0; i < 20000; ++i) {
    table += (i == 0 ? "l" : ", l") + std::to_string(i);
    labels += "l" + std::to_string(i) + ": add.u32 r, r, 1;\n";
  }
  const std::string branches = head + ".visible .entry k()\n{ .reg .u32 r;\nmov.u32 r, %tid.x;\n" +
                               table + ";\nbrx.idx r, t;\n" + labels + "ret; }\n";
  for (const std::string& text : {variables, functions, branches}) {
    const std::clock_t begin = std::clock();
    const auto module = PtxModule::load(text);
    EXPECT_TRUE(module.ok()) << module.error().to_string();
    EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC) << text.substr(head.size(), 20);
  }
  const auto twice = PtxModule::load(head + ".global .u32 v;\n.extern .global .u32 v;\n" +
                                     ".global .u32 w;\n.global .u32 v;\n");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("v is declared twice"), std::string::npos);
}

TEST(Documentation, TableIsTheOneThatDecodes) {
  std::ifstream in(std::string(ATTNJIT_SOURCE_DIR) + "/docs/emulator.md", std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_NE(text.str().find("\n" + instruction_table_markdown() + "<!-- end of table -->"),
            std::string::npos)
      << "run scripts/emulator-table";
}

}  // namespace
}  // namespace attnjit::emulator
