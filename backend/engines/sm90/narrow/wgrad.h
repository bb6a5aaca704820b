// Owns wgrad on the wgmma_narrow engine: its launches and its costs; the kernel is
// codegen/device/sm90/narrow/wgrad.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "backend/engines/sm90/copy/tensor_maps.h"
#include "backend/engines/sm90/narrow/rows.h"

namespace fusor::narrow {

/// dy, read as it is stored, with its columns adjacent.
std::optional<TensorMap> gradient_planes(const Fusion& fusion);

Gradient gradient_of_wgrad(const Fusion& fusion, const Contraction& view);

struct Wgrad : Rows {
  CopiedOperand dy;
  const bool dy_planes;

  Wgrad(const Problem& problem_, const Knobs& knobs);

  int64_t gradient_bytes() const {
    return (dy_planes ? round_up(tile, kBlock) : tile) * kBlock * kElementBytes;
  }
  int64_t shared_bytes(int64_t groups) const {
    return round_up(groups * gradient_bytes() + window.ring_bytes(tile, groups), 1024);
  }
  int64_t groups() const {
    return Rows::groups([this](int64_t groups) { return shared_bytes(groups); });
  }

  // Every part of the strips has one thread block for each block of channels.
  int64_t parts() const { return std::min(strips(), std::max<int64_t>(device.sm_count / blocks(), 1)); }
  int64_t partial_bytes() const { return parts() * blocks() * kBlock * view.n * 4; }

  Lowered lowered() const;
  Work work() const;

 private:
  Launch launch() const;
};

inline Lowered lower(const Wgrad& schedule) { return schedule.lowered(); }
inline Work cost(const Wgrad& schedule) { return schedule.work(); }

}  // namespace fusor::narrow
