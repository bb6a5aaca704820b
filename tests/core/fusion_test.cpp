// Owns the tests of forms, of what is found broken, and of the printed text.
#include "core/fusion.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/print.h"

namespace fusor {
namespace {

Operand matrix(const Dims& dims) {
  Operand operand;
  operand.elements = element_count(dims);
  return operand;
}

Expr loading(int operand, const Dims& domain) {
  Expr expr;
  expr.domain = domain;
  Node load;
  load.access = {.operand = operand, .offset = 0, .strides = packed_strides(domain)};
  expr.nodes = {load};
  expr.yields = {0};
  return expr;
}

Site storing(int operand, const Dims& domain, int anchors) {
  Site site;
  site.expr.domain = domain;
  for (int anchor = 0; anchor < anchors; ++anchor) {
    Node input;
    input.kind = Node::Kind::input;
    input.input = anchor;
    input.op = 0;
    site.expr.nodes.push_back(input);
    site.inputs.push_back({Input::From::anchor, anchor});
  }
  Store store;
  store.node = 0;
  store.access = {.operand = operand, .offset = 0, .strides = packed_strides(domain)};
  site.expr.stores = {store};
  return site;
}

// y = a x b.
Fusion product() {
  Fusion fusion;
  fusion.ops = {0};
  fusion.op_names = {"mm"};
  fusion.operands = {matrix({4, 2}), matrix({2, 3}), matrix({4, 3})};
  fusion.operand_names = {"a", "b", "y"};
  add_site(fusion, loading(0, {4, 2}));
  add_site(fusion, loading(1, {2, 3}));
  fusion.anchors = {{0, Matmul{}, {{.site = 0}, {.site = 1}}}};
  fusion.sites.push_back(storing(2, {4, 3}, 1));
  return fusion;
}

Fusion pair() {
  Fusion fusion = product();
  fusion.sites.insert(fusion.sites.begin() + 2, Site{loading(1, {2, 3})});
  fusion.anchors.push_back({0, Matmul{}, {{.site = 0}, {.site = 2}}});
  fusion.sites.back() = storing(2, {4, 3}, 2);
  return fusion;
}

TEST(Form, SaysWhatAFusionIsMadeOf) {
  EXPECT_EQ(form_of(product()), Form::contraction);
  EXPECT_EQ(form_of(pair()), Form::siblings);
  Fusion apart = pair();
  apart.anchors[1].operands[0].site = 1;
  EXPECT_EQ(form_of(apart), Form::chain) << "no operand is shared";
  Fusion copy;
  add_site(copy, loading(0, {4}));
  EXPECT_EQ(form_of(copy), Form::pointwise);
  Node total;
  total.kind = Node::Kind::reduce;
  total.over = 1;
  total.args[0] = 0;
  copy.sites[0].expr.nodes.push_back(total);
  EXPECT_EQ(form_of(copy), Form::rows);
}

TEST(Form, AnOperandThatWaitsForAnAnchorMakesAChain) {
  Fusion chain = product();
  chain.sites.back().expr.yields = {0};
  chain.anchors.push_back({0, Matmul{}, {{.site = 2}, {.site = 1}}});
  chain.sites.push_back(storing(2, {4, 3}, 2));
  EXPECT_EQ(form_of(chain), Form::chain);
}

TEST(ValidateFusion, FindsWhatIsBroken) {
  EXPECT_NO_THROW(validate(product()));
  EXPECT_NO_THROW(validate(pair()));
  const auto expect_broken = [](auto&& change, const char* what) {
    Fusion fusion = product();
    change(fusion);
    EXPECT_THROW(validate(fusion), Error) << what;
  };
  expect_broken([](Fusion& f) { f.anchors[0].operands[1].site = 3; }, "a port to no site");
  expect_broken([](Fusion& f) { f.anchors[0].operands[1].yield = 1; }, "a port to no yield");
  expect_broken([](Fusion& f) { f.anchors[0].operands[1].site = 2; }, "an anchor waits for its own result");
  expect_broken([](Fusion& f) { f.sites[2].inputs[0].at = 1; }, "an input from no anchor");
  expect_broken([](Fusion& f) { f.sites[2].inputs.clear(); }, "a node that names no input");
  expect_broken([](Fusion& f) { f.sites[0].expr.nodes[0].access.operand = 7; }, "a load of no operand");
  expect_broken(
      [](Fusion& f) {
        f.sites.clear();
        f.anchors.clear();
      },
      "nothing at all");
}

TEST(PrintFusion, ShowsSitesAndAnchorsInOrder) {
  Fusion fusion = product();
  Expr& y = result_site(fusion);
  Node total;
  total.kind = Node::Kind::reduce;
  total.reduction.mode = ReductionMode::max;
  total.over = 0b10;
  total.args[0] = 0;
  y.nodes.push_back(total);
  y.stores.push_back({.node = 1, .type = DataType::f16, .access = {2, 8, {1, 0}}});
  EXPECT_EQ(print(fusion), R"(contraction of mm
site 0 over [4, 2]
  v0: fp32 = load o0 'a' [2, 1]
  yield v0
site 1 over [2, 3]
  v0: fp32 = load o1 'b' [3, 1]
  yield v0
anchor 0 = matmul (site 0.0) (site 1.0)  // mm
site 2 over [4, 3] from anchor 0
  v0: fp32 = input 0  // mm
  v1: fp32 = reduce max v0 over 1
  store fp32 v0 -> o2 'y' [3, 1]
  store fp16 v1 -> o2 'y' + 8 [1, 0]
)");
}

}  // namespace
}  // namespace fusor
