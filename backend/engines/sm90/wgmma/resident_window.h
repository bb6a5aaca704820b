// Owns the arithmetic of a convolution whose windows stay in shared memory: the host's side of
// codegen/device/contraction/padded_grid.cuh and sm90/wgmma/window.cuh.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/sm90/copy/tensor_maps.h"

namespace fusor {

class Parameters;

/// The grid of positions that tiles are cut from: along every spatial axis the pixels of the result, and as
/// many more as the taps reach; of these, the padding behind a row is also that in front of the next. Each
/// position has one line of channels; tap t multiplies position p by the
/// line p + lines[t].
///
/// Windows of three axes and more taps come in layers, one for each tap along the first axis: the same
/// positions, as far away in the operand as that tap.
struct ResidentWindow {
  struct Axis {
    int64_t pixels;
    WindowWalk positions;  ///< of a window of 1
  };
  std::vector<Axis> axes;
  int64_t count = 1;  ///< positions of all images
  int64_t layers = 1;
  std::vector<int64_t> lines;  ///< by tap of a layer, in the order of the filter
  int64_t reach = 0;           ///< the largest of them

  /// The argument bytes of `PaddedGrid` on the device.
  void append_grid(Parameters& p) const;
};

/// Taps of a layer that the arguments have room for.
inline constexpr int64_t kMaxResidentTaps = 16;

/// Nothing but for fprop and dgrad of stride 1, of a line of channels or less and few taps. `shares_columns`:
/// whether padding is shared along the last axis, too.
std::optional<ResidentWindow> resident_window(const Contraction& view, bool shares_columns = true);
/// The pixels' operand for copies of `positions` neighbouring ones.
CopiedOperand copied_window(const Fusion& fusion, const Contraction& view, const ResidentWindow& window,
                            int64_t positions);

}  // namespace fusor
