// Owns the host's side of codegen/device/tiled/part.cuh: how a matmul or a convolution is cut into
// tiles, which way its elements are loaded and stored, and the second launch of a split. Shared by the
// engines direct, mma and mma_stream.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "backend/engines/contraction/product.h"
#include "backend/engines/engine.h"
#include "backend/engines/tiled/tiling.h"

namespace fusor {

/// The three sites over the axes that the kernel speaks of.
struct ContractionSites {
  Expr a, b, y;
};

/// How an operand is loaded: along k or across it, whichever is adjacent in memory, in vectors of `width`
/// elements.
struct OperandLoad {
  bool along_k = true;
  int vector_axis = 0;
  int64_t width = 1;
};

/// How results leave: along n or along m, whichever is adjacent in memory.
struct ResultStore {
  bool along_n = true;
  int vector_axis = 0;
  int64_t width = 1;
};

/// Vector widths that a kernel has for an operand or for the result, longest first; beside them, 1.
using Widths = std::span<const int64_t>;
struct WidthsOfSites {
  Widths a, b, y;
};

/// Facts of a fusion: all that these kernels share.
struct TiledProblem {
  const Fusion& fusion;
  Contraction view;
  ContractionSites sites;
  OperandLoad load_a, load_b;
  ResultStore store;
  std::string target;

  TiledProblem(const Fusion& fusion, const DeviceInfo& device, const WidthsOfSites& widths);
};

/// The tile that a block works on at once. The knobs have these names with "tile_" in front.
struct TileShape {
  int64_t m = 64, n = 64, k = 16;
  int64_t elements() const { return m * n; }
};

/// A setting: the grid that follows from a tile and a split of k.
struct TiledSchedule {
  TileShape tile;
  int64_t split = 1;
  bool in_cluster = false;           ///< the parts of a tile are the blocks of a cluster, which adds them up
  int64_t along_m = 1, along_n = 1;  ///< tiles along each axis
  int64_t tiles = 1;                 ///< of all batch entries
  int64_t k_per_split = 0;           ///< a multiple of tile.k
  int index_bits = 32;

  TiledSchedule(const TiledProblem& problem, const TileShape& tile, int64_t split, bool in_cluster = false);
  int64_t items() const { return tiles * split; }
  /// Through the workspace.
  bool is_split() const { return split > 1 && !in_cluster; }
};

/// The site is one load of `element`, as it is stored.
bool is_plain(const Fusion& fusion, const Expr& site, DataType element);
KernelSite site_a(const TiledProblem& problem);
KernelSite site_b(const TiledProblem& problem);
/// A site beside those of the operands and the result, and its parameter.
struct FurtherSite {
  std::string parameter;
  KernelSite site;
};
/// The launch of tiled/KERNEL.cuh, whose entry has its name; `specific` joins the config. `block`: steps of k
/// in a block, where the second operand's sites count blocks; 0: none do.
Launch tiled_launch(const TiledProblem& problem, const TiledSchedule& schedule, const std::string& kernel,
                    const std::vector<ConfigValue>& specific, const KernelSite& a, const KernelSite& b,
                    const std::vector<FurtherSite>& further = {}, int64_t block = 0);
/// The steps that begin with `product`: behind it, a split adds up its parts.
Lowered tiled_steps(const TiledProblem& problem, const TiledSchedule& schedule, Launch product);

/// All but the multiply-adds, their efficiency, stages and tiles in flight.
Work tiled_cost(const TiledProblem& problem, const TiledSchedule& schedule);
/// Elements that all tiles load together.
double elements_of_a(const TiledProblem& problem, const TiledSchedule& schedule);
double elements_of_b(const TiledProblem& problem, const TiledSchedule& schedule);
/// Floating-point operations of the inner loop: tails are computed like whole tiles.
double inner_flops(const TiledProblem& problem, const TiledSchedule& schedule);

/// The rules of all these engines: a CUDA device, one contraction, elementwise results over its own shape.
std::optional<Refusal> refuse_tiling(const Fusion& fusion, const DeviceInfo& device);

/// Adds the config with its work, unless it is there already.
template <class WorkOf>
void add_candidate(std::vector<EngineCandidate>& list, EngineConfig config, const WorkOf& work_of) {
  if (std::ranges::find(list, config, &EngineCandidate::config) != list.end()) return;
  const Work work = work_of();
  list.push_back({std::move(config), work});
}

/// Values of a knob that cover the extent: a tile larger than the product only adds zeros.
std::vector<int64_t> tiles_up_to(int64_t extent, std::initializer_list<int64_t> sizes);
/// Numbers of parts, each of one main-loop step or more.
std::vector<int64_t> splits_of(const Contraction& view, int64_t tile_k);
/// The most parts, a power of two, each of `least_steps` of the main loop or more, that the device holds at
/// once beside each other; 1 where the tiles of `whole` fill it already.
int64_t split_for(const Work& whole, const std::vector<int64_t>& splits, int64_t least_steps,
                  const DeviceInfo& device);
/// Any number of parts: as many as the device holds at once; or, where whole tiles leave most of it idle in
/// their last round, the few that even the rounds out. 1 where neither helps.
int64_t even_split_for(const Work& whole, const std::vector<int64_t>& splits, int64_t least_steps,
                       const DeviceInfo& device);

}  // namespace fusor
