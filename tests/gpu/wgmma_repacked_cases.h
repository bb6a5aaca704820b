// Owns what the tests of the wgmma_repacked engine on the GPU share: its candidates alone, and convolutions.
#pragma once

#include <array>
#include <string>

#include "backend/engines.h"
#include "frontend/graph_builder.h"
#include "tests/gpu/every_config.h"
#include "tests/support/conv_dims.h"

namespace fusor::repacked_cases {

inline const std::array<const Engine*, 1> kRepackedOnly{&wgmma_repacked_engine()};

inline void expect_every_config_correct(const Graph& graph, const std::string& what) {
  fusor::expect_every_config_correct(graph, kRepackedOnly, what);
}

struct ConvCase {
  Dims x, w;
  ConvOptions options;
};

inline std::string words(const ConvCase& c) { return to_string(c.x) + " * " + to_string(c.w); }
inline Dims output_dims(const ConvCase& c) { return test::conv_output_dims(c.x, c.w, c.options); }

}  // namespace fusor::repacked_cases
