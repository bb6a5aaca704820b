// Owns the search for free names and uids.
#include "backend/planner/rewrites/additions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/infer.h"

namespace fusor {

Additions::Additions(Graph& graph) : graph_(graph) {
  for (const Op& op : graph_.ops) op_names_.insert(op.name);
  for (const Tensor& tensor : graph_.tensors) {
    tensor_names_.insert(tensor.name);
    uids_.insert(tensor.uid);
    if (tensor.uid != INT64_MAX) next_uid_ = std::max(next_uid_, tensor.uid + 1);
  }
}

std::string Additions::op_name(std::string name) {
  while (!op_names_.insert(name).second) name += "'";
  return name;
}

int Additions::tensor(const Tensor& model, const Dims& dims, const std::string& op) {
  Tensor tensor = model;
  tensor.name = op + ":y";
  while (!tensor_names_.insert(tensor.name).second) tensor.name += "'";
  while (!uids_.insert(next_uid_).second) ++next_uid_;
  tensor.uid = next_uid_;
  tensor.memory = Memory::workspace;
  tensor.alignment = Tensor{}.alignment;
  tensor.dims = dims;
  tensor.strides = packed_strides(dims);
  tensor.value = 0.0;
  graph_.tensors.push_back(std::move(tensor));
  return static_cast<int>(graph_.tensors.size()) - 1;
}

int Additions::constant(double value, DataType type) {
  Tensor model;
  model.type = type;
  const int made = tensor(model, {1}, fmt::format("{}", value));
  Tensor& constant = graph_.tensors[static_cast<size_t>(made)];
  constant.memory = Memory::constant;
  constant.value = is_real(type) ? Scalar(value) : Scalar(static_cast<int64_t>(value));
  return made;
}

Op Additions::view(Attributes attributes, int x, const Dims& shape, const std::string& name) {
  Op made{op_name(name), std::move(attributes), {x}, {}};
  made.outputs = {tensor(Tensor(graph_.tensors[static_cast<size_t>(x)]), shape, made.name)};
  return made;
}

Op Additions::slice(int x, int axis, int64_t start, int64_t limit, const std::string& name) {
  Dims shape = graph_.tensors[static_cast<size_t>(x)].dims;
  Slice part{Dims::filled(shape.rank(), 0), shape, Dims::filled(shape.rank(), 1)};
  part.start[axis] = start;
  part.limit[axis] = limit;
  shape[axis] = limit - start;
  return view(part, x, shape, name);
}

void Additions::set_default_compute(Op& op) const {
  std::vector<const Tensor*> operands;
  operands.reserve(op.inputs.size());
  for (const int input : op.inputs) operands.push_back(&graph_.tensors[static_cast<size_t>(input)]);
  set_compute(op.attributes, default_compute(op.attributes, operands));
}

}  // namespace fusor
