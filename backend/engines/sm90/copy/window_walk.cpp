// Owns the corners and offsets of im2col maps, and their limits.
#include "backend/engines/sm90/copy/window_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/engines/contraction/residue_classes.h"
#include "backend/engines/rules.h"
#include "backend/engines/sm90/copy/rules.h"

namespace fusor {

using namespace copy_rules;

namespace {

// What an im2col map of so many spatial axes holds.
struct WindowLimits {
  int64_t corner, offset;
};
constexpr WindowLimits limits_of(size_t spatial) {
  return spatial == 1   ? WindowLimits{32767, 65535}
         : spatial == 2 ? WindowLimits{127, 255}
                        : WindowLimits{15, 31};
}

}  // namespace

WindowWalk window_walk(const Contraction& view, const WindowAxis& axis) {
  WindowWalk walk;
  walk.window = axis.window;
  if (view.op == ContractionOp::dgrad) {
    const AxisClasses all = axis_classes(axis);
    walk.pixels = all.positions;
    walk.slope = all.slope;
    walk.lower = all.lower;
    walk.origin = all.classes.front().origin;
    walk.reach = all.reach;
  } else {
    const int64_t reach = (axis.window - 1) * axis.step;
    walk.pixels = axis.output;
    walk.stride = axis.stride;
    walk.slope = axis.step;
    walk.lower = axis.start + std::min<int64_t>(reach, 0);
    walk.origin = -std::min<int64_t>(reach, 0);
    walk.reach = std::abs(reach);
  }
  return walk;
}

int64_t extent_under_window(const Contraction& view, const WindowAxis& axis) {
  return view.op == ContractionOp::dgrad ? axis.output : axis.input;
}

int64_t upper_corner(const WindowWalk& walk, int64_t extent) {
  return walk.lower + (walk.pixels - 1) * walk.stride - (extent - 1);
}

bool fits_window_map(const WindowWalk& walk, int64_t extent, size_t axes) {
  const WindowLimits limits = limits_of(axes);
  return std::abs(walk.lower) <= limits.corner && std::abs(upper_corner(walk, extent)) <= limits.corner &&
         walk.reach <= limits.offset && walk.stride <= 8;
}

std::optional<Refusal> refuse_window(const Fusion& fusion, const Contraction& view, const Expr& site) {
  const std::string& tensor = fusion.name_of(site.nodes[0].access.operand);
  const WindowLimits limits = limits_of(view.axes.size());
  if (auto refusal = refuse_residue_classes(fusion, view)) return refusal;
  for (size_t i = 0; i < view.axes.size(); ++i) {
    const WindowWalk walk = window_walk(view, view.axes[i]);
    const int64_t extent = site.domain[2 + static_cast<int>(i)];
    if (!fits_window_map(walk, extent, view.axes.size()))
      return refusal(
          "window-limits", tensor,
          fmt::format("padding up to {}, windows up to {} and strides up to 8", limits.corner, limits.offset),
          fmt::format("window {} with stride {}, from {} on, to {} beyond the end", walk.reach + 1,
                      walk.stride, walk.lower, upper_corner(walk, extent)));
  }
  return std::nullopt;
}

}  // namespace fusor
