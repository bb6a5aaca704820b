// Owns the kernel of windows: totals over a few places of each window, all of them one thread's.
//
//   thread       kTileRows x kTileColumns neighbouring windows, kVector neighbours along the vector axis,
//                of kImages images one after the other, which share what coordinates decide
//   take         memory ──► registers: what the tile's windows need, each element once   (window/take.cuh)
//   phase 0, 1   the places of a window in order ──► totals ──► settle: values of the window
//   finish       values of a window, or of a row of them as lanes (Config::joins) ──► memory
//
//   No shared memory: neighbouring threads find what they share in L1.
#include "fusor_generated.cuh"

#include "codegen/device/base/launch.cuh"
#include "codegen/device/window/take.cuh"

enum : int { kThreads = Config::threads };
enum : int { kImages = Config::images, kImageAxis = Config::image_axis };
enum : bool { kTileTails = Config::tile_tails };  // windows of the last tiles may not exist

// tiles: of all windows, vectors of them; row_extent, column_extent, image_extent: windows along the axes of
// a tile and of images; extents: those of the kept axes, in tiles and vectors.

using Row = Y::Row<kVector>;

// Adds a place of a window to the totals of a phase.
template <int kWindowRow, int kWindowColumn, int kPhase, class Totals>
struct Add {
  const Params& p;
  const Index (&tile)[Y::kKept];
  const Taken& taken;
  const Row& row;
  Totals (&totals)[kVector];

  template <int kStep>
  __device__ __forceinline__ void number() {
    constexpr Step kPlace(kStep);
    constexpr bool kIsNone = is_never(Config::row_never, kWindowRow * kRowCount + kPlace.row) ||
                             is_never(Config::column_never, kWindowColumn * kColumnCount + kPlace.column);
    // Text that adds nothing would be compiled all the same.
    if constexpr (!kIsNone || !Y::kSumsIgnoreOutside) {
      const auto at = place_at<kWindowRow, kWindowColumn, kStep>(tile);
      const auto fixed = Y::fixed<kVector>(p.y, at, kVector);
      constexpr int kRow = kRowLine.of[kWindowRow][kPlace.row],
                    kColumn = kColumnLine.of[kWindowColumn][kPlace.column];
      Y::Held<kVector> held;
      if constexpr (kIsNone)
        Y::outside(p.y, held);
      else
        held = taken.held[kPlace.other][kRow][kColumn];
      Y::add<kVector>(Phase<kPhase>{}, p.y, at, kVector, held, fixed, row, totals);
    }
  }
};

template <int kWindowRow, int kWindowColumn, int kPhase>
static __device__ __forceinline__ void run_phases(const Params& p, const Index (&tile)[Y::kKept],
                                                  const Taken& taken, Row& row) {
  if constexpr (kPhase < Y::kPhases) {
    using Totals = decltype(Y::totals(Phase<kPhase>{}));
    Totals totals[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) totals[i].init();
    Add<kWindowRow, kWindowColumn, kPhase, Totals> add{p, tile, taken, row, totals};
    visit_all<kSteps>(add);
    Y::settle(Phase<kPhase>{}, p.y, place_at<kWindowRow, kWindowColumn, 0>(tile), totals, row);
    run_phases<kWindowRow, kWindowColumn, kPhase + 1>(p, tile, taken, row);
  }
}

template <int kWindowRow, int kWindowColumn>
static __device__ __forceinline__ Row row_of(const Params& p, const Index (&tile)[Y::kKept],
                                             const Taken& taken) {
  Row row;
  Y::begin(p.y, place_at<kWindowRow, kWindowColumn, 0>(tile), row);
  run_phases<kWindowRow, kWindowColumn, 0>(p, tile, taken, row);
  return row;
}

struct Finish {
  const Params& p;
  const Index (&tile)[Y::kKept];
  const Taken& taken;

  template <int kWindow>
  __device__ __forceinline__ void number() {
    constexpr int kRow = kWindow / kTileColumns, kColumn = kWindow % kTileColumns;
    const auto at = place_at<kRow, kColumn, 0>(tile);
    if (kTileTails &&
        (at.template axis<kRowAxis>() >= p.row_extent || at.template axis<kColumnAxis>() >= p.column_extent))
      return;
    Y::finish_row(p.y, at, row_of<kRow, kColumn>(p, tile, taken));
  }
};

// Windows along a row, each of which is a lane of what is stored.
template <int kRow, class Joined>
struct Join {
  const Params& p;
  const Index (&tile)[Y::kKept];
  const Taken& taken;
  Joined& joined;

  template <int kColumn>
  __device__ __forceinline__ void number() {
    Y::put(row_of<kRow, kColumn>(p, tile, taken), kColumn, joined);
  }
};
struct FinishRows {
  const Params& p;
  const Index (&tile)[Y::kKept];
  const Taken& taken;

  template <int kRow>
  __device__ __forceinline__ void number() {
    const auto at = place_at<kRow, 0, 0>(tile);
    if (kTileTails && at.template axis<kRowAxis>() >= p.row_extent) return;
    using Joined = Y::Row<kTileColumns>;
    Joined joined;
    Join<kRow, Joined> join{p, tile, taken, joined};
    visit_all<kTileColumns>(join);
    Y::finish_row(p.y, at, joined);
  }
};

static __device__ __forceinline__ void finish_tile(const Params& p, const Index (&tile)[Y::kKept]) {
  Taken taken;
  take_all(p, tile, taken);
  if constexpr (Config::joins) {
    FinishRows finish{p, tile, taken};
    visit_all<kTileRows>(finish);
  } else {
    Finish finish{p, tile, taken};
    visit_all<kTileRows * kTileColumns>(finish);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) window(const __grid_constant__ Params p) {
  enter_launch(p);
  const Index number = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (number >= p.tiles) return;
  Index tile[Y::kKept];
  coordinates<0, Y::kKept>(number, p.extents, tile);
  if constexpr (kImages == 1) {
    finish_tile(p, tile);
  } else {
    const Index first = tile[kImageAxis] * kImages;
    const Index end = first + kImages < p.image_extent ? first + kImages : p.image_extent;
    for (tile[kImageAxis] = first; tile[kImageAxis] < end; ++tile[kImageAxis]) finish_tile(p, tile);
  }
  leave_launch(p);
}
