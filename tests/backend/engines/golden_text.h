// Owns the reading of golden generated headers, which also compile under nvcc (tests/device).
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>

#include "codegen/text/expr_emitter.h"

namespace fusor::test {

inline std::string golden_text(const std::string& root) {
  std::ifstream file(fmt::format("{}/../device/{}/fusor_generated.cuh", FUSOR_TEST_DIR, root));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The generated header of a lowered fusion's step.
inline std::string generated_text(const Lowered& lowered, size_t step) {
  return emit_header(*std::get<Launch>(lowered.steps.at(step)).source);
}

}  // namespace fusor::test
