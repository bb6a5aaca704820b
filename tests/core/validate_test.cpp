// Tests of core/validate: what is accepted, and that no damage to a graph gets past it unseen. Messages:
// tests/errors.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "core/error.h"
#include "core/infer.h"

namespace fusor {
namespace {

Tensor tensor(const char* name, int64_t uid, const Dims& dims, Memory memory = Memory::device) {
  Tensor made{.name = name, .uid = uid, .type = DataType::f32, .dims = dims, .strides = packed_strides(dims)};
  made.memory = memory;
  return made;
}

// matmul(slice(x), w) + bias * 2
Graph sample() {
  Graph graph;
  graph.name = "sample";
  graph.tensors = {tensor("x", 1, {4, 6}),
                   tensor("w", 2, {3, 5}),
                   tensor("bias", 3, {5}),
                   tensor("two", 4, {1}, Memory::constant),
                   tensor("part", 5, {4, 3}, Memory::workspace),
                   tensor("c", 6, {4, 5}, Memory::workspace),
                   tensor("scaled", 7, {5}, Memory::workspace),
                   tensor("y", 8, {4, 5})};
  graph.ops = {{"slice1", Slice{{0, 1}, {4, 4}, {1, 1}}, {0}, {4}},
               {"matmul2", Matmul{}, {4, 1}, {5}},
               {"mul3", Pointwise{.mode = PointwiseMode::mul}, {2, 3}, {6}},
               {"add4", Pointwise{.mode = PointwiseMode::add}, {5, 6}, {7}}};
  return graph;
}

TEST(ValidateGraph, AcceptsTheSample) { EXPECT_NO_THROW(validate(sample())); }

TEST(ValidateGraph, AnyTypeIsARounding) {
  Graph graph = sample();
  graph.tensors[5].type = DataType::f8_e5m2;
  graph.tensors[7].type = DataType::i8;
  EXPECT_NO_THROW(validate(graph));
}

TEST(ValidateGraph, AnOutputMayBeReadAgain) {
  Graph graph = sample();
  graph.tensors[5].memory = Memory::device;
  EXPECT_NO_THROW(validate(graph));
}

TEST(ValidateGraph, AnInputMayGoUnread) {
  Graph graph = sample();
  graph.tensors.push_back(tensor("unread", 9, {2}));
  EXPECT_NO_THROW(validate(graph));
}

TEST(ValidateGraph, InputsMayRepeatTheirElements) {
  Graph graph = sample();
  graph.tensors[0].strides = {0, 1};
  EXPECT_NO_THROW(validate(graph));
}

TEST(ValidateGraph, UidsMayBeAnyInteger) {
  Graph graph = sample();
  graph.tensors[0].uid = 0;
  graph.tensors[1].uid = std::numeric_limits<int64_t>::min();
  EXPECT_NO_THROW(validate(graph));
}

TEST(ValidateTensor, AcceptsAnyStrideOnAnExtentOfOne) {
  Tensor x = tensor("x", 1, {1, 3});
  x.strides = {std::numeric_limits<int64_t>::max(), 1};
  EXPECT_NO_THROW(validate_written(x));
}

TEST(ValidateTensor, AcceptsSixtyFourBitExtents) {
  Tensor x = tensor("x", 1, {(int64_t{1} << 31) + 9, 3});
  EXPECT_NO_THROW(validate_written(x));
  x.type = DataType::i8;
  x.dims = {kMaxTensorBytes};
  x.strides = {1};
  EXPECT_NO_THROW(validate(x));
}

bool elements_overlap(const Tensor& x) {
  std::set<int64_t> places;
  for (int64_t i = 0; i < x.dims[0]; ++i)
    for (int64_t j = 0; j < x.dims[1]; ++j)
      for (int64_t k = 0; k < x.dims[2]; ++k)
        if (!places.insert(i * x.strides[0] + j * x.strides[1] + k * x.strides[2]).second) return true;
  return false;
}

TEST(ValidateWritten, NeverAcceptsOverlappingElements) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    Tensor x = tensor("x", 1, {1, 1, 1});
    for (int axis = 0; axis < 3; ++axis) {
      x.dims[axis] = 1 + random() % 4;
      x.strides[axis] = random() % 16;
    }
    try {
      validate_written(x);
    } catch (const Error&) {
      continue;
    }
    ++accepted;
    ASSERT_FALSE(elements_overlap(x)) << to_string(x.dims) << to_string(x.strides);
  }
  EXPECT_GT(accepted, 500);
}

// Damages one number of the sample at a time: either the graph is still valid, or an Error of bad input
// tells.
TEST(ValidateGraph, RandomDamageIsRefusedOrHarmless) {
  std::mt19937_64 random(11);
  const auto number = [&] {
    constexpr int64_t kOdd[] = {-1,
                                0,
                                1,
                                2,
                                7,
                                1000,
                                int64_t{1} << 31,
                                int64_t{1} << 62,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};
    return kOdd[random() % std::size(kOdd)];
  };
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Graph graph = sample();
    Tensor& hurt = graph.tensors[random() % graph.tensors.size()];
    Op& op = graph.ops[random() % graph.ops.size()];
    auto& slice = std::get<Slice>(graph.ops[0].attributes);
    const int axis = static_cast<int>(random() % static_cast<uint64_t>(hurt.dims.rank()));
    switch (random() % 10) {
      case 0:
        hurt.dims[axis] = number();
        break;
      case 1:
        hurt.strides[axis] = number();
        break;
      case 2:
        hurt.dims.push_back(number());
        break;
      case 3:
        hurt.memory = static_cast<Memory>(random() % 4);
        break;
      case 4:
        hurt.alignment = number();
        break;
      case 5:
        op.inputs[random() % op.inputs.size()] = static_cast<int>(number());
        break;
      case 6:
        op.outputs[0] = static_cast<int>(number());
        break;
      case 7:
        std::swap(op, graph.ops[random() % graph.ops.size()]);
        break;
      case 8:
        (random() % 2 == 0 ? slice.start : slice.limit)[axis % 2] = number();
        break;
      default:
        slice.step[axis % 2] = number();
        break;
    }
    try {
      validate(graph);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

TEST(ValidateGraph, DamagedConvolutionsAreRefusedOrHarmless) {
  std::mt19937_64 random(13);
  const auto number = [&] {
    constexpr int64_t kOdd[] = {-1,
                                0,
                                1,
                                2,
                                3,
                                int64_t{1} << 30,
                                int64_t{1} << 31,
                                int64_t{1} << 60,
                                std::numeric_limits<int64_t>::max()};
    return kOdd[random() % std::size(kOdd)];
  };
  for (int round = 0; round < 20000; ++round) {
    Conv conv;
    conv.pass = static_cast<ConvPass>(random() % 3);
    conv.pre_padding = conv.post_padding = {0, 0};
    conv.stride = conv.dilation = {1, 1};
    for (Dims* list : {&conv.pre_padding, &conv.post_padding, &conv.stride, &conv.dilation})
      if (random() % 4 == 0) (*list)[static_cast<int>(random() % 2)] = number();
    Graph graph;
    graph.tensors = {tensor("a", 1, {2, 4, 5, 5}), tensor("b", 2, {4, 4, 3, 3}),
                     tensor("r", 3, {2, 4, 3, 3})};
    for (Tensor& each : graph.tensors) {
      if (random() % 2 == 0) each.dims[static_cast<int>(random() % 4)] = number();
      each.type = DataType::i8;
      each.strides = {0, 0, 0, 0};
    }
    graph.tensors[2].strides = packed_strides({2, 4, 3, 3});
    graph.ops = {{"conv", conv, {0, 1}, {2}}};
    try {
      validate(graph);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    }
  }
}

}  // namespace
}  // namespace fusor
