// Owns what engines around a contraction share on the way out: vectors of the epilogue, its cost, its
// refusals, guards.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "backend/engines/short_forms.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"

namespace fusor {

/// Whether vectors of `width` elements along `axis` move in whole accesses of up to 16 bytes.
bool moves_whole_vectors(const Access& access, const Operand& operand, DataType type, int axis,
                         int64_t width);
/// Sets Access::whole_vectors throughout a site.
void mark_whole_vectors(const Fusion& fusion, Expr& site, int axis, int64_t width);
/// A site whose accesses move in vectors of `width` elements where they are marked so.
struct VectorSite {
  const Expr& site;
  int64_t width;
};
/// Alignments that run() must check: whole elements of every operand, whole vectors where the sites move
/// them.
std::vector<Guard> guards_of(const Fusion& fusion, std::initializer_list<VectorSite> sites);

/// The cost of one element of a site's domain.
struct SiteCost {
  double instructions = 0, special = 0, bytes = 0;
};
SiteCost cost_of(const Expr& site, const Fusion& fusion);
/// Whether an epilogue is short enough to be written out for every piece of a tile.
inline bool is_short(const SiteCost& cost) { return cost.special == 0 && cost.instructions <= 12; }
/// Bytes of all operands, each element that is reached counted once; pixels that a stride passes over are
/// not.
double dram_bytes(const Fusion& fusion);

/// For engines that only store results elementwise: the first reduction after the anchor.
std::optional<Refusal> refuse_epilogue_reductions(const Fusion& fusion);
/// For engines around one contraction: a fusion of two is cut at the second.
std::optional<Refusal> refuse_pair(const Fusion& fusion);
/// An op after the anchor broadcasts the result over a larger domain: it is cut off there.
Refusal refuse_other_domain(const Fusion& fusion);

}  // namespace fusor
