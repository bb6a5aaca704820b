// Owns the list of rewrites, and the joining of what the parts of a rewritten fusion lower to.
#include "backend/engines/repack/repack.h"

#include <algorithm>
#include <array>

#include "backend/engines/guards.h"

namespace fusor {

std::span<const Rewrite* const> rewrites() {
  static const std::array<const Rewrite*, 4> kAll{
      &packed_layouts_rewrite(),
      &joined_pixels_rewrite(),
      &unrolled_columns_rewrite(),
      &stride_phases_rewrite(),
  };
  return kAll;
}

bool is_apart(const Contraction& view, const Dims& domain, const Access& access) {
  const auto is_adjacent = [&](int axis) { return domain[axis] == 1 || access.strides[axis] == 1; };
  if (view.is_convolution()) return !is_adjacent(1);
  return !is_adjacent(domain.rank() - 1) && !is_adjacent(domain.rank() - 2);
}

void append_part(Lowered& whole, const Repacked& repacked, Lowered part) {
  const auto operands = static_cast<int>(repacked.core.operands.size() - repacked.scratch.size());
  const auto before = static_cast<int>(whole.scratch.size());
  const auto retarget = [&](Patch& patch) {
    if (patch.kind == Patch::Kind::scratch || patch.kind == Patch::Kind::scratch_map) {
      patch.index += before;
    } else if (patch.index >= operands) {
      patch.kind = patch.is_map() ? Patch::Kind::scratch_map : Patch::Kind::scratch;
      patch.index -= operands;
    }
  };
  for (Step& step : part.steps) {
    if (auto* launch = std::get_if<Launch>(&step)) {
      std::ranges::for_each(launch->arguments.patches(), retarget);
      // Launches of the same fusion write those in scratch.
      if (std::ranges::any_of(launch->ahead, [&](int operand) { return operand >= operands; }))
        launch->ahead.clear();
    }
    if (auto* fill = std::get_if<Fill>(&step)) fill->scratch += before;
    whole.steps.push_back(std::move(step));
  }
  whole.scratch.insert(whole.scratch.end(), part.scratch.begin(), part.scratch.end());
  // Scratch begins on multiples that suit everyone.
  for (const Guard& asked : part.guards)
    if (asked.operand < operands) guard(whole.guards, asked);
}

}  // namespace fusor
