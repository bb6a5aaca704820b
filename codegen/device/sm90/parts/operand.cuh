// Owns an fp32 operand on its way into bf16 parts: its extents and the place of its parts.
#pragma once

template <int kRank>
struct SplitOperand {
  u16* to;
  i64 vectors;  // of 8 neighbours in scratch, with the zeros that fill k up
  i64 k;        // elements along k
  i64 extent;   // elements along the axis of vectors
  i64 last;     // elements along the last axis, with the zeros that fill k up
  i64 part;     // elements from one part of a number to the next
  i64 strides[kRank];
  FastDivisor extents[kRank];  // that of vectors counts these, or what a warp has of it, as of the last axis
};
