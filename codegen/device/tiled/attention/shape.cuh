// Owns the extents that attention's kernels on warp-wide matrix instructions are compiled for.
#pragma once

#include "codegen/device/base/types.cuh"

static constexpr int kRank = Y::kRank, kBatch = kRank - 2;
static constexpr int kHead = Config::head, kValue = Config::value;  // multiples of 16
static constexpr bool kPlainScores = Config::plain_scores;

struct I;  // the sink of a row, if any
