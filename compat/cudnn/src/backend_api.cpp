// Owns the calls on descriptors: create, set, get, finalize, execute.
#include <algorithm>

#include "compat/cudnn/include/cudnn_graph.h"
#include "compat/cudnn/src/descriptor.h"
#include "compat/cudnn/src/device_properties.h"
#include "compat/cudnn/src/engines.h"
#include "compat/cudnn/src/handle.h"
#include "compat/cudnn/src/plan.h"
#include "compat/cudnn/src/registry.h"
#include "compat/cudnn/src/tensor_rules.h"

using namespace fusor::cudnn;  // NOLINT(google-build-using-namespace)

namespace {

// What finalize does beyond the table's checks, and who answers what the client never set.
struct Behavior {
  cudnnBackendDescriptorType_t type;
  void (*finalize)(Descriptor& d);
  Value (*answer)(const Descriptor& d, cudnnBackendAttributeName_t attribute);
};

// A kernel cache holds nothing: compiled kernels lie in fusor's own cache, which all plans share.
Value answer_kernel_cache(const Descriptor&, cudnnBackendAttributeName_t attribute) {
  if (attribute == CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED)
    return Value::one(CUDNN_TYPE_BOOLEAN, false);
  static const std::string text = R"({"fusor": "kernels lie in FUSOR_CACHE_DIR"})";
  return {CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text, {}};
}

Value answer_plan(const Descriptor& d, cudnnBackendAttributeName_t attribute) {
  return attribute == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION ? plan_text(d)
                                                                    : answer_execution_plan(d, attribute);
}

Value answer_device(const Descriptor& d, cudnnBackendAttributeName_t) { return device_text(d); }

constexpr Behavior kBehaviors[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, finalize_tensor, nullptr},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, finalize_convolution, nullptr},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, finalize_pointwise_operation, nullptr},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, finalize_operation_graph, answer_operation_graph},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, finalize_engine, answer_engine},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, finalize_engine_config, answer_engine_config},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, finalize_heuristics, answer_heuristics},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, finalize_execution_plan, answer_plan},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, finalize_variant_pack, nullptr},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, finalize_device_properties, answer_device},
    {CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, nullptr, answer_kernel_cache},
};

const Behavior* behavior_of(const Descriptor& d) {
  const auto found = std::ranges::find(kBehaviors, d.type(), &Behavior::type);
  return found == std::end(kBehaviors) ? nullptr : found;
}

const AttributeRow& row_for(const Descriptor& d, cudnnBackendAttributeName_t attribute) {
  const AttributeRow* row = d.row().find(attribute);
  if (row == nullptr)
    refuse(CUDNN_STATUS_BAD_PARAM, "a {} descriptor has no attribute {}", d.row().name,
           static_cast<int>(attribute));
  return *row;
}

void expect_required(const Descriptor& d) {
  for (const AttributeRow& row : d.row().attributes)
    if (row.need == Need::required && !d.has(row.name))
      refuse(CUDNN_STATUS_BAD_PARAM, "a {} descriptor is finalized without {}", d.row().name, row.words);
}

void finalize(Descriptor& d) {
  if (d.is_finalized()) refuse(CUDNN_STATUS_BAD_PARAM, "a {} descriptor is finalized twice", d.row().name);
  expect_required(d);
  const Behavior* behavior = behavior_of(d);
  if (behavior != nullptr && behavior->finalize != nullptr) behavior->finalize(d);
  d.mark_finalized();
}

// Attributes that the library can tell although the client may set them as well.
bool is_answered(const Descriptor& d, const AttributeRow& row) {
  if (row.need == Need::answer) return d.find(row.name) == nullptr;
  return row.type == CUDNN_TYPE_CHAR && d.find(row.name) == nullptr;
}

bool is_convolution(const Descriptor& d) {
  return d.type() == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         d.type() == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         d.type() == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

// A copy of a tensor with an axis of one element in front.
DescriptorPointer with_group_axis(const DescriptorPointer& tensor) {
  auto copy = std::make_shared<Descriptor>(tensor->row());
  copy->become(*tensor);
  for (const auto name : {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES}) {
    auto list = tensor->list<int64_t>(name);
    list.insert(list.begin(), name == CUDNN_ATTR_TENSOR_DIMENSIONS || list.empty() ? 1 : list.front());
    copy->put(name, Value::of(CUDNN_TYPE_INT64, list));
  }
  return copy;
}

// Whoever asks a convolution for a tensor gets it with the axis of groups, by which filters of errata in
// cudnn-frontend count.
Value told(const Descriptor& d, Value value) {
  if (!is_convolution(d)) return value;
  for (DescriptorPointer& child : value.children)
    if (child->type() == CUDNN_BACKEND_TENSOR_DESCRIPTOR) child = with_group_axis(child);
  return value;
}

Value value_of(const Descriptor& d, const AttributeRow& row) {
  const Behavior* behavior = behavior_of(d);
  if (is_answered(d, row) && behavior != nullptr && behavior->answer != nullptr)
    return behavior->answer(d, row.name);
  const Value* value = d.find(row.name);
  return value != nullptr ? told(d, *value) : Value{row.type, 0, {}, {}};
}

void expect_type(const AttributeRow& row, cudnnBackendAttributeType_t type, const Value& value) {
  if (type != value.type)
    refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "{} is of type {}, not {}", row.words, name_of(value.type),
           name_of(type));
}

const DescriptorRow& supported_row(cudnnBackendDescriptorType_t type) {
  const DescriptorRow* row = row_of(type);
  if (row != nullptr) return *row;
  const auto number = static_cast<int>(type);
  const bool exists =
      number >= CUDNN_BACKEND_POINTWISE_DESCRIPTOR && number <= CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR;
  if (exists) refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of type {} are not supported", number);
  refuse(CUDNN_STATUS_BAD_PARAM, "{} is no type of descriptor", number);
}

template <class Kind>
std::shared_ptr<const Kind> state_at(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  const auto d = descriptor_at(descriptor);
  if (d->type() != type)
    refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a {} descriptor instead of a {}", d->row().name,
           row_of(type)->name);
  return d->state_as<Kind>();
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return guarded("cudnnBackendCreateDescriptor", [&] {
    find_shipped_kernels();
    if (descriptor == nullptr)
      refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place of the descriptor is null");
    *descriptor = registry<Descriptor>().add(std::make_shared<Descriptor>(supported_row(type)));
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return guarded("cudnnBackendDestroyDescriptor", [&] { registry<Descriptor>().remove(descriptor); });
}

// Descriptors are ready when they are created.
cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor) {
  return guarded("cudnnBackendInitialize", [&] { descriptor_at(descriptor); });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return guarded("cudnnBackendFinalize", [&] { finalize(*descriptor_at(descriptor)); });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attribute,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  return guarded("cudnnBackendSetAttribute", [&] {
    const auto d = descriptor_at(descriptor);
    const AttributeRow& row = row_for(*d, attribute);
    if (row.need == Need::answer) refuse(CUDNN_STATUS_BAD_PARAM, "{} cannot be set", row.words);
    if (d->is_finalized())
      refuse(CUDNN_STATUS_BAD_PARAM, "{}: the {} descriptor is finalized", row.words, d->row().name);
    d->put(attribute, read_value(row, type, count, elements));
  });
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attribute,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* elements) {
  return guarded("cudnnBackendGetAttribute", [&] {
    const auto d = descriptor_at(descriptor);
    const AttributeRow& row = row_for(*d, attribute);
    // A kernel cache is filled and asked without being finalized.
    if (!d->is_finalized() && d->type() != CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR)
      refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "{}: the {} descriptor is not finalized", row.words,
             d->row().name);
    if (requested < 0) refuse(CUDNN_STATUS_BAD_PARAM, "{}: {} elements are asked for", row.words, requested);
    const Value value = value_of(*d, row);
    expect_type(row, type, value);
    write_value(value, requested, count, elements);
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  return guarded("cudnnBackendExecute", [&] {
    const auto object = handle_at(handle);
    const auto state = state_at<PlanState>(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const auto pack = state_at<PackState>(variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    run_plan(*state, *pack, object->stream);
  });
}

}  // extern "C"
