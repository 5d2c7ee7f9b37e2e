// SPDX-License-Identifier: Apache-2.0
// Writes shell completion and the man page from the commands and options that CLI11 holds.
#include "cli/help_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/examples.h"

namespace attnjit::cli {
namespace {

using Commands = std::vector<const CLI::App*>;

Commands commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<const CLI::Option*> flags_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->nonpositional(); });
}

/// "--spec", and "-o" for a flag that is short alone.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }

/// The words that may follow a command: its own commands and flags.
std::string words_of(const CLI::App& app) {
  std::string words;
  const auto add = [&words](const std::string& word) {
    words += (words.empty() ? "" : " ") + word;
  };
  for (const CLI::App* sub : commands_of(app)) add(sub->get_name());
  for (const CLI::Option* flag : flags_of(app)) {
    for (const std::string& name : names_of(*flag)) add(name);
  }
  return words;
}

/// Calls `visit` with each command and its path: "", "plan", "cache gc".
template <class Visit>
void walk(const CLI::App& app, const std::string& path, const Visit& visit) {
  visit(app, path);
  for (const CLI::App* sub : commands_of(app)) {
    walk(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), visit);
  }
}

/// `text` with a backslash before `special` characters, for between the single quotes of a shell;
/// newlines are spaces.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' ? " " : c == '\'' ? "'\\''" : std::string(1, c);
  }
  return out;
}

std::string choices_of(const Choices& choices, const CLI::Option& option) {
  const auto found = choices.find(&option);
  return found == choices.end() ? std::string() : fmt::format("{}", fmt::join(found->second, " "));
}

std::string bash(const CLI::App& app, const Choices& choices) {
  std::string paths, words, values;
  walk(app, "", [&](const CLI::App& command, const std::string& path) {
    if (!path.empty()) paths += fmt::format("      \"{0}\") path=\"{0}\" ;;\n", path);
    std::string all = words_of(command);
    for (const CLI::Option* word : command.get_options()) {
      if (word->nonpositional()) continue;
      all += fmt::format("{}{}", all.empty() ? "" : " ", choices_of(choices, *word));
    }
    words += fmt::format("    \"{}\") words=\"{}\" ;;\n", path, all);
    for (const CLI::Option* flag : flags_of(command)) {
      if (!takes_value(*flag)) continue;
      for (const std::string& name : names_of(*flag)) {
        values +=
            fmt::format("    \"{} {}\") words=\"{}\" ;;\n", path, name, choices_of(choices, *flag));
      }
    }
  });
  return "# Completion of attnjit for bash: eval \"$(attnjit completion bash)\"\n"
         "_attnjit() {\n"
         "  local path=\"\" word words\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    case \"${path:+$path }$word\" in\n" +
         paths +
         "    esac\n"
         "  done\n"
         "  case \"$path\" in\n" +
         words +
         "  esac\n"
         "  case \"$path ${COMP_WORDS[COMP_CWORD-1]}\" in\n" +
         values +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
         "}\n"
         "complete -o default -F _attnjit attnjit\n";
}

std::string zsh(const CLI::App& app, const Choices& choices) {
  std::string functions;
  walk(app, "", [&](const CLI::App& command, const std::string& path) {
    std::string arguments;
    for (const CLI::Option* flag : flags_of(command)) {
      const std::string values = choices_of(choices, *flag);
      for (const std::string& name : names_of(*flag)) {
        arguments +=
            fmt::format(" \\\n    '{}[{}]{}'", name, escaped(flag->get_description(), "[]:\\"),
                        !takes_value(*flag) ? ""
                        : values.empty()    ? ":value:_files"
                                            : ":value:(" + values + ")");
      }
    }
    std::string name = path;
    std::replace(name.begin(), name.end(), ' ', '_');
    std::string body = fmt::format("  _arguments -C{} \\\n    '*::arguments:->rest'\n", arguments);
    if (const Commands subs = commands_of(command); !subs.empty()) {
      std::string described, cases;
      for (const CLI::App* sub : subs) {
        described += fmt::format(" \\\n      '{}:{}'", sub->get_name(),
                                 escaped(sub->get_description(), ":\\"));
        cases += fmt::format("    {0}) _attnjit_{1}{0} ;;\n", sub->get_name(),
                             path.empty() ? "" : name + "_");
      }
      body += fmt::format(
          "  local -a commands=({})\n  if (( CURRENT == 1 )); then\n"
          "    _describe command commands\n    return\n  fi\n  case $words[1] in\n{}  esac\n",
          described, cases);
    } else {
      body += "  _files\n";
    }
    functions += fmt::format("_attnjit{}() {{\n  local context state line\n{}}}\n",
                             path.empty() ? "" : "_" + name, body);
  });
  return fmt::format(
      "#compdef attnjit\n# Completion of attnjit for zsh: attnjit completion zsh > "
      "\"${{fpath[1]}}/_attnjit\"\n{}"
      // NOTE: a file that is autoloaded is the function's body when it is first called.
      "if [[ $funcstack[1] == _attnjit ]]; then _attnjit \"$@\"; else compdef _attnjit attnjit; "
      "fi\n",
      functions);
}

std::string fish(const CLI::App& app, const Choices& choices) {
  std::string lines = "# Completion of attnjit for fish: attnjit completion fish | source\n";
  walk(app, "", [&](const CLI::App& command, const std::string& path) {
    std::string condition = "__fish_use_subcommand";
    if (!path.empty()) {
      condition.clear();
      for (std::size_t at = 0; at <= path.size();) {
        const std::size_t end = std::min(path.find(' ', at), path.size());
        condition += (condition.empty() ? "" : "; and ") +
                     ("__fish_seen_subcommand_from " + path.substr(at, end - at));
        at = end + 1;
      }
    }
    const auto described = [](const std::string& text) { return escaped(text, "\\"); };
    for (const CLI::App* sub : commands_of(command)) {
      lines += fmt::format("complete -c attnjit -n '{}' -a {} -d '{}'\n", condition,
                           sub->get_name(), described(sub->get_description()));
    }
    for (const CLI::Option* flag : flags_of(command)) {
      const std::string values = choices_of(choices, *flag);
      std::string names;
      for (const std::string& name : flag->get_snames()) names += " -s " + name;
      for (const std::string& name : flag->get_lnames()) names += " -l " + name;
      lines += fmt::format("complete -c attnjit -n '{}'{}{} -d '{}'\n", condition, names,
                           !takes_value(*flag) ? ""
                           : values.empty()    ? " -r"
                                               : " -xa '" + values + "'",
                           described(flag->get_description()));
    }
  });
  return lines;
}

/// Text of a man page: no line of it is taken for a macro.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') out += '\\';
    if (c == '-') out += '\\';
    out += c == '\\' ? 'e' : c;
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell,
                              const Choices& choices) {
  return shell == "bash"  ? bash(app, choices)
         : shell == "zsh" ? zsh(app, choices)
                          : fish(app, choices);
}

std::string man_page(const CLI::App& app, const std::string& version) {
  std::string page = fmt::format(".TH ATTNJIT 1 \"\" \"attnjit {}\" \"User Commands\"\n", version);
  page += fmt::format(".SH NAME\nattnjit \\- {}\n", roff("attention kernels on demand"));
  page += ".SH SYNOPSIS\n.B attnjit\n.I COMMAND\n[options]\n";
  page += fmt::format(".SH DESCRIPTION\n{}\n.SH COMMANDS\n", roff(app.get_description()));
  walk(app, "", [&page](const CLI::App& command, const std::string& path) {
    if (path.empty()) return;
    page += fmt::format(".SS {}\n{}\n", roff("attnjit " + path), roff(command.get_description()));
    for (const CLI::Option* option : command.get_options()) {
      std::string names;
      for (const std::string& name : names_of(*option)) names += (names.empty() ? "" : ", ") + name;
      if (names.empty()) names = option->get_name();
      if (takes_value(*option) && option->nonpositional()) names += " " + option->get_type_name();
      page += fmt::format(".TP\n.B {}\n{}\n", roff(names), roff(option->get_description()));
    }
    const std::string examples = examples_of(path);
    if (!examples.empty()) page += fmt::format(".PP\n.nf\n{}.fi\n", roff(examples));
  });
  page += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(app.get_footer()));
  return page;
}

}  // namespace attnjit::cli
