// Owns the order of a site's fields and the bytes that fill them.
#include "codegen/text/site_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "codegen/text/device_types.h"
#include "codegen/text/expr_emitter.h"

namespace fusor {

namespace {

void append_access(std::vector<SiteField>& fields, const KernelSite& site, const Access& access,
                   SiteField field) {
  fields.push_back(field);
  const std::string base = field.name;
  field.kind = SiteField::Kind::stride;
  field.type = "Index";
  for (int axis = 0; axis < site.expr.domain.rank(); ++axis) {
    if (!has_stride_field(site, access, axis)) continue;
    field.axis = axis;
    field.name = fmt::format("{}_stride{}", base, axis);
    fields.push_back(field);
  }
}

// The pointer to an access's elements, and to packed ones the place of the first.
void append_pointer(std::vector<SiteField>& fields, const KernelSite& site, const Access& access,
                    const SiteField& field, DataType type) {
  if (is_packed(type)) {
    SiteField first = field;
    first.kind = SiteField::Kind::first;
    first.name = field.name + "_first";
    first.type = "Index";
    fields.push_back(first);
  }
  append_access(fields, site, access, field);
}

void append_indices(std::vector<SiteField>& fields, const Access& access, SiteField field) {
  const std::string base = field.name;
  field.type = "Index";
  for (int k = 0; k < std::ssize(access.indexed) && access.indexed[static_cast<size_t>(k)].extent > 0; ++k) {
    field.axis = k;
    field.kind = SiteField::Kind::index_stride;
    field.name = fmt::format("{}_index{}_stride", base, k);
    fields.push_back(field);
    field.kind = SiteField::Kind::index_extent;
    field.name = fmt::format("{}_index{}_extent", base, k);
    fields.push_back(field);
  }
}

void append_node(std::vector<SiteField>& fields, const KernelSite& site, int at) {
  const Node& node = site.expr.nodes[static_cast<size_t>(at)];
  const int number = value_number(site.expr, at);
  SiteField field;
  field.at = at;
  switch (node.kind) {
    case Node::Kind::input:
      return;
    case Node::Kind::reduce:
      if (site.kept < 0 || node.reduction.mode != ReductionMode::avg) return;
      field.kind = SiteField::Kind::reduced_count;
      field.name = fmt::format("t{}_count", total_number(site.expr, at));
      field.type = device_type(node.reduction.compute);
      fields.push_back(field);
      return;
    case Node::Kind::load:
      field.name = load_name(site.expr, at);
      field.type = fmt::format("const {}*", is_packed(node.type) ? "u8" : device_type(node.type));
      append_pointer(fields, site, node.access, field, node.type);
      append_indices(fields, node.access, field);
      return;
    case Node::Kind::scalar:
      field.kind = SiteField::Kind::scalar;
      field.name = fmt::format("v{}_value", number);
      field.type = device_type(carrier(node.type));
      fields.push_back(field);
      return;
    case Node::Kind::index:
      field.type = node.type == DataType::i64 ? "i64" : "Index";
      field.axis = node.axis;
      field.kind = SiteField::Kind::index_scale;
      field.name = fmt::format("v{}_scale", number);
      fields.push_back(field);
      field.kind = SiteField::Kind::index_offset;
      field.name = fmt::format("v{}_offset", number);
      fields.push_back(field);
      return;
    case Node::Kind::pointwise:
      if (has_default_parameters(node.pointwise)) return;
      field.kind = SiteField::Kind::parameter;
      field.type = device_type(node.pointwise.compute);
      for (const ModeParameter& parameter : parameters_of(node.pointwise)) {
        field.value = parameter.value;
        field.name = fmt::format("v{}_{}", number, parameter.name);
        fields.push_back(field);
      }
  }
}

void append_store(std::vector<SiteField>& fields, const KernelSite& site, int at) {
  const Store& store = site.expr.stores[static_cast<size_t>(at)];
  SiteField field;
  field.of_store = true;
  field.at = at;
  field.name = store_name(at);
  field.type = fmt::format("{}*", is_packed(store.type) ? "u8" : device_type(store.type));
  append_pointer(fields, site, store.access, field, store.type);
  append_indices(fields, store.access, field);
  const Node* const total = reduction_of(site.expr, store);
  if (site.kept >= 0 || total == nullptr || total->reduction.mode != ReductionMode::avg) return;
  field.kind = SiteField::Kind::reduced_count;
  field.name = fmt::format("{}_count", store_name(at));
  field.type = device_type(total->reduction.compute);
  fields.push_back(field);
}

void put_number(ArgumentBlock& block, DataType type, double value) {
  switch (type) {
    case DataType::f64:
      return block.put_double(value);
    case DataType::f32:
      return block.put_float(value);
    default:
      break;
  }
  // An infinite clip of an integer op is the end of its range.
  const double end = type == DataType::i32 ? 0x1p31 : 0x1p63;
  if (value >= end) return block.put_int(type == DataType::i32 ? INT32_MAX : INT64_MAX);
  if (value <= -end) return block.put_int(type == DataType::i32 ? INT32_MIN : INT64_MIN);
  block.put_int(std::llrint(value));
}

void put_scalar(ArgumentBlock& block, const Node& node, const Fusion& fusion) {
  const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
  const DataType held = carrier(node.type);
  if (operand.memory != Memory::constant) return block.put_scalar(node.access.operand, held);
  if (const int64_t* whole = std::get_if<int64_t>(&operand.value); whole && !is_real(held))
    return block.put_int(*whole);
  put_number(block, held, std::visit([](auto value) { return static_cast<double>(value); }, operand.value));
}

double reduced_count(const Expr& expr, const Node& total) {
  double count = 1;
  for (int axis = 0; axis < expr.domain.rank(); ++axis)
    if (total.over >> axis & 1) count *= static_cast<double>(expr.domain[axis]);
  return count;
}

void put_field(ArgumentBlock& block, const SiteField& field, const KernelSite& site, const Fusion& fusion) {
  const Expr& expr = site.expr;
  const size_t at = static_cast<size_t>(field.at);
  const Access& access = field.of_store ? expr.stores[at].access : expr.nodes[at].access;
  switch (field.kind) {
    case SiteField::Kind::pointer: {
      const DataType type = field.of_store ? expr.stores[at].type : expr.nodes[at].type;
      const int64_t bytes = access.offset / elements_per_byte(type) * byte_size(type);
      return block.put_pointer(Patch::Kind::operand, access.operand, bytes);
    }
    case SiteField::Kind::first: {
      const DataType type = field.of_store ? expr.stores[at].type : expr.nodes[at].type;
      return block.put_int(access.offset % elements_per_byte(type));
    }
    case SiteField::Kind::stride:
    case SiteField::Kind::index_scale:
      return block.put_int(access.strides[field.axis]);
    case SiteField::Kind::index_stride:
      return block.put_int(access.indexed[static_cast<size_t>(field.axis)].stride);
    case SiteField::Kind::index_extent:
      return block.put_int(access.indexed[static_cast<size_t>(field.axis)].extent);
    case SiteField::Kind::index_offset:
      return block.put_int(access.offset);
    case SiteField::Kind::scalar:
      return put_scalar(block, expr.nodes[at], fusion);
    case SiteField::Kind::parameter: {
      const Pointwise& pointwise = expr.nodes[at].pointwise;
      return put_number(block, pointwise.compute, field.value);
    }
    case SiteField::Kind::reduced_count: {
      const Node& total = field.of_store ? *reduction_of(expr, expr.stores[at]) : expr.nodes[at];
      return put_number(block, total.reduction.compute, reduced_count(expr, total));
    }
  }
}

}  // namespace

LaneStep lane_step(const KernelSite& site, const Access& access) {
  const int64_t stride = access.strides[site.vector_axis];
  return stride == 0 ? LaneStep::broadcast : stride == 1 ? LaneStep::adjacent : LaneStep::strided;
}

bool has_stride_field(const KernelSite& site, const Access& access, int axis) {
  const int64_t stride = access.strides[axis];
  return stride != 0 && !(axis == site.vector_axis && stride == 1);
}

std::vector<ModeParameter> parameters_of(const Pointwise& pointwise) {
  std::vector<ModeParameter> parameters;
  Pointwise::visit(pointwise, [&]<class Field>(std::string_view name, const Field& value) {
    if constexpr (std::is_same_v<Field, double>)
      if (pointwise.has(name)) parameters.push_back({name, value});
  });
  return parameters;
}

int value_number(const Expr& expr, int node) {
  int number = 0;
  for (int i = 0; i < node; ++i) number += expr.node(i).kind != Node::Kind::reduce;
  return number;
}

int total_number(const Expr& expr, int node) { return node - value_number(expr, node); }

std::string load_name(const Expr& expr, int node) {
  int loads = 0;
  for (int i = 0; i < node; ++i) loads += expr.nodes[static_cast<size_t>(i)].kind == Node::Kind::load;
  return fmt::format("in{}", loads);
}

std::string store_name(int store) { return fmt::format("out{}", store); }

std::string pointer_text(const std::string& load, DataType type) {
  if (!is_packed(type)) return "args." + load;
  return fmt::format("PackedPointer<{0}>{{args.{1}, args.{1}_first}}", device_type(type), load);
}

std::string_view whole_store(const Store& store) {
  return store.stays_in_l2 ? "store_whole_last" : "store_whole";
}

std::string index_text(const Node& node, const std::string& coordinate) {
  return node.type == DataType::i64 ? fmt::format("i64({})", coordinate) : coordinate;
}

std::vector<SiteField> site_fields(const KernelSite& site) {
  std::vector<SiteField> fields;
  for (size_t i = 0; i < site.expr.nodes.size(); ++i) append_node(fields, site, static_cast<int>(i));
  for (size_t i = 0; i < site.expr.stores.size(); ++i) append_store(fields, site, static_cast<int>(i));
  return fields;
}

void write_arguments(ArgumentBlock& block, const KernelSite& site, const Fusion& fusion) {
  for (const SiteField& field : site_fields(site)) put_field(block, field, site, fusion);
}

}  // namespace fusor
