// Owns the storage of attributes and their way in and out.
#include "compat/cudnn/src/descriptor.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "compat/cudnn/src/registry.h"

namespace fusor::cudnn {

namespace {

// Descriptors that may stand in another one before they are finalized: a kernel cache is filled by its text
// alone.
bool counts_as_finalized(const Descriptor& child) {
  return child.is_finalized() || child.type() == CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR;
}

bool fits(const AttributeRow& row, const Descriptor& child) {
  if (row.name == CUDNN_ATTR_OPERATIONGRAPH_OPS) return child.row().is_operation();
  return child.type() == row.child;
}

DescriptorPointer read_child(const AttributeRow& row, const void* pointer) {
  std::shared_ptr<Descriptor> child = descriptor_at(pointer);
  if (!fits(row, *child))
    refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "{} cannot hold a {} descriptor", row.words,
           child->row().name);
  if (!counts_as_finalized(*child))
    refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "{}: the {} descriptor is not finalized", row.words,
           child->row().name);
  return child;
}

void expect_values(const AttributeRow& row, cudnnBackendAttributeType_t type, std::string& bytes) {
  if (type == CUDNN_TYPE_BOOLEAN)
    for (char& flag : bytes) flag = flag != 0 ? 1 : 0;
  if (!is_enumeration(type)) return;
  for (size_t at = 0; at < bytes.size(); at += sizeof(int)) {
    int value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if (!has_value(type, value))
      refuse(CUDNN_STATUS_INVALID_VALUE, "{}: {} is no value of {}", row.words, value, name_of(type));
  }
}

}  // namespace

const Value* Descriptor::find(cudnnBackendAttributeName_t attribute) const {
  for (const auto& [name, value] : values_)
    if (name == attribute) return &value;
  return nullptr;
}

const Value& Descriptor::required(cudnnBackendAttributeName_t attribute) const {
  const Value* value = find(attribute);
  if (value == nullptr || value->count == 0) {
    const AttributeRow* row = row_->find(attribute);
    refuse(CUDNN_STATUS_BAD_PARAM, "{} is not set", row != nullptr ? row->words : "an attribute");
  }
  return *value;
}

double Descriptor::real(cudnnBackendAttributeName_t attribute, double otherwise) const {
  const Value* value = find(attribute);
  if (value == nullptr) return otherwise;
  return value->type == CUDNN_TYPE_FLOAT ? static_cast<double>(element<float>(*value))
                                         : element<double>(*value);
}

DescriptorPointer Descriptor::child(cudnnBackendAttributeName_t attribute) const {
  const Value* value = find(attribute);
  return value == nullptr || value->children.empty() ? nullptr : value->children.front();
}

void Descriptor::put(cudnnBackendAttributeName_t attribute, Value value) {
  for (auto& [name, old] : values_)
    if (name == attribute) {
      old = std::move(value);
      return;
    }
  values_.emplace_back(attribute, std::move(value));
}

void Descriptor::become(const Descriptor& other) {
  if (this == &other) return;
  values_ = other.values_;
  state_ = other.state_;
  filled_ = true;
  mark_finalized();
}

std::shared_ptr<Descriptor> descriptor_at(const void* pointer) {
  return registry<Descriptor>().find(pointer);
}

Value read_value(const AttributeRow& row, cudnnBackendAttributeType_t type, int64_t count,
                 const void* elements) {
  const bool has_second = row.or_type != CUDNN_TYPE_HANDLE;
  if (type != row.type && !(has_second && type == row.or_type))
    refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "{} is of type {}, not {}", row.words, name_of(row.type),
           name_of(type));
  if (count < row.least || count > row.most)
    refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "{} takes {} to {} elements, not {}", row.words, row.least,
           row.most, count);
  if (count > 0 && elements == nullptr)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{}: the array of its {} elements is null", row.words, count);
  Value value{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const std::span pointers(static_cast<void* const*>(elements), static_cast<size_t>(count));
    for (const void* pointer : pointers) value.children.push_back(read_child(row, pointer));
    return value;
  }
  if (row.is_address)
    value.bytes.assign(reinterpret_cast<const char*>(&elements), sizeof elements);
  else if (count > 0)
    value.bytes.assign(static_cast<const char*>(elements), static_cast<size_t>(count) * bytes_of(type));
  expect_values(row, type, value.bytes);
  return value;
}

void write_value(const Value& value, int64_t requested, int64_t* count, void* elements) {
  if (count != nullptr) *count = value.count;
  if (elements == nullptr || requested <= 0) return;
  const auto written = static_cast<size_t>(std::min(requested, value.count));
  if (value.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(elements, value.bytes.data(), written * bytes_of(value.type));
    return;
  }
  const std::span pointers(static_cast<void* const*>(elements), written);
  for (size_t i = 0; i < written; ++i) {
    const std::shared_ptr<Descriptor> place = descriptor_at(pointers[i]);
    if (place->type() != value.children[i]->type())
      refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a {} descriptor cannot take what a {} descriptor holds",
             place->row().name, value.children[i]->row().name);
    if (place->is_finalized() && !place->is_filled())
      refuse(CUDNN_STATUS_BAD_PARAM, "a {} descriptor to be filled was finalized by the client",
             place->row().name);
    place->become(*value.children[i]);
  }
}

}  // namespace fusor::cudnn
