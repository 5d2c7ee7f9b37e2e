// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, as the other errors say it: the field, what is allowed, and
// whose help says more.
#include "cli/usage_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/text.h"

namespace attnjit::cli {
namespace {

/// How far the command's name could be read.
struct Chosen {
  const CLI::App* app;
  std::string name;       ///< "attnjit cache gc"
  std::string_view word;  ///< that is no command of `app`; empty: there is none
};

Chosen chosen_command(const CLI::App& root, int argc, const char* const* argv) {
  Chosen chosen{&root, root.get_name(), {}};
  for (int i = 1; i < argc && chosen.app->get_require_subcommand_min() > 0; ++i) {
    const std::string_view word = argv[i];
    if (word.empty() || word[0] == '-') break;
    const std::vector<const CLI::App*> known = chosen.app->get_subcommands(
        [&](const CLI::App* command) { return command->get_name() == word; });
    if (known.empty()) {
      chosen.word = word;
      break;
    }
    chosen.app = known.front();
    chosen.name.append(" ").append(word);
  }
  return chosen;
}

std::string field_of(const CLI::Option& option) {
  std::string name = option.get_single_name();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string_view best = spec::closest(word, candidates);
  return best.empty() ? std::string{} : fmt::format("did you mean {}?", best);
}

Error no_command(const Chosen& chosen, const std::string& help) {
  std::vector<std::string> names;
  for (const CLI::App* command : chosen.app->get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  const std::string hint = suggestion(chosen.word, names);
  return make_error(
      ErrorCode::kInvalid,
      fmt::format("there is no command '{}' of {}", spec::printable(chosen.word), chosen.name), {},
      hint.empty() ? help : hint);
}

Error no_such_argument(const Chosen& chosen, const std::string& word, const std::string& help) {
  if (word.size() < 2 || word[0] != '-') {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("{} takes no {}", chosen.name, spec::in_quotes(word)), {}, help);
  }
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : chosen.app->get_options()) names.push_back(option->get_name());
  const std::string hint = suggestion(name, names);
  return make_error(ErrorCode::kInvalid,
                    fmt::format("{} has no option {}", chosen.name, spec::printable(name)), {},
                    hint.empty() ? help : hint);
}

Error option_error(const CLI::Option& option, std::string message, const std::string& help) {
  return make_error(ErrorCode::kInvalid, std::move(message), field_of(option), help);
}

/// NOTE: CLI11 takes 010 for 8 and what is too large for the largest number that there is.
bool is_integer(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && std::to_string(number) == text;
}

/// Also one that is too large: the commands say which are allowed.
bool is_number(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error != std::errc::invalid_argument && end == text.data() + text.size() &&
         number == number;
}

/// What is wrong with a value of the option; empty: nothing that all commands would refuse.
std::optional<Error> bad_value(const CLI::App& app, const CLI::Option& option,
                               const std::string& value, const std::string& help) {
  if (value.empty()) return option_error(option, "is empty", "give it a value, or leave it out");
  if (value.size() > 1 && value[0] == '-' && app.get_option_no_throw(value) != nullptr)
    return option_error(option, fmt::format("has no value: {} stands there", value), help);
  if (option.get_group() == kSpecGroup) return std::nullopt;  // the spec's reader judges these
  const std::string is = fmt::format("is {}; allowed: ", spec::in_quotes(value));
  if (option.get_type_name() == "INT" && !is_integer(value))
    return option_error(option, is + "an integer of 64 bits", help);
  if (option.get_type_name() == "FLOAT" && !is_number(value))
    return option_error(option, is + "a number", help);
  return std::nullopt;
}

/// The option with whose name CLI11's text begins.
const CLI::Option* named(const CLI::App& app, const std::string& text) {
  for (const CLI::Option* option : app.get_options()) {
    if (text.starts_with(option->get_name() + ": ")) return option;
  }
  return nullptr;
}

std::optional<Error> bad_value(const CLI::App& app, const std::string& name) {
  const std::string help = fmt::format("see {} --help", name);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (std::optional<Error> error = bad_value(app, *option, value, help)) return error;
    }
  }
  for (const CLI::App* command : app.get_subcommands()) {
    if (auto error = bad_value(*command, fmt::format("{} {}", name, command->get_name())))
      return error;
  }
  return std::nullopt;
}

}  // namespace

Error usage_error(const CLI::App& app, const CLI::ParseError& refused, int argc,
                  const char* const* argv) {
  const Chosen chosen = chosen_command(app, argc, argv);
  const std::string help = fmt::format("see {} --help", chosen.name);
  if (!chosen.word.empty()) return no_command(chosen, help);
  if (chosen.app->get_require_subcommand_min() > 0) {
    return make_error(ErrorCode::kInvalid, fmt::format("a command of {} is required", chosen.name),
                      {}, help);
  }
  if (std::optional<Error> error = bad_value(app)) return *std::move(error);
  if (dynamic_cast<const CLI::ExtrasError*>(&refused) != nullptr) {
    const std::vector<std::string> words = app.remaining(true);
    if (!words.empty()) return no_such_argument(chosen, words.front(), help);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&refused) != nullptr) {
    for (const CLI::Option* option : chosen.app->get_options()) {
      if (option->get_required() && option->count() == 0)
        return option_error(*option, "is missing", help);
    }
  }
  const std::string text = refused.what();
  if (const CLI::Option* option = named(*chosen.app, text)) {
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&refused) != nullptr) {
      return option_error(*option, option->count() > 1 ? "is given twice" : "has no value", help);
    }
    return option_error(*option, text.substr(text.find(':') + 2), help);
  }
  return make_error(ErrorCode::kInvalid, text, {}, help);
}

std::optional<Error> bad_value(const CLI::App& app) { return bad_value(app, app.get_name()); }

}  // namespace attnjit::cli
