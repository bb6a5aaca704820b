// Owns what the tests of the wgmma engine on the GPU share: its candidates alone.
#pragma once

#include <array>
#include <string>

#include "backend/engines/list.h"
#include "tests/gpu/engines/conv_case.h"
#include "tests/gpu/engines/every_config.h"

namespace fusor::wgmma_cases {

inline const std::array<const Engine*, 1> kWgmmaOnly{&wgmma_engine()};

inline void expect_every_config_correct(const Graph& graph, const std::string& what) {
  fusor::expect_every_config_correct(graph, kWgmmaOnly, what);
}

}  // namespace fusor::wgmma_cases
