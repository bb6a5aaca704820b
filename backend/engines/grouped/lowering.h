// Owns what the grouped engine knows of a fusion and settles for a config: its tiles, its launch, its costs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/engines/contraction/product.h"
#include "backend/engines/depthwise/sliding_axis.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/work.h"

namespace fusor::grouped {

/// Channels of a chunk: 16 bytes.
inline constexpr int64_t kChunk = 8;

struct Knobs {
  int64_t pixels = 256;  ///< of a tile, about
  int64_t groups = 2;    ///< of a block
  int64_t tiles = 2;     ///< of 16 pixels, that a warp multiplies at once
  int64_t warps = 4;
  int64_t stages = 1;  ///< tiles of a block in shared memory

  static void visit(auto& self, auto&& knob) {
    knob("pixels", self.pixels);
    knob("groups", self.groups);
    knob("tiles", self.tiles);
    knob("warps", self.warps);
    knob("stages", self.stages);
  }
};

/// Whether the site is a load of 16-bit channels in vectors of a chunk.
bool is_chunk_load(const Fusion& fusion, const Expr& site);

/// Facts of a fusion.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  SlidingAxes axes;
  Expr a, b, y;         // over the kernel's axes, vectors marked
  int64_t in, out;      // chunks of a group, in the operand and in the result
  bool copies_filters;  // without passing through registers
  double dram_bytes;

  Problem(const Fusion& fusion_, const DeviceInfo& device_);

  bool is_gradient() const { return view.op == ContractionOp::dgrad; }
  const SlidingAxis& rows() const { return axes[1]; }
  const SlidingAxis& columns() const { return axes[2]; }
  int64_t groups() const { return view.entries; }
  int64_t images() const { return operand_site(fusion, 0, 0).domain[0]; }
  int64_t lines() const { return taps_of_phase(rows()); }
  int64_t taps() const { return taps_of_phase(columns()); }
  int64_t line_chunks() const { return taps() * in; }
  int64_t phases() const { return phases(rows()) * phases(columns()); }
  /// Results that meet the same taps are so many apart.
  static int64_t phases(const SlidingAxis& axis) { return axis.strided_gradient ? axis.stride : 1; }
  /// Results of a phase.
  static int64_t numbers(const SlidingAxis& axis) { return ceil_div(axis.results, phases(axis)); }
  /// Positions between neighbours of a phase.
  static int64_t stride(const SlidingAxis& axis) { return axis.strided_gradient ? 1 : axis.stride; }
  static int64_t taps_of_phase(const SlidingAxis& axis) { return ceil_div(axis.window, phases(axis)); }
  /// Whether the smallest tile fits in shared memory.
  bool has_setting() const;
};

/// A setting, and what follows from it.
struct Schedule {
  const Problem& problem;
  const Knobs knobs;
  int64_t width, rows, images;  // of a tile
  int64_t columns;  // of a row as pixels are counted: whole eights of the width where few are lost
  int64_t columns_in, lines_in;     // of x under it
  int64_t phase_bytes, line_bytes;  // of x in shared memory
  bool shares_banks;                // eight pixels that follow each other over the end of a row
  int64_t blocks_per_sm = 1;        // 0: it does not fit
  int64_t tiles_per_block = 1;

  Schedule(const Problem& problem_, const Knobs& knobs_);

  int64_t pixels() const { return columns * rows * images; }
  int64_t tile_columns() const { return ceil_div(Problem::numbers(problem.columns()), width); }
  int64_t tile_rows() const { return ceil_div(Problem::numbers(problem.rows()), rows); }
  int64_t tiles() const { return tile_columns() * tile_rows() * ceil_div(problem.images(), images); }
  int64_t group_tiles() const { return ceil_div(problem.groups(), knobs.groups); }
  int64_t threads() const { return knobs.warps * 32; }
  /// Shares of a tile that warps take in turn.
  int64_t items() const { return ceil_div(pixels(), knobs.tiles * 16) * knobs.groups; }
  int64_t rounds() const { return ceil_div(items(), knobs.warps); }
  int64_t blocks() const { return group_tiles() * problem.phases() * ceil_div(tiles(), tiles_per_block); }
  int64_t stage_bytes() const { return images * lines_in * line_bytes; }
  int64_t pixel_bytes() const { return (knobs.groups * problem.in | 1) * 16; }
  int64_t filter_bytes() const;
  int64_t staged_bytes() const;
  int64_t shared_bytes() const {
    return filter_bytes() + knobs.stages * stage_bytes() + knobs.warps * staged_bytes();
  }
  int64_t registers() const;

  Lowered lowered() const;
  Work work() const;

 private:
  void settle_tile();
  void settle_lines();
  int64_t blocks_that_fit() const;
  Launch launch() const;
};

}  // namespace fusor::grouped
