// Owns Lowering: one candidate of the wgmma_taps engine - its tiles and parts, its launches and its costs.
#pragma once

#include <cstdint>

#include "backend/engines/contraction/product.h"
#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/taps/window.h"
#include "core/ceil_div.h"
#include "core/device_info.h"
#include "core/engine_config.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/work.h"

namespace fusor::taps {

struct Lowering {
  const Fusion& fusion;
  const DeviceInfo& device;
  Contraction view;
  Window window;
  int64_t filters;
  Rings rings;
  int64_t positions;  // outputs of a plane
  int64_t parts;
  int64_t index_bits = 32;

  Lowering(const Fusion& fusion_, const EngineConfig& config, const DeviceInfo& device_);

  int64_t images() const { return operand_site(fusion, 0, 0).domain[0]; }
  int64_t steps() const { return ceil_div(positions, kStep); }  // of an image
  int64_t all_steps() const { return images() * steps(); }
  int64_t blocks_m() const { return ceil_div(view.output_channels, filters); }
  int64_t blocks_n() const { return ceil_div(view.input_channels, kChannels); }
  int64_t tiles() const { return view.entries * blocks_m() * blocks_n(); }
  int64_t columns() const { return kChannels * view.taps(); }  // of a tile
  int64_t partial_bytes() const { return parts * tiles() * filters * columns() * kElementBytes; }
  int64_t shared_bytes() const { return taps::shared_bytes(window, filters, rings); }

  CopiedOperand dy() const { return whole_planes(fusion, false, kStep, filters); }
  CopiedOperand x() const { return whole_planes(fusion, true, window.line(), kChannels); }

  Lowered lowered() const;
  Work work() const;

 private:
  Launch product() const;
  void write_arguments(ArgumentBlock& block) const;
  // Neighbouring filters lie side by side in scratch.
  Launch sum_of_parts() const;
  // Halves of steps, of all tiles: those that begin inside the planes.
  double halves() const { return static_cast<double>(tiles() * images() * ceil_div(positions, kHalf)); }
  // Of the planes of inputs, that one block of channels reads of an image.
  int64_t pieces() const { return (steps() * kStep - kEight + window.farthest()) / kPiece + 1; }
};

}  // namespace fusor::taps
