// Owns what depthwise/march_staged.cuh is told of its planes in shared memory; the host puts it together.
#pragma once

#include "codegen/device/depthwise/tiling.cuh"

/// In floats, unless said otherwise.
struct StageTiling {
  FastDivisor lines;     // of a plane, rows
  FastDivisor rows;      // of a plane of results
  FastDivisor accesses;  // that store a row of results
  i64 begin;             // where planes begin, behind the filters
  i64 plane, pitch;      // from plane to plane, and from row to row
  i64 first;             // the position of a row's first float: padding lies in front of 0
  i64 results;           // from plane to plane of results
};
