// Owns how results of a contraction leave by Hopper's TMA: which can, and their maps.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/engines/contraction/product.h"
#include "backend/engines/sm90/copy/batch_walk.h"
#include "core/fusion.h"
#include "core/tensor_map.h"

namespace fusor {

/// Elements between images and between channels of a result whose positions lie side by side, and how many
/// neighbouring positions one aligned store may write.
struct ResultPlanes {
  int64_t channel = 0, image = 0;
  int64_t unit = 1;
};

/// A result of the epilogue as boxes that TMA writes: lines along n, or along m. Or as
/// boxes of lines along m that threads write to planes.
struct CopiedResult {
  int operand = -1;
  int64_t byte_offset = 0;
  DataType type = DataType::f16;
  bool along_n = true;
  TensorMap map;         ///< without its box
  BatchWalk batch = {};  ///< of a matmul: how its entries lie
  std::optional<ResultPlanes> planes = std::nullopt;
};
/// Nothing where only threads can store it. `first`: the one beside which it is to lie, with entries along
/// the same axes of its map.
std::optional<CopiedResult> copied_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          const Store& result, const CopiedResult* first = nullptr);
/// The first result of a fprop or dgrad whose channels lie apart (NCHW), or nothing. Rows of the product that
/// begin on multiples of `run` are followed by run - 1 neighbours in the same image.
std::optional<CopiedResult> planes_result(const Fusion& fusion, const Contraction& view, const Expr& y,
                                          int64_t run);

}  // namespace fusor
