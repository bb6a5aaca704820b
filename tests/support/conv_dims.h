// Owns the dims that tests of convolutions ask for: those of a result, and of a value for every channel.
#pragma once

#include "frontend/graph_builder.h"

namespace fusor::test {

/// The dims of fprop's result, and of dgrad's and wgrad's dy.
inline Dims conv_output_dims(const Dims& x, const Dims& w, const ConvOptions& options) {
  GraphBuilder g("shape");
  return g.conv_fprop(g.input("x", x, DataType::f32), g.input("w", w, DataType::f32), options).dims;
}

/// {1, channels, 1, ...}: a bias or a scale beside a tensor of that rank.
inline Dims channel_dims(int rank, int64_t channels) {
  Dims dims = Dims::filled(rank, 1);
  dims[1] = channels;
  return dims;
}

}  // namespace fusor::test
