// Tests attention beyond the golden cases: sinks, dropout, pages, block masks, rows without keys, and
// gradients against differences of the forward pass.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>

#include "serialization/serialization.h"
#include "tests/backend/cpu_run.h"
#include "tests/support/attention_graph.h"

namespace fusor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor real(GraphBuilder& g, const char* name, const Dims& dims) {
  return g.input(name, dims, DataType::f64);
}

// The operands that a case adds to the options.
using Configure = std::function<void(GraphBuilder&, SdpaOptions&)>;

struct Attention {
  const char* name;
  Dims q{2, 4, 5, 8}, k{2, 2, 7, 8}, v{2, 2, 7, 6};
  Configure configure = [](GraphBuilder&, SdpaOptions&) {};
};

void set_integers(const Graph& graph, HostTensors& tensors) {
  const auto set = [&](const char* name, const std::vector<double>& values) {
    if (const int found = graph.find(name); found >= 0)
      tensors.set(graph.tensors[static_cast<size_t>(found)], values);
  };
  set("seed", {42});
  set("offset", {7});
  set("seq_len_q", {3, 5});
  set("seq_len_kv", {7, 4});
}

class SdpaGradient : public testing::TestWithParam<Attention> {};

// The sum of o * weights, and of the gradients with do = weights.
TEST_P(SdpaGradient, IsTheSlopeOfTheForwardPass) {
  const Attention& attention = GetParam();
  GraphBuilder forward, backward;
  SdpaOptions options, of_backward;
  const Tensor q = real(forward, "q", attention.q), k = real(forward, "k", attention.k),
               v = real(forward, "v", attention.v);
  attention.configure(forward, options);
  const SdpaResults results = forward.sdpa_fwd(q, k, v, options);
  const Tensor o = forward.output(results.o), stats = forward.output(results.stats);
  const Graph up = forward.finish();
  HostTensors there(up);
  set_integers(up, there);
  run_on_cpu(up, there);

  const Tensor q2 = real(backward, "q", attention.q), k2 = real(backward, "k", attention.k),
               v2 = real(backward, "v", attention.v), o2 = real(backward, "o", o.dims),
               do2 = real(backward, "do", o.dims), stats2 = real(backward, "stats", stats.dims);
  attention.configure(backward, of_backward);
  const SdpaGradients gradients = backward.sdpa_bwd(q2, k2, v2, o2, do2, stats2, of_backward);
  std::vector<std::pair<const char*, Tensor>> slopes{{"q", backward.output(gradients.dq)},
                                                     {"k", backward.output(gradients.dk)},
                                                     {"v", backward.output(gradients.dv)}};
  if (up.find("bias") >= 0) slopes.emplace_back("bias", backward.output(gradients.dbias));
  if (up.find("sink") >= 0) slopes.emplace_back("sink", backward.output(gradients.dsink));
  const Graph down = backward.finish();
  HostTensors back(down);
  set_integers(down, back);
  for (const auto& tensor : up.tensors)
    if (const int found = down.find(tensor.name); found >= 0 && !tensor.is_virtual())
      back.set(down.tensors[static_cast<size_t>(found)], there.get(tensor));
  back.set(o2, there.get(o));
  back.set(stats2, there.get(stats));
  run_on_cpu(down, back);

  const auto weights = back.get(do2);
  for (const auto& [name, slope] : slopes) {
    const Tensor& input = up.tensors[static_cast<size_t>(up.find(name))];
    const auto got = back.get(slope);
    auto values = there.get(input);
    for (size_t at = 0; at < values.size(); at += 1 + values.size() / 5) {
      const auto shifted = [&](double by) {
        auto moved = values;
        moved[at] += by;
        there.set(input, moved);
        evaluate_graph(up, there.pointers());
        const auto out = there.get(o);
        double sum = 0;
        for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
        return sum;
      };
      EXPECT_NEAR(got[at], (shifted(1e-4) - shifted(-1e-4)) / 2e-4, 1e-6) << name << ' ' << at;
    }
    there.set(input, values);
  }
  for (const Graph& graph : {up, down}) {
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
    for (const DeviceInfo& device : DeviceInfo::profiles()) build(graph, device, {.compile = false});
  }
}

const Attention kAttentions[] = {
    {.name = "Grouped", .configure = [](GraphBuilder&, SdpaOptions& o) { o.attributes.right_bound = 0; }},
    {.name = "OneKeyHead", .k = {2, 1, 7, 8}, .v = {2, 1, 7, 6}},
    {.name = "UnlikeHeads", .k = {2, 2, 7, 8}, .v = {2, 1, 7, 6}},
    {.name = "Sink",
     .configure =
         [](GraphBuilder& g, SdpaOptions& o) {
           o.sink = real(g, "sink", {1, 4, 1, 1});
         }},
    {.name = "BiasOfGroups",
     .configure =
         [](GraphBuilder& g, SdpaOptions& o) {
           o.bias = real(g, "bias", {1, 4, 5, 7});
         }},
    {.name = "Dropout",
     .configure =
         [](GraphBuilder& g, SdpaOptions& o) {
           o.attributes.dropout_probability = 0.3;
           o.seed = g.input("seed", {1}, DataType::i64);
           o.offset = g.input("offset", {1}, DataType::i64);
         }},
    {.name = "LengthsBoundsAndSlopes",
     .q = {2, 6, 5, 8},
     .k = {2, 3, 7, 8},
     .v = {2, 3, 7, 6},
     .configure =
         [](GraphBuilder& g, SdpaOptions& o) {
           o.attributes.padding_mask = true;
           o.attributes.alibi_mask = true;
           o.attributes.diagonal_alignment = DiagonalAlignment::bottom_right;
           o.attributes.left_bound = 4;
           o.attributes.right_bound = 1;
           o.seq_len_q = g.input("seq_len_q", {2, 1, 1, 1}, DataType::i32);
           o.seq_len_kv = g.input("seq_len_kv", {2, 1, 1, 1}, DataType::i32);
         }},
};
INSTANTIATE_TEST_SUITE_P(Cases, SdpaGradient, testing::ValuesIn(kAttentions),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Sdpa, GivesZeroAndNoStatsToRowsWithoutKeys) {
  GraphBuilder g;
  const Tensor q = g.input("q", {1, 2, 6, 8}, DataType::f32), k = g.input("k", {1, 2, 3, 8}, DataType::f32);
  const SdpaResults all =
      g.sdpa_fwd(q, k, g.input("v", {1, 2, 3, 4}, DataType::f32), {.attributes = {.left_bound = 2}});
  const Tensor o = g.output(all.o), stats = g.output(all.stats), sum = g.output(all.sum_exp);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  // Queries 4 and 5 are more than two keys behind the last.
  for (size_t h = 0; h < 2; ++h)
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::isinf(tensors.get(stats)[h * 6 + i]), i > 3);
      EXPECT_EQ(tensors.get(sum)[h * 6 + i] == 0, i > 3);
      EXPECT_EQ(tensors.get(o)[(h * 6 + i) * 4] == 0, i > 3);
    }
}

TEST(Sdpa, ReadsPagesAsItReadsWholeKeys) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 2, 4, 8}, DataType::f32);
  const Tensor k = g.input("k", {6, 2, 4, 8}, DataType::f32), v = g.input("v", {6, 2, 4, 8}, DataType::f32);
  const Tensor table = g.input("table", {2, 1, 3, 1}, DataType::i32);
  const Tensor paged = g.output(
      g.sdpa_fwd(q, k, v,
                 {.attributes = {.max_seq_len_kv = 11}, .page_table_k = table, .page_table_v = table})
          .o);
  const Tensor whole_k = g.paged_cache_load(k, table, {.max_seq_len = 11});
  const Tensor whole = g.output(g.sdpa_fwd(q, whole_k, g.paged_cache_load(v, table, {.max_seq_len = 11})).o);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(table, {5, 1, 0, 2, 4, 3});
  run_on_cpu(graph, tensors);
  EXPECT_THAT(tensors.get(paged), testing::Pointwise(testing::DoubleNear(1e-6), tensors.get(whole)));
}

TEST(Sdpa, ReadsAllRowsOfItsPagesWhereNoneAreCounted) {
  GraphBuilder g;
  const Tensor q = g.input("q", {2, 1, 1, 4}, DataType::f32);
  const Tensor k = g.input("k", {2, 1, 3, 4}, DataType::f32), v = g.input("v", {2, 1, 3, 4}, DataType::f32);
  const Tensor table = g.input("table", {2, 1, 1, 1}, DataType::i32);
  const auto of = [&](int64_t keys) {
    return g.output(
        g.sdpa_fwd(q, k, v,
                   {.attributes = {.max_seq_len_kv = keys}, .page_table_k = table, .page_table_v = table})
            .o);
  };
  const Tensor all = of(0), counted = of(3);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(table, {1, 0});
  run_on_cpu(graph, tensors);
  EXPECT_EQ(tensors.get(all), tensors.get(counted));
}

const Tensor& tensor(const Graph& of, const char* name) {
  return of.tensors[static_cast<size_t>(of.find(name))];
}

// Six heads, of which three share keys: slopes are those of heads that have keys of their own.
TEST(Sdpa, AlibiSlopesAreThoseOfTheHeadsThatShareKeys) {
  constexpr int64_t kShared = 2, kShare = 3, kKeys = 7, kDepth = 8;
  const auto graph = [](int64_t heads_of_keys) {
    GraphBuilder g;
    const Tensor q = real(g, "q", {1, kShared * kShare, 5, kDepth}),
                 k = real(g, "k", {1, heads_of_keys, kKeys, kDepth}),
                 v = real(g, "v", {1, heads_of_keys, kKeys, kDepth});
    g.output(g.sdpa_fwd(q, k, v, {.attributes = {.alibi_mask = true}}).o, {.name = "o"});
    return g.finish();
  };
  const Graph shared = graph(kShared), whole = graph(kShared * kShare);
  HostTensors few(shared), many(whole);
  many.set(tensor(whole, "q"), few.get(tensor(shared, "q")));
  for (const char* name : {"k", "v"}) {
    const std::vector<double> from = few.get(tensor(shared, name));
    std::vector<double> repeated;
    for (int64_t head = 0; head < kShared * kShare; ++head) {
      const auto first = from.begin() + head / kShare * kKeys * kDepth;
      repeated.insert(repeated.end(), first, first + kKeys * kDepth);
    }
    many.set(tensor(whole, name), repeated);
  }
  run_on_cpu(shared, few);
  run_on_cpu(whole, many);
  EXPECT_THAT(few.get(tensor(shared, "o")),
              testing::Pointwise(testing::DoubleNear(1e-12), many.get(tensor(whole, "o"))));
}

TEST(Sdpa, SkipsMaskedBlocks) {
  GraphBuilder g;
  const Tensor q = g.input("q", {1, 1, 130, 8}, DataType::f32),
               k = g.input("k", {1, 1, 260, 8}, DataType::f32);
  const Tensor v = g.input("v", {1, 1, 260, 8}, DataType::f32);
  const Tensor blocks = g.input("blocks", {1, 1, 2, 3}, DataType::u8);
  const SdpaResults all = g.sdpa_fwd(q, k, v, {.block_mask = blocks});
  const Tensor stats = g.output(all.stats);
  const Tensor bounded = g.output(
      g.sdpa_fwd(q, g.slice(k, {0, 0, 0, 0}, {1, 1, 128, 8}), g.slice(v, {0, 0, 0, 0}, {1, 1, 128, 8}))
          .stats);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(blocks, {1, 0, 0, 0, 0, 0});
  run_on_cpu(graph, tensors);
  const auto got = tensors.get(stats), want = tensors.get(bounded);
  for (size_t i = 0; i < 128; ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  for (size_t i = 128; i < 130; ++i) EXPECT_EQ(got[i], -kInfinity);
}

// The same as a bias of -inf where a block is not set, with blocks that reach beyond the last query and key,
// for all heads and for each of a group.
TEST(Sdpa, BlockMasksHideWhatABiasWould) {
  for (const int64_t mask_heads : {1, 4}) {
    constexpr int64_t kQueries = 200, kKeys = 130;
    const test::AttentionCase c{1, 4, 2, kQueries, kKeys, 8, 8, test::Mask::none, DataType::f64};
    const Graph blocked = test::attention_and_gradients(c, {}, {}, {1, mask_heads, 2, 2}),
                biased = test::attention_and_gradients(c, {}, {1, mask_heads, kQueries, kKeys});
    HostTensors some(blocked), same(biased);
    std::vector<double> blocks, bias;
    for (int64_t i = 0; i < mask_heads * 4; ++i)
      blocks.push_back(i % 4 == 1 ? 0 : static_cast<double>(i + 1));
    for (int64_t head = 0; head < mask_heads; ++head)
      for (int64_t q = 0; q < kQueries; ++q)
        for (int64_t k = 0; k < kKeys; ++k)
          bias.push_back(blocks[static_cast<size_t>(head * 4 + q / 128 * 2 + k / 128)] != 0 ? 0 : -kInfinity);
    some.set(tensor(blocked, "blocks"), blocks);
    same.set(tensor(biased, "bias"), bias);
    for (const char* name : {"q", "k", "v", "dy"})
      same.set(tensor(biased, name), some.get(tensor(blocked, name)));
    run_on_cpu(blocked, some);
    run_on_cpu(biased, same);
    for (const char* name : {"o", "dq", "dk", "dv"})
      EXPECT_THAT(some.get(tensor(blocked, name)),
                  testing::Pointwise(testing::DoubleNear(1e-12), same.get(tensor(biased, name))))
          << name << ", heads of the mask: " << mask_heads;
  }
}

// What a gather or a view of computed values leaves is an operand: it is stored, scores are not.
TEST(Sdpa, ABlockMaskIsMadeInFrontOfOneKernel) {
  GraphBuilder g;
  const Dims rows{1, 2, 400, 64};
  const Tensor q = g.input("q", rows, DataType::bf16), k = g.input("k", rows, DataType::bf16),
               v = g.input("v", rows, DataType::bf16),
               blocks = g.input("blocks", {1, 1, 4, 4}, DataType::i32);
  const Graph graph = g.finish({g.sdpa_fwd(q, k, v, {.block_mask = blocks}).o});
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 2U);
  EXPECT_EQ(plan.fusions[1].config.engine, "attention");
  EXPECT_LE(plan.workspace_bytes, 512 * 512);
}

// A bias by relative position, as T5 has it: an embedding of the number of each query and key, with heads
// last. It is stored by heads, so that it comes to the kernel in boxes.
TEST(Sdpa, ABiasFromATableIsMadeInFrontOfOneKernel) {
  GraphBuilder g;
  const Dims rows{1, 2, 256, 64};
  const Tensor q = g.input("q", rows, DataType::bf16), k = g.input("k", rows, DataType::bf16),
               v = g.input("v", rows, DataType::bf16), table = g.input("table", {32, 2}, DataType::bf16),
               bucket = g.input("bucket", {256 * 256, 1}, DataType::i32);
  const Tensor bias = g.transpose(g.reshape(g.gather(table, bucket), {1, 256, 256, 2}), {0, 3, 1, 2});
  const Graph graph = g.finish({g.sdpa_fwd(q, k, v, {.bias = bias}).o});
  const Plan plan = build(graph, DeviceInfo::named("H200"), {.compile = false});
  ASSERT_EQ(plan.fusions.size(), 2U);
  EXPECT_EQ(plan.fusions[1].config.engine, "attention");
  EXPECT_NE(source(plan).find("has_matrix = true"), std::string::npos);
}

// The sums of o * do go apart from the forward pass at the reduction, not at its second product.
TEST(Sdpa, NoScoresAreWrittenBetweenTheForwardAndTheBackwardPass) {
  const test::AttentionCase c{1, 1, 1, 128, 128, 64, 64};
  const Plan plan = build(test::attention_and_gradients(c, {.attn_scale = 0.125}), DeviceInfo::named("H200"),
                          {.compile = false});
  std::vector<std::string> engines;
  for (const PlannedFusion& fusion : plan.fusions) engines.push_back(fusion.config.engine);
  EXPECT_THAT(engines, testing::ElementsAre("attention", "elementwise", "attention_backward"));
}

// A probability of 1/2048 is less than half of fp8_e4m3's smallest number.
TEST(Sdpa, KeepsSmallProbabilitiesInFp8) {
  constexpr int64_t kKeys = 2048;
  GraphBuilder g("fp8", Precision::allow_short_sums);
  const Tensor q = g.input("q", {1, 1, 3, 16}, DataType::f8_e4m3);
  const Tensor k = g.input("k", {1, 1, kKeys, 16}, DataType::f8_e4m3);
  const Tensor v = g.input("v", {1, 1, kKeys, 4}, DataType::f8_e4m3);
  const Tensor o = g.output(g.sdpa_fwd(q, k, v).o, {.type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(q, std::vector<double>(3 * 16, 0.0));
  run_on_cpu(graph, tensors);
  const std::vector<double> values = tensors.get(v), got = tensors.get(o);
  for (size_t column = 0; column < 4; ++column) {
    double mean = 0;
    for (size_t key = 0; key < kKeys; ++key) mean += values[key * 4 + column] / kKeys;
    for (size_t row = 0; row < 3; ++row) EXPECT_NEAR(got[row * 4 + column], mean, 1e-5);
  }
}

// A probability of 1 that dropout scales to 2 stays below the largest number of fp8_e4m3.
TEST(Sdpa, DropoutInFp8ScalesWithoutSaturating) {
  constexpr int64_t kRows = 32;
  GraphBuilder g("fp8", Precision::allow_short_sums);
  const Tensor q = g.input("q", {1, 1, kRows, 16}, DataType::f8_e4m3);
  const Tensor k = g.input("k", {1, 1, 1, 16}, DataType::f8_e4m3);
  const Tensor v = g.input("v", {1, 1, 1, 4}, DataType::f8_e4m3);
  SdpaOptions options{.attributes = {.dropout_probability = 0.5}};
  options.seed = g.input("seed", {1, 1, 1, 1}, DataType::i64);
  options.offset = g.input("offset", {1, 1, 1, 1}, DataType::i64);
  const Tensor o = g.output(g.sdpa_fwd(q, k, v, options).o, {.type = DataType::f32});
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(v, {1, 1, 1, 1});
  run_on_cpu(graph, tensors);
  EXPECT_THAT(tensors.get(o), testing::AllOf(testing::Contains(2.0), testing::Contains(0.0),
                                             testing::Each(testing::AnyOf(0.0, 2.0))));
}

// What rows behind a batch entry's lengths hold reaches no result, in neither direction.
TEST(Sdpa, RowsBehindALengthMayHoldAnything) {
  constexpr size_t kBatch = 2, kHeads = 2, kRows = 7, kElements = 8;
  const std::vector<double> lengths_q{3, 7}, lengths_kv{5, 2};
  GraphBuilder g;
  const auto real_input = [&](const char* name, int64_t elements) {
    return g.input(name, {kBatch, kHeads, kRows, elements}, DataType::f32);
  };
  SdpaOptions options{.attributes = {.padding_mask = true}};
  options.seq_len_q = g.input("seq_len_q", {kBatch, 1, 1, 1}, DataType::i32);
  options.seq_len_kv = g.input("seq_len_kv", {kBatch, 1, 1, 1}, DataType::i32);
  const Tensor q = real_input("q", kElements), k = real_input("k", kElements), v = real_input("v", kElements);
  const Tensor o = real_input("o", kElements), dy = real_input("do", kElements),
               stats = real_input("stats", 1);
  const SdpaResults forward = g.sdpa_fwd(q, k, v, options);
  const SdpaGradients back = g.sdpa_bwd(q, k, v, o, dy, stats, options);
  const std::vector<Tensor> results{g.output(forward.o, {.name = "y"}),
                                    g.output(forward.stats, {.name = "logsumexp"}), g.output(back.dq),
                                    g.output(back.dk), g.output(back.dv)};
  const Graph graph = g.finish();
  const auto results_with = [&](double hidden) {
    HostTensors tensors(graph);
    tensors.set(options.seq_len_q, lengths_q);
    tensors.set(options.seq_len_kv, lengths_kv);
    const auto hide = [&](const Tensor& x, const std::vector<double>& lengths) {
      std::vector<double> values = tensors.get(x);
      const auto elements = static_cast<size_t>(x.dims[3]);
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t row = i / elements % kRows, entry = i / elements / kRows / kHeads;
        if (static_cast<double>(row) >= lengths[entry]) values[i] = hidden;
      }
      tensors.set(x, values);
    };
    for (const Tensor& x : {q, o, dy, stats}) hide(x, lengths_q);
    for (const Tensor& x : {k, v}) hide(x, lengths_kv);
    run_on_cpu(graph, tensors);
    std::vector<std::vector<double>> found;
    found.reserve(results.size());
    for (const Tensor& result : results) found.push_back(tensors.get(result));
    return found;
  };
  const auto expected = results_with(0);
  for (const std::vector<double>& values : expected)
    for (const double value : values) ASSERT_FALSE(std::isnan(value));
  for (const double hidden : {std::nan(""), kInfinity, -kInfinity})
    EXPECT_EQ(results_with(hidden), expected) << hidden;
}

TEST(Sdpa, DumpsWhatDropoutKeeps) {
  GraphBuilder g;
  const Tensor q = g.input("q", {1, 2, 32, 8}, DataType::bf16);
  const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i64);
  SdpaOptions options{.seed = seed, .offset = offset};
  options.attributes.dropout_probability = 0.25;
  const SdpaResults all = g.sdpa_fwd(q, q, q, options);
  g.output(all.o);
  const Tensor dump = g.output(all.rng_dump);
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  double kept = 0;
  for (const double each : tensors.get(dump)) kept += each;
  EXPECT_NEAR(kept / (2 * 32 * 32), 0.75, 0.05);
}

}  // namespace
}  // namespace fusor
