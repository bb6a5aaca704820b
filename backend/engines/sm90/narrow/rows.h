// Owns what the wgmma_narrow engine knows of a fusion, and what its passes share: rows of pixels in strips,
// their loads and their costs; and rows of the result as TMA walks them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/engines/contraction/epilogue.h"
#include "backend/engines/sm90/copy/copied_result.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/narrow/window.h"
#include "codegen/text/parameters.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/tensor_map.h"
#include "core/work.h"

namespace fusor::narrow {

// The axis of pixels along a row.
inline int pixel_axis(const Expr& site) { return site.domain.rank() - 1; }

struct Knobs {
  int64_t tile_n = kFewestPixels;    ///< pixels of a row that are worked on at once
  std::optional<int64_t> rows = {};  ///< of a strip; left out: all

  static void visit(auto& self, auto&& knob) {
    knob("tile_n", self.tile_n);
    knob("rows", self.rows);
  }
};

/// How the result of an fprop leaves.
struct FpropResult {
  Expr y;  // what it yields is stored by TMA
  bool short_forms;
  bool rounds_value = true;
  std::optional<CopiedResult> copied;  // the first result, where TMA stores it
  int64_t vector;
};

/// The gradient that a wgrad multiplies the pixels by, without its box.
struct Gradient {
  CopiedOperand dy;
  bool planes;
};

/// Facts of a fusion.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  Window window;
  Expr x;
  bool x_merged = false, x_plain = false;
  int64_t index_bits = 32;
  std::optional<FpropResult> result;  // of an fprop
  std::optional<Gradient> gradient;   // of a wgrad
  std::vector<int64_t> tiles;         // those for which shared memory holds a window and more

  Problem(const Fusion& fusion, const DeviceInfo& device, const Contraction& view);
};

/// A setting, as far as both passes share it.
struct Rows {
  const Problem& problem;
  const Fusion& fusion;
  const DeviceInfo& device;
  const Contraction& view;
  const Window& window;
  const Expr& x;
  const bool x_merged, x_plain;
  const int64_t index_bits;
  const int64_t tile, rows;  // pixels of a row that are worked on at once; rows of a strip

  Rows(const Problem& problem_, const Knobs& knobs);

  DataType type() const { return yielded_node(x).type; }
  int64_t blocks() const { return ceil_div(view.output_channels, kBlock); }  // of output channels

  int64_t along_h() const { return ceil_div(window.h.output, rows); }
  int64_t along_w() const { return ceil_div(window.w.output, tile); }
  int64_t strips() const { return x.domain[0] * along_h() * along_w(); }

  // As many groups as fit, up to what loading may run ahead.
  template <class Bytes>
  int64_t groups(const Bytes& shared_bytes) const {
    int64_t groups = window.fewest_groups() + kMostAhead;
    while (groups > window.fewest_groups() && shared_bytes(groups) > device.shared_per_block) --groups;
    return groups;
  }

  KernelSite site_x() const { return {"X", x, pixel_axis(x), fits_short_forms(x), true, x_plain}; }

  std::vector<ConfigValue> config(int64_t groups, int64_t shared_bytes) const;
  void append_strips(Parameters& p) const;

  // Rows of the result that the SM with the most strips works on, where `slots` of them share the strips; a
  // strip fills the ring anew, with what lies under its first window.
  double rows_of_sm(int64_t slots) const;

  // Input elements loaded, with all that it takes; `tiles` are rows of strips.
  Work work(double tiles) const;
  int64_t blocks_that_load() const { return view.op == ContractionOp::fprop ? 1 : blocks(); }
};

/// The first operand or result as (channel, column, row of all images), from a map of (channel, pixel).
void take_rows(TensorMap& map, const Window& window);
/// An operand or result whose columns are adjacent, as (column, channel of all images, row), without its box.
std::optional<TensorMap> planes(const Access& access, const Operand& operand, DataType type,
                                const Dims& domain);

}  // namespace fusor::narrow
