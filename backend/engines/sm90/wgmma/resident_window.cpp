// Owns which lines of a resident window a tap multiplies.
#include "backend/engines/sm90/wgmma/resident_window.h"
#include "codegen/text/parameters.h"

#include <algorithm>
#include <limits>

namespace fusor {

namespace {

// Positions of padding behind a row that may be those in front of the next: a tap that runs over the end of a
// row then meets zeros.
int64_t shared_padding(const WindowWalk& walk, int64_t extent) {
  const int64_t behind = walk.lower + walk.pixels + walk.reach - extent;
  return std::clamp<int64_t>(std::min(-walk.lower, behind), 0, walk.reach);
}

// Whether a window's taps along the first of three axes are copied one by one: between them lie planes.
bool has_layers(const Contraction& view) {
  return view.axes.size() == 3 && view.axes[0].window > 1 && view.taps() > kMaxResidentTaps;
}

}  // namespace

std::optional<ResidentWindow> resident_window(const Contraction& view, bool shares_columns) {
  if (view.op != ContractionOp::fprop && view.op != ContractionOp::dgrad) return std::nullopt;
  if (!view.has_unit_stride() || view.channels() > kBoxLine) return std::nullopt;
  ResidentWindow window;
  if (has_layers(view)) window.layers = view.axes[0].window;
  if (view.taps() / window.layers > kMaxResidentTaps) return std::nullopt;
  window.count = view.m;
  window.lines = {0};
  // Outermost axis first: what is inside of it multiplies the lines so far.
  for (const WindowAxis& axis : view.axes) {
    const WindowWalk walk = window_walk(view, axis);
    if (window.layers > 1 && &axis == &view.axes.front()) {
      if (!fits_window_map(walk, extent_under_window(view, axis), view.axes.size())) return std::nullopt;
      window.axes.push_back({walk.pixels, walk});
      continue;
    }
    const bool shares = shares_columns || &axis != &view.axes.back();
    const int64_t shared = shares ? shared_padding(walk, extent_under_window(view, axis)) : 0;
    const int64_t positions = walk.pixels + walk.reach - shared;
    WindowWalk padded;
    padded.pixels = positions;
    padded.lower = walk.lower;
    if (!fits_window_map(padded, extent_under_window(view, axis), view.axes.size())) return std::nullopt;
    window.axes.push_back({walk.pixels, padded});
    window.count = window.count / walk.pixels * positions;
    std::vector<int64_t> finer;
    for (const int64_t line : window.lines)
      for (int64_t tap = 0; tap < axis.window; ++tap)
        finer.push_back(line * positions + tap * walk.slope + walk.origin);
    window.lines = std::move(finer);
  }
  window.reach = *std::ranges::max_element(window.lines);
  // The kernel counts positions in 32 bits, up to the end of a tile.
  if (window.count > std::numeric_limits<int32_t>::max() - 4096) return std::nullopt;
  return window;
}

CopiedOperand copied_window(const Fusion& fusion, const Contraction& view, const ResidentWindow& window,
                            int64_t positions) {
  CopiedOperand copied = copied_operand(fusion, view, false, positions);
  // Innermost axis first.
  const int count = static_cast<int>(window.axes.size());
  for (int i = 0; i < count; ++i) {
    const auto axis = static_cast<size_t>(count - 1 - i);
    copied.map.window->upper[i] =
        upper_corner(window.axes[axis].positions, extent_under_window(view, view.axes[axis]));
  }
  return copied;
}

void ResidentWindow::append_grid(Parameters& p) const {
  p.wide("count", count);
  p.array("axis", "Axis", std::ssize(axes), [&](size_t i) {
    p.divisor("positions", axes[i].positions.pixels);
    p.wide("pixels", axes[i].pixels);
  });
}

}  // namespace fusor
