// SPDX-License-Identifier: Apache-2.0
// The module level of the PTX parser: header, files, sections, functions with their directives.
#include "emulator/ptx/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "emulator/ptx/parser_state.h"

namespace attnjit::emulator {
namespace {

/// Where several CTAs are to run on an SM at once, each has its share of the registers.
void share_registers(Function& function, std::uint32_t min_ctas) {
  constexpr std::uint32_t kRegisterFile = 65536;  // of an SM; registers come in steps of 8
  if (min_ctas == 1 || function.maxnreg != 0) return;
  const std::uint32_t(&threads)[3] =
      function.required_threads[0] != 0 ? function.required_threads : function.max_threads;
  const std::uint64_t count =
      std::uint64_t{std::max(threads[0], 1U)} * std::max(threads[1], 1U) * std::max(threads[2], 1U);
  function.maxnreg = static_cast<std::uint32_t>(kRegisterFile / (count * min_ctas) / 8 * 8);
}

constexpr std::size_t kMaxText = std::size_t{256} << 20;
constexpr std::uint64_t kMaxFiles = 1 << 16;

}  // namespace

bool Parser::parse() {
  while (cursor_.more()) {
    if (cursor_.accept(';')) continue;
    if (cursor_.accept("@@DWARF")) {
      cursor_.skip_line();
      continue;
    }
    const std::string_view name = cursor_.directive();
    if (name.empty()) {
      const char c = cursor_.peek();
      return cursor_.invalid(c >= 32 && c < 127
                                 ? fmt::format("'{}' where a directive is expected", c)
                                 : fmt::format("byte 0x{:02x} where a directive is expected",
                                               static_cast<unsigned char>(c)));
    }
    if (!parse_directive(name)) return false;
  }
  if (cursor_.failed()) return false;
  if (module_.version_major == 0) return cursor_.invalid("there is no .version directive");
  return true;
}

bool Parser::parse_directive(std::string_view name) {
  if (name == "version") {
    if (!cursor_.more()) return cursor_.invalid(".version needs major.minor");
    const std::size_t begin = cursor_.position();
    // "9.0" reads as a floating-point literal; its digits are the version.
    if (!cursor_.number()) return cursor_.invalid(".version needs major.minor");
    const std::string version(cursor_.since(begin));
    const std::size_t dot = version.find('.');
    if (dot == std::string::npos || version.size() > 32)
      return cursor_.invalid(".version needs major.minor");
    const auto number = [](std::string_view digits, int& to) {
      return std::from_chars(digits.data(), digits.data() + digits.size(), to).ec == std::errc();
    };
    if (!number(version.substr(0, dot), module_.version_major) ||
        !number(version.substr(dot + 1), module_.version_minor) || module_.version_major < 1)
      return cursor_.invalid(".version needs major.minor");
    return true;
  }
  if (name == "target") {
    do {
      const std::string_view target = cursor_.identifier();
      if (target.empty()) return cursor_.invalid(".target needs a name");
      if (module_.target.empty() && target.substr(0, 3) == "sm_")
        module_.target = std::string(target);
    } while (cursor_.accept(','));
    return true;
  }
  if (name == "address_size") {
    const auto bits = cursor_.number();
    if (!bits) return cursor_.invalid(".address_size needs a number");
    if (bits->bits != 64)
      return cursor_.fail(ErrorCode::kUnsupported,
                          fmt::format(".address_size {} is not modelled, only 64", bits->bits));
    return true;
  }
  if (name == "file") return parse_file();
  if (name == "section") {
    if (cursor_.directive().empty() && cursor_.identifier().empty())
      return cursor_.invalid(".section needs a name");
    return cursor_.expect('{') && cursor_.skip_block();
  }
  if (name == "pragma") {
    do {
      if (!cursor_.string()) return cursor_.invalid(".pragma needs a string");
    } while (cursor_.accept(','));
    return cursor_.expect(';');
  }
  if (name == "entry") return parse_function(true, false);
  if (name == "func") return parse_function(false, false);
  if (name == "visible" || name == "weak" || name == "common") return parse_linked();
  if (name == "extern") {
    const std::string_view what = cursor_.directive();
    if (what == "entry") return parse_function(true, true);
    if (what == "func") return parse_function(false, true);
    if (what == "global") return parse_variables(Space::kGlobal, true, 0, module_.variables);
    if (what == "const") return parse_variables(Space::kConst, true, 0, module_.variables);
    if (what == "shared") return parse_variables(Space::kShared, true, 0, module_.variables);
    return cursor_.invalid(fmt::format(".extern .{} is not PTX", what));
  }
  if (name == "global") return parse_variables(Space::kGlobal, false, 0, module_.variables);
  if (name == "const") return parse_variables(Space::kConst, false, 0, module_.variables);
  if (name == "shared") return parse_variables(Space::kShared, false, 0, module_.variables);
  if (name == "tex" || name == "alias" || name == "blocksareclusters") {
    return cursor_.fail(ErrorCode::kUnsupported,
                        fmt::format("the directive .{} is not modelled", name));
  }
  return cursor_.fail(ErrorCode::kUnsupported, fmt::format("unknown directive .{}", name));
}

bool Parser::parse_linked() {
  const std::string_view what = cursor_.directive();
  if (what == "entry") return parse_function(true, false);
  if (what == "func") return parse_function(false, false);
  if (what == "global") return parse_variables(Space::kGlobal, false, 0, module_.variables);
  if (what == "const") return parse_variables(Space::kConst, false, 0, module_.variables);
  if (what == "shared") return parse_variables(Space::kShared, false, 0, module_.variables);
  if (what.empty()) return cursor_.invalid("a linking directive needs .entry, .func or a variable");
  return cursor_.invalid(fmt::format(".{} cannot follow a linking directive", what));
}

bool Parser::parse_file() {
  const auto index = cursor_.number();
  if (!index) return cursor_.invalid(".file needs an index");
  const auto name = cursor_.string();
  if (!name) return cursor_.invalid(".file needs a name in quotes");
  while (cursor_.accept(',')) {
    if (!cursor_.number()) return cursor_.invalid(".file's time stamp and size are numbers");
  }
  if (index->bits >= kMaxFiles) return cursor_.invalid(".file's index is too large");
  if (module_.files.size() <= index->bits) module_.files.resize(index->bits + 1);
  module_.files[index->bits] = std::string(*name);
  return true;
}

bool Parser::parse_threads(std::uint32_t (&into)[3]) {
  for (std::uint32_t& extent : into) extent = 1;
  int i = 0;
  do {
    const auto n = cursor_.constant();
    if (!n) return false;
    if (i == 3 || n->bits == 0 || n->bits > 0x7fffffff)
      return cursor_.invalid("one to three positive extents are expected");
    into[i++] = static_cast<std::uint32_t>(n->bits);
  } while (cursor_.accept(','));
  return true;
}

bool Parser::parse_performance_directives(Function& function) {
  std::uint32_t min_ctas = 1;
  for (;;) {
    if (cursor_.peek() != '.') {
      share_registers(function, min_ctas);
      return !cursor_.failed();
    }
    const std::string_view name = cursor_.directive();
    std::uint32_t ignored[3];
    if (name == "maxntid") {
      if (!parse_threads(function.max_threads)) return false;
    } else if (name == "reqntid") {
      if (!parse_threads(function.required_threads)) return false;
    } else if (name == "reqnctapercluster") {
      if (!parse_threads(function.required_cluster)) return false;
    } else if (name == "maxnreg") {
      if (!parse_threads(ignored)) return false;
      function.maxnreg = ignored[0];
    } else if (name == "minnctapersm") {
      if (!parse_threads(ignored)) return false;
      min_ctas = std::max(ignored[0], 1U);
    } else if (name == "maxnctapersm" || name == "maxclusterrank") {
      if (!parse_threads(ignored)) return false;
    } else if (name == "explicitcluster" || name == "blocksareclusters" || name == "noreturn" ||
               name == "abi_preserve") {
      if (name == "abi_preserve" && !cursor_.number())
        return cursor_.invalid(".abi_preserve needs a number");
    } else if (name == "pragma") {
      do {
        if (!cursor_.string()) return cursor_.invalid(".pragma needs a string");
      } while (cursor_.accept(','));
      if (!cursor_.expect(';')) return false;
    } else if (name == "loc") {
      if (!parse_location()) return false;
    } else if (name.empty()) {
      return cursor_.invalid("'.' where a function's body is expected");
    } else {
      return cursor_.fail(ErrorCode::kUnsupported,
                          fmt::format("unknown performance directive .{}", name));
    }
  }
}

bool Parser::parse_parameters(std::vector<Variable>& into, std::vector<RegisterId>* registers,
                              Function& function) {
  if (!cursor_.expect('(')) return false;
  if (cursor_.accept(')')) return true;
  do {
    Variable variable;
    variable.space = Space::kParam;
    variable.line = cursor_.line();
    const std::string_view kind = cursor_.directive();
    if (kind != "param" && kind != "reg")
      return cursor_.invalid("a parameter begins with .param or .reg");
    if (kind == "reg" && registers == nullptr)
      return cursor_.invalid("a kernel's parameters are .param");
    if (!parse_type_and_alignment(variable)) return false;
    variable.name = cursor_.identifier();
    if (variable.name.empty()) return cursor_.invalid("a parameter needs a name");
    if (!parse_extent(variable)) return false;
    if (variable.unsized) {
      return cursor_.fail(ErrorCode::kUnsupported,
                          "a parameter array without a size (variadic function) is not modelled");
    }
    for (const Variable& other : into) {
      if (other.name == variable.name && variable.name != "_") {
        return cursor_.invalid(fmt::format("parameter {} is declared twice", variable.name));
      }
    }
    RegisterId id = kNoRegister;
    if (kind == "reg" && variable.name != "_") {
      if (variable.bytes > 16) return cursor_.invalid("a register parameter is no array");
      function_ = &function;
      if (!declare_register(variable.name, variable.type, id)) return false;
    }
    if (registers != nullptr) registers->push_back(id);
    into.push_back(std::move(variable));
    if (into.size() > 4096) return cursor_.invalid("more than 4096 parameters");
  } while (cursor_.accept(','));
  return cursor_.expect(')');
}

bool Parser::parse_function(bool is_entry, bool is_extern) {
  Function function;
  function.is_entry = is_entry;
  function.line = cursor_.line();
  function.scopes.push_back({});
  register_scopes_.assign(1, {});
  open_scopes_.assign(1, 0);
  declared_.clear();
  location_ = {};
  while (cursor_.peek() == '.') {
    const std::string_view attribute = cursor_.directive();
    if (attribute == "noreturn") continue;
    if (attribute == "attribute") {
      if (!cursor_.expect('(')) return false;
      while (!cursor_.accept(')')) {
        if (cursor_.directive().empty() && cursor_.identifier().empty() && !cursor_.accept(',') &&
            !cursor_.number()) {
          return cursor_.invalid("a malformed .attribute");
        }
      }
      continue;
    }
    return cursor_.fail(ErrorCode::kUnsupported,
                        fmt::format("unknown function attribute .{}", attribute));
  }
  if (!is_entry && cursor_.peek() == '(' &&
      !parse_parameters(function.results, &function.result_registers, function)) {
    return false;
  }
  function.name = cursor_.identifier();
  if (function.name.empty()) return cursor_.invalid("a function needs a name");
  if (cursor_.peek() == '(' &&
      !parse_parameters(function.parameters, is_entry ? nullptr : &function.parameter_registers,
                        function)) {
    return false;
  }
  if (!parse_performance_directives(function)) return false;
  if (cursor_.accept(';')) {
    // A declaration; the definition follows, or the call of it fails to decode.
    if (is_extern || module_.find_function(function.name) == nullptr) {
      add_function(std::move(function));
    }
    return true;
  }
  if (!cursor_.expect('{')) return false;
  function.has_body = true;
  if (!parse_body(function)) return false;
  const auto known = module_.function_indices.find(function.name);
  if (known == module_.function_indices.end()) {
    add_function(std::move(function));
    return true;
  }
  Function& other = module_.functions[known->second];
  if (other.has_body)
    return cursor_.invalid(fmt::format("function {} is defined twice", function.name));
  other = std::move(function);
  return true;
}

void Parser::add_function(Function function) {
  module_.function_indices.emplace(function.name, module_.functions.size());
  module_.functions.push_back(std::move(function));
}

Result<Module> parse_ptx(std::string text) {
  if (text.size() > kMaxText) {
    return make_error(ErrorCode::kUnsupported, "the PTX text is larger than 256 MiB", "ptx");
  }
  Module module;
  module.text = std::make_shared<const std::string>(std::move(text));
  Parser parser(module);
  if (!parser.parse()) return parser.error();
  return module;
}

}  // namespace attnjit::emulator
