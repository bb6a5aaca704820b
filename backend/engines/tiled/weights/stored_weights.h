// Owns which second operands are weights stored in 8 or 4 bits, and their prologue taken apart: what lies in
// memory, what is computed of it, and the scales and zero points beside it.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/fusion.h"
#include "core/support.h"

namespace fusor {

/// The last axes of each site are k and n, or blocks of k, steps of a block, and n.
struct StoredWeights {
  DataType type;           ///< in memory
  DataType element;        ///< that the product multiplies
  Expr stored;             ///< yields the load of the weights, as they are stored
  Expr ops;                ///< yields the operand; input 0: the weights in fp32, from 1 on: what is held
  std::vector<Expr> held;  ///< each yields a load whose value is the same for all steps (of a block)
  int64_t block = 0;       ///< steps of k that share what is held; 0: k is one axis
  int64_t stride = 0;      ///< elements from a step of k to the next
};

/// The kernel's sites for what is held.
constexpr size_t kMostHeld = 3;

/// (weights - zero point) * scale, each of which may be missing (-1) or be one of what is held, where pairs
/// of 16 bits give what fp32 rounded to the operand's type does: differences are exact there, and products
/// are exact in fp32.
struct PairedOps {
  int zero = -1, scale = -1;
};
std::optional<PairedOps> paired_ops(const StoredWeights& weights, int compute_capability);

std::variant<StoredWeights, Refusal> stored_weights_of(const Fusion& fusion, const Dims& batch);

/// The axes along which a held value varies.
bool varies_along(const Expr& held, int axis);

/// The fusion as if its second operand were the stored weights alone, over one axis of k.
Fusion with_plain_weights(const Fusion& fusion, const StoredWeights& weights);

}  // namespace fusor
