// Owns the window of a wgrad over planes as the wgmma_taps engine sees it: its taps dealt out to consumers,
// the pieces of inputs that they meet, and how deep the rings of both operands are.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "core/ceil_div.h"
#include "core/device_info.h"

namespace fusor::taps {

// The constants of the kernel and of codegen/device/sm90/taps/tap_walk.cuh.
inline constexpr int64_t kStep = 32, kHalf = 16, kEight = 8, kPiece = 64;
inline constexpr int64_t kChannels = 64, kWarpgroup = 128, kElementBytes = 4;
inline constexpr int64_t kUnit = 16 / kElementBytes;
inline constexpr int64_t kMostConsumers = 3, kMostTaps = 3;

// A consumer has neighbouring taps of one row of the window, those of the leftmost inputs first.
struct Window {
  WindowAxis h, w;  // h is all ones where the convolution has one spatial axis
  int64_t taps = 1;
  int64_t consumers_of_row = 1;

  explicit Window(const Contraction& view);
  int64_t consumers() const { return h.window * consumers_of_row; }
  int64_t tap_step() const { return taps == 1 ? 1 : std::abs(w.step); }

  // How many columns further on than an output the input lies that it meets at a consumer's first tap.
  int64_t column(int64_t consumer) const;
  // The same in positions of a plane.
  int64_t distance(int64_t consumer) const;
  // That of the first consumer, down to a whole unit.
  int64_t origin() const;
  int64_t first(int64_t consumer) const { return distance(consumer) - origin(); }
  int64_t farthest() const { return first(consumers() - 1); }

  // A bit for each of a consumer's taps that, of some consumer, leaves the row of inputs.
  int64_t masked() const;

  // --- Pieces of inputs ---

  // Positions: all that eight outputs meet, from wherever in a piece on, in lines of an odd number of units.
  int64_t line() const {
    const int64_t least = kPiece + kEight - 1 + (taps - 1) * tap_step();
    return round_up(least - kUnit, 2 * kUnit) + kUnit;
  }
  int64_t piece_bytes() const { return kChannels * line() * kElementBytes; }
  // That one step needs.
  int64_t least_pieces() const { return (2 * kStep - kEight + farthest()) / kPiece + 1; }
};

// How deep the rings are.
struct Rings {
  int64_t stages, pieces;
};

int64_t shared_bytes(const Window& window, int64_t filters, const Rings& rings);
// As deep as fits, up to what hides the memory's latency; or nothing.
std::optional<Rings> rings_of(const Window& window, int64_t filters, const DeviceInfo& device);
// Filters of a block: as many as registers have sums for, and shared memory lines; no more than there are.
std::vector<int64_t> tiles_of(const Contraction& view, const DeviceInfo& device);

}  // namespace fusor::taps
