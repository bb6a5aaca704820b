// Owns the GPU tests of matmuls on the wgmma engine over several batch axes, which operands share or lie
// along in orders of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/gpu/engines/sm90/wgmma/cases.h"
#include "tests/gpu/same_bits.h"
#include "tests/support/batched_matmul.h"

namespace fusor {
namespace {

using namespace wgmma_cases;
using test::batched_matmuls;
using test::BatchedMatmul;
using test::Lie;

constexpr DataType kBf16 = DataType::bf16, kF16 = DataType::f16, kF32 = DataType::f32;

// Whole tiles, tails, few rows and few columns; results whose lines TMA writes.
const std::array<Dims, 4> kMatrices{Dims{128, 128, 64}, Dims{257, 136, 200}, Dims{16, 520, 264},
                                    Dims{392, 24, 72}};

TEST(WgmmaBatchesGpu, HalvesOfEveryOrder) {
  FUSOR_NEEDS_HOPPER();
  for (const BatchedMatmul& c : batched_matmuls())
    for (const Dims& mnk : kMatrices)
      for (const DataType type : {kF16, kBf16})
        expect_every_config_correct(test::batched_matmul(c, mnk, type, type),
                                    fmt::format("{} {} {}", c.name, to_string(type), to_string(mnk)));
}

// Lines of 99 elements: those of the result are stored by threads, those of b along n are packed to the next
// multiple of 16 bytes.
TEST(WgmmaBatchesGpu, OddExtents) {
  FUSOR_NEEDS_HOPPER();
  for (const BatchedMatmul& c : batched_matmuls())
    for (const Dims& mnk : {Dims{131, 99, 75}, Dims{2, 33, 7}, Dims{5, 3, 130}})
      expect_every_config_correct(test::batched_matmul(c, mnk, kBf16, kF32),
                                  fmt::format("{} {}", c.name, to_string(mnk)));
}

// Matrices of one or two tiles and many steps, whose steps are split.
TEST(WgmmaBatchesGpu, PartsOfK) {
  FUSOR_NEEDS_HOPPER();
  for (const BatchedMatmul& c : batched_matmuls())
    expect_every_config_correct(test::batched_matmul(c, {72, 136, 2056}, kBf16, kBf16), c.name);
}

// 8-bit and 32-bit elements lie along k.
TEST(WgmmaBatchesGpu, BytesAndTf32) {
  FUSOR_NEEDS_HOPPER();
  const std::vector<BatchedMatmul> along_k{
      {"shared along k", {3, 5}, {}, {.shared = {0}, .order = {0, 1, 3, 2}}},
      {"permuted along k", {2, 3, 4}, {.order = {2, 3, 0, 1, 4}}, {.shared = {1}, .order = {2, 0, 1, 4, 3}}},
      {"heads last", {3, 5}, {.order = {0, 2, 1, 3}}, {.order = {0, 3, 1, 2}}, {.order = {0, 2, 1, 3}}}};
  for (const BatchedMatmul& c : along_k)
    for (const Dims& mnk : {Dims{128, 128, 128}, Dims{257, 136, 208}}) {
      for (const DataType type : {DataType::f8_e4m3, DataType::f8_e5m2})
        expect_every_config_correct(test::batched_matmul(c, mnk, type, kBf16, Precision::allow_short_sums),
                                    fmt::format("{} {} {}", c.name, to_string(type), to_string(mnk)));
      expect_every_config_correct(test::batched_matmul(c, mnk, kF32, kF32, Precision::allow_tf32),
                                  fmt::format("{} tf32 {}", c.name, to_string(mnk)));
    }
}

// Rows of TF32 from registers.
TEST(WgmmaBatchesGpu, Tf32AcrossK) {
  FUSOR_NEEDS_HOPPER();
  const BatchedMatmul c{"across k", {3, 5}, {.order = {0, 3, 1, 2}}, {.shared = {0}, .order = {0, 1, 3, 2}}};
  for (const Dims& mnk : {Dims{128, 128, 64}, Dims{260, 136, 200}})
    expect_every_config_correct(test::batched_matmul(c, mnk, kF32, kF32, Precision::allow_tf32),
                                to_string(mnk));
}

// A bias of the columns, a residual that lies as the result does or otherwise, and what is shared.
TEST(WgmmaBatchesGpu, Epilogues) {
  FUSOR_NEEDS_HOPPER();
  const Dims mnk{257, 136, 200};
  for (const BatchedMatmul& c : batched_matmuls())
    for (const bool as_result : {false, true}) {
      GraphBuilder g("epilogue");
      const Dims dims = test::over(c.batch, mnk[0], mnk[1], {});
      Tensor y = test::product(g, c, mnk, kBf16);
      y = g.add(y, g.input("bias", {1, mnk[1]}, kF32));
      y = g.gelu(g.add(y, test::laid_out(g, "residual", dims, kBf16, as_result ? c.y : Lie{})));
      const Lie once{.shared = {0}};
      y = g.mul(y, test::laid_out(g, "scale", test::over(c.batch, mnk[0], 1, once), kF32, once));
      test::store(g, y, c, mnk, kBf16);
      expect_every_config_correct(g.finish(), fmt::format("{} {}", c.name, as_result));
    }
}

// What is saved lies along the same axes by other strides; totals of rows and of columns.
TEST(WgmmaBatchesGpu, TwoResultsAndTotals) {
  FUSOR_NEEDS_HOPPER();
  const Dims mnk{257, 136, 72};
  for (const BatchedMatmul& c : batched_matmuls()) {
    GraphBuilder saved("saved");
    const Tensor sum = test::product(saved, c, mnk, kBf16);
    saved.output(sum, {.name = "saved", .type = kBf16});
    test::store(saved, saved.relu(sum), c, mnk, kBf16);
    expect_every_config_correct(saved.finish(), c.name + " saved");
    const int64_t rank = c.batch.rank();
    for (const int64_t axis : {rank, rank + 1}) {
      GraphBuilder g("totals");
      const Tensor y = test::product(g, c, mnk, kBf16);
      g.output(g.reduce(y, ReductionMode::add, {axis}), {.name = "sums", .type = kF32});
      test::store(g, y, c, mnk, kBf16);
      expect_every_config_correct(g.finish(), fmt::format("{} totals over {}", c.name, axis));
    }
  }
}

TEST(WgmmaBatchesGpu, GatedPairs) {
  FUSOR_NEEDS_HOPPER();
  for (const Lie& weights : {Lie{.shared = {0}}, Lie{.shared = {0}, .order = {0, 1, 3, 2}},
                             Lie{.shared = {1}}, Lie{.order = {1, 2, 0, 3}}})
    for (const Lie& result : {Lie{}, Lie{.order = {0, 2, 1, 3}}}) {
      const Dims batch{3, 5}, mnk{257, 136, 200};
      GraphBuilder g("gated");
      const Tensor x = test::laid_out(g, "x", test::over(batch, mnk[0], mnk[2], {}), kBf16, {});
      const auto of = [&](const char* name) {
        return g.matmul(x,
                        test::laid_out(g, name, test::over(batch, mnk[2], mnk[1], weights), kBf16, weights));
      };
      const Tensor gate = of("gate"), up = of("up");
      test::store(g, g.mul(g.swish(gate), up), {"", batch, {}, {}, result}, mnk, kBf16);
      expect_every_config_correct(g.finish(),
                                  fmt::format("{} {}", weights.shared.size(), result.order.size()));
    }
}

// Weights of 8 bits with a scale for each column of each head, which threads apply.
TEST(WgmmaBatchesGpu, Prologues) {
  FUSOR_NEEDS_HOPPER();
  for (const Lie& weights :
       {Lie{.shared = {0}}, Lie{.shared = {0}, .order = {0, 1, 3, 2}}, Lie{.order = {1, 0, 3, 2}}})
    for (const Lie& rows : {Lie{}, Lie{.order = {0, 2, 1, 3}}}) {
      const Dims batch{3, 5}, mnk{200, 136, 208};
      GraphBuilder g("prologue");
      const Tensor a = test::laid_out(g, "a", test::over(batch, mnk[0], mnk[2], rows), kBf16, rows);
      const Tensor b =
          test::laid_out(g, "b", test::over(batch, mnk[2], mnk[1], weights), DataType::i8, weights);
      const Tensor scale = g.input("scale", test::over(batch, 1, mnk[1], weights), kF32);
      const Tensor y = g.matmul(a, g.mul(b, scale, {.type = kBf16, .compute = kF32}));
      test::store(g, y, {"", batch, {}, {}, rows}, mnk, kBf16);
      expect_every_config_correct(g.finish(), fmt::format("{} {}", weights.order.size(), rows.order.size()));
    }
}

// Threads load a, whose lines are odd, beside weights of heads that TMA walks.
TEST(WgmmaBatchesGpu, BesideWhatThreadsLoad) {
  FUSOR_NEEDS_HOPPER();
  const BatchedMatmul c{"odd rows", {3, 5}, {.unit = 2}, {.shared = {0}}, {.order = {0, 2, 1, 3}}};
  for (const Dims& mnk : {Dims{257, 136, 71}, Dims{40, 264, 1001}})
    expect_every_config_correct(test::batched_matmul(c, mnk, kBf16, kBf16), to_string(mnk));
}

TEST(WgmmaBatchesGpu, ClustersShareWalkedOperands) {
  FUSOR_NEEDS_HOPPER();
  const BatchedMatmul c{"both", {2, 3}, {.shared = {1}}, {.shared = {0}}, {.order = {0, 2, 1, 3}}};
  const Graph graph = test::batched_matmul(c, {1032, 1040, 520}, kBf16, kBf16);
  for (const Candidate& candidate :
       candidates(graph, DeviceInfo::current(), PlannerOptions{.engine_list = kWgmmaOnly}))
    if (candidate.fusions.front().config.knob("cluster", 1) > 1)
      expect_config_correct(graph, candidate, kWgmmaOnly, "clusters");
}

TEST(WgmmaBatchesGpu, SameBitsInEveryRun) {
  FUSOR_NEEDS_HOPPER();
  const BatchedMatmul c{"heads", {8, 16}, {.order = {0, 2, 1, 3}}, {.shared = {0}}, {.order = {0, 2, 1, 3}}};
  expect_same_bits_of_every_config(test::batched_matmul(c, {512, 264, 128}, kBf16, kBf16), kWgmmaOnly);
}

// Entries that share weights, beside a gate for each of them and positions for all: tiles go across entries.
TEST(WgmmaBatchesGpu, RowsOfEntriesBesideGates) {
  FUSOR_NEEDS_HOPPER();
  for (const Dims& x : {Dims{3, 197, 136}, Dims{40, 16, 264}, Dims{2, 3, 50, 64}, Dims{5, 2, 3, 7, 72}})
    for (const int64_t columns : {136, 24})
      for (const bool transposed : {false, true}) {
        const int64_t k = x[x.rank() - 1];
        GraphBuilder g("gated rows");
        const Tensor w = transposed ? g.transpose(g.input("w", {columns, k}, kBf16), {1, 0})
                                    : g.input("w", {k, columns}, kBf16);
        Dims gate = Dims::filled(x.rank(), 1), positions = x, residual = x;
        gate[0] = x[0];
        positions[0] = 1;
        gate[x.rank() - 1] = positions[x.rank() - 1] = residual[x.rank() - 1] = columns;
        const Tensor y = g.mul(g.matmul(g.input("x", x, kBf16), w), g.input("gate", gate, kBf16));
        const Tensor z =
            g.add(g.add(y, g.input("positions", positions, kBf16)), g.input("residual", residual, kBf16));
        g.output(z, {.name = "z", .type = kBf16});
        expect_every_config_correct(g.finish(), fmt::format("{} {} {}", to_string(x), columns, transposed));
      }
}

}  // namespace
}  // namespace fusor
