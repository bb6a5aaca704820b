// Owns runs whose variant pack gives tensors other dims than the plan was made for.
#include "compat/cudnn/src/overrides.h"

#include <optional>
#include <utility>

#include "compat/cudnn/src/tensor_rules.h"

namespace fusor::cudnn {

namespace {

using DimLists = std::vector<std::vector<int64_t>>;

// The attribute is the address of a container of the client's.
const DimLists& lists_at(const Descriptor& pack, cudnnBackendAttributeName_t attribute, size_t count) {
  const auto* const lists = static_cast<const DimLists*>(pack.get<void*>(attribute));
  if (lists == nullptr)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{} is null", pack.row().find(attribute)->words);
  if (lists->size() != count)
    refuse(CUDNN_STATUS_BAD_PARAM, "{} has {} entries for {} uids", pack.row().find(attribute)->words,
           lists->size(), count);
  return *lists;
}

bool is_tensor_descriptor(const Descriptor& descriptor) {
  return descriptor.type() == CUDNN_BACKEND_TENSOR_DESCRIPTOR;
}

// The extents of the run by axis and the plan's extent; nothing where tensors disagree.
using Extents = std::map<std::pair<size_t, int64_t>, std::optional<int64_t>>;

void note_extents(const Descriptor& tensor, const Overrides& overrides, Extents& extents) {
  const auto found = overrides.find(tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  if (found == overrides.end()) return;
  const auto dims = tensor.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  if (dims.size() != found->second.dims.size())
    refuse(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE, "tensor {} of {} axes gets {} of them",
           found->first, dims.size(), found->second.dims.size());
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const auto [known, is_new] = extents.try_emplace({axis, dims[axis]}, found->second.dims[axis]);
    if (!is_new && known->second != found->second.dims[axis]) known->second.reset();
  }
}

template <class Visit>
void for_tensors_of(const Descriptor& op, Visit visit) {
  for (const AttributeRow& row : op.row().attributes)
    if (const Value* const value = op.find(row.name))
      for (const DescriptorPointer& child : value->children)
        if (is_tensor_descriptor(*child)) visit(*child);
}

std::vector<int64_t> strides_of_packed(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t axis = dims.size(); axis-- > 1;)
    if (__builtin_mul_overflow(strides[axis], dims[axis], &strides[axis - 1]))
      refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "a tensor's dims are too large");
  return strides;
}

// The tensor's dims and strides in the run, where they are others.
std::optional<Override> override_of(const Descriptor& tensor, const Overrides& overrides,
                                    const Extents& extents) {
  const auto found = overrides.find(tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  if (found != overrides.end()) return found->second;
  if (!tensor.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)) return std::nullopt;
  auto dims = tensor.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  bool differs = false;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const auto becomes = extents.find({axis, dims[axis]});
    if (becomes == extents.end() || becomes->second == dims[axis]) continue;
    if (dims[axis] == 1)
      refuse(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
             "virtual tensor {} has 1 element along axis {}, where tensors that had 1 get more: whether it "
             "follows them is not said; make the plan with 2 or more",
             tensor.get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID), axis);
    if (!becomes->second) continue;
    differs = differs || dims[axis] != *becomes->second;
    dims[axis] = *becomes->second;
  }
  if (!differs) return std::nullopt;
  auto strides = strides_of_packed(dims);
  return Override{std::move(dims), std::move(strides)};
}

DescriptorPointer with_override(const Descriptor& tensor, const Override& override) {
  auto copy = std::make_shared<Descriptor>(tensor.row());
  for (const AttributeRow& row : tensor.row().attributes)
    if (const Value* const value = tensor.find(row.name)) copy->put(row.name, *value);
  copy->put(CUDNN_ATTR_TENSOR_DIMENSIONS, Value::of(CUDNN_TYPE_INT64, override.dims));
  copy->put(CUDNN_ATTR_TENSOR_STRIDES, Value::of(CUDNN_TYPE_INT64, override.strides));
  finalize_tensor(*copy);
  copy->mark_finalized();
  return copy;
}

}  // namespace

Overrides read_overrides(const Descriptor& pack) {
  Overrides overrides;
  const auto uids = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS);
  if (uids.empty()) return overrides;
  const DimLists& dims = lists_at(pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES, uids.size());
  const DimLists& strides = lists_at(pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES, uids.size());
  for (size_t i = 0; i < uids.size(); ++i)
    if (!overrides.emplace(uids[i], Override{dims[i], strides[i]}).second)
      refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "tensor {} gets other dims twice", uids[i]);
  return overrides;
}

std::vector<DescriptorPointer> with_overrides(const std::vector<DescriptorPointer>& ops,
                                              const Overrides& overrides) {
  Extents extents;
  for (const DescriptorPointer& op : ops)
    for_tensors_of(*op, [&](const Descriptor& tensor) { note_extents(tensor, overrides, extents); });
  std::vector<DescriptorPointer> result;
  for (const DescriptorPointer& op : ops) {
    auto copy = std::make_shared<Descriptor>(op->row());
    for (const AttributeRow& row : op->row().attributes) {
      const Value* const value = op->find(row.name);
      if (value == nullptr) continue;
      Value other = *value;
      for (DescriptorPointer& child : other.children)
        if (is_tensor_descriptor(*child))
          if (const auto override = override_of(*child, overrides, extents))
            child = with_override(*child, *override);
      copy->put(row.name, std::move(other));
    }
    copy->mark_finalized();
    result.push_back(std::move(copy));
  }
  return result;
}

}  // namespace fusor::cudnn
