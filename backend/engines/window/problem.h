// Owns the problem of the window engine: totals over a few places of every window, whose elements are taken
// through numbers that coordinates alone are made of.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "core/device_info.h"
#include "core/fusion.h"
#include "core/lowered.h"
#include "core/support.h"

namespace fusor {

inline constexpr int64_t kMostTile = 4;       ///< windows of a thread along an axis
inline constexpr int64_t kMostLongTile = 16;  ///< where a thread loads runs of elements

/// How the places of a tile's windows meet along one axis: place q of window u, counted from the first of the
/// tile, is element (step * u + turn * q + shift) / divisor, counted from some element. Divisor 0: not so.
struct WindowMeeting {
  int64_t step = 0, turn = 0, shift = 0, divisor = 0;
  int64_t base = 0;    ///< the element counted from in the first tile
  uint32_t live = 0;   ///< which of the elements, in the order in which places meet them, are ever there
  int64_t run = 1;     ///< the widest run of elements that are all there or none is
  uint32_t never = 0;  ///< which places, numbered through all windows, are no element of any tile
};

/// An axis of windows along which tiles may lie.
struct WindowLine {
  int axis = 0;
  /// The axis of a window's places that goes along with it, counted from the first; -1: none.
  int places = -1;
  int64_t period = 1;  ///< windows after which their places lie as before
  std::array<WindowMeeting, kMostLongTile + 1> meeting = {};  ///< by the extent of a tile
};

/// Facts of a fusion of form rows whose rows are windows.
struct WindowProblem {
  const Fusion& fusion;
  const DeviceInfo& device;
  /// Y over the axes that number windows, the vector axis last of them, then those of a window's places.
  KernelSite site = {};
  WindowLine columns = {}, rows = {};  ///< of tiles: along the last axes that number windows
  /// The last axis of images, beside the vector axis and those of tiles, whose windows lie at the same places
  /// with the same weights, where such weights are computed; -1: none.
  int images = -1;
  bool walks = false;  ///< neighbours along the vector axis are neighbouring windows
  int index_bits = 32;
  int64_t widest = 1;  ///< elements of a vector at most

  const Dims& domain() const { return site.expr.domain; }
  int64_t places() const;  ///< of a window
  int64_t windows() const;
  /// Elements of the runs that a tile of so many columns is loaded by: neighbours in memory, each run on a
  /// multiple of its size and inside or outside as a whole. 1: it is loaded element by element.
  int64_t run(int64_t tile_columns) const;
};

/// The problem, or why the fusion is none.
std::variant<Refusal, WindowProblem> window_problem(const Fusion& fusion, const DeviceInfo& device);

/// Per node: whether coordinates alone, and scalars, decide it.
std::vector<bool> decided_by_coordinates(const Expr& expr);

/// Elements and places of a tile of windows, far from the borders.
struct WindowReach {
  int64_t loads = 0;     ///< different elements, or vectors of them, of all loads through indices
  int64_t requests = 0;  ///< in how many runs they come, where they come in runs
  int64_t places = 0;    ///< windows' places that are elements
};
WindowReach reach_of(const WindowProblem& problem, int64_t tile_rows, int64_t tile_columns);

}  // namespace fusor
