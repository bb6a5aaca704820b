// Tests of core/infer: dims, strides and types of every op's result. Mistakes are in tests/errors.
#include "core/infer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace fusor {
namespace {

Tensor tensor(const Dims& dims, DataType type = DataType::f32, Layout layout = Layout::row_major) {
  return {.name = "t", .uid = 0, .type = type, .dims = dims, .strides = packed_strides(dims, layout)};
}

Tensor strided(const Dims& dims, const Strides& strides) {
  Tensor made = tensor(dims);
  made.strides = strides;
  return made;
}

std::vector<const Tensor*> pointers(const std::vector<Tensor>& operands) {
  std::vector<const Tensor*> result(operands.size());
  std::ranges::transform(operands, result.begin(), [](const Tensor& operand) { return &operand; });
  return result;
}

Inferred infer_of(const Attributes& attributes, const std::vector<Tensor>& operands, const Dims& given = {}) {
  return infer("op", attributes, pointers(operands), given);
}

DataType compute_of(const Attributes& attributes, const std::vector<Tensor>& operands) {
  return default_compute(attributes, pointers(operands));
}

Pointwise pointwise(PointwiseMode mode, DataType compute = DataType::f32) {
  return {.mode = mode, .compute = compute};
}

Conv conv(ConvPass pass, int spatial) {
  Conv made;
  made.pass = pass;
  made.pre_padding = made.post_padding = Dims::filled(spatial, 0);
  made.stride = made.dilation = Dims::filled(spatial, 1);
  return made;
}

TEST(InferPointwise, BroadcastsAllOperands) {
  const Inferred y = infer_of(pointwise(PointwiseMode::binary_select),
                              {tensor({4, 1}), tensor({3, 1, 5}), tensor({1}, DataType::b8)});
  EXPECT_EQ(y.dims, (Dims{3, 4, 5}));
  EXPECT_EQ(y.strides, (Strides{20, 5, 1}));
  EXPECT_EQ(y.type, DataType::f32);
}

TEST(InferPointwise, FollowsTheFirstOperandOfTheResultsDims) {
  const Dims dims{2, 3, 4, 5};
  const Inferred y = infer_of(pointwise(PointwiseMode::add),
                              {tensor({1, 3, 1, 1}), tensor(dims, DataType::f16, Layout::nhwc)});
  EXPECT_EQ(y.strides, packed_strides(dims, Layout::nhwc));
}

TEST(InferPointwise, ResultOfAStridedOperandIsPacked) {
  EXPECT_EQ(infer_of(pointwise(PointwiseMode::neg), {strided({2, 3}, {100, 10})}).strides, (Strides{3, 1}));
}

TEST(InferPointwise, ComparisonsAndLogicGiveBooleans) {
  for (const PointwiseMode mode : {PointwiseMode::cmp_eq, PointwiseMode::cmp_lt, PointwiseMode::logical_or})
    EXPECT_EQ(infer_of(pointwise(mode), {tensor({2}), tensor({2})}).type, DataType::b8);
  EXPECT_EQ(infer_of(pointwise(PointwiseMode::logical_not), {tensor({2})}).type, DataType::b8);
}

TEST(Infer, APointwiseOpMayBeGivenWiderDims) {
  const Tensor column = tensor({2, 1});
  const Tensor* const inputs[] = {&column};
  const Pointwise identity = pointwise(PointwiseMode::identity);
  EXPECT_EQ(infer("wide", identity, inputs, {4, 2, 3}).dims, (Dims{4, 2, 3}));
  EXPECT_THROW(infer("wide", identity, inputs, {4, 3, 3}), Error);
}

TEST(InferPointwise, GenIndexGivesTheIntegerThatCountsTheAxis) {
  Pointwise op = pointwise(PointwiseMode::gen_index, DataType::i32);
  op.axis = 1;
  EXPECT_EQ(infer_of(op, {tensor({2, 3})}).type, DataType::i32);
  EXPECT_EQ(infer_of(op, {tensor({2, 3})}).dims, (Dims{2, 3}));
  const int64_t last_int32 = int64_t{1} << 31;  // the greatest coordinate is one less
  EXPECT_EQ(infer_of(op, {tensor({2, last_int32})}).type, DataType::i32);
  EXPECT_EQ(infer_of(op, {tensor({2, last_int32 + 1})}).type, DataType::i64);
}

TEST(InferReduction, TakesWholeAndGroupedAxes) {
  const Tensor x = tensor({4, 6, 8, 2}, DataType::f16, Layout::nhwc);
  const Inferred y = infer_of(Reduction{}, {x}, {1, 6, 4, 2});
  EXPECT_EQ(y.dims, (Dims{1, 6, 4, 2}));
  EXPECT_EQ(y.strides, packed_strides({1, 6, 4, 2}, Layout::nhwc));
  EXPECT_EQ(y.type, DataType::f32);
}

TEST(InferMatmul, BroadcastsBatchesBothWays) {
  const Inferred c = infer_of(Matmul{}, {tensor({5, 1, 2, 3}), tensor({7, 3, 4})});
  EXPECT_EQ(c.dims, (Dims{5, 7, 2, 4}));
  EXPECT_EQ(c.strides, packed_strides({5, 7, 2, 4}));
}

TEST(InferMatmul, TransposedOperandsStillGiveARowMajorResult) {
  EXPECT_EQ(infer_of(Matmul{}, {strided({2, 3}, {1, 2}), tensor({3, 4})}).strides, (Strides{4, 1}));
}

// The extent is the number of places at which the dilated window lies inside the padded input.
TEST(InferConv, ForwardExtentCountsWindowPlaces) {
  for (int64_t extent = 1; extent <= 9; ++extent)
    for (int64_t window = 1; window <= 3; ++window)
      for (int64_t stride = 1; stride <= 3; ++stride)
        for (int64_t dilation = 1; dilation <= 3; ++dilation)
          for (int64_t pre = 0; pre <= 2; ++pre) {
            Conv op = conv(ConvPass::fprop, 1);
            op.pre_padding = {pre};
            op.post_padding = {1};
            op.stride = {stride};
            op.dilation = {dilation};
            int64_t places = 0;
            for (int64_t at = -pre; at + dilation * (window - 1) < extent + 1; at += stride) ++places;
            const std::vector<Tensor> operands{tensor({1, 1, extent}), tensor({1, 1, window})};
            if (places == 0)
              EXPECT_THROW(infer_of(op, operands), Error);
            else
              EXPECT_EQ(infer_of(op, operands).dims, (Dims{1, 1, places}));
          }
}

TEST(InferConv, ResultHasTheLayoutOfTheFirstOperand) {
  const Inferred y = infer_of(conv(ConvPass::fprop, 2), {tensor({2, 8, 5, 6}, DataType::f16, Layout::nhwc),
                                                         tensor({12, 8, 3, 3}, DataType::f16)});
  EXPECT_EQ(y.dims, (Dims{2, 12, 3, 4}));
  EXPECT_EQ(y.strides, packed_strides(y.dims, Layout::nhwc));
  EXPECT_EQ(y.type, DataType::f32);
}

TEST(InferConv, GroupsFollowFromTheChannels) {
  const Inferred y = infer_of(conv(ConvPass::fprop, 3), {tensor({1, 8, 4, 4, 4}), tensor({12, 2, 1, 2, 3})});
  EXPECT_EQ(y.dims, (Dims{1, 12, 4, 3, 2}));
  EXPECT_EQ(conv_groups({}, {1, 8, 4, 4, 4}, {12, 2, 1, 2, 3}), 4);
}

TEST(InferConv, BackwardPassesGiveTheDimsAskedFor) {
  Conv op = conv(ConvPass::fprop, 2);
  op.pre_padding = {1, 0};
  op.post_padding = {0, 1};
  op.stride = {2, 2};
  const Dims x{2, 6, 7, 8};
  const Dims w{4, 3, 3, 3};
  const Dims y = infer_of(op, {tensor(x), tensor(w)}).dims;
  EXPECT_EQ(y, (Dims{2, 4, 3, 4}));
  op.pass = ConvPass::dgrad;
  EXPECT_EQ(infer_of(op, {tensor(y), tensor(w)}, x).dims, x);
  op.pass = ConvPass::wgrad;
  const Inferred dw = infer_of(op, {tensor(y, DataType::f16, Layout::nhwc), tensor(x)}, w);
  EXPECT_EQ(dw.dims, w);
  EXPECT_EQ(dw.strides, packed_strides(w, Layout::nhwc));
}

TEST(InferReshape, IsRowMajorOfTheSameElements) {
  const Inferred y = infer_of(Reshape{}, {tensor({2, 6}, DataType::i8)}, {3, 4});
  EXPECT_EQ(y.dims, (Dims{3, 4}));
  EXPECT_EQ(y.strides, (Strides{4, 1}));
  EXPECT_EQ(y.type, DataType::i8);
}

TEST(InferTranspose, PermutesDimsAndIsRowMajor) {
  const Inferred y = infer_of(Transpose{{2, 0, 1}}, {tensor({2, 3, 4}, DataType::bf16)});
  EXPECT_EQ(y.dims, (Dims{4, 2, 3}));
  EXPECT_EQ(y.strides, (Strides{6, 3, 1}));
  EXPECT_EQ(y.type, DataType::bf16);
}

TEST(InferSlice, CountsTheStepsInside) {
  const Inferred y = infer_of(Slice{{1, 0, 2}, {8, 3, 3}, {3, 1, 9}}, {tensor({8, 3, 5}, DataType::f16)});
  EXPECT_EQ(y.dims, (Dims{3, 3, 1}));
  EXPECT_EQ(y.type, DataType::f16);
}

TEST(InferConcatenate, SumsTheAxis) {
  const Dims dims{2, 3, 4, 5};
  const Tensor first = tensor(dims, DataType::f16, Layout::nhwc);
  const Inferred y = infer_of(Concatenate{1}, {first, tensor({2, 1, 4, 5}, DataType::f16), first});
  EXPECT_EQ(y.dims, (Dims{2, 7, 4, 5}));
  EXPECT_EQ(y.strides, packed_strides({2, 7, 4, 5}, Layout::nhwc));
  EXPECT_EQ(y.type, DataType::f16);
}

TEST(Infer, ChecksGivenDimsOfEveryOp) {
  EXPECT_EQ(infer_of(pointwise(PointwiseMode::neg), {tensor({2, 3})}, {2, 3}).dims, (Dims{2, 3}));
  EXPECT_THROW(infer_of(pointwise(PointwiseMode::neg), {tensor({2, 3})}, {3, 2}), Error);
  EXPECT_THROW(infer_of(Matmul{}, {tensor({2, 3}), tensor({3, 4})}, {2, 3}), Error);
}

TEST(DefaultCompute, IsTheWidestKindOfTheOperands) {
  const Pointwise add = pointwise(PointwiseMode::add);
  EXPECT_EQ(compute_of(add, {tensor({1}, DataType::f16), tensor({1}, DataType::f64)}), DataType::f64);
  EXPECT_EQ(compute_of(add, {tensor({1}, DataType::i64), tensor({1}, DataType::f8_e4m3)}), DataType::f32);
  EXPECT_EQ(compute_of(add, {tensor({1}, DataType::i64), tensor({1}, DataType::u8)}), DataType::i64);
  EXPECT_EQ(compute_of(add, {tensor({1}, DataType::i8), tensor({1}, DataType::b8)}), DataType::i32);
}

TEST(DefaultCompute, RealModesComputeIntegersAsReals) {
  EXPECT_EQ(compute_of(pointwise(PointwiseMode::exp), {tensor({1}, DataType::i64)}), DataType::f32);
  EXPECT_EQ(compute_of(Reduction{.mode = ReductionMode::avg}, {tensor({2}, DataType::i32)}), DataType::f32);
  EXPECT_EQ(compute_of(Reduction{.mode = ReductionMode::norm2}, {tensor({2}, DataType::i8)}), DataType::f32);
  EXPECT_EQ(compute_of(Reduction{.mode = ReductionMode::norm1}, {tensor({2}, DataType::i8)}), DataType::i32);
  EXPECT_EQ(compute_of(Reduction{.mode = ReductionMode::avg}, {tensor({2}, DataType::f64)}), DataType::f64);
}

TEST(DefaultCompute, IntegerContractionsAccumulateInInt32) {
  EXPECT_EQ(compute_of(Matmul{}, {tensor({2, 2}, DataType::i8), tensor({2, 2}, DataType::u8)}),
            DataType::i32);
  EXPECT_EQ(compute_of(Conv{}, {tensor({1, 1, 2}, DataType::u8), tensor({1, 1, 2}, DataType::i8)}),
            DataType::i32);
}

TEST(DefaultCompute, GenIndexIsAnInteger) {
  EXPECT_EQ(compute_of(pointwise(PointwiseMode::gen_index), {tensor({4}, DataType::f64)}), DataType::i32);
  EXPECT_EQ(compute_of(pointwise(PointwiseMode::gen_index), {tensor({int64_t{1} << 40})}), DataType::i64);
}

TEST(OpLabel, TellsReductionsFromPointwiseOps) {
  EXPECT_EQ(op_label("a", Pointwise{.mode = PointwiseMode::add}), "add 'a'");
  EXPECT_EQ(op_label("a", Reduction{.mode = ReductionMode::add}), "add reduction 'a'");
  EXPECT_EQ(op_label("c1", Conv{}), "conv_fprop 'c1'");
}

}  // namespace
}  // namespace fusor
