// Owns what the kernels of attention, forward and backward, are given alike.
#pragma once

#include <span>
#include <vector>

#include "backend/engines/sm90/attention/masks.h"
#include "backend/engines/sm90/attention/rows.h"
#include "codegen/parameters.h"
#include "core/lowered.h"

namespace fusor::attention {

inline constexpr double kLog2e = 1.4426950408889634;

/// Boxes of `box` rows of a line.
void append_map(Parameters& p, const char* name, const Rows& rows, int64_t box);
/// `queue`: the order of tiles.
void append_queue(Parameters& p, int64_t tiles, int64_t entries, int64_t section);
/// `visible`: the bounds on keys.
void append_visible(Parameters& p, const Bounds& bounds);
/// A divisor for each batch axis, and one of 1, for a batch without axes.
void append_divisors(Parameters& p, const char* name, std::vector<int64_t> divisors);

/// A result's site where the product itself leaves in the type that a last identity rounds to.
Expr without_last_rounding(Expr y);

/// Alignments that the sites' vectors need: of up to 8 elements for results, of 2 for others.
std::vector<Guard> guards_of_sites(const Fusion& fusion, std::span<const KernelSite> sites);
void require_maps(std::vector<Guard>& guards, std::initializer_list<const Rows*> all);

}  // namespace fusor::attention
