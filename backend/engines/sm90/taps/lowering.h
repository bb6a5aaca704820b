// Owns what the wgmma_taps engine knows of a fusion and settles for a config, and the way from there to
// launches and costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/sm90/taps/window.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/work.h"

namespace fusor::taps {

struct Knobs {
  std::optional<int64_t> tile_n;  ///< filters of a block; left out: the most
  int64_t split = 1;

  static void visit(auto& self, auto&& knob) {
    knob("tile_n", self.tile_n);
    knob("split", self.split);
  }
};

/// Facts of a fusion.
struct Problem {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  Window window;
  std::vector<int64_t> tiles;  ///< of filters; none where shared memory holds no window
  int64_t positions;           ///< outputs of a plane
  int64_t index_bits = 32;

  Problem(const Fusion& fusion, const DeviceInfo& device, const Contraction& view);

  int64_t images() const { return operand_site(fusion, 0, 0).domain[0]; }
  int64_t steps() const { return ceil_div(positions, kStep); }  ///< of an image
  int64_t all_steps() const { return images() * steps(); }
  int64_t blocks_n() const { return ceil_div(view.input_channels, kChannels); }
  int64_t columns() const { return kChannels * view.taps(); }  ///< of a tile
};

/// A setting.
struct Schedule {
  int64_t filters, parts;
  Rings rings;
  int64_t blocks_m, tiles;
  int64_t shared_bytes, partial_bytes;

  Schedule(const Problem& problem, const Knobs& knobs);
};

Lowered lower(const Problem& problem, const Schedule& schedule);
Work cost(const Problem& problem, const Schedule& schedule);

}  // namespace fusor::taps
