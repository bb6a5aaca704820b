// Owns the rules for types, alignments and strides of what is copied.
#include "backend/engines/sm90/copy/rules.h"

#include <fmt/format.h>

#include "backend/engines/sm90/copy/units.h"

namespace fusor::copy_rules {

namespace {

// 8-bit integers in int32; fp32 as TF32 and fp8 in short sums, where the graph allows that.
bool is_multiplied(const Fusion& fusion, const Contraction& view, DataType type) {
  if (view.compute == DataType::i32) return type == DataType::i8 || type == DataType::u8;
  if (type == DataType::f32) return fusion.precision >= Precision::allow_tf32;
  if (is_fp8(type)) return fusion.precision >= Precision::allow_short_sums;
  return type == DataType::f16 || type == DataType::bf16;
}

}  // namespace

Refusal refusal(const char* rule, const std::string& tensor, std::string expected, std::string actual,
                const char* remedy) {
  return {rule, "", tensor, std::move(expected), std::move(actual), remedy, -1};
}

Dims slice(const Dims& dims, int first, int last) {
  Dims part;
  for (int i = first; i < last; ++i) part.push_back(dims[i]);
  return part;
}

WalkedAxes batch_of(const Expr& site) {
  const int leading = site.domain.rank() - 2;
  return {slice(site.domain, 0, leading), slice(site.nodes[0].access.strides, 0, leading)};
}
WalkedAxes taps_of(const Expr& site) {
  const int rank = site.domain.rank();
  return {slice(site.domain, 2, rank), slice(site.nodes[0].access.strides, 2, rank)};
}
WalkedAxes pixels_of(const Expr& site) {
  WalkedAxes axes = taps_of(site);
  axes.extents.insert(0, site.domain[0]);
  axes.strides.insert(0, site.nodes[0].access.strides[0]);
  return axes;
}

std::optional<Refusal> refuse_value(const Fusion& fusion, const Contraction& view, const Expr& site) {
  const Node& value = yielded_node(site);
  if (value.kind != Node::Kind::load || site.nodes.size() != 1) {
    const std::string node = value.op >= 0 ? fusion.op_name(value.op) : "";
    return Refusal{"plain-operands",
                   node,
                   "",
                   "operands that are read as they are stored",
                   "ops before the contraction",
                   "give those ops a fusion of their own",
                   value.op};
  }
  const std::string& tensor = fusion.name_of(value.access.operand);
  const Operand& operand = fusion.operands[static_cast<size_t>(value.access.operand)];
  if (!is_multiplied(fusion, view, operand.type) || value.type != operand.type)
    return refusal("16-bit-operands", tensor,
                   view.compute == DataType::i32
                       ? "int8 or uint8"
                       : "fp16 or bf16, or fp32 or fp8 where the graph's precision allows it",
                   std::string(to_string(operand.type)));
  return std::nullopt;
}

std::optional<Refusal> refuse_operand(const Fusion& fusion, const Contraction& view, const Expr& site) {
  if (auto refusal = refuse_value(fusion, view, site)) return refusal;
  return refuse_start(fusion, site);
}

std::optional<Refusal> refuse_start(const Fusion& fusion, const Expr& site) {
  const Node& value = yielded_node(site);
  const std::string& tensor = fusion.name_of(value.access.operand);
  const Operand& operand = fusion.operands[static_cast<size_t>(value.access.operand)];
  const int64_t offset = value.access.offset * byte_size(operand.type);
  if (operand.alignment % kCopyUnit != 0 || offset % kCopyUnit != 0)
    return refusal("16-byte-operands", tensor, "a start on a multiple of 16 bytes",
                   fmt::format("alignment {}, offset {} bytes", operand.alignment, offset),
                   "promise 16-byte alignment for the tensor");
  return std::nullopt;
}

std::optional<Refusal> refuse_channel_strides(const Fusion& fusion, const Expr& site, int adjacent) {
  const Access& access = site.nodes[0].access;
  const std::string& tensor = fusion.name_of(access.operand);
  const int64_t bytes = byte_size(type_of(fusion, access));
  if (access.strides[adjacent] != 1 && site.domain[adjacent] != 1)
    return refusal("adjacent-channels", tensor,
                   adjacent == 1 ? "channels side by side (NHWC)" : "output channels side by side",
                   fmt::format("a stride of {} between them", access.strides[adjacent]),
                   adjacent == 1 ? "use the layout NHWC" : "");
  for (int axis = 0; axis < site.domain.rank(); ++axis)
    if (axis != adjacent && site.domain[axis] != 1 && !is_line_stride(access.strides[axis], bytes))
      return refusal("16-byte-lines", tensor, "pixels and taps a multiple of 16 bytes apart",
                     fmt::format("{} bytes along axis {}", access.strides[axis] * bytes, axis),
                     "use channels in multiples of 16 bytes");
  return std::nullopt;
}

std::optional<Refusal> refuse_walk(const Fusion& fusion, const Expr& site, const WalkedAxes& axes,
                                   const char* what) {
  if (one_stride(axes.extents, axes.strides)) return std::nullopt;
  return refusal("one-stride", fusion.name_of(site.nodes[0].access.operand),
                 fmt::format("{} that one stride walks", what), to_string(site.nodes[0].access.strides));
}

}  // namespace fusor::copy_rules
