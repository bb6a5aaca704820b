// Owns the tests of how far accesses reach.
#include "backend/engines/reach.h"

#include <gtest/gtest.h>

namespace fusor {
namespace {

Expr copy_of(const Dims& domain, const Strides& strides) {
  Expr site{.domain = domain, .nodes = {}, .stores = {}, .yields = {}};
  site.nodes.emplace_back();
  site.nodes[0].access = {.operand = 0, .strides = strides};
  site.stores.push_back({.node = 0, .access = {.operand = 1, .strides = strides}});
  return site;
}

TEST(Reach, IsFromTheFirstElementToTheLast) {
  EXPECT_EQ(reach(copy_of({3, 5}, {100, 2})), 2 * 100 + 4 * 2);
  EXPECT_EQ(reach(copy_of({3, 5}, {-100, 0})), 2 * 100);
}

TEST(Reach, ValuesOfAnIndexCount) {
  Expr site = copy_of({3}, {1});
  site.nodes[0].access.indexed[0] = {.stride = 10, .extent = 7};
  EXPECT_EQ(reach(site), 2 + 6 * 10);
}

TEST(Reach, NumbersMadeOfCoordinatesCount) {
  Expr site = copy_of({3}, {1});
  Node number;
  number.kind = Node::Kind::index;
  number.access = {.operand = -1, .offset = -4, .strides = {1000}};
  site.nodes.push_back(number);
  EXPECT_EQ(reach(site), 2 * 1000 + 4);
}

TEST(IndexBits, LeaveTheLastBlockRoom) {
  constexpr int64_t kRoom = int64_t{1} << 24;
  EXPECT_EQ(index_bits(copy_of({kMaxIndex32 - kRoom}, {1})), 32);
  EXPECT_EQ(index_bits(copy_of({kMaxIndex32 - kRoom + 1}, {1})), 64);
  EXPECT_EQ(index_bits(copy_of({2, 2}, {kMaxIndex32, 1})), 64);
}

}  // namespace
}  // namespace fusor
