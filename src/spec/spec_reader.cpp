// SPDX-License-Identifier: Apache-2.0
// Turns a JSON object into a ResolvedSpec, collecting every problem.
#include "spec/spec_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/architectures.h"
#include "base/dtype_names.h"
#include "spec/json_problems.h"
#include "spec/kinds.h"
#include "spec/resolved_spec.h"
#include "spec/spec_fields.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

struct CommonMistake {
  std::string_view name;
  std::string_view hint;
};
constexpr CommonMistake kMistakes[] = {
    {"num_kv_heads", "set group = num_q_heads / num_kv_heads"},
    {"num_heads", "use num_q_heads"},
    {"head_dim", "use qk_depth"},
    {"head_size", "use qk_depth"},
    {"depth", "use qk_depth"},
    {"v_depth", "use ov_depth"},
    {"dtype", "use qkv_dtype"},
    {"causal", R"(use "mask": "causal")"},
    {"window", R"(use "mask": {"kind": "sliding_window", "window": N})"},
    {"sliding_window", R"(use "mask": {"kind": "sliding_window", "window": N})"},
    {"chunk", R"(use "mask": {"kind": "chunked", "chunk": N})"},
    {"softcap", R"(use "score_mod": {"kind": "softcap", "cap": X})"},
    {"scale", "the scale is given at launch"},
    {"num_splits", "use num_partitions"},
};

std::string hint_of_mistake(std::string_view name) {
  const auto* const found = std::ranges::find(kMistakes, name, &CommonMistake::name);
  return found == std::end(kMistakes) ? std::string() : std::string(found->hint);
}

class Reader {
 public:
  explicit Reader(JsonProblems& problems) : problems_(problems) {}

  /// Of the spec that was read.
  ArchFrom arch_from() const { return arch_from_; }

  void read(const SpecField& field, const JsonValue& value, SpecDocument& document) {
    visit_field(field, document, FieldVisitor{*this, field, value});
  }

  void read(const JsonValue& root, SpecDocument& document) {
    if (root.type != JsonValue::Type::kObject) {
      problems_.add_wrong("", root, "an object with the spec's fields");
      return;
    }
    std::vector<std::string_view> names;
    for (const SpecField& field : spec_fields()) names.push_back(field.name);
    problems_.check_members("", root, "a spec", names, hint_of_mistake);
    for (const SpecField& field : spec_fields()) {
      if (const JsonValue* value = root.find(field.name)) {
        read(field, *value, document);
      } else if (field.required) {
        missing(std::string(field.name), root, allowed(field));
      }
    }
    // NOTE: an AttentionSpec does not tell a 1 that was written from the default.
    const JsonValue* partitions = root.find("num_partitions");
    if (partitions != nullptr && document.spec.partition_keys > 0) {
      problems_.add("num_partitions", partitions_beside_keys(document.spec.num_partitions),
                    *partitions);
    }
  }

 private:
  using Type = JsonValue::Type;

  /// Of a member that an object lacks.
  void missing(std::string field, const JsonValue& object, const std::string& allowed_text) {
    problems_.add(std::move(field), "is missing; allowed: " + allowed_text, object);
  }

  /// NOTE: the nearest name is not always the one that is meant: a kernel for sm_100a does not run
  /// on sm_120.
  static std::string arch_suggestion(std::string_view text) {
    if (std::string hint = architecture_hint(text); !hint.empty()) return hint;
    std::vector<std::string_view> names{kNativeArch};
    for (const ArchTraits& traits : architectures()) names.push_back(traits.name);
    return suggestion(text, names);
  }

  // --- scalars ---------------------------------------------------------------------------------

  /// The one of `names` that others call so, else that of which `text` is a misspelling.
  static std::string dtype_suggestion(std::string_view text,
                                      std::span<const std::string_view> names) {
    const std::string_view element = text.substr(0, text.find('['));
    const std::optional<Dtype> called = dtype_called(element);
    if (!called) return suggestion(text, names);
    const std::string meant =
        std::string(attnjit::to_string(*called)) + std::string(text.substr(element.size()));
    const bool known = std::find(names.begin(), names.end(), meant) != names.end();
    return known ? fmt::format("did you mean `{}`?", meant) : std::string{};
  }

  /// One of several names; `from_string` gives an optional, and `hint` what to say to a string
  /// that is none of them.
  template <class FromString, class Hint>
  auto name_of(const std::string& field, const JsonValue& value, const std::string& allowed_text,
               FromString from_string, Hint hint) -> decltype(from_string(std::string_view{})) {
    if (value.type == Type::kString) {
      if (auto parsed = from_string(std::string_view(value.text))) return parsed;
    }
    problems_.add_wrong(
        field, value, allowed_text,
        value.type == Type::kString ? hint(std::string_view(value.text)) : std::string{});
    return std::nullopt;
  }
  template <class FromString>
  auto name_of(const std::string& field, const JsonValue& value, const std::string& allowed_text,
               std::span<const std::string_view> names, FromString from_string)
      -> decltype(from_string(std::string_view{})) {
    return name_of(field, value, allowed_text, from_string,
                   [&](std::string_view text) { return suggestion(text, names); });
  }

  /// One of several element types.
  std::optional<Dtype> dtype_of(const std::string& field, const JsonValue& value,
                                const std::string& allowed_text, std::span<const Dtype> dtypes) {
    const auto parse = [&](std::string_view text) -> std::optional<Dtype> {
      const auto type = dtype_from_string(text);
      const bool known = type && std::find(dtypes.begin(), dtypes.end(), *type) != dtypes.end();
      return known ? type : std::nullopt;
    };
    return name_of(field, value, allowed_text, parse, [&](std::string_view text) {
      return dtype_suggestion(text, dtype_names(dtypes));
    });
  }

  // --- top-level fields, by their type ----------------------------------------------------------

  struct FieldVisitor {
    Reader& reader;
    const SpecField& field;
    const JsonValue& value;

    std::string name() const { return std::string(field.name); }

    std::optional<std::int64_t> integer() const {
      // Which integers are good where not all are, check_spec() says.
      const int min = field.values.empty() ? field.min : INT_MIN;
      return reader.problems_.integer(name(), value, min, field.max, allowed(field));
    }
    bool take(auto read, auto& into) const {
      if (read) into = static_cast<std::decay_t<decltype(into)>>(*read);
      return read.has_value();
    }

    bool operator()(int& into) const { return take(integer(), into); }
    bool operator()(bool& into) const {
      return take(reader.problems_.boolean(name(), value), into);
    }
    bool operator()(Arch& into) const {
      const bool native = value.type == Type::kString && value.text == kNativeArch;
      reader.arch_from_ = native ? ArchFrom::kNative : ArchFrom::kSpec;
      return native || take(reader.name_of(
                                name(), value, fmt::format("{}, {}", allowed(field), kNativeArch),
                                [](std::string_view text) { return arch_from_string(text); },
                                arch_suggestion),
                            into);
    }
    template <NamedEnum Enum>
    bool operator()(Enum& into) const {
      return take(reader.name_of(name(), value, allowed(field), names_of(into),
                                 [](std::string_view text) { return from_string<Enum>(text); }),
                  into);
    }
    bool operator()(Dtype& into) const {
      return take(reader.dtype_of(name(), value, allowed(field), field.dtypes), into);
    }
    /// An optional field may be null: left to its default.
    template <class T>
    bool operator()(std::optional<T>& into) const {
      T read{};
      if (value.type == Type::kNull) return true;
      if (!(*this)(read)) return false;
      into = read;
      return true;
    }
    bool operator()(MaskSpec& into) const {
      reader.read_mask(name(), value, into);
      return true;
    }
    bool operator()(ScoreModSpec& into) const {
      reader.read_score_mod(name(), value, into);
      return true;
    }
  };

  // --- masks and score modifications -----------------------------------------------------------

  /// The row that a name or an object names, its unknown members reported.
  template <class Node>
  const KindRow<Node>* read_kind(const std::string& path, const JsonValue& value,
                                 std::string_view what) {
    const std::vector<std::string_view> names = kind_names<Node>();
    const JsonValue* kind = &value;
    std::string field = path;
    if (value.type == Type::kObject) {
      kind = value.find("kind");
      field = path + ".kind";
      if (kind == nullptr) {
        missing(field, value, join(names));
        return nullptr;
      }
    }
    if (kind->type != Type::kString) {
      problems_.add_wrong(field, *kind,
                          (kind == &value ? "an object, or one of the names " : "") + join(names));
      return nullptr;
    }
    for (const KindRow<Node>& row : kinds<Node>()) {
      if (row.name != kind->text) continue;
      if (value.type == Type::kObject) {
        std::vector<std::string_view> members = member_names(row);
        members.insert(members.begin(), "kind");
        problems_.check_members(path, value, fmt::format("the {} {}", what, row.name), members);
      }
      return &row;
    }
    problems_.add(field, fmt::format("is {}; allowed: {}", in_quotes(kind->text), join(names)),
                  *kind, suggestion(kind->text, names));
    return nullptr;
  }

  /// A kind's numbers: 0 when left out, which means given at launch.
  template <class Node>
  void read_scalars(const std::string& path, const JsonValue& value, const KindRow<Node>& row,
                    Node& node) {
    for (const KindScalar<Node>& scalar : row.scalars) {
      const JsonValue* given = value.find(scalar.name);
      if (given == nullptr) continue;
      const std::string field = fmt::format("{}.{}", path, scalar.name);
      const std::string allowed_text =
          allowed(scalar) + (scalar.may_be_absent() ? "" : "; left out: given at launch");
      if (scalar.is_integer()) {
        const bool may_be_any = scalar.beside != Beside::kNothing;
        const auto read =
            problems_.integer(field, *given, may_be_any ? -1 : static_cast<int>(scalar.min),
                              static_cast<int>(scalar.max), allowed_text);
        if (!read) continue;
        if (*read == 0 && !scalar.may_be_absent()) {
          problems_.add_wrong(field, *given, allowed_text);
        }
        scalar.set(node, static_cast<double>(*read));
        continue;
      }
      const bool number = given->type == Type::kInteger || given->type == Type::kReal;
      if (number && is_allowed(scalar, given->real)) {
        scalar.set(node, given->real);
      } else {
        problems_.add_wrong(field, *given, allowed_text);
      }
    }
    if (row.scalars.empty()) return;
    if (const JsonValue* given = value.find("constant")) {
      node.constant = problems_.boolean(path + ".constant", *given).value_or(false);
    }
  }

  // How large a mask may be, check_spec() says.
  void read_mask(const std::string& path, const JsonValue& value, MaskSpec& mask) {
    const KindRow<MaskSpec>* row = read_kind<MaskSpec>(path, value, "mask");
    if (row == nullptr) return;
    mask.kind = row->kind;
    read_scalars(path, value, *row, mask);
    switch (row->holds) {
      case Holds::kNothing:
        break;
      case Holds::kOperands:
        read_operands(path + ".of", value, mask);
        break;
      case Holds::kDtype:
        read_mask_dtype(path + ".dtype", value.find("dtype"), mask.dtype);
        break;
      case Holds::kSlopes:
        break;
      case Holds::kCode:
        read_custom(path, value, mask.custom);
        break;
    }
  }

  void read_mask_dtype(const std::string& field, const JsonValue* value, Dtype& dtype) {
    if (value == nullptr) return;
    const auto read = dtype_of(field, *value, join(dtype_names(kMaskDtypes)), kMaskDtypes);
    if (read) dtype = *read;
  }

  void read_operands(const std::string& path, const JsonValue& value, MaskSpec& mask) {
    const JsonValue* of = value.find("of");
    if (of == nullptr) return missing(path, value, "an array of at least two masks");
    if (of->type != Type::kArray) {
      return problems_.add_wrong(path, *of, "an array of at least two masks");
    }
    for (std::size_t i = 0; i < of->items.size(); ++i) {
      read_mask(fmt::format("{}[{}]", path, i), of->items[i], mask.of.emplace_back());
    }
  }

  void read_score_mod(const std::string& path, const JsonValue& value, ScoreModSpec& mod) {
    const KindRow<ScoreModSpec>* row = read_kind<ScoreModSpec>(path, value, "score modification");
    if (row == nullptr) return;
    mod.kind = row->kind;
    read_scalars(path, value, *row, mod);
    if (row->holds == Holds::kCode) read_custom(path, value, mod.custom);
    if (const JsonValue* slopes = value.find("slopes"); slopes && row->holds == Holds::kSlopes) {
      mod.slopes = problems_.boolean(path + ".slopes", *slopes).value_or(false);
    }
  }

  void read_custom(const std::string& path, const JsonValue& value, CustomCode& custom) {
    const auto text = [&](std::string_view name, const std::string& allowed_text,
                          std::string& into) {
      const std::string field = path + "." + std::string(name);
      const JsonValue* given = value.find(name);
      if (given == nullptr) {
        missing(field, value, allowed_text);
      } else if (auto read = problems_.string(field, *given, allowed_text)) {
        into = std::move(*read);
      }
    };
    text("name", "1 to 64 of a-z, 0-9 and _", custom.name);
    text("code", "a string of code", custom.code);
    if (const JsonValue* trusted = value.find("trusted")) {
      custom.trusted = problems_.boolean(path + ".trusted", *trusted).value_or(false);
    }
    if (const JsonValue* params = value.find("params")) {
      read_params(path + ".params", *params, custom.params);
    }
  }

  void read_params(const std::string& path, const JsonValue& value,
                   std::vector<ParamSpec>& params) {
    if (value.type != Type::kArray) {
      return problems_.add_wrong(path, value, "an array of {name, type}");
    }
    constexpr std::string_view kNames[] = {"name", "type"};
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      const JsonValue& item = value.items[i];
      const std::string at = fmt::format("{}[{}]", path, i);
      ParamSpec& param = params.emplace_back();
      if (item.type != Type::kObject) {
        problems_.add_wrong(at, item, "an object {name, type}");
        continue;
      }
      problems_.check_members(at, item, "a parameter", kNames);
      if (const JsonValue* name = item.find("name")) {
        param.name = problems_.string(at + ".name", *name, "a C identifier").value_or("");
      } else {
        missing(at + ".name", item, "a C identifier");
      }
      const std::string types = join(names_of(param.type));
      if (const JsonValue* type = item.find("type")) {
        const auto read = name_of(
            at + ".type", *type, types,
            [](std::string_view text) { return from_string<ParamSpec::Type>(text); },
            [&](std::string_view text) { return dtype_suggestion(text, names_of(param.type)); });
        if (read) param.type = *read;
      } else {
        missing(at + ".type", item, types);
      }
    }
  }

  JsonProblems& problems_;
  ArchFrom arch_from_ = ArchFrom::kNothing;
};

/// True where `inner` is `outer` or lies within it: "mask.of[1].kind" in "mask.of[1]".
bool lies_within(std::string_view inner, std::string_view outer) {
  if (!inner.starts_with(outer)) return false;
  return inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[';
}

/// True where a problem of `field` follows from one already found there, within it or around it.
bool already_reported(std::span<const Error> problems, std::string_view field) {
  return std::any_of(problems.begin(), problems.end(), [&](const Error& known) {
    return lies_within(field, known.field) || lies_within(known.field, field);
  });
}

}  // namespace

std::optional<std::string> field_text_of(const SpecField& field, const JsonValue& value) {
  SpecDocument document;
  const auto kinds = visit_field(field, document, []<class T>(const T&) {
    if constexpr (Masking<T>) return kind_names<T>();
    return std::vector<std::string_view>();
  });
  if (!kinds.empty()) {
    const bool known = value.type == JsonValue::Type::kString &&
                       std::find(kinds.begin(), kinds.end(), value.text) != kinds.end();
    return known ? std::optional(in_quotes(value.text)) : std::nullopt;
  }
  JsonProblems problems;
  Reader reader(problems);
  reader.read(field, value, document);
  if (!problems.found().empty() || reader.arch_from() == ArchFrom::kNative) return std::nullopt;
  return field_text(field, document.spec);
}

Result<ResolvedSpec> read_spec(const JsonValue& root, const std::string& path) {
  JsonProblems read;
  std::vector<Error>& problems = read.found();
  SpecDocument document;
  CheckedSpec checked;
  Reader reader(read);
  reader.read(root, document);
  if (root.type == JsonValue::Type::kObject) {
    checked = check_spec(document.spec, document.options);
    std::vector<Error>& found = checked.problems;
    std::erase_if(found,
                  [&](const Error& error) { return already_reported(problems, error.field); });
    for (Error& error : found) {
      if (error.line == 0) {
        const JsonValue& at = nearest(root, error.field);
        error.line = at.line;
        error.column = at.column;
      }
      problems.push_back(std::move(error));
    }
  }
  if (problems.empty()) {
    return resolved_spec(std::move(document), std::move(checked.snippets), reader.arch_from());
  }
  if (!path.empty()) {
    for (Error& error : problems) error.field = path + error.field;
  }
  return read.take();
}

}  // namespace attnjit::spec
