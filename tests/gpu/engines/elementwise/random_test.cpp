// Owns the tests of random numbers, block scales, pages and attention on the GPU: each against the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "frontend/graph_builder.h"
#include "tests/gpu/device_run.h"

namespace fusor {
namespace {

TEST(RandomGpu, GivesTheOraclesNumbers) {
  FUSOR_NEEDS_GPU();
  for (const Distribution distribution :
       {Distribution::bernoulli, Distribution::uniform, Distribution::normal})
    for (const Dims& dims : {Dims{100003}, Dims{3, 17, 129}}) {
      GraphBuilder g("rng");
      const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i32);
      g.output(g.rng(dims, seed, offset, {.distribution = distribution}));
      expect_correct(g.finish(), fmt::format("distribution {}", static_cast<int>(distribution)));
    }
}

TEST(RandomGpu, DropoutAndItsMask) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("dropout");
  const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i64);
  const DropoutResults all = g.dropout(g.input("x", {512, 1000}, DataType::bf16), seed, offset, 0.1);
  g.output(all.y);
  g.output(all.mask);
  expect_correct(g.finish(), "dropout");
}

// Axes that merge and axes that do not, rows the other way round, one axis of one element.
TEST(RandomGpu, DropoutOfStridedTensors) {
  FUSOR_NEEDS_GPU();
  const Dims dims{5, 33, 65};
  for (const Strides& strides :
       {Strides{33 * 65, 65, 1}, {33 * 72, 72, 1}, {65, 5 * 65, 1}, {33 * 65, 1, 33}})
    for (const DataType type : {DataType::bf16, DataType::f32}) {
      GraphBuilder g("dropout");
      const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i64);
      const DropoutResults all = g.dropout(g.input("x", dims, type, {.strides = strides}), seed, offset, 0.3);
      g.output(all.y, {.name = "y", .type = type, .strides = strides});
      g.output(all.mask, {.name = "mask"});
      expect_every_candidate_correct(g.finish(), "dropout " + to_string(strides));
    }
}

// All, none, and what is next to both: the limit of a word is up to 2^32.
TEST(RandomGpu, BernoulliOfExtremeProbabilities) {
  FUSOR_NEEDS_GPU();
  for (const double probability : {0.0, 0x1p-32, 0.5, 1 - 0x1p-32, 1.0}) {
    GraphBuilder g("rng");
    const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i64);
    g.output(g.rng({1000, 77}, seed, offset,
                   {.distribution = Distribution::bernoulli, .probability = probability}));
    expect_correct(g.finish(), fmt::format("probability {}", probability));
  }
}

// Counters whose upper half is not zero: negative indices, and such of 64 bits.
TEST(RandomGpu, WordsOfGivenIndices) {
  FUSOR_NEEDS_GPU();
  for (const DataType type : {DataType::i32, DataType::i64}) {
    GraphBuilder g("words");
    const Tensor seed = g.input("seed", {1}, DataType::i64), offset = g.input("offset", {1}, DataType::i64);
    const Tensor index = g.sub(g.input("index", {4099}, type), g.gen_index(g.input("x", {4099}, type), 0));
    g.output(g.philox(seed, offset, index));
    expect_correct(g.finish(), std::string(to_string(type)));
  }
}

TEST(BlockScaleGpu, Mxfp8AndBack) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("mxfp8");
  const BlockScaleResults all = g.block_scale_quantize(g.input("x", {256, 512}, DataType::bf16));
  g.output(all.y);
  g.output(all.scale);
  g.output(g.block_scale_dequantize(all.y, all.scale));
  expect_correct(g.finish(), "mxfp8");
}

TEST(SdpaGpu, ForwardWithLengthsAndGroups) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("sdpa");
  const Tensor q = g.input("q", {2, 4, 100, 64}, DataType::f16),
               k = g.input("k", {2, 2, 130, 64}, DataType::f16);
  const Tensor v = g.input("v", {2, 2, 130, 64}, DataType::f16);
  SdpaOptions options{.attributes = {.attn_scale = 0.125, .right_bound = 0, .alibi_mask = true}};
  const SdpaResults all = g.sdpa_fwd(q, k, v, options);
  g.output(all.o);
  g.output(all.stats);
  expect_correct(g.finish(), "sdpa forward");
}

TEST(SdpaGpu, Backward) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("sdpa_bwd");
  const Dims dims{1, 2, 96, 32};
  std::vector<Tensor> x;
  for (const char* name : {"q", "k", "v", "o", "do"}) x.push_back(g.input(name, dims, DataType::f16));
  const Tensor stats = g.input("stats", {1, 2, 96, 1}, DataType::f32);
  const SdpaGradients all = g.sdpa_bwd(x[0], x[1], x[2], x[3], x[4], stats,
                                       {.attributes = {.attn_scale = 0.125, .right_bound = 0}});
  for (const Tensor& gradient : {all.dq, all.dk, all.dv}) g.output(gradient);
  expect_correct(g.finish(), "sdpa backward");
}

TEST(PagesGpu, PagedKeysAndExperts) {
  FUSOR_NEEDS_GPU();
  GraphBuilder g("pages");
  const Tensor container = g.input("container", {8, 2, 16, 64}, DataType::bf16);
  const Tensor like = g.input("like", {3, 1, 4, 1}, DataType::f32);
  const Tensor table = g.add(g.gen_index(like, 0), g.mul(g.gen_index(like, 2), g.constant(2, DataType::i32)));
  g.output(g.paged_cache_load(container, table, {.max_seq_len = 50}));
  const Tensor first =
      g.mul(g.gen_index(g.input("experts", {4, 1, 1}, DataType::f32), 0), g.constant(13, DataType::i32));
  g.output(g.moe_grouped_matmul(g.input("tokens", {48, 64}, DataType::f16),
                                g.input("w", {4, 64, 32}, DataType::f16), first));
  expect_correct(g.finish(), "pages and experts");
}

}  // namespace
}  // namespace fusor
