// Owns the rules for operands that TMA brings to attention's kernels.
#include "backend/engines/sm90/attention/rows.h"

#include <fmt/format.h>

#include <utility>

#include "backend/engines/attention/form.h"

namespace fusor::attention {

namespace {

constexpr int64_t kMapUnit = 16;  // bytes: what strides and starts of maps are multiples of

// A row holds what all heads have of it, so that no row reaches into the next; unless nothing but its number
// ends an entry.
std::optional<Refusal> refuse_ragged(const Fusion& fusion, const Expr& site, const std::string& name,
                                     int row_axis, Rows& rows) {
  const Strides& strides = rows.ragged->strides;
  rows.entries = site.domain[0];
  rows.row_stride = strides[row_axis];
  rows.span = 1;
  for (int axis = 1; axis < site.domain.rank(); ++axis) {
    if (strides[axis] < 0)
      return refuse_attention(fusion, "ragged-rows", name, "strides from 0 on", "others");
    if (axis != row_axis) rows.span += (site.domain[axis] - 1) * strides[axis];
  }
  const bool holds_heads = rows.ragged->is_dense || rows.row_stride >= rows.span;
  if (site.domain.rank() < 3 || site.domain[row_axis] == 1 || !holds_heads)
    return refuse_attention(
        fusion, "ragged-rows", name, "entries of several rows, each of which holds all heads",
        fmt::format("{} rows of {} elements, {} apart", site.domain[row_axis], rows.span, rows.row_stride));
  return std::nullopt;
}

}  // namespace

std::variant<Rows, Refusal> rows_of(const Fusion& fusion, const Expr& site, int row_axis, int element_axis,
                                    bool or_bytes) {
  auto ragged = ragged_of(fusion, site, row_axis);
  const int op = yielded_node(site).op;
  // A copy in front makes the operands that cannot be read in place.
  const bool is_computed = site.nodes.size() > 1 || yielded_node(site).kind != Node::Kind::load;
  const auto in_front = [&](Refusal refusal) {
    if (op >= 0 && is_computed) refusal.op = op;
    return refusal;
  };
  const Node& node = ragged ? site.node(ragged->load) : yielded_node(site);
  if (!ragged && (node.kind != Node::Kind::load || site.nodes.size() != 1))
    return in_front(
        refuse_attention(fusion, "plain-operands", "", "operands without ops in front", "an expression"));
  const Operand& operand = fusion.operands[static_cast<size_t>(node.access.operand)];
  const std::string& name = fusion.name_of(node.access.operand);
  const int64_t bytes = byte_size(operand.type);
  const bool fits =
      node.type == DataType::f16 || node.type == DataType::bf16 || (or_bytes && is_fp8(node.type));
  if (operand.type != node.type || !fits || (ragged && bytes != 2))
    return in_front(refuse_attention(fusion, "16-bit-operands", name,
                                     or_bytes ? "fp16, bf16 or fp8" : "fp16 or bf16",
                                     std::string(to_string(operand.type))));
  const Strides strides = ragged ? ragged->strides : node.access.strides;
  if (strides[element_axis] != 1 && site.domain[element_axis] != 1)
    return in_front(refuse_attention(fusion, "adjacent-elements", name,
                                     "a stride of 1 along the head's elements",
                                     fmt::format("{}", strides[element_axis])));
  Rows rows{node.access.operand, node.access.offset * bytes, {}};
  if (operand.alignment % kMapUnit != 0 || rows.byte_offset % kMapUnit != 0)
    return in_front(
        refuse_attention(fusion, "16-byte-start", name, "a start that is a multiple of 16 bytes",
                         fmt::format("alignment {}, offset {}", operand.alignment, rows.byte_offset)));
  rows.ragged = std::move(ragged);
  if (rows.ragged)
    if (auto refusal = refuse_ragged(fusion, site, name, row_axis, rows))
      return in_front(std::move(*refusal));
  rows.map.type = node.type;
  rows.map.dims = {site.domain[element_axis]};
  const auto add = [&](int64_t extent, int64_t stride) {
    const bool walked = extent > 1 && stride != 0;
    rows.map.dims.push_back(walked ? extent : 1);
    rows.map.stride_bytes.push_back(walked ? stride * bytes : kMapUnit);
  };
  add(site.domain[row_axis], strides[row_axis]);
  for (int axis = site.domain.rank() - 3; axis >= 0; --axis) add(site.domain[axis], strides[axis]);
  while (rows.map.dims.rank() < 2 + kMostBatch) add(1, 0);
  for (const int64_t stride : rows.map.stride_bytes)
    if (stride <= 0 || stride % kMapUnit != 0)
      return in_front(refuse_attention(fusion, "16-byte-lines", name,
                                       "rows and entries a multiple of 16 bytes apart",
                                       fmt::format("{} bytes", stride), "pad the rows"));
  for (int axis = 0; axis + 2 < site.domain.rank(); ++axis)
    rows.batch.push_back(axis == 0 && rows.ragged ? rows.entries
                                                  : rows.map.dims[site.domain.rank() - 1 - axis]);
  if (rows.map.dims[1] != site.domain[row_axis])
    return refuse_attention(fusion, "own-rows", name, "rows of its own", "one row for all");
  return rows;
}

std::optional<std::vector<int64_t>> shares_of(const Dims& batch, const Rows& rows) {
  std::vector<int64_t> shares;
  for (int axis = 0; axis < batch.rank(); ++axis) {
    if (batch[axis] % rows.batch[axis] != 0) return std::nullopt;
    shares.push_back(batch[axis] / rows.batch[axis]);
  }
  return shares;
}

std::optional<std::vector<int64_t>> shares_of(const Dims& batch, const Rows& q, const Rows& k,
                                              const Rows& v) {
  auto shares = shares_of(batch, k);
  return q.batch == batch && shares == shares_of(batch, v) ? shares : std::nullopt;
}

}  // namespace fusor::attention
