// Owns what the tests of the wgmma engine on the GPU share: its candidates alone, and convolutions.
#pragma once

#include <array>
#include <ostream>
#include <string>

#include "backend/engines.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/every_config.h"

namespace fusor::wgmma_cases {

inline const std::array<const Engine*, 1> kWgmmaOnly{&wgmma_engine()};

inline void expect_every_config_correct(const Graph& graph, const std::string& what) {
  fusor::expect_every_config_correct(graph, kWgmmaOnly, what);
}

struct ConvCase {
  Dims x, w;
  ConvOptions options;
};

inline std::string words(const ConvCase& c) { return to_string(c.x) + " * " + to_string(c.w); }
inline void PrintTo(const ConvCase& c, std::ostream* out) { *out << words(c); }

inline Dims output_dims(const ConvCase& c) {
  GraphBuilder g("shape");
  return g.conv_fprop(g.input("x", c.x, DataType::f16), g.input("w", c.w, DataType::f16), c.options).dims;
}

}  // namespace fusor::wgmma_cases
