// SPDX-License-Identifier: Apache-2.0
// Writes LAUNCH.json, and reads it back with every problem named by its field.
#include "plan/launch/launch_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "base/dtype_names.h"
#include "plan/kernel/fields.h"
#include "spec/json_problems.h"
#include "spec/json_value.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using OrderedJson = nlohmann::ordered_json;
using spec::JsonValue;
using spec::path_of;
using Type = JsonValue::Type;

constexpr std::size_t kMaxBytes = 16 << 20;
constexpr std::size_t kMaxItems = 4096;  // buffers, arguments, tensor maps of one file
constexpr std::size_t kMaxMessage = 512;

bool is_number(const JsonValue& value) {
  return value.type == Type::kInteger || value.type == Type::kReal;
}

std::string to_hex(const std::vector<std::uint8_t>& data) {
  std::string hex;
  for (const std::uint8_t byte : data) hex += fmt::format("{:02x}", byte);
  return hex;
}

OrderedJson to_json(const TensorMapDescription& map) {
  OrderedJson json;
#define MAP(name) ATTNJIT_MEMBER(TensorMapDescription, name)
  add_members(map, json, MAP(buffer), MAP(offset), std::pair{"dtype", to_string(map.dtype)},
              MAP(dims), MAP(strides), MAP(box), MAP(element_strides), MAP(swizzle));
#undef MAP
  if (map.l2_bytes != TensorMapDescription().l2_bytes) json["l2_bytes"] = map.l2_bytes;
  json["oob"] = map.oob == TensorMapDescription::OutOfBounds::kNan ? "nan" : "zero";
  return json;
}

OrderedJson to_json(const KernelArgument& argument) {
  OrderedJson json;
  if (const auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value)) {
    json["ptr"] = pointer->buffer;
    json["offset"] = pointer->offset;
  } else if (const auto* i32 = std::get_if<std::int32_t>(&argument.value)) {
    json["i32"] = *i32;
  } else if (const auto* i64 = std::get_if<std::int64_t>(&argument.value)) {
    json["i64"] = *i64;
  } else if (const auto* f32 = std::get_if<float>(&argument.value)) {
    // NOTE: JSON has no infinities or NaN: such an argument travels as its bytes.
    if (std::isfinite(*f32)) {
      json["f32"] = *f32;
    } else {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(f32);
      json["bytes"] = to_hex({bytes, bytes + sizeof(float)});
    }
  } else if (const auto* map = std::get_if<KernelArgument::TensorMap>(&argument.value)) {
    json["tensor_map"] = map->name;
  } else {
    json["bytes"] = to_hex(std::get<KernelArgument::Bytes>(argument.value).data);
  }
  return json;
}

OrderedJson to_json(const LaunchBuffer& buffer) {
  OrderedJson json;
  if (!buffer.file.empty()) {
    json["file"] = buffer.file;
  } else {
    json["shape"] = buffer.shape;
  }
  json["dtype"] = std::string(to_string(buffer.dtype));
  if (buffer.file.empty()) {
    json["fill"] = buffer.fill ? OrderedJson(*buffer.fill) : OrderedJson("uninitialised");
  }
  if (buffer.left_zero) json["left_zero"] = true;
  return json;
}

/// Reads with a list of problems instead of exceptions.
class Reader {
 public:
  spec::JsonProblems problems;

  void problem(const std::string& field, const std::string& message, const JsonValue& at) {
    // Names and values of the file stand in both: a terminal gets to see no control character.
    problems.add(spec::printable(field, kMaxMessage), spec::printable(message, kMaxMessage), at);
  }

  /// Whether `json` is an object with no other fields than these; with any, where none is named.
  bool object(const JsonValue& json, const std::string& field, std::string_view name,
              std::initializer_list<std::string_view> allowed) {
    if (json.members.size() > kMaxItems) {
      problem(field, fmt::format("has more than {} members", kMaxItems), json);
      return false;
    }
    return problems.check_object(field, json, name, {allowed.begin(), allowed.size()});
  }

  template <class T>
  bool integer(const JsonValue& json, const std::string& field, T& value) {
    const char* end = json.text.data() + json.text.size();
    const auto [stop, status] = std::from_chars(json.text.data(), end, value);
    if (is_number(json) && status == std::errc{} && stop == end) return true;
    problem(field,
            fmt::format("must be an integer from {} to {}", std::numeric_limits<T>::min(),
                        std::numeric_limits<T>::max()),
            json);
    return false;
  }

  template <class T>
  void optional_integer(const JsonValue& parent, const std::string& field, const char* name,
                        T& value) {
    if (const JsonValue* given = parent.find(name)) integer(*given, path_of(field, name), value);
  }

  bool text(const JsonValue& parent, const std::string& field, const char* name,
            std::string& value) {
    const JsonValue* given = parent.find(name);
    if (given == nullptr) {
      problem(path_of(field, name), "is missing", parent);
    } else if (auto read = problems.string(path_of(field, name), *given)) {
      value = *std::move(read);
      return true;
    }
    return false;
  }

  void dtype(const JsonValue& parent, const std::string& field, Dtype& value) {
    std::string name;
    if (!text(parent, field, "dtype", name)) return;
    const std::optional<Dtype> known = dtype_from_string(name);
    if (known) {
      value = *known;
      return;
    }
    const std::optional<Dtype> called = dtype_called(name);
    problem(path_of(field, "dtype"),
            fmt::format("'{}' is no element type{}", name,
                        called ? fmt::format(": did you mean {}?", to_string(*called)) : ""),
            *parent.find("dtype"));
  }

  template <class T>
  void list(const JsonValue& parent, const std::string& field, const char* name, bool required,
            std::vector<T>& values) {
    const std::string own = path_of(field, name);
    const JsonValue* given = parent.find(name);
    if (given == nullptr) {
      if (required) problem(own, "is missing", parent);
      return;
    }
    if (given->type != Type::kArray || given->items.size() > 16) {
      problem(own, "must be an array of at most 16 numbers", *given);
      return;
    }
    for (const JsonValue& item : given->items) {
      T value{};
      if (!integer(item, own, value)) return;
      values.push_back(value);
    }
  }

  /// The members of one that is an object, where it is there.
  std::span<const spec::JsonMember> members(const JsonValue& parent, const std::string& field,
                                            const char* name) {
    const JsonValue* given = parent.find(name);
    if (given == nullptr || !object(*given, path_of(field, name), name, {})) return {};
    return given->members;
  }
  /// The items of a list, which says how many it may have.
  std::span<const JsonValue> items(const JsonValue& list, const std::string& field) {
    if (list.type == Type::kArray && list.items.size() <= kMaxItems) return list.items;
    problem(field, fmt::format("must be an array of at most {}", kMaxItems), list);
    return {};
  }
};

void read_triple(Reader& reader, const JsonValue& json, const std::string& field, const char* name,
                 bool required, std::array<std::uint32_t, 3>& triple) {
  std::vector<std::uint32_t> values;
  reader.list(json, field, name, required, values);
  if (values.empty()) return;
  if (values.size() != 3) {
    reader.problem(path_of(field, name), "must be [x, y, z]", *json.find(name));
    return;
  }
  std::copy(values.begin(), values.end(), triple.begin());
}

// NOTE: where there is nothing to launch there are no launches: an empty grid is a mistake.
void check_grid(Reader& reader, const std::string& field, const JsonValue& json,
                const std::array<std::uint32_t, 3>& grid) {
  constexpr std::array<std::uint32_t, 3> kMost = {0x7fffffff, 65535, 65535};
  for (std::size_t i = 0; i < 3; ++i) {
    if (grid[i] >= 1 && grid[i] <= kMost[i]) continue;
    const JsonValue* given = json.find("grid");
    reader.problem(path_of(field, "grid"),
                   fmt::format("{} is {}; allowed: 1 to {}", "xyz"[i], grid[i], kMost[i]),
                   given == nullptr ? json : *given);
  }
}

LaunchBuffer read_buffer(Reader& reader, const std::string& name, const JsonValue& json) {
  LaunchBuffer buffer;
  buffer.name = name;
  const std::string field = path_of("buffers", name);
  if (!reader.object(json, field, "a buffer", {"file", "dtype", "shape", "fill", "left_zero"})) {
    return buffer;
  }
  reader.dtype(json, field, buffer.dtype);
  if (const JsonValue* left = json.find("left_zero")) {
    buffer.left_zero = reader.problems.boolean(path_of(field, "left_zero"), *left).value_or(false);
  }
  const JsonValue* shape = json.find("shape");
  const JsonValue* fill = json.find("fill");
  if (json.find("file") != nullptr) {
    reader.text(json, field, "file", buffer.file);
    if (shape != nullptr || fill != nullptr) {
      reader.problem(field, "has a file, so it takes neither shape nor fill", json);
    }
    return buffer;
  }
  reader.list(json, field, "shape", true, buffer.shape);
  std::int64_t bytes = size_of(buffer.dtype);
  for (const std::int64_t extent : buffer.shape) {
    if (extent < 0 || (extent > 0 && bytes > (std::int64_t{1} << 40) / extent)) {
      reader.problem(path_of(field, "shape"), "must be non-negative and below 2^40 bytes in all",
                     *shape);
      break;
    }
    bytes *= extent;
  }
  if (fill == nullptr) {
    reader.problem(path_of(field, "fill"), "is missing: a number, or \"uninitialised\"", json);
  } else if (is_number(*fill)) {
    buffer.fill = fill->real;
  } else if (fill->type != Type::kString || fill->text != "uninitialised") {
    reader.problem(path_of(field, "fill"), "must be a number or \"uninitialised\"", *fill);
  }
  return buffer;
}

TensorMapDescription read_map(Reader& reader, const std::string& launch, const std::string& name,
                              const JsonValue& json) {
  TensorMapDescription map;
  map.name = name;
  const std::string field = path_of(path_of(launch, "tensor_maps"), name);
  if (!reader.object(json, field, "a tensor map",
                     {"buffer", "offset", "dtype", "dims", "strides", "box", "element_strides",
                      "swizzle", "l2_bytes", "oob"})) {
    return map;
  }
  reader.text(json, field, "buffer", map.buffer);
  reader.optional_integer(json, field, "offset", map.offset);
  reader.dtype(json, field, map.dtype);
  reader.list(json, field, "dims", true, map.dims);
  reader.list(json, field, "strides", map.dims.size() > 1, map.strides);
  reader.list(json, field, "box", true, map.box);
  reader.list(json, field, "element_strides", false, map.element_strides);
  if (map.element_strides.empty()) map.element_strides.assign(map.dims.size(), 1);
  const auto one_of = [&](const char* member, int& value, std::initializer_list<int> allowed) {
    reader.optional_integer(json, field, member, value);
    if (std::ranges::find(allowed, value) != allowed.end()) return;
    reader.problem(path_of(field, member), fmt::format("must be {}", fmt::join(allowed, ", ")),
                   *json.find(member));
  };
  one_of("swizzle", map.swizzle, {0, 32, 64, 128});
  one_of("l2_bytes", map.l2_bytes, {0, 64, 128, 256});
  const std::size_t rank = map.dims.size();
  if (rank < 1 || rank > 5 || map.strides.size() + 1 != rank || map.box.size() != rank ||
      map.element_strides.size() != rank) {
    reader.problem(field, "needs 1 to 5 dims, one stride less, and as many box and element_strides",
                   json);
  }
  std::string oob = "zero";
  if (json.find("oob") != nullptr && reader.text(json, field, "oob", oob) && oob != "zero" &&
      oob != "nan") {
    reader.problem(path_of(field, "oob"), "must be zero or nan", *json.find("oob"));
  }
  map.oob = oob == "nan" ? TensorMapDescription::OutOfBounds::kNan
                         : TensorMapDescription::OutOfBounds::kZero;
  return map;
}

std::optional<std::vector<std::uint8_t>> from_hex(const std::string& hex) {
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    return std::nullopt;
  }
  std::vector<std::uint8_t> data(hex.size() / 2);
  for (std::size_t i = 0; i < data.size(); ++i) {
    std::from_chars(&hex[2 * i], &hex[2 * i] + 2, data[i], 16);
  }
  return data;
}

KernelArgument read_argument(Reader& reader, const std::string& field, const JsonValue& json) {
  KernelArgument argument{std::int32_t{0}};
  if (!reader.object(json, field, "an argument",
                     {"ptr", "offset", "i32", "i64", "f32", "tensor_map", "bytes"})) {
    return argument;
  }
  const JsonValue* offset = json.find("offset");
  if (json.members.size() != (offset == nullptr ? 1U : 2U) ||
      (offset != nullptr && json.find("ptr") == nullptr)) {
    reader.problem(field, "must be one of ptr (with offset), i32, i64, f32, tensor_map, bytes",
                   json);
  } else if (json.find("ptr") != nullptr) {
    KernelArgument::Pointer pointer;
    reader.text(json, field, "ptr", pointer.buffer);
    reader.optional_integer(json, field, "offset", pointer.offset);
    argument.value = pointer;
  } else if (json.find("i32") != nullptr) {
    reader.optional_integer(json, field, "i32", argument.value.emplace<std::int32_t>(0));
  } else if (json.find("i64") != nullptr) {
    reader.optional_integer(json, field, "i64", argument.value.emplace<std::int64_t>(0));
  } else if (const JsonValue* f32 = json.find("f32")) {
    argument.value = static_cast<float>(f32->real);
    if (!is_number(*f32)) reader.problem(path_of(field, "f32"), "must be a number", *f32);
  } else if (json.find("tensor_map") != nullptr) {
    KernelArgument::TensorMap map;
    reader.text(json, field, "tensor_map", map.name);
    argument.value = map;
  } else if (std::string hex; reader.text(json, field, "bytes", hex)) {
    std::optional<std::vector<std::uint8_t>> data = from_hex(hex);
    if (!data || data->size() > 4096) {
      reader.problem(path_of(field, "bytes"), "must be at most 4096 bytes in hexadecimal",
                     *json.find("bytes"));
    } else {
      argument.value = KernelArgument::Bytes{*std::move(data)};
    }
  }
  return argument;
}

bool has_buffer(const LaunchDocument& document, const std::string& name) {
  return std::ranges::find(document.buffers, name, &LaunchBuffer::name) != document.buffers.end();
}

/// Every name that an argument or a map of a launch refers to must be there.
void check_references(Reader& reader, const std::string& field, const JsonValue& json,
                      const LaunchDocument& document, const LaunchRecipe& recipe) {
  const auto lacks = [&](const std::string& at, const char* what, const std::string& name) {
    const std::string path = path_of(field, at);
    reader.problem(path, fmt::format("no {} is named '{}'", what, name), spec::nearest(json, path));
  };
  for (const TensorMapDescription& map : recipe.tensor_maps) {
    if (has_buffer(document, map.buffer)) continue;
    lacks(fmt::format("tensor_maps.{}.buffer", map.name), "buffer", map.buffer);
  }
  for (std::size_t i = 0; i < recipe.args.size(); ++i) {
    const auto* pointer = std::get_if<KernelArgument::Pointer>(&recipe.args[i].value);
    if (pointer != nullptr && !pointer->buffer.empty() && !has_buffer(document, pointer->buffer)) {
      lacks(fmt::format("args[{}].ptr", i), "buffer", pointer->buffer);
    }
    const auto* named = std::get_if<KernelArgument::TensorMap>(&recipe.args[i].value);
    if (named != nullptr &&
        std::ranges::find(recipe.tensor_maps, named->name, &TensorMapDescription::name) ==
            recipe.tensor_maps.end()) {
      lacks(fmt::format("args[{}].tensor_map", i), "tensor map", named->name);
    }
  }
}

/// One launch: `field` is empty where it is the file's only one, whose fields are the file's.
LaunchRecipe read_launch(Reader& reader, const std::string& field, const JsonValue& json) {
  LaunchRecipe recipe;
  reader.text(json, field, "entry", recipe.entry);
  read_triple(reader, json, field, "grid", true, recipe.grid);
  check_grid(reader, field, json, recipe.grid);
  read_triple(reader, json, field, "block", true, recipe.block);
  read_triple(reader, json, field, "cluster", false, recipe.cluster);
  reader.optional_integer(json, field, "dynamic_smem", recipe.dynamic_smem);
  for (const spec::JsonMember& map : reader.members(json, field, "tensor_maps")) {
    recipe.tensor_maps.push_back(read_map(reader, field, map.name, map.value));
  }
  if (const JsonValue* args = json.find("args")) {
    const std::string own = path_of(field, "args");
    for (const JsonValue& argument : reader.items(*args, own)) {
      const std::string at = fmt::format("{}[{}]", own, recipe.args.size());
      recipe.args.push_back(read_argument(reader, at, argument));
    }
  }
  return recipe;
}

void read(Reader& reader, const JsonValue& json, LaunchDocument& document) {
  const JsonValue* several = json.find("launches");
  if (several != nullptr
          ? !reader.object(json, "", "a launch",
                           {"launches", "seed", "max_steps", "buffers", "out"})
          : !reader.object(json, "", "a launch",
                           {"entry", "grid", "block", "cluster", "dynamic_smem", "seed",
                            "max_steps", "buffers", "tensor_maps", "args", "out"})) {
    return;
  }
  reader.optional_integer(json, "", "seed", document.seed);
  reader.optional_integer(json, "", "max_steps", document.max_steps);
  if (document.max_steps < 0) {
    reader.problem("max_steps", "must not be negative", *json.find("max_steps"));
  }
  for (const spec::JsonMember& buffer : reader.members(json, "", "buffers")) {
    document.buffers.push_back(read_buffer(reader, buffer.name, buffer.value));
  }
  std::vector<LaunchRecipe>& launches = document.sequence.launches;
  if (several == nullptr) {
    launches.push_back(read_launch(reader, "", json));
    check_references(reader, "", json, document, launches.back());
  } else {
    const std::span<const JsonValue> items = reader.items(*several, "launches");
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string field = fmt::format("launches[{}]", i);
      if (!reader.object(
              items[i], field, "a launch",
              {"entry", "grid", "block", "cluster", "dynamic_smem", "tensor_maps", "args"})) {
        continue;
      }
      launches.push_back(read_launch(reader, field, items[i]));
      check_references(reader, field, json, document, launches.back());
    }
  }
  for (const spec::JsonMember& out : reader.members(json, "", "out")) {
    const std::string field = path_of("out", out.name);
    document.out[out.name] = reader.problems.string(field, out.value, "a file name").value_or("");
    if (!has_buffer(document, out.name)) {
      reader.problem(field, fmt::format("no buffer is named '{}'", out.name), out.value);
    }
  }
}

void add_head(const LaunchRecipe& recipe, OrderedJson& json) {
#define RECIPE(name) ATTNJIT_MEMBER(LaunchRecipe, name)
  add_members(recipe, json, RECIPE(entry), RECIPE(grid), RECIPE(block), RECIPE(cluster),
              RECIPE(dynamic_smem));
#undef RECIPE
}

void add_arguments(const LaunchRecipe& recipe, OrderedJson& json) {
  OrderedJson maps = OrderedJson::object();
  for (const TensorMapDescription& map : recipe.tensor_maps) maps[map.name] = to_json(map);
  json["tensor_maps"] = std::move(maps);
  OrderedJson args = OrderedJson::array();
  for (const KernelArgument& argument : recipe.args) args.push_back(to_json(argument));
  json["args"] = std::move(args);
}

}  // namespace

std::string launch_to_json(const LaunchDocument& document) {
  const std::vector<LaunchRecipe>& launches = document.sequence.launches;
  const bool one = launches.size() == 1;
  OrderedJson json;
  if (one) add_head(launches.front(), json);
  json["seed"] = document.seed;
  if (document.max_steps > 0) json["max_steps"] = document.max_steps;
  OrderedJson buffers = OrderedJson::object();
  for (const LaunchBuffer& buffer : document.buffers) buffers[buffer.name] = to_json(buffer);
  for (const Workspace& workspace : document.sequence.workspaces) {
    if (buffers.contains(workspace.name)) continue;
    LaunchBuffer buffer{workspace.name, Dtype::kU8, {}, {workspace.bytes}, std::nullopt};
    if (workspace.zeroed) buffer.fill = 0;
    buffer.left_zero = workspace.zeroed;
    buffers[workspace.name] = to_json(buffer);
  }
  json["buffers"] = std::move(buffers);
  if (one) {
    add_arguments(launches.front(), json);
  } else {
    OrderedJson list = OrderedJson::array();
    for (const LaunchRecipe& recipe : launches) {
      OrderedJson launch;
      add_head(recipe, launch);
      add_arguments(recipe, launch);
      list.push_back(std::move(launch));
    }
    json["launches"] = std::move(list);
  }
  OrderedJson out = OrderedJson::object();
  for (const auto& [name, file] : document.out) out[name] = file;
  json["out"] = std::move(out);
  // NOTE: names come from specs and files; bytes that are not UTF-8 must not throw here.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<LaunchDocument> launch_from_json(std::string_view text) {
  const Result<JsonValue> json = spec::parse_json(text, {.max_bytes = kMaxBytes});
  if (!json) return json.error();
  Reader reader;
  LaunchDocument document;
  read(reader, *json, document);
  if (!reader.problems.found().empty()) return reader.problems.take();
  return document;
}

}  // namespace attnjit
