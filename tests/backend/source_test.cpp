// Owns the tests of source(): the text of each kernel compiles alone, with the options that it prints.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/engines/list.h"
#include "backend/planning.h"
#include "codegen/nvrtc.h"
#include "core/error.h"
#include "frontend/graph_builder.h"
#include "tests/codegen/temporary_folder.h"
#include "tests/support/attention_graph.h"
#include "tests/support/latent_attention.h"

namespace fusor {
namespace {

using testing::HasSubstr;

// One kernel of what source() printed.
struct Printed {
  std::string text;
  std::vector<std::string> options;
};

std::vector<Printed> split(const std::string& all) {
  std::vector<Printed> kernels;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("// kernel '")) kernels.emplace_back();
    constexpr std::string_view kCommand = "// compile alone: nvcc -x cu -cubin ";
    if (line.starts_with(kCommand)) {
      std::istringstream words(line.substr(kCommand.size()));
      for (std::string word; words >> word && word != "kernel.cu";) kernels.back().options.push_back(word);
    }
    kernels.back().text += line + "\n";
  }
  return kernels;
}

Graph convolution(Layout layout) {
  GraphBuilder g("convolution");
  const Tensor x = g.input("x", {2, 64, 28, 28}, DataType::f16, layout);
  const Tensor w = g.input("w", {64, 64, 3, 3}, DataType::f16, layout);
  g.output(g.relu(g.conv_fprop(x, w, {.padding = {1, 1}})), {.layout = layout});
  return g.finish();
}

Graph matmul(int64_t m, int64_t n, int64_t k, DataType type = DataType::bf16) {
  GraphBuilder g("matmul");
  g.output(g.gelu(g.matmul(g.input("a", {m, k}, type), g.input("b", {k, n}, type))), {.type = type});
  return g.finish();
}

// The weights are widened on their way to the tensor cores.
Graph dequantised(int64_t rows) {
  GraphBuilder g("dequantised");
  const Tensor w = g.input("w", {512, 512}, DataType::i8);
  const Tensor b = g.mul(w, g.input("s", {1, 512}, DataType::bf16), {.type = DataType::bf16});
  g.output(g.matmul(g.input("a", {rows, 512}, DataType::bf16), b), {.type = DataType::bf16});
  return g.finish();
}

Graph grouped() {
  GraphBuilder g("grouped");
  const Tensor x = g.input("x", {2, 96, 20, 18}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {96, 24, 3, 3}, DataType::f16, Layout::nhwc);
  g.output(g.conv_fprop(x, w, {.padding = {1, 1}}),
           {.name = "y", .type = DataType::f16, .layout = Layout::nhwc});
  return g.finish();
}

Graph depthwise(Layout layout) {
  GraphBuilder g("depthwise");
  const Tensor x = g.input("x", {4, 64, 28, 28}, DataType::f16, layout);
  const Tensor w = g.input("w", {64, 1, 3, 3}, DataType::f16);
  g.output(g.conv_fprop(x, w, {.padding = {1, 1}}), {.layout = layout});
  return g.finish();
}

Graph stem() {
  GraphBuilder g("stem");
  const Tensor x = g.input("x", {4, 3, 64, 64}, DataType::f16, Layout::nhwc);
  const Tensor w = g.input("w", {64, 3, 7, 7}, DataType::f16, Layout::nhwc);
  g.output(g.conv_fprop(x, w, {.padding = {3, 3}, .stride = {2, 2}}), {.layout = Layout::nhwc});
  return g.finish();
}

Graph filter_gradient() {
  GraphBuilder g("filter gradient", Precision::allow_tf32);
  const Tensor dy = g.input("dy", {2, 64, 14, 14}, DataType::f32);
  const Tensor x = g.input("x", {2, 64, 14, 14}, DataType::f32);
  g.output(g.conv_wgrad(dy, x, {64, 64, 3, 3}, {.padding = {1, 1}}), {.layout = Layout::nchw});
  return g.finish();
}

Graph pool() {
  GraphBuilder g("pool");
  const Tensor x = g.input("x", {2, 64, 14, 14}, DataType::f16);
  const ResampleOptions options{.mode = ResampleMode::maxpool, .window = {3, 3}, .stride = {2, 2}};
  g.output(g.resample_fwd(x, options).y, {.name = "y"});
  return g.finish();
}

Graph chain() {
  GraphBuilder g("chain");
  const Tensor x = g.input("x", {512, 256}, DataType::f32);
  const Tensor y = g.exp(g.add(x, g.input("b", {1, 256}, DataType::f32)));
  g.output(y, {.name = "y"});
  g.output(g.reduce(y, ReductionMode::add, {1}), {.name = "sums"});
  return g.finish();
}

// The sums of dy o come from elsewhere, so that one engine takes the graph whole.
Graph attention_gradients() {
  test::AttentionBackwardGraph graph({});
  GraphBuilder& g = graph.g;
  const Dims rows = {1, 1, graph.c.queries, 1};
  graph.probability = g.exp(g.sub(graph.score, g.input("stats", rows, DataType::f32)));
  const Tensor change = g.matmul(graph.dy, graph.transposed(graph.v));
  graph.gradient = g.mul(graph.probability, g.sub(change, g.input("delta", rows, DataType::f32)));
  return graph.finish();
}

// What the engine alone makes of the graph on an H200; nothing where it does not take it whole.
std::string printed(const Engine& engine, const Graph& graph) {
  const std::array<const Engine*, 1> list{&engine};
  try {
    return source(
        build(graph, DeviceInfo::named("H200"), {.build = {.compile = false}, .engine_list = list}));
  } catch (const Error&) {
    return {};
  }
}

Graph quantised() {
  GraphBuilder g("quantised");
  g.output(g.relu(g.input("x", {64, 64}, DataType::f16)), {.type = DataType::i4});
  return g.finish();
}

Graph steps() {
  GraphBuilder g("steps");
  Recurrence op;
  op.hidden_size = 40;
  const Tensor given = g.input("given", {5, 20, 160}, DataType::f16);
  const std::vector<Tensor> made =
      g.op(Attributes(op), std::vector{given, g.input("weights", {160, 40}, DataType::f16)});
  g.output(made[0], {.name = "states", .type = DataType::f16});
  return g.finish();
}

std::vector<Graph> graphs() {
  return {convolution(Layout::nhwc),
          convolution(Layout::nchw),
          matmul(512, 512, 512),
          dequantised(512),
          dequantised(16),
          depthwise(Layout::nhwc),
          grouped(),
          stem(),
          matmul(512, 512, 512, DataType::f32),
          matmul(37, 41, 43),
          matmul(4096, 40, 24),
          chain(),
          test::attention({}),
          test::latent_attention({}),
          attention_gradients(),
          depthwise(Layout::nchw),
          filter_gradient(),
          pool(),
          steps(),
          quantised()};
}

TEST(Source, NchwConvolutionNamesItsScratch) {
  const std::string text = printed(wgmma_repacked_engine(), convolution(Layout::nchw));
  EXPECT_THAT(text, HasSubstr("// scratch"));
  EXPECT_THAT(text, HasSubstr("// x"));
}

TEST(Source, ThePrintedOptionsKeepMultiplicationsAndAdditionsApart) {
  const std::vector<Printed> kernels =
      split(source(build(matmul(512, 512, 512), DeviceInfo::named("H200"), {.compile = false})));
  EXPECT_THAT(kernels.at(0).options, testing::Contains("--fmad=false"));
  EXPECT_THAT(kernels.at(0).options, testing::Contains("--gpu-architecture=sm_90a"));
}

TEST(Source, OneKernelOfEachEngineCompilesAlone) {
  std::string problem;
  if (!nvrtc::available(&problem)) GTEST_SKIP() << problem;
  for (const Engine* engine : engines()) {
    if (engine->name() == "cpu") continue;
    int compiled = 0;
    for (const Graph& graph : graphs()) {
      const std::string text = printed(*engine, graph);
      if (text.empty()) continue;
      SCOPED_TRACE(std::string(engine->name()) + " " + graph.name);
      for (const Printed& kernel : split(text)) {
        ++compiled;
        EXPECT_FALSE(nvrtc::compile_alone(kernel.text, kernel.options).cubin.empty());
      }
      if (engine->name() != "wgmma") break;
    }
    EXPECT_GT(compiled, 0) << "no graph here is taken by " << engine->name();
  }
}

TEST(Source, APrintedCommandIsTakenByNvcc) {
  if (std::system("nvcc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no nvcc";
  const test::TemporaryFolder folder;
  const Printed kernel = split(printed(wgmma_engine(), matmul(512, 512, 512))).at(0);
  std::ofstream(folder.path() / "kernel.cu") << kernel.text;
  std::string command = "cd " + folder.path().string() + " && nvcc -x cu -cubin";
  for (const std::string& option : kernel.options) command += " " + option;
  EXPECT_EQ(std::system((command + " kernel.cu > log 2>&1").c_str()), 0)
      << test::read_file(folder.path() / "log");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "kernel.cubin"));
}

}  // namespace
}  // namespace fusor
