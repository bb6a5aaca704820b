// Owns where packed elements lie, and the copies that bring them there and back.
#include "backend/engines/repack/rewrites/repacker.h"

#include <algorithm>
#include <cstdlib>

#include "backend/engines/sm90/copy/units.h"
#include "backend/engines/sm90/load/plane_walk.h"
#include "core/ceil_div.h"

namespace fusor {

namespace {

// The bytes that lines of a matrix begin on multiples of: what TMA walks or, of long lines, a line of memory.
int64_t line_unit(int64_t elements, DataType type) {
  constexpr int64_t kLine = 128, kLong = 8 * kLine;  // bytes
  return elements * byte_size(type) >= kLong ? kLine : kCopyUnit;
}

// Strides of packed axes, fastest first, whose lines begin on multiples of `unit` bytes.
Strides packed(const Dims& domain, const Dims& order, DataType type, int64_t unit = kCopyUnit) {
  Strides strides = Dims::filled(domain.rank(), 0);
  int64_t next = 1;
  for (const int64_t axis : order) {
    strides[static_cast<int>(axis)] = next;
    next *= domain[static_cast<int>(axis)];
    if (axis == order[0]) next = round_up(next, unit / byte_size(type));
  }
  return strides;
}

Dims rows_last(int rank, bool along_rows) {
  Dims order{rank - (along_rows ? 1 : 2), rank - (along_rows ? 2 : 1)};
  for (int axis = rank - 3; axis >= 0; --axis) order.push_back(axis);
  return order;
}

// Whether elements of a row lie closer together than those of a column.
bool is_along_rows(const Expr& site) {
  const Access* const access = primary_access(site);
  const int last = site.domain.rank() - 1;
  const auto step = [&](int axis) { return site.domain[axis] == 1 ? 0 : std::abs(access->strides[axis]); };
  if (access == nullptr || step(last - 1) == 0) return true;
  return step(last) != 0 && step(last) <= step(last - 1);
}

bool is_input(const Node& node) { return node.kind == Node::Kind::input; }

}  // namespace

Dims channels_last(int rank) {
  Dims order{1};
  for (int axis = rank - 1; axis >= 2; --axis) order.push_back(axis);
  order.push_back(0);
  return order;
}

Dims output_channels_last(int rank) {
  Dims order{0};
  for (int axis = rank - 1; axis >= 1; --axis) order.push_back(axis);
  return order;
}

Dims positions_last(int rank) {
  Dims order;
  for (int axis = rank - 1; axis >= 0; --axis) order.push_back(axis);
  return order;
}

bool can_finish_later(const Expr& y) {
  if (std::ranges::count_if(y.nodes, is_input) != 1) return false;
  const DataType type = std::ranges::find_if(y.nodes, is_input)->type;
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32;
}

bool names_position(const Node& node) { return node.kind == Node::Kind::index && node.axis >= 2; }

std::vector<ResultPath> result_paths(const Fusion& fusion, const Contraction& view) {
  const Expr& y = result_site(fusion);
  const auto apart = [&](const Store& result) { return is_apart(view, y.domain, result.access); };
  std::vector<ResultPath> ways{ResultPath::direct};
  if (!std::ranges::any_of(y.stores, apart)) return ways;
  ways.push_back(ResultPath::copied);
  // A product that is stored as it is has nothing to be finished.
  if (y.nodes.size() > 1 && can_finish_later(y)) ways.push_back(ResultPath::finished);
  return ways;
}

Expr loaded(const Dims& domain, DataType type, const Access& scratch) {
  return {.domain = domain,
          .nodes = {{.kind = Node::Kind::load, .type = type, .access = scratch}},
          .stores = {},
          .yields = {0}};
}

Repacker::Repacker(const Fusion& fusion, const Contraction& view) : view_(view) {
  out_.core = fusion;
  out_.loads.ops = out_.stores.ops = fusion.ops;
  out_.loads.op_names = out_.stores.op_names = fusion.op_names;
}

Conv& Repacker::convolution() { return std::get<Conv>(out_.core.anchors[0].attributes); }

void Repacker::view_anew() { view_ = contraction_of(out_.core).value(); }

// Bytes that are summed in fp32 become 16 bits, which hold all their numbers: those of the other operand,
// where that has 16.
DataType Repacker::packed_type(size_t index) const {
  const auto type_at = [&](size_t i) {
    const Expr& site = operand_site(out_.core, 0, i);
    return yielded_node(site).type;
  };
  const DataType type = type_at(index);
  if (view_.compute != DataType::f32 || byte_size(type) != 1) return type;
  if (out_.core.precision >= Precision::allow_short_sums && is_fp8(type) && is_fp8(type_at(1 - index)))
    return type;
  return type_at(1 - index) == DataType::bf16 ? DataType::bf16 : DataType::f16;
}

// Elements that tensor cores cannot transpose lie along k.
Dims Repacker::operand_order(const Expr& site, size_t index, DataType type) const {
  const int rank = site.domain.rank();
  const bool along_k = !may_lie_across(type);
  if (!view_.is_convolution()) return rows_last(rank, along_k ? index == 0 : is_along_rows(site));
  const bool is_dgrad_filter = index == 1 && view_.op == ContractionOp::dgrad;
  return along_k && is_dgrad_filter ? output_channels_last(rank) : channels_last(rank);
}

std::string Repacker::name_for(const Expr& site) const {
  const Access* const source = primary_access(site);
  return source != nullptr ? out_.core.name_of(source->operand) : "scratch";
}

Access Repacker::add_scratch(const Expr& site, const Dims& domain, const Dims& order, DataType type) {
  const int64_t unit =
      view_.is_convolution() ? kCopyUnit : line_unit(domain[static_cast<int>(order[0])], type);
  return add_strided(domain, packed(domain, order, type, unit), type, name_for(site));
}

Access Repacker::add_zeros(const Expr& site, const Dims& domain, const Dims& order, DataType type) {
  const Access scratch = add_scratch(site, domain, order, type);
  zero_last();
  return scratch;
}

Access Repacker::add_planes(const Expr& site, const Dims& domain, DataType type) {
  const Dims rows = flat_rows(view_, type);
  Strides strides = Dims::filled(domain.rank(), 1);
  for (int axis = domain.rank() - 2; axis >= 2; --axis)
    strides[axis] = strides[axis + 1] * rows[axis + 1 - 2];
  strides[1] = round_up(strides[2] * domain[2], kCopyUnit / byte_size(type));
  strides[0] = strides[1] * domain[1];
  const Access access = add_strided(domain, strides, type, name_for(site));
  out_.core.operands.back().zero_gaps = true;
  zero_last();
  return access;
}

Access Repacker::add_result(DataType type, const std::string& name) {
  const Dims& domain = result_site(out_.core).domain;
  const Dims order = view_.is_convolution() ? channels_last(domain.rank()) : rows_last(domain.rank(), true);
  return add_strided(domain, packed(domain, order, type), type, name);
}

Access Repacker::add_strided(const Dims& domain, const Strides& strides, DataType type,
                             const std::string& name) {
  Access access;
  access.operand = static_cast<int>(out_.core.operands.size());
  access.strides = strides;
  const int64_t elements = round_up(span_elements(domain, access.strides), kCopyUnit / byte_size(type));
  out_.core.operands.push_back(
      {.tensor = -1, .type = type, .memory = Memory::workspace, .alignment = 256, .elements = elements});
  out_.core.operand_names.push_back(name);
  out_.scratch.push_back(elements * byte_size(type));
  return access;
}

void Repacker::zero_last() { out_.zeroed.push_back(static_cast<int>(out_.scratch.size()) - 1); }

void Repacker::load(Expr site, DataType type, const Access& scratch) {
  site.stores.push_back({.node = yielded(site), .type = type, .access = scratch, .op = -1});
  site.yields.clear();
  add_site(out_.loads, std::move(site));
}

void Repacker::pack_operand(size_t index) {
  Expr& site = operand_site(out_.core, 0, index);
  const DataType type = packed_type(index);
  const bool planes = view_.op == ContractionOp::wgrad && !may_lie_across(type);
  const Access scratch = planes ? add_planes(site, site.domain, type)
                                : add_scratch(site, site.domain, operand_order(site, index, type), type);
  load(site, type, scratch);
  site = loaded(site.domain, type, scratch);
}

Repacker::Product Repacker::leave_product(const Expr& epilogue) {
  const auto at = std::ranges::find_if(epilogue.nodes, is_input) - epilogue.nodes.begin();
  const Node anchor = epilogue.nodes[static_cast<size_t>(at)];
  const Access scratch = add_result(anchor.type, "product");
  Expr& y = result_site(out_.core);
  y.nodes = {anchor};
  y.stores = {{.node = 0, .type = anchor.type, .access = scratch, .op = anchor.op}};
  return {static_cast<size_t>(at), scratch};
}

void Repacker::finish(Expr part, const Product& product, const Access& from) {
  Node& node = part.nodes[product.node];
  node.kind = Node::Kind::load;
  node.access = from;
  store(std::move(part));
}

void Repacker::leave(ResultPath way) {
  if (way == ResultPath::copied) copy_results();
  if (way != ResultPath::finished) return;
  const Expr epilogue = result_site(out_.core);
  const Product product = leave_product(epilogue);
  finish(epilogue, product, product.scratch);
}

void Repacker::copy_results() {
  Expr& y = result_site(out_.core);
  for (Store& result : y.stores) {
    if (!is_apart(view_, y.domain, result.access)) continue;
    const Access scratch = add_result(result.type, out_.core.name_of(result.access.operand));
    Expr copy = loaded(y.domain, result.type, scratch);
    copy.nodes[0].op = result.op;
    copy.yields.clear();
    copy.stores = {result};
    copy.stores[0].node = 0;
    store(std::move(copy));
    result.access = scratch;
  }
}

Repacked Repacker::take() {
  for (Fusion* copies : {&out_.loads, &out_.stores}) {
    copies->operands = out_.core.operands;
    copies->operand_names = out_.core.operand_names;
  }
  return std::move(out_);
}

}  // namespace fusor
