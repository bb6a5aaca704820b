// Tests fusions whose reductions feed back, run over different axes, or lie between two anchors: what they
// give is what their ops give one by one.
#include "backend/reference/walks.h"

#include <algorithm>

#include "core/error.h"
#include "host_buffers.h"

namespace fusor {
namespace {

std::vector<int> all_ops(const Graph& graph) {
  std::vector<int> ops;
  for (int op = 0; op < std::ssize(graph.ops); ++op) ops.push_back(op);
  return ops;
}

void expect_as_apart(const Graph& graph, const Fusion& fusion, const std::vector<Tensor>& outputs) {
  ASSERT_NO_THROW(validate(fusion));
  for (const Reading reading : {Reading::oracle, Reading::device}) {
    HostTensors fused(graph), apart(graph);
    fused.run(fusion, reading);
    apart.run(reading);
    for (const Tensor& output : outputs) {
      const auto got = fused.get(output), want = apart.get(output);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-4 * std::max(1.0, std::fabs(want[i]))) << output.name << " " << i;
    }
  }
}

void expect_as_apart(const Graph& graph, const std::vector<Tensor>& outputs) {
  expect_as_apart(graph, make_fusion(graph, fold_views(graph), all_ops(graph)), outputs);
}

Tensor softmax(GraphBuilder& g, const Tensor& x, const Dims& axes) {
  const Tensor e = g.exp(g.sub(x, g.reduce(x, ReductionMode::max, axes)));
  return g.div(e, g.reduce(e, ReductionMode::add, axes));
}

TEST(Walks, SoftmaxIsOneExpr) {
  GraphBuilder g;
  const Tensor y = g.output(softmax(g, g.input("x", {5, 7, 300}, DataType::f32), {2}), {.name = "y"});
  const Graph graph = g.finish();
  const Fusion fusion = make_fusion(graph, fold_views(graph), all_ops(graph));
  ASSERT_EQ(fusion.sites.size(), 1u);
  EXPECT_EQ(form_of(fusion), Form::rows);
  EXPECT_EQ(result_site(fusion).stores.size(), 1u) << "totals stay inside";
  expect_as_apart(graph, fusion, {y});
}

TEST(Walks, SoftmaxAlongColumnsOfAMatmul) {
  GraphBuilder g;
  const Tensor s = g.matmul(g.input("a", {60, 32}, DataType::f32), g.input("b", {32, 90}, DataType::f32));
  const Tensor y = g.output(softmax(g, s, {0}), {.name = "y"});
  expect_as_apart(g.finish(), {y});
}

TEST(Walks, LayerNormLeavesItsStatistics) {
  GraphBuilder g;
  const Tensor x = g.input("x", {33, 500}, DataType::f16);
  const Tensor mean = g.output(g.reduce(x, ReductionMode::avg, {1}), {.name = "mean"});
  const Tensor centred = g.sub(x, mean);
  const Tensor variance = g.reduce(g.mul(centred, centred), ReductionMode::avg, {1});
  const Tensor inverse = g.output(g.rsqrt(g.add(variance, g.constant(1e-5))), {.name = "inverse"});
  const Tensor scaled = g.mul(g.mul(centred, inverse), g.input("weight", {1, 500}, DataType::f32));
  const Tensor y = g.output(g.add(scaled, g.input("bias", {1, 500}, DataType::f32)), {.name = "y"});
  const Tensor columns = g.output(g.reduce(y, ReductionMode::add, {0}), {.name = "columns"});
  expect_as_apart(g.finish(), {mean, inverse, y, columns});
}

TEST(Walks, ATotalOfTotals) {
  GraphBuilder g;
  const Tensor x = g.input("x", {40, 70}, DataType::f32);
  const Tensor rows = g.output(g.reduce(x, ReductionMode::add, {1}), {.name = "rows"});
  const Tensor most = g.output(g.reduce(g.abs(rows), ReductionMode::max, {0}), {.name = "most"});
  const Tensor y = g.output(g.div(x, most), {.name = "y"});
  expect_as_apart(g.finish(), {rows, most, y});
}

TEST(Walks, GroupsWithinGroups) {
  GraphBuilder g;
  const Tensor x = g.input("x", {12, 24, 5}, DataType::f32);
  const Tensor pairs = g.output(g.reduce_to(x, ReductionMode::add, {12, 12, 5}), {.name = "pairs"});
  const Tensor fours = g.output(g.reduce_to(x, ReductionMode::max, {12, 6, 1}), {.name = "fours"});
  const Tensor all = g.output(g.reduce(x, ReductionMode::add, {1}), {.name = "all"});
  const Tensor roots = g.output(g.sqrt(g.abs(pairs)), {.name = "roots"});
  expect_as_apart(g.finish(), {pairs, fours, all, roots});
}

TEST(Walks, GroupsThatDoNotNestAreNoFusion) {
  GraphBuilder g;
  const Tensor x = g.input("x", {12}, DataType::f32);
  g.output(g.reduce_to(x, ReductionMode::add, {4}), {.name = "a"});
  g.output(g.reduce_to(x, ReductionMode::add, {6}), {.name = "b"});
  const Graph graph = g.finish();
  EXPECT_THROW(make_fusion(graph, fold_views(graph), all_ops(graph)), Error);
}

TEST(Walks, GroupsOfAMatmulsResult) {
  GraphBuilder g;
  const Tensor y = g.matmul(g.input("a", {8, 16}, DataType::f32), g.input("b", {16, 12}, DataType::f32));
  const Tensor groups = g.output(g.reduce_to(y, ReductionMode::add, {8, 3}), {.name = "groups"});
  const Tensor rows = g.output(g.reduce_to(y, ReductionMode::add, {2, 12}), {.name = "rows"});
  expect_as_apart(g.finish(), {groups, rows});
}

TEST(Walks, AnIndexAlongAnAxisThatGroupsSplit) {
  GraphBuilder g;
  const Tensor x = g.input("x", {6, 24}, DataType::f32);
  const Tensor y = g.output(g.mul(x, g.gen_index(x, 1)), {.name = "y"});
  const Tensor groups = g.output(g.reduce_to(y, ReductionMode::add, {6, 4}), {.name = "groups"});
  expect_as_apart(g.finish(), {y, groups});
}

// Attention by hand: two products, and a softmax between them that one anchor's operand is.
struct Attention {
  GraphBuilder g;
  Tensor q = g.input("q", {20, 16}, DataType::f32), k = g.input("k", {16, 30}, DataType::f32);
  Tensor v = g.input("v", {30, 8}, DataType::f32);
  Tensor o = g.output(g.matmul(softmax(g, g.matmul(q, k), {1}), v), {.name = "o"});
  Graph graph = g.finish();

  Fusion fusion() const {
    const int last = static_cast<int>(graph.ops.size()) - 1;
    const FoldedGraph folded = fold_views(graph);
    std::vector<int> before = all_ops(graph);
    before.pop_back();
    Fusion chain = make_fusion(graph, folded, before);
    const Fusion second = make_fusion(graph, folded, std::vector<int>{last});
    chain.ops.push_back(last);
    chain.op_names.push_back(second.op_names[0]);
    const int at = static_cast<int>(chain.operands.size());
    chain.operands.insert(chain.operands.end(), second.operands.begin(), second.operands.end());
    chain.operand_names.insert(chain.operand_names.end(), second.operand_names.begin(),
                               second.operand_names.end());
    // The probabilities are yielded, not stored.
    Expr& p = result_site(chain);
    p.yields = {p.stores[0].node};
    p.stores.clear();
    const int probabilities = static_cast<int>(chain.sites.size()) - 1;
    Site values = second.sites[1], result = second.sites[2];
    for (Node& node : values.expr.nodes) node.access.operand += at;
    for (Store& store : result.expr.stores) store.access.operand += at;
    result.inputs = {{Input::From::anchor, 1}};
    chain.anchors.push_back(second.anchors[0]);
    chain.anchors[1].operands = {{.site = probabilities}, {.site = probabilities + 1}};
    chain.sites.push_back(values);
    chain.sites.push_back(result);
    return chain;
  }
};

TEST(Walks, AChainOfTwoProducts) {
  const Attention attention;
  const Fusion chain = attention.fusion();
  EXPECT_EQ(form_of(chain), Form::chain);
  expect_as_apart(attention.graph, chain, {attention.o});
}

TEST(Walks, APortMayPermuteAxes) {
  GraphBuilder g;
  const Tensor a = g.input("a", {20, 16}, DataType::f32), b = g.input("b", {16, 30}, DataType::f32);
  const Tensor y = g.output(g.matmul(a, b), {.name = "y"});
  const Graph graph = g.finish();
  Fusion fusion = make_fusion(graph, fold_views(graph), all_ops(graph));
  operand_site(fusion, 0, 1) = select_axes(operand_site(fusion, 0, 1), {1, 0});
  fusion.anchors[0].operands[1].axes = {1, 0};
  expect_as_apart(graph, fusion, {y});
}

TEST(Walks, ASiteTakesWhatAnotherYields) {
  GraphBuilder g;
  const Tensor y = g.output(softmax(g, g.input("x", {9, 40}, DataType::f16), {1}), {.name = "y"});
  const Graph graph = g.finish();
  Fusion fusion = make_fusion(graph, fold_views(graph), all_ops(graph));
  Site second = fusion.sites[0];
  Expr& first = fusion.sites[0].expr;
  first.yields = {first.stores[0].node};
  first.stores.clear();
  const DataType type = yielded_node(first).type;
  second.expr.nodes = {{.kind = Node::Kind::input, .type = type}};
  second.expr.stores[0].node = 0;
  second.inputs = {{Input::From::site, 0}};
  fusion.sites.push_back(second);
  expect_as_apart(graph, fusion, {y});
}

}  // namespace
}  // namespace fusor
