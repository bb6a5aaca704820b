// Owns graph <-> JSON.
#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "core/infer.h"
#include "core/open_types.h"
#include "serialization/documents.h"
#include "serialization/json_fields.h"
#include "serialization/op_text.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

constexpr std::array<std::string_view, 4> kMemories = {"device", "workspace", "host", "constant"};
constexpr std::array<std::string_view, 3> kLayouts = {"row_major", "nchw", "nhwc"};

/// Stands for an operand or a result that was left out.
constexpr std::string_view kLeftOut = "";

/// Positions of tensors by name.
using Names = std::unordered_map<std::string, int>;

// ---- tensors ----

/// A number of the kind that the tensor's type holds.
Json value_json(const Tensor& tensor) {
  return std::visit(
      [&tensor](auto value) {
        return is_real(tensor.type) ? json_of(static_cast<double>(value))
                                    : json_of(static_cast<int64_t>(value));
      },
      tensor.value);
}

Json tensor_json(const Tensor& tensor) {
  Json object = {{"name", tensor.name},
                 {"uid", tensor.uid},
                 {"type", to_string(tensor.type)},
                 {"dims", json_of(tensor.dims)},
                 {"strides", json_of(tensor.strides)},
                 {"memory", kMemories[static_cast<size_t>(tensor.memory)]},
                 {"alignment", tensor.alignment}};
  if (tensor.memory == Memory::constant) object["value"] = value_json(tensor);
  return object;
}

/// Strides as a list, as a layout's name, or row-major where they are omitted.
Strides parse_strides(const JsonReader& object, const Dims& dims) {
  if (object.has("strides") && !object.at("strides").is_text()) return object.at("strides").dims();
  const size_t layout = object.has("strides") ? object.at("strides").one_of(kLayouts) : 0;
  const JsonReader at = object.at("dims");
  for (int i = 0; i < dims.rank(); ++i)
    if (dims[i] < 1) at.at(static_cast<size_t>(i)).refuse("expected an extent of 1 or more, got {}", dims[i]);
  try {
    element_count(dims);
  } catch (const Error& error) {
    at.refuse("{}", error.what());
  }
  return packed_strides(dims, kLayouts[layout] == "nhwc" ? Layout::nhwc : Layout::row_major);
}

Tensor parse_tensor(const JsonReader& object) {
  object.expect_keys({"name", "uid", "type", "dims", "strides", "memory", "alignment", "value"});
  Tensor tensor;
  tensor.name = object.at("name").name();
  if (object.has("type")) read_field(object.at("type"), tensor.type);
  tensor.dims = object.at("dims").dims();
  tensor.strides = parse_strides(object, tensor.dims);
  if (object.has("uid")) tensor.uid = object.at("uid").integer();
  if (object.has("memory")) tensor.memory = static_cast<Memory>(object.at("memory").one_of(kMemories));
  if (object.has("alignment")) tensor.alignment = object.at("alignment").integer();
  if (tensor.is_scalar()) object.at("type");  // numbers are read as what they are
  if (tensor.memory == Memory::constant) {
    if (is_real(tensor.type))
      tensor.value = object.at("value").real();
    else
      tensor.value = object.at("value").integer();
  } else if (object.has("value")) {
    object.at("value").refuse("only tensors with \"memory\": \"constant\" have a value");
  }
  return tensor;
}

/// Gives tensors without a uid the smallest ones from 1 that nobody has.
void number_tensors(const JsonReader& list, std::vector<Tensor>& tensors) {
  std::set<int64_t> used;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (list.at(i).has("uid")) used.insert(tensors[i].uid);
  int64_t next = 1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (list.at(i).has("uid")) continue;
    while (used.contains(next)) ++next;
    tensors[i].uid = next++;
  }
}

std::vector<Tensor> parse_tensors(const JsonReader& list, Names& names) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < list.size(); ++i) {
    tensors.push_back(parse_tensor(list.at(i)));
    if (!names.emplace(tensors.back().name, static_cast<int>(i)).second)
      list.at(i).at("name").refuse("tensor {} appears twice", in_quotes(tensors.back().name));
  }
  number_tensors(list, tensors);
  return tensors;
}

// ---- attributes ----

/// Whether a field is written and expected even where it has its default: an op without its mode says
/// nothing.
template <class Field>
constexpr bool kAlwaysThere = std::is_same_v<Field, PointwiseMode> || std::is_same_v<Field, ReductionMode>;

template <class Op>
void write_attributes(Json& object, const Op& op) {
  Json defaults;
  if constexpr (!std::is_same_v<Op, Composite>) write_fields(defaults, Op{});
  Op::visit(op, [&](std::string_view key, const auto& field) {
    Json value = json_of(field);
    if (kAlwaysThere<std::decay_t<decltype(field)>> || value != defaults[std::string(key)])
      object[std::string(key)] = std::move(value);
  });
}

/// Whether the attribute belongs to ops of this kind. The mode stands first in visit(), so that it is read
/// before the attributes that depend on it.
template <class Op>
bool has_field(const Op& op, std::string_view key) {
  if constexpr (requires { op.has(key); })
    return op.has(key);
  else
    return true;
}

template <class Op>
Op parse_attributes(const JsonReader& object, Op op) {
  std::vector<std::string_view> known = {"name", "op", "inputs", "outputs"};
  Op::visit(op, [&](std::string_view key, auto& field) {
    if (!has_field(op, key)) return;
    known.push_back(key);
    if (kAlwaysThere<std::decay_t<decltype(field)>> || object.has(key)) read_field(object.at(key), field);
  });
  object.expect_keys(known);
  return op;
}

/// `rank`: of the op's first input.
Attributes parse_attributes(const JsonReader& object, int rank) {
  const std::vector<Attributes> kinds = all_kinds();
  std::vector<std::string_view> names;
  for (const Attributes& kind : kinds) names.push_back(kind_name(kind));
  const Attributes& kind = kinds[object.at("op").one_of(names)];
  Attributes attributes =
      std::visit([&](const auto& op) -> Attributes { return parse_attributes(object, op); }, kind);
  fill_omitted(attributes, rank);
  return attributes;
}

/// The attributes that belong to ops of this kind, as they stand.
template <class Op>
Json fields_json(const Op& op) {
  Json object = Json::object();
  Op::visit(op, [&](std::string_view key, const auto& field) {
    if (has_field(op, key)) object[std::string(key)] = json_of(field);
  });
  return object;
}

Json roles_json(const std::vector<Role>& roles) {
  Json list = Json::array();
  for (const Role& role : roles) {
    Json object = {{"name", role.name}};
    if (role.optional) object["optional"] = true;
    if (role.repeats) object["repeats"] = true;
    list.push_back(std::move(object));
  }
  return list;
}

Json kind_json(const Attributes& attributes) {
  const Roles found = roles(attributes);
  const OpText text = op_text(attributes);
  return {{"op", kind_name(attributes)},
          {"inputs", roles_json(found.inputs)},
          {"outputs", roles_json(found.outputs)},
          {"attributes", std::visit([](const auto& op) { return fields_json(op); }, attributes)},
          {"formula", text.formula},
          {"shapes", text.shapes},
          {"types", text.types},
          {"errors", text.errors}};
}

// ---- ops ----

Json names_of(const Graph& graph, const std::vector<int>& tensors) {
  Json list = Json::array();
  for (const int tensor : tensors)
    list.push_back(tensor < 0 ? std::string(kLeftOut) : graph.tensors[static_cast<size_t>(tensor)].name);
  return list;
}

Json op_json(const Graph& graph, const Op& op) {
  Json object = {{"name", op.name}, {"op", kind_name(op.attributes)}};
  std::visit([&object](const auto& attributes) { write_attributes(object, attributes); }, op.attributes);
  object["inputs"] = names_of(graph, op.inputs);
  object["outputs"] = names_of(graph, op.outputs);
  return object;
}

std::vector<int> parse_operands(const JsonReader& list, const Names& names) {
  std::vector<int> tensors;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& name = list.at(i).text();
    if (name == kLeftOut) {
      tensors.push_back(-1);
      continue;
    }
    const auto found = names.find(name);
    if (found == names.end()) list.at(i).refuse("no tensor is named {}", in_quotes(name));
    tensors.push_back(found->second);
  }
  return tensors;
}

Op parse_op(const JsonReader& object, const std::vector<Tensor>& tensors, const Names& names) {
  Op op;
  op.name = object.at("name").name();
  op.inputs = parse_operands(object.at("inputs"), names);
  op.outputs = parse_operands(object.at("outputs"), names);
  const bool has_first = !op.inputs.empty() && op.inputs[0] >= 0;
  const int rank = has_first ? tensors[static_cast<size_t>(op.inputs[0])].dims.rank() : 0;
  op.attributes = parse_attributes(object, rank);
  return op;
}

// ---- types left open ----

/// Gives the results of `op` that are open the type that they have before they are settled.
void infer_open_types(Graph& graph, const Op& op, const std::vector<bool>& open) {
  if (std::ranges::none_of(op.outputs, [&](int y) { return y >= 0 && open[static_cast<size_t>(y)]; })) return;
  std::vector<const Tensor*> inputs;
  std::vector<Dims> given;
  for (const int x : op.inputs) inputs.push_back(x < 0 ? nullptr : &graph.tensors[static_cast<size_t>(x)]);
  for (const Tensor* input : inputs)
    if (input != nullptr) validate(*input);
  for (const int y : op.outputs) given.push_back(y < 0 ? Dims() : graph.tensors[static_cast<size_t>(y)].dims);
  const std::vector<Inferred> inferred = infer_all(op.name, op.attributes, inputs, given);
  for (size_t i = 0; i < std::min(inferred.size(), op.outputs.size()); ++i)
    if (const int y = op.outputs[i]; y >= 0 && open[static_cast<size_t>(y)])
      graph.tensors[static_cast<size_t>(y)].type = inferred[i].type;
}

/// A file may leave out the types of what its ops write: core/open_types.h says which they get.
void settle_open_types(const JsonReader& tensors, Graph& graph) {
  std::vector<bool> open(graph.tensors.size(), false), written(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    for (const int y : op.outputs)
      if (y >= 0) written[static_cast<size_t>(y)] = true;
  for (size_t i = 0; i < open.size(); ++i) {
    if (!written[i]) tensors.at(i).at("type");
    open[i] = !tensors.at(i).has("type");
  }
  if (std::ranges::find(open, true) == open.end()) return;
  for (const Op& op : graph.ops) infer_open_types(graph, op, open);
  settle_types(graph, open);
}

}  // namespace

void write_graph(Json& object, const Graph& graph) {
  object["name"] = graph.name;
  if (graph.precision != Precision::exact) object["precision"] = json_of(graph.precision);
  object["tensors"] = Json::array();
  object["ops"] = Json::array();
  for (const Tensor& tensor : graph.tensors) object["tensors"].push_back(tensor_json(tensor));
  for (const Op& op : graph.ops) object["ops"].push_back(op_json(graph, op));
}

Graph parse_graph(const JsonReader& object, std::initializer_list<std::string_view> more_keys) {
  std::vector<std::string_view> known(more_keys);
  known.insert(known.end(), {"name", "precision", "tensors", "ops"});
  object.expect_keys(known);
  Graph graph;
  graph.name = object.at("name").name();
  if (object.has("precision")) read_field(object.at("precision"), graph.precision);
  Names names;
  graph.tensors = parse_tensors(object.at("tensors"), names);
  const JsonReader ops = object.at("ops");
  for (size_t i = 0; i < ops.size(); ++i) graph.ops.push_back(parse_op(ops.at(i), graph.tensors, names));
  settle_open_types(object.at("tensors"), graph);
  validate(graph);
  return graph;
}

void expect_header(const JsonReader& document, std::string_view kind) {
  const int64_t format = document.at("format").integer();
  if (format != kFormatNumber)
    document.at("format").refuse("this library reads format {}, the file has format {}", kFormatNumber,
                                 format);
  if (kind.empty()) return;
  const std::string& found = document.at("kind").text();
  if (found != kind) document.at("kind").refuse("expected a {}, got {}", kind, in_quotes(found));
}

Attributes attributes_from_json(std::string_view text, int rank) {
  const Json document = parse_json(text);
  return parse_attributes(JsonReader(document), rank);
}

std::string op_kinds_json() {
  Json list = Json::array();
  for (const Attributes& kind : all_kinds()) {
    if (!std::holds_alternative<Pointwise>(kind)) {
      list.push_back(kind_json(kind));
      continue;
    }
    for (int i = 0; i < pointwise_mode_count(); ++i)
      list.push_back(kind_json(Pointwise{.mode = static_cast<PointwiseMode>(i)}));
  }
  return print_json_line(list);
}

std::string to_json(const Graph& graph) {
  Json document = {{"format", kFormatNumber}, {"kind", "graph"}};
  write_graph(document, graph);
  return print_json(document);
}

Graph graph_from_json(std::string_view text) {
  const Json document = parse_json(text);
  const JsonReader reader(document);
  expect_header(reader, "graph");
  return parse_graph(reader, {"format", "kind"});
}

}  // namespace fusor
