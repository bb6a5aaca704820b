// Owns the extents that attention's kernels on warp-wide matrix instructions are compiled for.
#pragma once

#include "codegen/device/base/types.cuh"

enum : int {
  kRank = Y::kRank,
  kBatch = kRank - 2,
  kHead = Config::head,    // a multiple of 16
  kValue = Config::value,  // the same
};
enum : bool { kPlainScores = Config::plain_scores };

struct I;  // the sink of a row, if any
