// Owns the splitting of heads in groups. In a graph whose matmuls broadcast along an axis of its own, no view
// lies between a product and what becomes of it.
#include "compat/cudnn/src/translate/heads.h"

#include <algorithm>
#include <memory>
#include <optional>

namespace fusor::cudnn {

namespace {

constexpr size_t kHeadAxis = 1, kHeadRank = 4;

struct SharedHeads {
  int64_t heads = 0, groups = 0;
  friend bool operator==(const SharedHeads&, const SharedHeads&) = default;
};

bool is_tensor(const Descriptor& descriptor) { return descriptor.type() == CUDNN_BACKEND_TENSOR_DESCRIPTOR; }

std::vector<int64_t> dims_of_tensor(const Descriptor& tensor) {
  return tensor.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
}

// The heads of a matmul whose operands have different numbers of them; heads of 0 where it is another one.
SharedHeads heads_of(const Descriptor& matmul) {
  const DescriptorPointer a = matmul.child(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                          b = matmul.child(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  if (!a || !b) return {};
  const std::vector<int64_t> x = dims_of_tensor(*a), y = dims_of_tensor(*b);
  if (x.size() != kHeadRank || y.size() != kHeadRank) return {};
  const int64_t heads = x[kHeadAxis], groups = y[kHeadAxis];
  return groups > 1 && heads > groups && heads % groups == 0 ? SharedHeads{heads, groups} : SharedHeads{};
}

bool may_split(const Descriptor& op) {
  switch (op.type()) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR:
      return true;
    default:
      return false;
  }
}

template <class Visit>
bool all_tensors(const Descriptor& op, Visit visit) {
  return std::ranges::all_of(op.row().attributes, [&](const AttributeRow& row) {
    const Value* const value = op.find(row.name);
    return value == nullptr || std::ranges::all_of(value->children, [&](const DescriptorPointer& child) {
             return !is_tensor(*child) || visit(*child);
           });
  });
}

// Whether the axis of heads has one of their numbers, and is no other axis: a scalar has one axis.
bool has_heads(const Descriptor& tensor, const SharedHeads& shared) {
  const std::vector<int64_t> dims = dims_of_tensor(tensor);
  if (dims.size() == 1) return dims[0] == 1;
  const int64_t heads = dims.size() == kHeadRank ? dims[kHeadAxis] : 0;
  int64_t product = 0;
  return dims.size() == kHeadRank &&
         !__builtin_mul_overflow(tensor.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)[kHeadAxis], heads,
                                 &product) &&
         tensor.get<int64_t>(CUDNN_ATTR_TENSOR_VECTOR_COUNT, 1) == 1 &&
         (heads == 1 || heads == shared.groups || heads == shared.heads);
}

std::optional<SharedHeads> shared_heads(const std::vector<DescriptorPointer>& ops) {
  SharedHeads shared;
  bool has_exponential = false;
  for (const DescriptorPointer& op : ops) {
    if (!may_split(*op)) return std::nullopt;
    has_exponential = has_exponential || is_pointwise_op(*op, CUDNN_POINTWISE_EXP);
    if (op->type() != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) continue;
    const SharedHeads found = heads_of(*op);
    if (found.heads == 0) continue;
    if (shared.heads != 0 && found != shared) return std::nullopt;
    shared = found;
  }
  const auto fits = [&](const Descriptor& tensor) { return has_heads(tensor, shared); };
  if (!has_exponential || shared.heads == 0 ||
      !std::ranges::all_of(ops, [&](const DescriptorPointer& op) { return all_tensors(*op, fits); }))
    return std::nullopt;
  return shared;
}

template <class Change>
DescriptorPointer copy_of(const Descriptor& descriptor, Change change) {
  auto copy = std::make_shared<Descriptor>(descriptor.row());
  for (const AttributeRow& row : descriptor.row().attributes)
    if (const Value* const value = descriptor.find(row.name)) copy->put(row.name, change(row.name, *value));
  copy->mark_finalized();
  return copy;
}

DescriptorPointer split_tensor(const Descriptor& tensor, const SharedHeads& shared) {
  if (dims_of_tensor(tensor).size() != kHeadRank) return tensor.shared_from_this();
  const int64_t heads = dims_of_tensor(tensor)[kHeadAxis];
  const int64_t groups = heads == 1 ? 1 : shared.groups;
  return copy_of(tensor, [&](cudnnBackendAttributeName_t name, const Value& value) {
    if (name != CUDNN_ATTR_TENSOR_DIMENSIONS && name != CUDNN_ATTR_TENSOR_STRIDES) return value;
    auto list = value.elements<int64_t>();
    const bool is_strides = name == CUDNN_ATTR_TENSOR_STRIDES;
    const int64_t members = heads / groups, stride = list[kHeadAxis];
    list[kHeadAxis] = is_strides ? stride * members : groups;
    list.insert(list.begin() + kHeadAxis + 1, is_strides ? stride : members);
    return Value::of(CUDNN_TYPE_INT64, list);
  });
}

// The axis of a coordinate lies behind the new one.
DescriptorPointer with_axis(const Descriptor& pointwise) {
  return copy_of(pointwise, [](cudnnBackendAttributeName_t name, const Value& value) {
    if (name != CUDNN_ATTR_POINTWISE_AXIS) return value;
    const auto axis = value.elements<int64_t>()[0];
    return Value::one<int64_t>(CUDNN_TYPE_INT64, axis > static_cast<int64_t>(kHeadAxis) ? axis + 1 : axis);
  });
}

}  // namespace

bool is_pointwise_op(const Descriptor& op, cudnnPointwiseMode_t mode) {
  if (op.type() != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return false;
  const DescriptorPointer pointwise = op.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  return pointwise && pointwise->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == mode;
}

std::vector<DescriptorPointer> with_split_heads(const std::vector<DescriptorPointer>& ops) {
  const auto shared = shared_heads(ops);
  if (!shared) return ops;
  const auto counts_heads = [](const DescriptorPointer& op) {
    return is_pointwise_op(*op, CUDNN_POINTWISE_GEN_INDEX) &&
           op->child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                   ->get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0) == static_cast<int64_t>(kHeadAxis);
  };
  if (std::ranges::any_of(ops, counts_heads)) return ops;
  std::vector<DescriptorPointer> split;
  for (const DescriptorPointer& op : ops)
    split.push_back(copy_of(*op, [&](cudnnBackendAttributeName_t, const Value& value) {
      Value changed = value;
      for (DescriptorPointer& child : changed.children) {
        if (is_tensor(*child))
          child = split_tensor(*child, *shared);
        else if (child->type() == CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
          child = with_axis(*child);
      }
      return changed;
    }));
  return split;
}

}  // namespace fusor::cudnn
