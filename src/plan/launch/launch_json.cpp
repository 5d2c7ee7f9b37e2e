// SPDX-License-Identifier: Apache-2.0
// Writes LAUNCH.json, and reads it back with every problem named by its field.
#include "plan/launch/launch_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/dtype_names.h"
#include "plan/kernel/json_fields.h"
#include "spec/json_value.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 16 << 20;
constexpr std::size_t kMaxItems = 4096;  // buffers, arguments, tensor maps of one file
constexpr std::size_t kMaxMessage = 512;

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
    if (buffer.fill) {
      json["fill"] = *buffer.fill;
    } else {
      json["fill"] = "uninitialised";
    }
  }
  if (buffer.left_zero) json["left_zero"] = true;
  return json;
}

/// Reads with a list of problems instead of exceptions.
class Reader {
 public:
  std::vector<Error> problems;

  void problem(const std::string& field, const std::string& message, int line = 0, int column = 0) {
    if (problems.size() >= 64) return;
    // Names and values of the file stand in both: a terminal gets to see no control character.
    problems.push_back(make_error(ErrorCode::kInvalid, spec::printable(message, kMaxMessage),
                                  spec::printable(field, kMaxMessage)));
    problems.back().line = line;
    problems.back().column = column;
  }

  /// Whether `json` is an object with no other fields than these.
  bool object(const Json& json, const std::string& field,
              std::initializer_list<std::string_view> allowed) {
    if (!json.is_object()) {
      problem(field, "must be an object");
      return false;
    }
    if (json.size() > kMaxItems) {
      problem(field, fmt::format("has more than {} members", kMaxItems));
      return false;
    }
    if (allowed.size() == 0) return true;
    for (const auto& item : json.items()) {
      if (std::find(allowed.begin(), allowed.end(), item.key()) == allowed.end()) {
        problem(join(field, item.key()), "is not a known field");
      }
    }
    return true;
  }

  template <class T>
  bool integer(const Json& json, const std::string& field, T& value) {
    const auto low = std::numeric_limits<T>::min();
    const auto high = std::numeric_limits<T>::max();
    if (json.is_number_unsigned()) {
      const auto number = json.get<std::uint64_t>();
      if (number <= static_cast<std::uint64_t>(high)) {
        value = static_cast<T>(number);
        return true;
      }
    } else if (json.is_number_integer()) {
      const auto number = json.get<std::int64_t>();
      if constexpr (std::numeric_limits<T>::is_signed) {
        if (number >= low && number <= high) {
          value = static_cast<T>(number);
          return true;
        }
      }
    }
    problem(field, fmt::format("must be an integer from {} to {}", low, high));
    return false;
  }

  template <class T>
  void optional_integer(const Json& parent, const std::string& field, const char* name, T& value) {
    const auto at = parent.find(name);
    if (at != parent.end()) integer(*at, join(field, name), value);
  }

  bool text(const Json& parent, const std::string& field, const char* name, std::string& value) {
    const auto at = parent.find(name);
    if (at == parent.end() || !at->is_string()) {
      problem(join(field, name), at == parent.end() ? "is missing" : "must be a string");
      return false;
    }
    value = at->get<std::string>();
    return true;
  }

  void dtype(const Json& parent, const std::string& field, Dtype& value) {
    std::string name;
    if (!text(parent, field, "dtype", name)) return;
    const std::optional<Dtype> known = dtype_from_string(name);
    if (!known) {
      const std::optional<Dtype> called = dtype_called(name);
      problem(join(field, "dtype"),
              fmt::format("'{}' is no element type{}", name,
                          called ? fmt::format(": did you mean {}?", to_string(*called)) : ""));
      return;
    }
    value = *known;
  }

  template <class T>
  void list(const Json& parent, const std::string& field, const char* name, bool required,
            std::vector<T>& values) {
    const std::string own = join(field, name);
    const auto at = parent.find(name);
    if (at == parent.end()) {
      if (required) problem(own, "is missing");
      return;
    }
    if (!at->is_array() || at->size() > 16) {
      problem(own, "must be an array of at most 16 numbers");
      return;
    }
    for (const Json& item : *at) {
      T value{};
      if (!integer(item, own, value)) return;
      values.push_back(value);
    }
  }

  static std::string join(const std::string& field, std::string_view name) {
    return field.empty() ? std::string(name) : fmt::format("{}.{}", field, name);
  }
};

void read_triple(Reader& reader, const Json& json, const std::string& field, const char* name,
                 bool required, std::array<std::uint32_t, 3>& triple) {
  std::vector<std::uint32_t> values;
  reader.list(json, field, name, required, values);
  if (values.empty()) return;
  if (values.size() != 3) {
    reader.problem(Reader::join(field, name), "must be [x, y, z]");
    return;
  }
  std::copy(values.begin(), values.end(), triple.begin());
}

// NOTE: where there is nothing to launch there are no launches: an empty grid is a mistake.
void check_grid(Reader& reader, const std::string& field,
                const std::array<std::uint32_t, 3>& grid) {
  constexpr std::array<std::uint32_t, 3> kMost = {0x7fffffff, 65535, 65535};
  for (std::size_t i = 0; i < 3; ++i) {
    if (grid[i] >= 1 && grid[i] <= kMost[i]) continue;
    reader.problem(Reader::join(field, "grid"),
                   fmt::format("{} is {}; allowed: 1 to {}", "xyz"[i], grid[i], kMost[i]));
  }
}

LaunchBuffer read_buffer(Reader& reader, const std::string& name, const Json& json) {
  LaunchBuffer buffer;
  buffer.name = name;
  const std::string field = Reader::join("buffers", name);
  if (!reader.object(json, field, {"file", "dtype", "shape", "fill", "left_zero"})) return buffer;
  reader.dtype(json, field, buffer.dtype);
  if (const auto left = json.find("left_zero"); left != json.end()) {
    if (left->is_boolean()) {
      buffer.left_zero = left->get<bool>();
    } else {
      reader.problem(Reader::join(field, "left_zero"), "must be true or false");
    }
  }
  if (json.contains("file")) {
    reader.text(json, field, "file", buffer.file);
    if (json.contains("shape") || json.contains("fill")) {
      reader.problem(field, "has a file, so it takes neither shape nor fill");
    }
    return buffer;
  }
  reader.list(json, field, "shape", true, buffer.shape);
  std::int64_t bytes = size_of(buffer.dtype);
  for (const std::int64_t extent : buffer.shape) {
    if (extent < 0 || (extent > 0 && bytes > (std::int64_t{1} << 40) / extent)) {
      reader.problem(Reader::join(field, "shape"),
                     "must be non-negative and below 2^40 bytes in all");
      break;
    }
    bytes *= extent;
  }
  const auto fill = json.find("fill");
  if (fill == json.end()) {
    reader.problem(Reader::join(field, "fill"), "is missing: a number, or \"uninitialised\"");
  } else if (fill->is_number()) {
    buffer.fill = fill->get<double>();
  } else if (!fill->is_string() || fill->get<std::string>() != "uninitialised") {
    reader.problem(Reader::join(field, "fill"), "must be a number or \"uninitialised\"");
  }
  return buffer;
}

TensorMapDescription read_map(Reader& reader, const std::string& launch, const std::string& name,
                              const Json& json) {
  TensorMapDescription map;
  map.name = name;
  const std::string field = Reader::join(Reader::join(launch, "tensor_maps"), name);
  if (!reader.object(json, field,
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
  reader.optional_integer(json, field, "swizzle", map.swizzle);
  reader.optional_integer(json, field, "l2_bytes", map.l2_bytes);
  const std::size_t rank = map.dims.size();
  if (rank < 1 || rank > 5 || map.strides.size() + 1 != rank || map.box.size() != rank ||
      map.element_strides.size() != rank) {
    reader.problem(field,
                   "needs 1 to 5 dims, one stride less, and as many box and element_strides");
  }
  if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128) {
    reader.problem(Reader::join(field, "swizzle"), "must be 0, 32, 64 or 128");
  }
  if (map.l2_bytes != 0 && map.l2_bytes != 64 && map.l2_bytes != 128 && map.l2_bytes != 256) {
    reader.problem(Reader::join(field, "l2_bytes"), "must be 0, 64, 128 or 256");
  }
  if (json.contains("oob")) {
    std::string oob;
    if (reader.text(json, field, "oob", oob)) {
      if (oob != "zero" && oob != "nan")
        reader.problem(Reader::join(field, "oob"), "must be zero or nan");
      map.oob = oob == "nan" ? TensorMapDescription::OutOfBounds::kNan
                             : TensorMapDescription::OutOfBounds::kZero;
    }
  }
  return map;
}

std::optional<std::vector<std::uint8_t>> from_hex(const std::string& hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::vector<std::uint8_t> data;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    data.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return data;
}

KernelArgument read_argument(Reader& reader, const std::string& field, const Json& json) {
  KernelArgument argument{std::int32_t{0}};
  if (!reader.object(json, field, {"ptr", "offset", "i32", "i64", "f32", "tensor_map", "bytes"})) {
    return argument;
  }
  const std::size_t kinds = json.count("ptr") + json.count("i32") + json.count("i64") +
                            json.count("f32") + json.count("tensor_map") + json.count("bytes");
  if (kinds != 1 || (json.contains("offset") && !json.contains("ptr"))) {
    reader.problem(field, "must be one of ptr (with offset), i32, i64, f32, tensor_map, bytes");
    return argument;
  }
  if (json.contains("ptr")) {
    KernelArgument::Pointer pointer;
    reader.text(json, field, "ptr", pointer.buffer);
    reader.optional_integer(json, field, "offset", pointer.offset);
    argument.value = pointer;
  } else if (json.contains("i32")) {
    std::int32_t value = 0;
    reader.integer(json["i32"], Reader::join(field, "i32"), value);
    argument.value = value;
  } else if (json.contains("i64")) {
    std::int64_t value = 0;
    reader.integer(json["i64"], Reader::join(field, "i64"), value);
    argument.value = value;
  } else if (json.contains("f32")) {
    if (!json["f32"].is_number()) {
      reader.problem(Reader::join(field, "f32"), "must be a number");
    } else {
      argument.value = static_cast<float>(json["f32"].get<double>());
    }
  } else if (json.contains("tensor_map")) {
    KernelArgument::TensorMap map;
    reader.text(json, field, "tensor_map", map.name);
    argument.value = map;
  } else {
    std::string hex;
    if (reader.text(json, field, "bytes", hex)) {
      std::optional<std::vector<std::uint8_t>> data = from_hex(hex);
      if (!data || data->size() > 4096) {
        reader.problem(Reader::join(field, "bytes"), "must be at most 4096 bytes in hexadecimal");
      } else {
        argument.value = KernelArgument::Bytes{*std::move(data)};
      }
    }
  }
  return argument;
}

bool has_buffer(const LaunchDocument& document, const std::string& name) {
  return std::any_of(document.buffers.begin(), document.buffers.end(),
                     [&](const LaunchBuffer& buffer) { return buffer.name == name; });
}

/// Every name that an argument or a map of a launch refers to must be there.
void check_references(Reader& reader, const std::string& field, const LaunchDocument& document,
                      const LaunchRecipe& recipe) {
  for (const TensorMapDescription& map : recipe.tensor_maps) {
    if (!has_buffer(document, map.buffer)) {
      reader.problem(Reader::join(field, fmt::format("tensor_maps.{}.buffer", map.name)),
                     fmt::format("no buffer is named '{}'", map.buffer));
    }
  }
  for (std::size_t i = 0; i < recipe.args.size(); ++i) {
    const auto* pointer = std::get_if<KernelArgument::Pointer>(&recipe.args[i].value);
    if (pointer != nullptr && !pointer->buffer.empty() && !has_buffer(document, pointer->buffer)) {
      reader.problem(Reader::join(field, fmt::format("args[{}].ptr", i)),
                     fmt::format("no buffer is named '{}'", pointer->buffer));
    }
    const auto* named = std::get_if<KernelArgument::TensorMap>(&recipe.args[i].value);
    if (named != nullptr &&
        std::none_of(recipe.tensor_maps.begin(), recipe.tensor_maps.end(),
                     [&](const TensorMapDescription& map) { return map.name == named->name; })) {
      reader.problem(Reader::join(field, fmt::format("args[{}].tensor_map", i)),
                     fmt::format("no tensor map is named '{}'", named->name));
    }
  }
}

void find_duplicates(Reader& reader, const spec::JsonValue& value, const std::string& field) {
  for (const spec::JsonMember& member : value.members) {
    const std::string own = Reader::join(field, member.name);
    if (member.duplicate) reader.problem(own, "is given twice", member.line, member.column);
    find_duplicates(reader, member.value, own);
  }
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    find_duplicates(reader, value.items[i], fmt::format("{}[{}]", field, i));
  }
}

/// One launch: `field` is empty where it is the file's only one, whose fields are the file's.
LaunchRecipe read_launch(Reader& reader, const std::string& field, const Json& json) {
  LaunchRecipe recipe;
  reader.text(json, field, "entry", recipe.entry);
  read_triple(reader, json, field, "grid", true, recipe.grid);
  check_grid(reader, field, recipe.grid);
  read_triple(reader, json, field, "block", true, recipe.block);
  read_triple(reader, json, field, "cluster", false, recipe.cluster);
  reader.optional_integer(json, field, "dynamic_smem", recipe.dynamic_smem);
  if (json.contains("tensor_maps") &&
      reader.object(json["tensor_maps"], Reader::join(field, "tensor_maps"), {})) {
    for (const auto& item : json["tensor_maps"].items()) {
      recipe.tensor_maps.push_back(read_map(reader, field, item.key(), item.value()));
    }
  }
  if (json.contains("args")) {
    const Json& args = json["args"];
    const std::string own = Reader::join(field, "args");
    if (!args.is_array() || args.size() > kMaxItems) {
      reader.problem(own, fmt::format("must be an array of at most {}", kMaxItems));
    } else {
      for (std::size_t i = 0; i < args.size(); ++i) {
        recipe.args.push_back(read_argument(reader, fmt::format("{}[{}]", own, i), args[i]));
      }
    }
  }
  return recipe;
}

void read_launches(Reader& reader, const Json& json, LaunchDocument& document) {
  if (!json.is_array() || json.size() > kMaxItems) {
    reader.problem("launches", fmt::format("must be an array of at most {}", kMaxItems));
    return;
  }
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string field = fmt::format("launches[{}]", i);
    if (!reader.object(
            json[i], field,
            {"entry", "grid", "block", "cluster", "dynamic_smem", "tensor_maps", "args"})) {
      continue;
    }
    document.sequence.launches.push_back(read_launch(reader, field, json[i]));
  }
}

void read(Reader& reader, const Json& json, LaunchDocument& document) {
  const bool several = json.is_object() && json.contains("launches");
  if (several ? !reader.object(json, "", {"launches", "seed", "max_steps", "buffers", "out"})
              : !reader.object(json, "",
                               {"entry", "grid", "block", "cluster", "dynamic_smem", "seed",
                                "max_steps", "buffers", "tensor_maps", "args", "out"})) {
    return;
  }
  reader.optional_integer(json, "", "seed", document.seed);
  reader.optional_integer(json, "", "max_steps", document.max_steps);
  if (document.max_steps < 0) reader.problem("max_steps", "must not be negative");
  if (json.contains("buffers") && reader.object(json["buffers"], "buffers", {})) {
    for (const auto& item : json["buffers"].items()) {
      document.buffers.push_back(read_buffer(reader, item.key(), item.value()));
    }
  }
  if (several) {
    read_launches(reader, json["launches"], document);
  } else {
    document.sequence.launches.push_back(read_launch(reader, "", json));
  }
  if (json.contains("out") && reader.object(json["out"], "out", {})) {
    for (const auto& item : json["out"].items()) {
      if (item.value().is_string()) {
        document.out[item.key()] = item.value().get<std::string>();
      } else {
        reader.problem(Reader::join("out", item.key()), "must be a file name");
      }
    }
  }
  const std::vector<LaunchRecipe>& launches = document.sequence.launches;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    check_references(reader, several ? fmt::format("launches[{}]", i) : std::string(), document,
                     launches[i]);
  }
  for (const auto& [name, file] : document.out) {
    if (!has_buffer(document, name)) {
      reader.problem(Reader::join("out", name), fmt::format("no buffer is named '{}'", name));
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
  // Twice: once for the positions and the names that are given twice, once for the values.
  const Result<spec::JsonValue> places = spec::parse_json(text, {.max_bytes = kMaxBytes});
  if (!places) return places.error();
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return make_error(ErrorCode::kInvalid, "the launch is not JSON");
  Reader reader;
  LaunchDocument document;
  find_duplicates(reader, *places, "");
  read(reader, json, document);
  for (Error& problem : reader.problems) {
    if (problem.line != 0) continue;
    const spec::JsonValue& place = spec::nearest(*places, problem.field);
    problem.line = place.line;
    problem.column = place.column;
  }
  if (!reader.problems.empty()) {
    Error first = std::move(reader.problems.front());
    first.others.assign(std::make_move_iterator(reader.problems.begin() + 1),
                        std::make_move_iterator(reader.problems.end()));
    return first;
  }
  return document;
}

}  // namespace attnjit
