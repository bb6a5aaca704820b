// Owns the compilation of an engine's kernels in tests: what its candidates launch, and what ptxas says of
// it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/engine.h"
#include "codegen/expr_emitter.h"
#include "codegen/nvrtc.h"
#include "core/environment.h"
#include "core/parallel.h"

namespace fusor::test {

struct KernelCase {
  std::string name;
  std::shared_ptr<const KernelSource> source;
};

/// Every kernel that is launched.
inline void add_kernels(const std::string& name, const Lowered& lowered, std::vector<KernelCase>& cases) {
  for (const Step& step : lowered.steps)
    if (const auto* launch = std::get_if<Launch>(&step)) cases.push_back({name, launch->source});
}

/// Every kernel that the engine's candidates launch for the fusion.
inline void add_kernels(const Engine& engine, const std::string& name, const Fusion& fusion,
                        const DeviceInfo& device, std::vector<KernelCase>& cases) {
  for (const EngineCandidate& candidate : engine.candidates(fusion, device))
    add_kernels(name + " " + to_string(candidate.config), engine.lower(fusion, candidate.config, device),
                cases);
}

/// Compiles it anew; ptxas must have nothing to say but that all is well.
inline nvrtc::Compilation expect_compiled(const KernelCase& one) {
  nvrtc::Compilation compilation =
      nvrtc::compile(one.source->root, emit_header(*one.source), one.source->target);
  EXPECT_FALSE(compilation.cubin.empty()) << one.name;
  EXPECT_NE(compilation.log.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"),
            std::string::npos)
      << one.name << "\n"
      << compilation.log;
  for (const char* complaint : {"warning", "serialized"})
    EXPECT_EQ(compilation.log.find(complaint), std::string::npos) << one.name << "\n" << compilation.log;
  return compilation;
}

inline void expect_all_compiled(const std::vector<KernelCase>& cases) {
  parallel_for(static_cast<int64_t>(cases.size()), environment::threads(),
               [&](int64_t i) { expect_compiled(cases[static_cast<size_t>(i)]); });
}

}  // namespace fusor::test
