// Owns what the tests of the wgmma_repacked engine and of its ways to rewrite a convolution share: graphs,
// and the parts of a rewritten fusion carried out on the CPU.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backend/engines/list.h"
#include "backend/engines/repack/repack.h"
#include "backend/engines/repack/rewrites/pack_layouts.h"
#include "frontend/graph_builder.h"
#include "tests/backend/devices.h"
#include "tests/backend/engines/ask.h"
#include "tests/backend/planner/whole_fusion.h"
#include "tests/backend/reference/host_buffers.h"
#include "tests/support/conv_dims.h"

namespace fusor::repacked {

using test::h200;

using test::fusion_of;

struct Layouts {
  Layout x = Layout::nchw, w = Layout::nchw, y = Layout::nchw;
};
inline constexpr Layouts kChannelsLast{Layout::nhwc, Layout::nhwc, Layout::nhwc};

inline Graph fprop(const Dims& x, const Dims& w, Layouts layouts = {}, const ConvOptions& options = {}) {
  GraphBuilder g("fprop");
  const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16, layouts.x),
                                g.input("w", w, DataType::f16, layouts.w), options);
  g.output(y, {.name = "y", .layout = layouts.y});
  return g.finish();
}

// relu(conv + bias) + residual, everything NCHW.
inline Graph fused(const Dims& x, const Dims& w) {
  GraphBuilder g("fused");
  const Tensor y = g.conv_fprop(g.input("x", x, DataType::f16), g.input("w", w, DataType::f16));
  const Tensor bias = g.input("bias", {1, w[0], 1, 1}, DataType::f16);
  const Tensor residual = g.input("residual", y.dims, DataType::f16);
  g.output(g.add(g.relu(g.add(y, bias)), residual), {.name = "y"});
  return g.finish();
}

inline std::string rule(const Graph& graph) {
  const Support support = test::supports(wgmma_repacked_engine(), fusion_of(graph), h200());
  return support ? "" : support.refusal->rule;
}

// A setting without a split.
inline EngineConfig config(const Fusion& fusion, int64_t repack_y) {
  for (const EngineCandidate& candidate : test::candidates(wgmma_repacked_engine(), fusion, h200()))
    if (candidate.config.knob("repack_y", -1) == repack_y) {
      EngineConfig whole = candidate.config;
      whole.set("split", 1);
      return whole;
    }
  return {};
}

inline Lowered lowered(const Graph& graph, int64_t repack_y) {
  const Fusion fusion = fusion_of(graph);
  return test::lower(wgmma_repacked_engine(), fusion, config(fusion, repack_y), h200());
}

inline std::vector<std::string> entries(const Lowered& lowered) {
  std::vector<std::string> found;
  for (const Step& step : lowered.steps) found.push_back(std::get<Launch>(step).entry);
  return found;
}

using Kind = Patch::Kind;
// What the patches of a step say: kind and index.
inline std::vector<std::pair<Kind, int>> pointers(const Lowered& lowered, size_t step) {
  std::vector<std::pair<Kind, int>> found;
  const ArgumentBlock& block = std::get<Launch>(lowered.steps.at(step)).arguments;
  for (const Patch& patch : block.patches()) found.emplace_back(patch.kind, patch.index);
  return found;
}

// Carries the three parts out on the CPU, with scratch full of poison.
inline void run(const Repacked& repacked, const HostTensors& tensors) {
  std::vector<std::vector<std::byte>> scratch;
  for (const int64_t bytes : repacked.scratch)
    scratch.emplace_back(static_cast<size_t>(bytes), std::byte{0xff});
  for (const int zeroed : repacked.zeroed)
    std::ranges::fill(scratch[static_cast<size_t>(zeroed)], std::byte{0});
  std::vector<void*> operands;
  for (const Operand& operand : repacked.core.operands)
    operands.push_back(operand.tensor < 0 ? nullptr
                                          : tensors.pointers()[static_cast<size_t>(operand.tensor)]);
  for (size_t i = 0; i < scratch.size(); ++i)
    operands[operands.size() - scratch.size() + i] = scratch[i].data();
  for (const Fusion* part : {&repacked.loads, &repacked.core, &repacked.stores})
    if (!part->sites.empty()) {
      validate(*part);
      evaluate(*part, operands, Reading::oracle);
    }
}

inline void expect_same_bytes(const Graph& graph, const HostTensors& parts, const HostTensors& whole,
                              const std::string& what) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].is_virtual()) continue;
    EXPECT_EQ(parts.bytes(static_cast<int>(i)), whole.bytes(static_cast<int>(i)))
        << graph.name << " " << graph.tensors[i].name << " " << what;
  }
}

inline void expect_parts_agree_with_the_whole(const Graph& graph, size_t ways, int64_t joined = 1) {
  const Fusion fusion = fusion_of(graph);
  const Contraction view = contraction_of(fusion).value();
  const HostTensors whole(graph);
  whole.run(fusion, Reading::oracle);
  EXPECT_EQ(result_paths(fusion, view, joined).size(), ways);
  for (const ResultPath way : result_paths(fusion, view, joined)) {
    const HostTensors parts(graph);
    run(pack_layouts(fusion, view, {{true, true}, joined}, way), parts);
    expect_same_bytes(graph, parts, whole, fmt::format("way {}", static_cast<int>(way)));
  }
}

inline Graph grouped(ConvPass pass, const Dims& x, const Dims& w, Layouts layouts) {
  GraphBuilder g("grouped");
  const ConvOptions options{.padding = {1, 1}};
  const Dims y{x[0], w[0], x[2], x[3]};
  const Tensor first = g.input("first", pass == ConvPass::fprop ? x : y, DataType::f16,
                               pass == ConvPass::fprop ? layouts.x : layouts.y);
  const Tensor second = g.input("second", pass == ConvPass::wgrad ? x : w, DataType::f16,
                                pass == ConvPass::wgrad ? layouts.x : layouts.w);
  const Tensor result = pass == ConvPass::fprop   ? g.conv_fprop(first, second, options)
                        : pass == ConvPass::dgrad ? g.conv_dgrad(first, second, x, options)
                                                  : g.conv_wgrad(first, second, w, options);
  const Layout layout = pass == ConvPass::fprop ? layouts.y : pass == ConvPass::dgrad ? layouts.x : layouts.w;
  g.output(g.mul(g.relu(result), g.constant(0.5)),
           {.name = "result", .type = DataType::f16, .layout = layout});
  return g.finish();
}

struct FewResults {
  ConvPass pass = ConvPass::dgrad;
  Dims x, w;
  ConvOptions options;
};

// dgrad of few input channels, or fprop of few output channels.
inline Graph few_results(const FewResults& c, Layout layout, bool fused, DataType type = DataType::f16) {
  GraphBuilder g("few results", type == DataType::f32 ? Precision::allow_tf32 : Precision::exact);
  const Tensor w = g.input("w", c.w, type, layout);
  Tensor result;
  if (c.pass == ConvPass::dgrad) {
    const Dims y = test::conv_output_dims(c.x, c.w, c.options);
    result = g.conv_dgrad(g.input("dy", y, type, layout), w, c.x, c.options);
  } else {
    result = g.conv_fprop(g.input("x", c.x, type, layout), w, c.options);
  }
  if (fused) {
    result = g.add(result, g.input("bias", test::channel_dims(c.x.rank(), result.dims[1]), type));
    result = g.add(g.relu(result), g.input("residual", result.dims, type));
  }
  g.output(g.mul(result, g.constant(0.5)), {.name = "result", .type = type, .layout = layout});
  return g.finish();
}

inline const FewResults kStem{
    ConvPass::dgrad, {128, 3, 224, 224}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}};

struct FewChannels {
  Dims x, w;
  ConvOptions options = {};
};

// fprop of few input channels; with relu(2 x) before it, and bias, relu and residual behind it.
inline Graph few_channels(const FewChannels& c, Layout layout, bool fused, DataType type = DataType::f16) {
  GraphBuilder g("few channels", type == DataType::f32 ? Precision::allow_tf32 : Precision::exact);
  Tensor x = g.input("x", c.x, type, layout);
  if (fused) x = g.relu(g.mul(x, g.constant(2)), {.type = type});
  Tensor y = g.conv_fprop(x, g.input("w", c.w, type, layout), c.options);
  if (fused) {
    y = g.relu(g.add(y, g.input("bias", test::channel_dims(c.x.rank(), c.w[0]), type)));
    y = g.add(y, g.input("residual", y.dims, type));
  }
  g.output(y, {.name = "y", .type = type == DataType::i8 ? DataType::i32 : type, .layout = layout});
  return g.finish();
}

inline const FewChannels kStemForward{
    {128, 3, 224, 224}, {64, 3, 7, 7}, {.padding = {3, 3}, .stride = {2, 2}}};

// wgrad; with 0.5 * relu(dw) + decay * w behind it.
inline Graph strided_wgrad(const FewChannels& c, Layout layout, bool fused, DataType type = DataType::f32) {
  GraphBuilder g("strided wgrad", type == DataType::f32 ? Precision::allow_tf32 : Precision::exact);
  const Tensor dy = g.input("dy", test::conv_output_dims(c.x, c.w, c.options), type, layout);
  const Tensor x = g.input("x", c.x, type, layout);
  Tensor dw = g.conv_wgrad(dy, x, c.w, c.options);
  if (fused) dw = g.add(g.mul(g.relu(dw), g.constant(0.5)), g.input("w", c.w, type, layout));
  g.output(dw, {.name = "dw", .type = type == DataType::i8 ? DataType::i32 : type, .layout = layout});
  return g.finish();
}

}  // namespace fusor::repacked
