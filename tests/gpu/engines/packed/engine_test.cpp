// Owns the tests of packed types on the GPU: every odd alignment written and read, exact; and whatever loads
// them against the oracle.
#include <gtest/gtest.h>

#include "tests/gpu/device_run.h"
#include "tests/support/packed_graphs.h"

namespace fusor {
namespace {

using test::kPackedTypes;

constexpr int64_t kGuard = 512;  // of DeviceRun's buffers

void expect_exact(const Graph& graph, double scale) {
  DeviceRun run(graph);
  run.run();
  EXPECT_TRUE(run.gaps_are_untouched());
  const auto tensor = [&](const char* name) { return graph.tensors[static_cast<size_t>(graph.find(name))]; };
  test::expect_scaled(tensor("x"), run.host("x").data() + kGuard, tensor("y"), run.host("y").data() + kGuard,
                      scale);
}

TEST(PackedGpu, EveryOddAlignmentIsWritten) {
  FUSOR_NEEDS_GPU();
  test::for_each_alignment([](DataType type, const Dims& dims, const Strides& strides) {
    expect_exact(test::doubled(type, dims, strides), 2);
  });
}

TEST(PackedGpu, EveryOddAlignmentIsRead) {
  FUSOR_NEEDS_GPU();
  test::for_each_alignment([](DataType type, const Dims& dims, const Strides& strides) {
    expect_exact(test::moved(type, dims, strides, packed_strides(dims)), 1);
  });
}

TEST(PackedGpu, EveryCandidateStoresLongRows) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t n : {4096, 4098, 4099})
      expect_every_candidate_correct(test::doubled(type, {37, n}, {n, 1}), "rows");
}

// Rows that begin within bytes, and end there: vectors within a row, bytes at its ends; far apart, too.
TEST(PackedGpu, MasksOfOddRowsAreStoredInVectors) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const auto& [dims, strides] : {std::pair(Dims{33, 1001}, Strides{1001, 1}),
                                        {Dims{33, 1001}, Strides{1, 33}},
                                        {Dims{3, 17, 131}, Strides{17 * 133, 133, 1}},
                                        {Dims{3, 17, 131}, Strides{131, 3 * 131, 1}},
                                        {Dims{5, 131}, Strides{4001, 1}}}) {
      GraphBuilder g("mask");
      const Tensor x = g.input("x", dims, DataType::i8);
      const int64_t last = dims.rank() - 1;
      const Tensor row = g.gen_index(x, last - 1, {.compute = DataType::i32});
      const Tensor column = g.gen_index(x, last, {.compute = DataType::i32});
      const Tensor bias =
          g.input("bias", dims.rank() == 2 ? Dims{1, dims[1]} : Dims{1, 1, dims[2]}, DataType::i8);
      const Tensor sum = g.add(g.add(x, bias, {.compute = DataType::i32}),
                               g.cmp_ge(row, column, {.compute = DataType::i32}), {.compute = DataType::i32});
      g.output(sum, {.name = "y", .type = type, .strides = strides});
      expect_every_candidate_correct(g.finish(), fmt::format("{} {}", to_string(type), to_string(dims)));
    }
}

TEST(PackedGpu, SlicesBeginWithinBytes) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (int64_t start = 0; start < 9; ++start) {
      GraphBuilder g("slice");
      const Tensor x = g.input("x", {3, 64}, type);
      g.output(g.identity(g.slice(x, {1, start}, {3, start + 48})), {.type = DataType::f32});
      expect_correct(g.finish(), fmt::format("{} from {}", to_string(type), start));
    }
}

TEST(PackedGpu, PartsOfAConcatenationShareBytes) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes) {
    GraphBuilder g("concatenate");
    const Tensor a = g.input("a", {33, 5}, type), b = g.input("b", {33, 2}, type);
    g.output(g.concatenate({a, b}, 1), {.type = type});
    expect_correct(g.finish(), std::string(to_string(type)));
  }
}

TEST(PackedGpu, ContractionsReadAndWriteThem) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::f4_e2m1, DataType::i4})
    for (const int64_t n : {128, 129}) {
      GraphBuilder g("matmul");
      const Tensor a = g.input("a", {65, 96}, type), b = g.input("b", {96, n}, type);
      g.output(g.matmul(a, b), {.type = type});
      expect_every_candidate_correct(g.finish(), fmt::format("{} x {}", to_string(type), n));
    }
}

TEST(PackedGpu, WeightsAreReadByTheMatmul) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t n : {256, 257})
      for (const bool across : {false, true}) {
        GraphBuilder g("weights");
        const Tensor a = g.input("a", {48, 512}, DataType::f16);
        const Strides strides = across ? Strides{1, 512} : Strides{n, 1};
        const Tensor w = g.input("w", {512, n}, type, {.strides = strides});
        const Tensor scale = g.input("scale", {1, n}, DataType::f16);
        g.output(g.matmul(a, g.mul(w, scale, {.type = DataType::f16})));
        expect_every_candidate_correct(g.finish(), fmt::format("{} x {} {}", to_string(type), n, across));
      }
}

TEST(PackedGpu, RowsAndTotalsReadThem) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t n : {512, 513}) {
      GraphBuilder g("rows");
      g.output(g.softmax(g.input("x", {67, n}, type)).y, {.type = DataType::f32});
      expect_every_candidate_correct(g.finish(), fmt::format("softmax {} x {}", to_string(type), n));
      for (const int64_t axis : {0, 1}) {
        GraphBuilder s("sums");
        s.output(s.reduce(s.input("x", {67, n}, type), ReductionMode::add, {axis}), {.type = DataType::i32});
        expect_correct(s.finish(), fmt::format("sum {} x {} axis {}", to_string(type), n, axis));
      }
    }
}

TEST(PackedGpu, AttentionIsGivenThemUnpacked) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t keys : {256, 131}) {
      GraphBuilder g("attention");
      const Tensor q = g.input("q", {2, 4, 192, 64}, DataType::bf16);
      const Tensor k = g.input("k", {2, 4, keys, 64}, DataType::bf16);
      const Tensor v = g.input("v", {2, 4, keys, 64}, DataType::bf16);
      const Tensor bias = g.input("bias", {1, 1, 192, keys}, type);
      g.output(g.sdpa_fwd(q, k, v, {.attributes = {.attn_scale = 0.125}, .bias = bias}).o);
      expect_correct(g.finish(), fmt::format("{} of {} keys", to_string(type), keys));
    }
}

TEST(PackedGpu, RowsStoreThem) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : kPackedTypes)
    for (const int64_t n : {16, 64, 66, 72, 65, 1024, 4104, 20000})
      expect_every_candidate_correct(test::quantised(type, {67, n}),
                                     fmt::format("{} x {}", to_string(type), n));
}

TEST(PackedGpu, BlocksWithScalesGoThereAndBack) {
  FUSOR_NEEDS_GPU();
  for (const int64_t n : {512, 528, 520}) {
    GraphBuilder g("nvfp4");
    const Tensor x = g.input("x", {65, n}, DataType::bf16);
    const BlockScaleOptions options{
        .block_size = 16, .axis = 1, .y_type = DataType::f4_e2m1, .scale_type = DataType::f8_e4m3};
    const BlockScaleResults q = g.block_scale_quantize(x, options);
    g.output(q.y, {.name = "y"});
    g.output(q.scale, {.name = "scale"});
    expect_correct(g.finish(), fmt::format("quantise {}", n));
    GraphBuilder d("back");
    const Tensor y = d.input("y", {65, n}, DataType::f4_e2m1);
    const Tensor scale = d.input("scale", {65, (n + 15) / 16}, DataType::f8_e4m3);
    d.output(d.block_scale_dequantize(y, scale, options), {.type = DataType::bf16});
    expect_correct(d.finish(), fmt::format("dequantise {}", n));
  }
}

}  // namespace
}  // namespace fusor
