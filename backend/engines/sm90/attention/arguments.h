// Owns what attention's kernels on Hopper, forward and backward, are given alike.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/engines/sm90/attention/masks.h"
#include "backend/engines/sm90/attention/rows.h"
#include "codegen/text/parameters.h"
#include "core/lowered.h"

namespace fusor::attention {

inline constexpr double kLog2e = 1.4426950408889634;

/// Boxes of `box` rows of a line.
void append_map(Parameters& p, const char* name, const Rows& rows, int64_t box);
/// A scale, known or of each run, times `factor`; 1 where there is none.
void append_scale(Parameters& p, const char* name, const std::optional<double>& known,
                  const std::optional<Factor>& given, double factor);
/// `queue`: the order of tiles; turns: of sections, which begin with another tile each.
void append_queue(Parameters& p, int64_t tiles, int64_t entries, int64_t section, bool turns = false);

/// Alignments that the sites' vectors need: of up to 8 elements for results, of 2 for others.
std::vector<Guard> guards_of_sites(const Fusion& fusion, std::span<const KernelSite> sites);
void require_maps(std::vector<Guard>& guards, std::initializer_list<const Rows*> all);

}  // namespace fusor::attention
