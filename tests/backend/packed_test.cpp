// Tests packed types (int4, fp4_e2m1, bool1) through whole graphs: every odd alignment on the CPU device, how
// they are planned for a GPU, and what no packed element may do.
#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/executable.h"
#include "backend/planning.h"
#include "core/error.h"
#include "serialization/serialization.h"
#include "tests/backend/cpu_run.h"
#include "tests/support/packed_graphs.h"

namespace fusor {
namespace {

using test::kPackedTypes;
using testing::Contains;
using testing::ElementsAre;

const Tensor& named(const Graph& graph, const char* name) {
  return graph.tensors[static_cast<size_t>(graph.find(name))];
}

void expect_exact(const Graph& graph, double scale) {
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  test::expect_scaled(named(graph, "x"), tensors.pointers()[static_cast<size_t>(graph.find("x"))],
                      named(graph, "y"), tensors.pointers()[static_cast<size_t>(graph.find("y"))], scale);
}

std::vector<std::string> engines_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const PlannedFusion& fusion : build(graph, DeviceInfo::named("H200")).fusions)
    names.push_back(fusion.config.engine);
  return names;
}

TEST(Packed, EveryOddAlignmentIsWritten) {
  test::for_each_alignment([](DataType type, const Dims& dims, const Strides& strides) {
    expect_exact(test::doubled(type, dims, strides), 2);
  });
}

TEST(Packed, EveryOddAlignmentIsRead) {
  test::for_each_alignment([](DataType type, const Dims& dims, const Strides& strides) {
    expect_exact(test::moved(type, dims, strides, packed_strides(dims)), 1);
  });
}

// Blocks of several threads end within bytes.
TEST(Packed, ThreadsShareTheBytesOfLongRows) {
  for (const DataType type : kPackedTypes) expect_exact(test::doubled(type, {7, 5003}, {5003, 1}), 2);
}

// Views move the first element to any place in a byte.
TEST(Packed, SlicesBeginWithinBytes) {
  for (const DataType type : kPackedTypes)
    for (int64_t start = 0; start < 9; ++start) {
      GraphBuilder g;
      const Tensor x = g.input("x", {3, 23}, type);
      g.output(g.identity(g.slice(x, {1, start}, {3, start + 11})), {.name = "y", .type = DataType::f32});
      const Graph graph = g.finish();
      HostTensors tensors(graph);
      run_on_cpu(graph, tensors);
      const void* const ys = tensors.pointers()[static_cast<size_t>(graph.find("y"))];
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t column = 0; column < 11; ++column)
          EXPECT_EQ(load_real(DataType::f32, ys, 11 * row + column),
                    load_real(type, tensors.pointers()[0], 23 * (row + 1) + start + column));
    }
}

TEST(Packed, PartsOfAConcatenationShareBytes) {
  for (const DataType type : kPackedTypes) {
    GraphBuilder g;
    const Tensor a = g.input("a", {3, 5}, type), b = g.input("b", {3, 2}, type);
    g.output(g.concatenate({a, b}, 1), {.name = "y", .type = type});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    run_on_cpu(graph, tensors);
    for (int64_t i = 0; i < 21; ++i)
      EXPECT_EQ(load_real(type, tensors.pointers()[2], i),
                i % 7 < 5 ? load_real(type, tensors.pointers()[0], i / 7 * 5 + i % 7)
                          : load_real(type, tensors.pointers()[1], i / 7 * 2 + i % 7 - 5));
    EXPECT_EQ(engines_of(graph).back(), "packed");
  }
}

// A virtual tensor rounds; in memory its elements have bytes of their own.
TEST(Packed, VirtualTensorsRoundAndHaveWholeBytes) {
  GraphBuilder g;
  const Tensor x = g.input("x", {7, 33}, DataType::f32);
  const Tensor rounded = g.mul(x, g.constant(7.0), {.type = DataType::f4_e2m1});
  EXPECT_EQ(rounded.bytes(), 7 * 33);
  g.output(g.identity(rounded), {.name = "y", .type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  const int at = graph.find("x"), to = graph.find("y");
  for (int64_t i = 0; i < 7 * 33; ++i) {
    const auto scaled =
        static_cast<float>(load_real(DataType::f32, tensors.pointers()[static_cast<size_t>(at)], i)) * 7.0f;
    EXPECT_EQ(load_real(DataType::f32, tensors.pointers()[static_cast<size_t>(to)], i),
              round_to(DataType::f4_e2m1, double{scaled}));
  }
}

// A verify that takes any element for right would find nothing: quantised blocks are held to one step.
TEST(Packed, BlocksAreVerifiedToOneStep) {
  GraphBuilder g;
  const Tensor x = g.input("x", {4, 32}, DataType::f32);
  const BlockScaleResults q = g.block_scale_quantize(
      x, {.block_size = 16, .axis = 1, .y_type = DataType::f4_e2m1, .scale_type = DataType::f8_e4m3});
  const Tensor y = g.output(q.y, {.name = "y"});
  g.output(q.scale, {.name = "scale"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  std::vector<double> xs(128, 6);
  xs[0] = 2;
  tensors.set(x, xs);
  run_on_cpu(graph, tensors);
  std::vector<double> ys = tensors.get(y);
  EXPECT_EQ(ys[0], 2);
  for (const auto& [got, right] : {std::pair(3.0, true), {4.0, false}, {-2.0, false}}) {
    ys[0] = got;
    tensors.set(y, ys);
    EXPECT_EQ(verify(graph, tensors.pointers()).passed(), right) << got;
  }
}

// Contractions of four-bit operands and results: exact in integers.
TEST(Packed, ContractionsReadAndWriteThem) {
  GraphBuilder g;
  const Tensor a = g.input("a", {5, 9}, DataType::i4), b = g.input("b", {9, 7}, DataType::i4);
  g.output(g.matmul(a, b), {.name = "y", .type = DataType::i4});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 7; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < 9; ++k)
        sum += load_int(DataType::i4, tensors.pointers()[0], 9 * i + k) *
               load_int(DataType::i4, tensors.pointers()[1], 7 * k + j);
      EXPECT_EQ(load_int(DataType::i4, tensors.pointers()[2], 7 * i + j), std::clamp<int64_t>(sum, -8, 7));
    }
  EXPECT_THAT(engines_of(graph), Contains("packed"));
}

TEST(Packed, ReductionsReadAndWriteThem) {
  for (const int64_t axis : {0, 1}) {
    GraphBuilder g;
    const Tensor x = g.input("x", {9, 11}, DataType::i4);
    g.output(g.reduce(x, ReductionMode::add, {axis}), {.name = "y", .type = DataType::i4});
    const Graph graph = g.finish();
    HostTensors tensors(graph);
    run_on_cpu(graph, tensors);
    for (int64_t i = 0; i < (axis == 0 ? 11 : 9); ++i) {
      int64_t sum = 0;
      for (int64_t k = 0; k < (axis == 0 ? 9 : 11); ++k)
        sum += load_int(DataType::i4, tensors.pointers()[0], axis == 0 ? 11 * k + i : 11 * i + k);
      EXPECT_EQ(load_int(DataType::i4, tensors.pointers()[1], i), std::clamp<int64_t>(sum, -8, 7));
    }
  }
}

// The samples of a large graph are rounded as the elements of a small one that is evaluated whole.
TEST(Packed, SamplesAreRounded) {
  GraphBuilder g;
  const Tensor a = g.input("a", {5, 9}, DataType::i4), b = g.input("b", {9, 7}, DataType::i4);
  const Tensor product = g.matmul(a, b, {.type = DataType::i4});
  const Tensor sum = g.reduce(g.mul(product, product), ReductionMode::add, {1}, {.type = DataType::i4});
  g.output(g.identity(sum), {.name = "y", .type = DataType::f32});
  g.output(g.neg(product), {.name = "z", .type = DataType::f4_e2m1});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  for (const char* name : {"y", "z"}) {
    const int at = graph.find(name);
    const Tensor& y = graph.tensors[static_cast<size_t>(at)];
    std::vector<int64_t> all;
    for (int64_t i = 0; i < element_count(y.dims); ++i) all.push_back(i);
    const std::vector<double> sample = evaluate_sample(graph, tensors.pointers(), at, all);
    for (const int64_t i : all)
      EXPECT_EQ(sample[static_cast<size_t>(i)],
                load_real(y.type, tensors.pointers()[static_cast<size_t>(at)], i))
          << name << " " << i;
  }
}

TEST(Packed, WeightsAreReadByTheMatmul) {
  GraphBuilder g;
  const Tensor a = g.input("a", {64, 256}, DataType::f16), w = g.input("w", {256, 128}, DataType::i4);
  const Tensor scale = g.input("scale", {1, 128}, DataType::f16);
  g.output(g.matmul(a, g.mul(w, scale, {.type = DataType::f16})));
  EXPECT_THAT(engines_of(g.finish()), ElementsAre("mma"));
}

// Attention whose mask or bias has elements that share bytes stays one kernel, behind one that unpacks them.
TEST(Packed, MasksOfAttentionAreUnpackedInFront) {
  for (const DataType type : kPackedTypes)
    for (const bool moved : {false, true}) {
      const auto attention = [&](DataType bias_type) {
        GraphBuilder g;
        const Dims dims{1, 4, 256, 64};
        const Tensor q = g.input("q", dims, DataType::bf16), k = g.input("k", dims, DataType::bf16),
                     v = g.input("v", dims, DataType::bf16);
        const Dims all = moved ? Dims{1, 1, 256, 300} : Dims{1, 1, 256, 256};
        Tensor bias = g.input("bias", all, bias_type);
        if (moved) bias = g.transpose(g.slice(bias, {0, 0, 0, 3}, {1, 1, 256, 259}), {0, 1, 3, 2});
        g.output(g.sdpa_fwd(q, k, v, {.attributes = {.attn_scale = 0.125}, .bias = bias}).o, {.name = "o"});
        return g.finish();
      };
      const Graph graph = attention(type);
      EXPECT_THAT(engines_of(graph), ElementsAre("elementwise", "attention")) << to_string(type) << moved;
      const Graph unpacked_graph = attention(unpacked(type));
      HostTensors bits(graph), bytes(unpacked_graph);
      run_on_cpu(graph, bits);
      const Tensor &from = named(graph, "bias"), &o = named(graph, "o");
      for (const char* name : {"q", "k", "v"}) bytes.set(named(graph, name), bits.get(named(graph, name)));
      bytes.set(named(unpacked_graph, "bias"), bits.get(from));
      run_on_cpu(unpacked_graph, bytes);
      EXPECT_EQ(bits.get(o), bytes.get(named(unpacked_graph, "o")));
    }
}

// Gradients, too.
TEST(Packed, MasksOfGradientsAreUnpackedInFront) {
  GraphBuilder g;
  const Dims dims{1, 4, 256, 64};
  const auto input = [&](const char* name) { return g.input(name, dims, DataType::bf16); };
  const Tensor q = input("q"), k = input("k"), v = input("v"), o = input("o"), d_o = input("d_o");
  const Tensor stats = g.input("stats", {1, 4, 256, 1}, DataType::f32);
  const Tensor bias = g.input("bias", {1, 1, 256, 256}, DataType::i4);
  const auto gradients =
      g.sdpa_bwd(q, k, v, o, d_o, stats, {.attributes = {.attn_scale = 0.125}, .bias = bias});
  g.output(gradients.dq, {.name = "dq"});
  g.output(gradients.dk, {.name = "dk"});
  g.output(gradients.dv, {.name = "dv"});
  EXPECT_THAT(engines_of(g.finish()), Contains("attention_backward"));
}

TEST(Packed, BlocksOfSixteenWithScales) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 64}, DataType::bf16);
  const BlockScaleResults q = g.block_scale_quantize(
      x, {.block_size = 16, .axis = 1, .y_type = DataType::f4_e2m1, .scale_type = DataType::f8_e4m3});
  g.output(q.y, {.name = "y"});
  g.output(q.scale, {.name = "scale"});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  const auto value = [&](const char* name, int64_t i) {
    const int at = graph.find(name);
    return load_real(graph.tensors[static_cast<size_t>(at)].type, tensors.pointers()[static_cast<size_t>(at)],
                     i);
  };
  EXPECT_EQ(named(graph, "y").bytes(), 6 * 32);
  EXPECT_THAT(engines_of(graph), ElementsAre("rows"));
  for (int64_t block = 0; block < 24; ++block) {
    double largest = 0;
    for (int64_t i = 0; i < 16; ++i) largest = std::max(largest, std::abs(value("x", 16 * block + i)));
    const double scale = round_to(DataType::f8_e4m3, static_cast<double>(static_cast<float>(largest) / 6.0f));
    EXPECT_EQ(value("scale", block), scale);
    for (int64_t i = 16 * block; i < 16 * block + 16; ++i)
      EXPECT_EQ(value("y", i),
                round_to(DataType::f4_e2m1,
                         static_cast<double>(static_cast<float>(value("x", i)) / static_cast<float>(scale))));
  }
}

TEST(Packed, GraphsAreWrittenToFilesAndRead) {
  for (const DataType type : kPackedTypes) {
    const Graph graph = test::doubled(type, {3, 5}, {5, 1});
    EXPECT_EQ(graph_from_json(to_json(graph)).tensors, graph.tensors);
  }
}

// Whole bytes leave the kernel of rows; where rows begin within bytes, a kernel of their own stores them.
TEST(Packed, ResultsAreStoredWhereTheirBytesAreWhole) {
  for (const DataType type : kPackedTypes) {
    EXPECT_THAT(engines_of(test::doubled(type, {3, 5}, {5, 1})), ElementsAre("packed"));
    EXPECT_THAT(engines_of(test::quantised(type, {512, 256})), ElementsAre("rows"));
    EXPECT_EQ(engines_of(test::quantised(type, {512, 257})).back(), "packed");
  }
}

TEST(Packed, RowsAreQuantised) {
  for (const DataType type : kPackedTypes)
    for (const int64_t n : {64, 65}) {
      const Graph graph = test::quantised(type, {9, n});
      HostTensors tensors(graph);
      run_on_cpu(graph, tensors);
    }
}

}  // namespace
}  // namespace fusor
