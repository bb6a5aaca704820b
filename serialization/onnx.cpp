// Owns the messages of ONNX that a viewer reads (onnx.proto3), and the wire format of protobuf.
#include "serialization/onnx.h"

#include <bit>
#include <cstdint>
#include <string_view>

#include "core/graph_index.h"
#include "serialization/json_text.h"
#include "serialization/serialization.h"

namespace fusor {

namespace {

/// One message: fields are appended in any order, each a number and a value.
class Message {
 public:
  void integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, float value) {
    key(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  }
  void text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, uint64_t wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// TensorProto.DataType
int64_t element_type(DataType type) {
  switch (type) {
    case DataType::f64:
      return 11;
    case DataType::f32:
      return 1;
    case DataType::f16:
      return 10;
    case DataType::bf16:
      return 16;
    case DataType::f8_e4m3:
      return 17;
    case DataType::f8_e5m2:
      return 19;
    case DataType::f8_e8m0:
      return 24;
    case DataType::f4_e2m1:
      return 23;
    case DataType::i4:
      return 22;
    case DataType::i64:
      return 7;
    case DataType::i32:
      return 6;
    case DataType::i8:
      return 3;
    case DataType::u8:
      return 2;
    case DataType::b8:
    case DataType::b1:
      return 9;
    default:
      return 0;  // undefined
  }
}

/// ValueInfoProto: name = 1, type = 2 {tensor_type = 1 {elem_type = 1, shape = 2 {dim = 1 {dim_value = 1}}}},
/// doc_string = 3
Message value_info(const Tensor& tensor) {
  Message shape;
  for (const int64_t extent : tensor.dims) {
    Message dim;
    dim.integer(1, extent);
    shape.message(1, dim);
  }
  Message tensor_type;
  tensor_type.integer(1, element_type(tensor.type));
  tensor_type.message(2, shape);
  Message type;
  type.message(1, tensor_type);
  Message info;
  info.text(1, tensor.name);
  info.message(2, type);
  info.text(3, "strides " + to_string(tensor.strides));
  return info;
}

/// AttributeProto: name = 1, f = 2, i = 3, s = 4, ints = 8, type = 20 (1 float, 2 int, 3 string, 7 ints)
Message attribute(const std::string& name, const Json& value) {
  Message made;
  made.text(1, name);
  if (value.is_number_integer() || value.is_boolean()) {
    made.integer(3, value.is_boolean() ? int64_t{value.get<bool>()} : value.get<int64_t>());
    made.integer(20, 2);
  } else if (value.is_number()) {
    made.real(2, value.get<float>());
    made.integer(20, 1);
  } else if (value.is_array() && !value.empty() && value.front().is_number_integer()) {
    for (const Json& each : value) made.integer(8, each.get<int64_t>());
    made.integer(20, 7);
  } else {
    made.text(4, value.is_string() ? value.get<std::string>() : value.dump());
    made.integer(20, 3);
  }
  return made;
}

/// NodeProto: input = 1, output = 2, name = 3, op_type = 4, attribute = 5, domain = 7
Message node(const Graph& graph, const Op& op, const Json& document) {
  const auto name_of = [&](int tensor) {
    return tensor < 0 ? std::string() : graph.tensors[static_cast<size_t>(tensor)].name;
  };
  Message made;
  for (const int tensor : op.inputs) made.text(1, name_of(tensor));
  for (const int tensor : op.outputs) made.text(2, name_of(tensor));
  made.text(3, op.name);
  made.text(4, short_name(op.attributes));
  for (const auto& [key, value] : document.items())
    if (key != "name" && key != "op" && key != "inputs" && key != "outputs")
      made.message(5, attribute(key, value));
  made.text(7, "fusor");
  return made;
}

/// GraphProto: node = 1, name = 2, input = 11, output = 12, value_info = 13
Message graph_message(const Candidate& choice) {
  const Graph& graph = *choice.graph;
  Json document = parse_json(to_json(graph));
  for (size_t i = 0; i < choice.fusions.size(); ++i)
    for (const int op : choice.fusions[i].ops) {
      Json& fused = document["ops"][static_cast<size_t>(op)];
      fused["fusion"] = i + 1;
      fused["engine"] = to_string(choice.fusions[i].config);
    }
  Message made;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    made.message(1, node(graph, graph.ops[i], document["ops"][i]));
  made.text(2, graph.name);
  const GraphIndex index(graph);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    const bool is_made = index.producer(static_cast<int>(i)) >= 0;
    // Planning leaves constants in place of tensors that it does without.
    if (!is_made && index.consumers(static_cast<int>(i)).empty()) continue;
    made.message(!is_made ? 11 : tensor.is_virtual() ? 13 : 12, value_info(tensor));
  }
  return made;
}

}  // namespace

/// ModelProto: ir_version = 1, producer_name = 2, producer_version = 3, graph = 7, opset_import = 8 {domain =
/// 1, version = 2}
std::string onnx_model(const Candidate& choice) {
  constexpr int64_t kIrVersion = 8;
  Message opset;
  opset.text(1, "fusor");
  opset.integer(2, 1);
  Message model;
  model.integer(1, kIrVersion);
  model.text(2, "fusor");
  model.text(3, kLibraryVersion);
  model.message(7, graph_message(choice));
  model.message(8, opset);
  return model.bytes();
}

}  // namespace fusor
