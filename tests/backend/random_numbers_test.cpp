// Tests random numbers and dropout: Philox's own vectors, the same bits in both readings, and their
// statistics.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "backend/build.h"
#include "core/ops/expansion.h"
#include "serialization/serialization.h"
#include "tests/backend/cpu_run.h"

namespace fusor {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Salmon et al. 2011, kat_vectors of their library: counter and key all zeros, all ones, and digits of pi.
// Words 0 to 3 of a block are those of four indices; a block's number has two bits less than its index.
TEST(Philox, GivesThePublishedWords) {
  GraphBuilder g;
  const Tensor seed = g.input("seed", {3, 1}, DataType::i64),
               offset = g.input("offset", {3, 1}, DataType::i64);
  const Tensor index = g.input("index", {3, 4}, DataType::i64);
  const Tensor words = g.output(g.philox(seed, offset, index));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  const auto fill = [&](const Tensor& x, std::vector<uint64_t> values) {
    void* to = tensors.pointers()[static_cast<size_t>(graph.find_uid(x.uid))];
    std::memcpy(to, values.data(), values.size() * 8);
  };
  fill(seed, {0, ~uint64_t{0}, 0x299f31d0a4093822});
  fill(offset, {0, ~uint64_t{0}, 0x85a308d3243f6a88});
  const uint64_t last = ~uint64_t{0} - 3, pi = uint64_t{0x0370734413198a2e} << 2;
  fill(index, {0, 1, 2, 3, last, last + 1, last + 2, last + 3, pi, pi + 1, pi + 2, pi + 3});
  run_on_cpu(graph, tensors);
  const std::vector<double> all = tensors.get(words);
  EXPECT_THAT(std::vector<double>(all.begin(), all.begin() + 4),
              testing::ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(std::vector<double>(all.begin() + 8, all.end()),
              testing::ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

std::vector<double> drawn(const RngOptions& options, const Dims& dims, double seed) {
  GraphBuilder g;
  const Tensor y =
      g.output(g.rng(dims, g.input("seed", {1}, DataType::i64), g.scalar("offset", DataType::i32), options));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  tensors.set(graph.tensors[static_cast<size_t>(graph.find("seed"))], {seed});
  tensors.set(graph.tensors[static_cast<size_t>(graph.find("offset"))], {3});
  run_on_cpu(graph, tensors);
  return tensors.get(y);
}

TEST(Rng, DoesNotDependOnTheShape) {
  const auto flat = drawn({}, {2 * 33 * 70}, 11), folded = drawn({}, {2, 33, 1, 70}, 11);
  EXPECT_EQ(flat, folded);
  EXPECT_NE(flat, drawn({}, {2 * 33 * 70}, 12));
}

TEST(Rng, HasItsDistributions) {
  const Dims dims{100, 200};
  const auto uniform = drawn({.low = -1, .high = 3}, dims, 5);
  EXPECT_NEAR(mean(uniform), 1, 0.05);
  EXPECT_GE(*std::ranges::min_element(uniform), -1);
  EXPECT_LT(*std::ranges::max_element(uniform), 3);
  EXPECT_NEAR(mean(drawn({.distribution = Distribution::bernoulli, .probability = 0.3}, dims, 5)), 0.3, 0.02);
  auto normal = drawn({.distribution = Distribution::normal, .mean = 2, .deviation = 0.5}, dims, 5);
  EXPECT_NEAR(mean(normal), 2, 0.02);
  for (double& value : normal) value = (value - 2) * (value - 2);
  EXPECT_NEAR(std::sqrt(mean(normal)), 0.5, 0.02);
}

TEST(Rng, TakesSeedsOfAnyRank) {
  GraphBuilder g;
  const Tensor seed = g.input("seed", {1, 1, 1, 1}, DataType::i64);
  const Tensor y = g.output(g.rng({5, 3}, seed, seed, {.distribution = Distribution::normal}));
  const Graph graph = g.finish();
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  EXPECT_EQ(y.dims, (Dims{5, 3}));
}

TEST(Dropout, ScalesWhatItKeepsAndSaysSo) {
  GraphBuilder g;
  const Tensor x = g.input("x", {64, 100}, DataType::f32);
  const DropoutResults all =
      g.dropout(x, g.input("seed", {1}, DataType::i64), g.input("offset", {1}, DataType::i64), 0.2);
  const Tensor y = g.output(all.y), mask = g.output(all.mask);
  const Graph graph = g.finish();
  EXPECT_EQ(mask.type, DataType::b8);
  HostTensors tensors(graph);
  run_on_cpu(graph, tensors);
  const auto in = tensors.get(x), out = tensors.get(y), kept = tensors.get(mask);
  EXPECT_NEAR(mean(kept), 0.8, 0.02);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(out[i], kept[i] != 0 ? in[i] * 1.25 : 0, 1e-6);
}

TEST(Rng, IsPlannedOnEveryDeviceAndSurvivesAFile) {
  GraphBuilder g;
  const Tensor seed = g.scalar("seed", DataType::i64), offset = g.scalar("offset", DataType::i64);
  for (const Distribution distribution :
       {Distribution::bernoulli, Distribution::uniform, Distribution::normal})
    g.output(g.rng({7, 129}, seed, offset, {.distribution = distribution}));
  g.output(g.dropout(g.input("x", {8, 8}, DataType::bf16), seed, offset, 0.5).y);
  const Graph graph = g.finish();
  EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  for (const DeviceInfo& device : DeviceInfo::profiles()) build(graph, device, {.compile = false});
}

TEST(Rng, HasAKernel) {
  GraphBuilder g;
  const Tensor x = g.input("x", {256, 512}, DataType::bf16);
  g.output(g.dropout(x, g.scalar("seed", DataType::i64), g.scalar("offset", DataType::i64), 0.1).y);
  const Plan plan = build(g.finish(), DeviceInfo::named("h200"));
  EXPECT_EQ(plan.fusions.size(), 1U);
  const std::string text = source(plan);
  // A block of words serves four elements; one axis, counters whose upper half is 0, and one comparison of 32
  // bits an element.
  EXPECT_THAT(text, testing::HasSubstr("RandomWords<N, 1, 0>"));
  EXPECT_THAT(text, testing::HasSubstr("kRank = 1 }"));
  EXPECT_THAT(text, testing::HasSubstr("i64(u32("));
  EXPECT_THAT(text, testing::HasSubstr("= is_word_below("));
}

std::string text_of(const std::function<void(GraphBuilder&, const Tensor& seed)>& make) {
  GraphBuilder g;
  make(g, g.scalar("seed", DataType::i64));
  return source(build(g.finish(), DeviceInfo::named("h200"), {.compile = false}));
}

// An index that may be negative or exceed 31 bits is widened to a counter of 64 bits.
TEST(Rng, CountersKeepTheirUpperHalves) {
  using testing::HasSubstr, testing::Not;
  EXPECT_THAT(text_of([](GraphBuilder& g, const Tensor& seed) {
                g.output(g.philox(seed, seed, g.input("index", {64}, DataType::i32)));
              }),
              Not(HasSubstr("i64(u32(")));
  EXPECT_THAT(text_of([](GraphBuilder& g, const Tensor& seed) {
                const Tensor at = g.gen_index(g.input("x", {64, 2}, DataType::i32), 0);
                g.output(g.philox(seed, seed, g.sub(at, g.constant(1, DataType::i32))));
              }),
              Not(HasSubstr("i64(u32(")));
  EXPECT_THAT(text_of([](GraphBuilder& g, const Tensor& seed) {
                g.output(g.rng({1 << 16, 1 << 16}, seed, seed, {.distribution = Distribution::bernoulli}));
              }),
              testing::AllOf(Not(HasSubstr("i64(u32(")), HasSubstr("RandomWords<N, 1, 0>")));
}

// Neighbours share a block of words where the step from one to the next says in which words of a block they
// are.
TEST(Rng, NeighboursShareBlocksOfWordsWherePlacesAreKnown) {
  using testing::HasSubstr, testing::Not;
  const auto drawn_along = [](Strides strides, RngOptions options) {
    return text_of([&](GraphBuilder& g, const Tensor& seed) {
      g.output(g.rng({6, 8, 32}, seed, seed, options), {.strides = strides});
    });
  };
  const RngOptions uniform, normal{.distribution = Distribution::normal};
  EXPECT_THAT(drawn_along({256, 32, 1}, uniform), HasSubstr("RandomWords<N, 1, 0>"));
  EXPECT_THAT(drawn_along({8, 1, 48}, uniform), Not(HasSubstr("RandomWords<")));
  EXPECT_THAT(drawn_along({256, 32, 1}, normal),
              testing::AllOf(HasSubstr("RandomWords<N, 2, 0>"), HasSubstr("RandomWords<N, 2, 1>")));
  // Rows of 33 elements that lie apart begin in any word of a block.
  EXPECT_THAT(text_of([](GraphBuilder& g, const Tensor& seed) {
                g.output(g.rng({6, 33}, seed, seed, {}), {.strides = Strides{40, 1}});
              }),
              Not(HasSubstr("RandomWords<")));
}

// Softmax and dropout, or a norm behind it, are one kernel of rows whose neighbours share blocks.
TEST(Dropout, InRowsSharesBlocksOfWords) {
  EXPECT_THAT(text_of([](GraphBuilder& g, const Tensor& seed) {
                const Tensor x = g.input("x", {256, 512}, DataType::bf16);
                g.output(g.dropout(g.softmax(x).y, seed, seed, 0.1).y);
              }),
              testing::AllOf(testing::HasSubstr("kPhases"), testing::HasSubstr("RandomWords<N, 1, 0>")));
}

// A tensor whose rows lie apart keeps its axes; its elements have the same numbers.
TEST(Dropout, CountersOfRowsThatLieApart) {
  EXPECT_THAT(text_of([](GraphBuilder& g, const Tensor& seed) {
                const Tensor x = g.input("x", {256, 512}, DataType::bf16, {.strides = Strides{520, 1}});
                g.output(g.dropout(x, seed, seed, 0.1).y, {.strides = Strides{520, 1}});
              }),
              testing::AllOf(testing::HasSubstr("kRank = 2 }"), testing::HasSubstr("i64(u32(")));
}

}  // namespace
}  // namespace fusor
