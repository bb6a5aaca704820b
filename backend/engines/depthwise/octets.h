// Owns what the depthwise engine's schedules on tensor cores have in common
// (codegen/device/depthwise/octets.cuh): which fusions they take, groups of 8 channels and octets of pixels.
#pragma once

#include <cstdint>

#include "backend/engines/depthwise/lowering.h"

namespace fusor::depthwise {

inline constexpr int64_t kGroupChannels = 8, kOctet = 8, kWarps = kThreads / 32;
/// Bytes of a group's channels of one pixel.
inline constexpr int64_t kChunkBytes = 16;
inline constexpr int64_t kWarpThreads = 32, kMultiplyAddsOfMma = 16 * 8 * 16;

/// Channels of 16 bits that are adjacent, in groups of 8, windows of one plane up to 7 x 7 with strides and
/// dilations of 1, no ops before the products.
bool can_multiply(const Problem& problem);

/// The site with whole groups of channels marked.
Expr in_groups(const Fusion& fusion, Expr site);
/// A site whose address the kernel asks for.
KernelSite addressed_site(const char* name, const Expr& expr, int vector_axis);

/// How a block's warps are dealt out: `width` groups of 8 channels by `lanes`, each of which multiplies two
/// octets, 8 results of a row, at a time.
struct OctetDeal {
  int64_t groups, width, lanes;
  int64_t octets_of_row, columns;  // octets: of a row of results, of all images

  explicit OctetDeal(const Problem& problem);

  int64_t tiles() const { return ceil_div(groups, width); }
  int64_t octets_at_once() const { return 2 * lanes; }
  int64_t turns() const { return ceil_div(columns, octets_at_once()); }
};

/// Chunks of one row that a warp reads from x.
inline int64_t chunks_of_pixels(const SlidingAxis& axis) { return 2 * (kOctet + axis.window - 1); }

/// The share of the tensor cores' rate that mma.sync reaches: a little more than half on sm_90.
double share_of_mma(const DeviceInfo& device);

}  // namespace fusor::depthwise
