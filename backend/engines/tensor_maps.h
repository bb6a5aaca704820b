// Owns how operands and results of a contraction look to Hopper's copy engine (TMA): which can be copied by
// it, why others cannot, and their maps.
#pragma once

#include <optional>

#include "backend/engines/contraction.h"
#include "core/fusion.h"
#include "core/support.h"
#include "core/tensor_map.h"

namespace fusor {

/// Elements in a line of 128 bytes: the width of every box, and the steps of k in a tile.
inline int64_t box_line(DataType type) { return 128 / byte_size(type); }
/// Of 16 bits: no others may lie across k in shared memory, for wgmma transposes no others.
inline constexpr int64_t kBoxLine = 64;
inline bool may_lie_across(DataType type) { return byte_size(type) == 2; }
inline bool is_fp8(DataType type) { return type == DataType::f8_e4m3 || type == DataType::f8_e5m2; }
/// In memory.
inline DataType type_of(const Fusion& fusion, const Access& access) {
  return fusion.operands[static_cast<size_t>(access.operand)].type;
}

/// An operand of the product as the copy engine reads it.
struct CopiedOperand {
  int operand = -1;
  int64_t byte_offset = 0;
  TensorMap map;
  bool across_adjacent = false;  ///< lines lie across k, not along it
  bool batched = false;          ///< matmul: it has entries of its own in the batch
};

/// A pointwise wgrad of images whose channels lie apart: k is walked image by image, along the positions.
bool sums_planes(const Fusion& fusion, const Contraction& view);
/// Any other wgrad of unit strides whose operands' channels are planes, positions side by side; nothing where
/// it is not, or where channels lie side by side as well, which wgrad prefers.
std::optional<PlaneWalk> plane_walk(const Fusion& fusion, const Contraction& view);
/// Positions that planes of `type` need for every one along the axis before, so that whole planes may be
/// walked (PlaneWalk::flat): by axis, that of the first being 1.
Dims flat_rows(const Contraction& view, DataType type);
/// Of a matmul in TF32, the operand that lies across k and reaches the tensor cores from registers, which is
/// possible for rows of what they see: whether it is the second, or nothing. Of two such, the larger one; the
/// other is refused.
std::optional<bool> operand_from_registers(const Fusion& fusion, const Contraction& view);
/// Why the copy engine cannot read the first operand, or the second one (of a sibling), or nothing.
std::optional<Refusal> refuse_copies(const Fusion& fusion, const Contraction& view, bool second,
                                     int64_t sibling = 0);
/// Its map, for tiles of `extent` rows or columns; refuse_copies() had nothing to say.
CopiedOperand copied_operand(const Fusion& fusion, const Contraction& view, bool second, int64_t extent,
                             int64_t sibling = 0);

/// input = output * stride + tap * step + start turned into what an im2col map of the operand with the pixels
/// needs: position = pixel * stride + lower + offset, offset = tap * slope + origin. For a dgrad of a stride:
/// pixels of a class, and what its classes share (residue_classes.h); origins are theirs.
struct WindowWalk {
  int64_t pixels = 1, window = 1;
  int64_t stride = 1, lower = 0;
  int64_t slope = 0, origin = 0;
  int64_t reach = 0;  ///< the largest offset
};
WindowWalk window_walk(const Contraction& view, const WindowAxis& axis);
/// Along an axis of fprop or dgrad, positions of the operand with the pixels.
int64_t extent_under_window(const Contraction& view, const WindowAxis& axis);
/// How far beyond the last position the last of a walk's windows begins.
int64_t upper_corner(const WindowWalk& walk, int64_t extent);
/// Whether an im2col map of so many spatial axes holds a walk over `extent` positions.
bool fits_window_map(const WindowWalk& walk, int64_t extent, size_t axes);

/// Elements between images and between channels of a result whose positions lie side by side, and how many
/// neighbouring positions one aligned store may write.
struct ResultPlanes {
  int64_t channel = 0, image = 0;
  int64_t unit = 1;
};

/// A result of the epilogue as boxes that the copy engine writes: lines along n, or along m. Or as
/// boxes of lines along m that threads write to planes.
struct CopiedResult {
  int operand = -1;
  int64_t byte_offset = 0;
  DataType type = DataType::f16;
  bool along_n = true;
  TensorMap map;  ///< without its box
  std::optional<ResultPlanes> planes = std::nullopt;
};
/// Nothing where only threads can store it.
std::optional<CopiedResult> copied_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          const Result& result);
/// The first result of a fprop or dgrad whose channels lie apart (NCHW), or nothing. Rows of the product that
/// begin on multiples of `run` are followed by run - 1 neighbours in the same image.
std::optional<CopiedResult> planes_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          int64_t run);

}  // namespace fusor
