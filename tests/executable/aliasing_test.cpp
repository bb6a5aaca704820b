// Owns the tests of the aliasing rule: which tensors of a run may share memory, and what is said of the
// others.
#include "backend/aliasing.h"

#include <gmock/gmock.h>

#include "backend/build.h"
#include "backend/executable.h"
#include "core/error.h"
#include "frontend/graph_builder.h"

namespace fusor::aliasing_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

alignas(256) std::byte memory[4][1 << 16];

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Executable load_on_cpu(const Graph& graph) { return load(build(graph, DeviceInfo::cpu())); }

TEST(Aliasing, ATransposeInPlaceIsRefusedAndNamesBoth) {
  GraphBuilder g("transpose");
  const Tensor x = g.input("x", {64, 64}, DataType::f32);
  const Tensor y = g.output(g.transpose(x, {1, 0}), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_THAT(message_of([&] {
                exe.run({{x, memory[0]}, {y, memory[0]}});
              }),
              AllOf(HasSubstr("output 'y'"), HasSubstr("overlaps input 'x'"),
                    HasSubstr("reads or writes both at the same time")));
  EXPECT_NO_THROW(exe.run({{x, memory[0]}, {y, memory[1]}}));
}

TEST(Aliasing, APointwiseOpMayWorkInPlace) {
  GraphBuilder g("in place");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor y = g.output(g.neg(g.relu(x)), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(i - 8);
  exe.run({{x, values}, {y, values}});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(values[i], -static_cast<float>(std::max(i - 8, 0)));
}

TEST(Aliasing, AnOutputThatBeginsInsideOfItsInputIsRefused) {
  GraphBuilder g("shifted");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor y = g.output(g.relu(x), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_THAT(message_of([&] {
                exe.run({{x, memory[0]}, {y, memory[0] + 16}});
              }),
              HasSubstr("only where both begin at one address"));
}

// Strides of packed types count elements, several of which share a byte.
TEST(Aliasing, RowsOfPackedElementsLieWhereTheirBytesDo) {
  const auto row = [](DataType type, const Dims& dims, const Strides& strides) {
    Tensor tensor;
    tensor.type = type;
    tensor.dims = dims;
    tensor.strides = strides;
    return tensor;
  };
  // Rows of 4 bytes, 16 bytes apart.
  const Tensor x = row(DataType::i4, {4, 8}, {32, 1});
  for (int64_t distance = -60; distance <= 60; ++distance) {
    const int64_t within = ((distance % 16) + 16) % 16;
    const bool is_beside = within >= 4 && within <= 12;
    EXPECT_EQ(may_overlap(x, x, distance), !is_beside && std::abs(distance) < 52) << distance;
  }
  // A byte's elements are stored together, whoever they belong to.
  EXPECT_TRUE(may_overlap(row(DataType::i4, {8}, {2}), row(DataType::i4, {8}, {2}), 0));
  EXPECT_TRUE(may_overlap(row(DataType::b1, {4, 3}, {16, 1}), row(DataType::b1, {4, 3}, {16, 1}), 2));
  EXPECT_FALSE(may_overlap(row(DataType::b1, {4, 3}, {16, 1}), row(DataType::b1, {4, 3}, {16, 1}), 1));
  EXPECT_TRUE(may_overlap(x, row(DataType::f32, {4}, {4}), 16));
  EXPECT_FALSE(may_overlap(x, row(DataType::f32, {4}, {4}), 4));
}

TEST(Aliasing, AnotherElementSizeIsNotInPlace) {
  GraphBuilder g("narrowed");
  const Tensor x = g.input("x", {4, 4}, DataType::f32);
  const Tensor y = g.output(g.relu(x), {.name = "y", .type = DataType::f16});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_THAT(message_of([&] {
                exe.run({{x, memory[0]}, {y, memory[0]}});
              }),
              HasSubstr("overlaps input 'x'"));
}

TEST(Aliasing, ABroadcastInputIsNotReplaced) {
  GraphBuilder g("broadcast");
  const Tensor x = g.input("x", {1, 4}, DataType::f32);
  const Tensor y = g.output(g.add(x, g.input("z", {4, 4}, DataType::f32)), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  const int64_t z = exe.plan().graph.tensors[exe.plan().graph.find("z")].uid;
  EXPECT_THAT(message_of([&] {
                exe.run({{x, memory[0]}, {z, memory[1]}, {y, memory[0]}});
              }),
              HasSubstr("overlaps input 'x'"));
  EXPECT_NO_THROW(exe.run({{x, memory[0]}, {z, memory[1]}, {y, memory[1]}}));
}

TEST(Aliasing, AResidualMayBecomeTheSum) {
  GraphBuilder g("residual");
  const Tensor a = g.input("a", {8, 8}, DataType::f32);
  const Tensor r = g.input("r", {8, 8}, DataType::f32);
  const Tensor y = g.output(g.add(g.matmul(a, a), r), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_NO_THROW(exe.run({{a, memory[0]}, {r, memory[1]}, {y, memory[1]}}));
  EXPECT_THAT(message_of([&] {
                exe.run({{a, memory[0]}, {r, memory[1]}, {y, memory[0]}});
              }),
              HasSubstr("overlaps input 'a'"));
}

TEST(Aliasing, ThePlanSaysWhatMayBeReplaced) {
  GraphBuilder g("residual");
  const Tensor a = g.input("a", {8, 8}, DataType::f32);
  const Tensor r = g.input("r", {8, 8}, DataType::f32);
  const Tensor y = g.output(g.add(g.matmul(a, a), r), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_TRUE(exe.may_replace(y.uid, r.uid));
  EXPECT_FALSE(exe.may_replace(y.uid, a.uid));
  EXPECT_FALSE(exe.may_replace(r.uid, y.uid));
  EXPECT_FALSE(exe.may_replace(y.uid, 12345));
}

TEST(Aliasing, AnInputThatIsReadBeforeTheOutputIsWrittenMayBeReplaced) {
  GraphBuilder g("chain");
  const Tensor a = g.input("a", {8, 8}, DataType::f32);
  const Tensor b = g.input("b", {8, 8}, DataType::f32);
  const Tensor y = g.output(g.matmul(g.matmul(a, b), b), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_NO_THROW(exe.run({{a, memory[0]}, {b, memory[1]}, {y, memory[0]}}, memory[2]));
  EXPECT_THAT(message_of([&] {
                exe.run({{a, memory[0]}, {b, memory[1]}, {y, memory[1]}}, memory[2]);
              }),
              HasSubstr("overlaps input 'b'"));
}

TEST(Aliasing, TheWorkspaceOverlapsNothing) {
  GraphBuilder g("chain");
  const Tensor a = g.input("a", {8, 8}, DataType::f32);
  const Tensor y = g.output(g.matmul(g.matmul(a, a), a), {.name = "y"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_THAT(message_of([&] {
                exe.run({{a, memory[0]}, {y, memory[1]}}, memory[1]);
              }),
              HasSubstr("'y' (256 bytes at"));
  EXPECT_THAT(message_of([&] {
                exe.run({{a, memory[0]}, {y, memory[1]}}, memory[0]);
              }),
              HasSubstr("overlaps the workspace (256 bytes at"));
}

TEST(Aliasing, InputsMayShareAndOutputsMayNot) {
  GraphBuilder g("two");
  const Tensor a = g.input("a", {8, 8}, DataType::f32), b = g.input("b", {8, 8}, DataType::f32);
  const Tensor y = g.output(g.add(a, b), {.name = "y"}), z = g.output(g.sub(a, b), {.name = "z"});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_NO_THROW(exe.run({{a, memory[0]}, {b, memory[0] + 4}, {y, memory[1]}, {z, memory[2]}}));
  EXPECT_THAT(message_of([&] {
                exe.run({{a, memory[0]}, {b, memory[0]}, {y, memory[1]}, {z, memory[1]}});
              }),
              AllOf(HasSubstr("output 'y'"), HasSubstr("overlaps output 'z'")));
}

// Columns of one matrix: no element is in both.
TEST(Aliasing, RowsThatTakeTurnsDoNotOverlap) {
  GraphBuilder g("columns");
  const Tensor x = g.input("x", {4, 8}, DataType::f32);
  const Tensor y = g.output(g.neg(x), {.name = "y", .strides = Strides{16, 1}});
  const Tensor z = g.output(g.abs(x), {.name = "z", .strides = Strides{16, 1}});
  const Executable exe = load_on_cpu(g.finish());
  EXPECT_NO_THROW(exe.run({{x, memory[0]}, {y, memory[1]}, {z, memory[1] + 32}}));
  EXPECT_THAT(message_of([&] {
                exe.run({{x, memory[0]}, {y, memory[1]}, {z, memory[1] + 28}});
              }),
              HasSubstr("overlaps"));
}

Tensor strided(const Dims& dims, const Strides& strides) {
  Tensor tensor;
  tensor.type = DataType::f32;
  tensor.dims = dims;
  tensor.strides = strides;
  return tensor;
}

// Against all pairs of elements, over small tensors at all distances.
TEST(MayOverlap, NeverMissesASharedElement) {
  const std::vector<Tensor> tensors = {strided({4}, {1}),
                                       strided({3}, {2}),
                                       strided({3, 2}, {4, 1}),
                                       strided({2, 3}, {8, 2}),
                                       strided({2, 2, 2}, {8, 4, 1}),
                                       strided({3, 3}, {3, 1}),
                                       strided({2, 4}, {3, 1})};
  const auto places = [](const Tensor& tensor) {
    std::vector<int64_t> found;
    for (int64_t i = 0; i < element_count(tensor.dims); ++i) {
      int64_t rest = i, place = 0;
      for (int axis = tensor.dims.rank() - 1; axis >= 0; --axis) {
        place += rest % tensor.dims[axis] * tensor.strides[axis];
        rest /= tensor.dims[axis];
      }
      found.push_back(place);
    }
    return found;
  };
  int disjoint = 0;
  for (const Tensor& a : tensors)
    for (const Tensor& b : tensors)
      for (int64_t distance = -24; distance <= 24; ++distance) {
        bool shared = false;
        for (const int64_t p : places(a))
          for (const int64_t q : places(b)) shared |= p == q + distance;
        EXPECT_TRUE(!shared || may_overlap(a, b, 4 * distance)) << distance;
        disjoint += !may_overlap(a, b, 4 * distance);
      }
  EXPECT_GT(disjoint, 500);
}

}  // namespace
}  // namespace fusor::aliasing_test
