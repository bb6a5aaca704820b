// Owns how operands of a contraction look to TMA (Hopper's Tensor Memory Accelerator): which can be copied by
// it, why others cannot, and their maps. What is special about windows, planes and results is in the files
// included here.
#pragma once

#include <optional>

#include "backend/engines/contraction/product.h"
#include "backend/engines/sm90/copy/batch_walk.h"
#include "backend/engines/sm90/copy/copied_result.h"
#include "backend/engines/sm90/copy/units.h"
#include "backend/engines/sm90/copy/window_walk.h"
#include "backend/engines/sm90/load/plane_walk.h"
#include "core/fusion.h"
#include "core/support.h"
#include "core/tensor_map.h"

namespace fusor {

/// An operand of the product as TMA reads it.
struct CopiedOperand {
  int operand = -1;
  int64_t byte_offset = 0;
  TensorMap map;
  bool across_adjacent = false;  ///< lines lie across k, not along it
  bool batched = false;          ///< matmul: it has entries of its own in the batch
  BatchWalk batch;               ///< matmul: how those lie
};

/// The operand of a matmul in TF32 that lies across k and reaches the tensor cores from registers, which is
/// possible for rows of what they see: whether it is the second, or nothing. Of two such, the larger one; the
/// other is refused.
std::optional<bool> operand_from_registers(const Fusion& fusion, const Contraction& view);
/// Why TMA cannot read the first operand, or the second one (of a sibling), or nothing.
std::optional<Refusal> refuse_copies(const Fusion& fusion, const Contraction& view, bool second,
                                     int64_t sibling = 0);
/// Its map, for tiles of `extent` rows or columns; refuse_copies() had nothing to say.
CopiedOperand copied_operand(const Fusion& fusion, const Contraction& view, bool second, int64_t extent,
                             int64_t sibling = 0);
/// The map of one load of a matmul's operand, node `load` of its site, in lines of 64 elements as they are
/// stored; nothing where TMA cannot read it.
std::optional<CopiedOperand> copied_load(const Fusion& fusion, const Contraction& view, bool second,
                                         size_t load, int64_t extent);
/// The map of planes that refuse_whole_planes() had nothing to say of, in boxes of one image: so many
/// positions of so many channels.
CopiedOperand whole_planes(const Fusion& fusion, bool second, int64_t positions, int64_t channels);

}  // namespace fusor
